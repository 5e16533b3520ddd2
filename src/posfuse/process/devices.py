"""Which GPUs a run gets that goes on beside others on this machine."""

import fcntl
import os
import sys
import time
from pathlib import Path
from typing import IO

from posfuse.errors import InputError

PLACES = ".places"  # in the sweep's folder: a lock for each place
held: list[IO[str]] = []  # the lock of this process's place, the kernel's: it ends with the process


def gpus() -> list[str]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    import torch

    n = torch.cuda.device_count()  # names behind one that is none do not count, as -1
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return [name.strip() for name in named.split(",")][:n] if named else list(map(str, range(n)))


def places(gpus: list[str], runs_per_gpu: int, devices: int) -> list[str]:
    """The GPUs of each run that may go on at once: `devices` for a run, or `runs_per_gpu` runs on
    each. Runs that are fewer than the places are spread over all GPUs. Raises InputError where
    there are not enough for one."""
    if devices > len(gpus):
        raise InputError(
            f"trainer.devices: {devices} GPUs for a run, and there are {len(gpus)} "
            f"({','.join(gpus)}); lower it, or see CUDA_VISIBLE_DEVICES"
        )
    groups = [gpus[i : i + devices] for i in range(0, len(gpus) - devices + 1, devices)]
    return [",".join(group) for group in groups] * runs_per_gpu


def runs_at_once(asked: int, room: int, has_room: str, more: str) -> int:
    """How many runs go on at once; `asked` is joblib's n_jobs, -1 as many as there is room for.
    Raises InputError where that is more; `has_room` names what has the room, `more` the key that
    gives it more."""
    n = asked if asked >= 0 else max(1, room + 1 + asked)
    if n > room:
        raise InputError(
            f"hydra.launcher.n_jobs: {n} runs at once, {has_room} room for {room}; use that, or "
            f"raise hydra.launcher.{more}"
        )
    return n


def take(places: list[str], sweep: Path) -> str:
    """Hold a place that no other process of the sweep holds, for as long as this one lives."""
    folder = sweep / PLACES
    folder.mkdir(exist_ok=True)
    looks = 0
    while True:
        for number, place in enumerate(places):
            lock = (folder / str(number)).open("a")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.close()
                continue
            held.append(lock)
            return place
        looks += 1
        if looks == 20:
            print(f"another command holds every place of {folder}: waiting", file=sys.stderr)
        time.sleep(0.1)  # a process that ends gives its place back
