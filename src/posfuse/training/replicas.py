"""One run on several devices of a machine, one process for each device.

Rank 0 is the launching process. It starts the other processes, and only it writes files.
Lightning's own launcher restarts the whole command in each process, which does not work in a sweep.
"""

import json
import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from posfuse import errors
from posfuse.config import Config
from posfuse.process import signals
from posfuse.process.distributed import RANK, rank, world_size
from posfuse.process.threads import OMP_THREADS

EXIT_SECONDS = 60  # time limit for the others to exit after rank 0 has finished
RUN = "posfuse.training.run"  # its `main` is the command of the other processes
FAILURE_SECONDS = 30.0  # the same limit after a failure in rank 0


@contextmanager
def replicas(cfg: Config, folder: Path) -> Iterator[None]:
    """Start the run's other processes, and end them after the block. They read config.yaml of
    `folder`."""
    if cfg.trainer.devices == 1 or rank() > 0:
        yield
        return
    # Lightning logs a line for each process.
    logging.getLogger("lightning.fabric").setLevel(logging.WARNING)
    store = _store()  # needed until the end: torch finds it by its port
    group = {
        "MASTER_ADDR": store.host, "MASTER_PORT": str(store.port), "LOCAL_RANK": "0",
        "NODE_RANK": "0", OMP_THREADS: str(torch.get_num_threads()),
    }  # fmt: skip
    before = {name: os.environ[name] for name in group if name in os.environ}
    processes: list[subprocess.Popen[bytes]] = []
    try:
        os.environ.update(group)
        for number in range(1, cfg.trainer.devices):
            processes.append(_start(number, folder))
        yield
        with suppress(subprocess.TimeoutExpired):
            for process in processes:
                process.wait(EXIT_SECONDS)
    except RuntimeError as error:
        if cause := _failure(processes):  # the error of rank 0 is only a broken connection
            raise cause from error
        raise
    finally:
        for process in processes:
            process.kill()
            process.wait()
        for name in group:
            os.environ.pop(name, None)
        os.environ.update(before)
        if world_size() > 1:
            distributed.destroy_process_group()


def _store() -> Any:
    """torch's store, by which the processes find each other. It listens only on this machine, and
    its port stays open, so no other program can take it."""
    listening = socket.create_server(("127.0.0.1", 0))
    address, port = listening.getsockname()
    return distributed.TCPStore(  # type: ignore[attr-defined]
        address, port, is_master=True, wait_for_workers=False, multi_tenant=True,
        master_listen_fd=listening.detach(),
    )  # fmt: skip


def _failure(processes: list[subprocess.Popen[bytes]]) -> Exception | None:
    """The error that ended another process: its message, or else its exit status."""
    end = time.monotonic() + FAILURE_SECONDS
    for process in processes:
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(0, end - time.monotonic()))
    ended = [(p.returncode, n, p) for n, p in enumerate(processes, 1) if p.returncode]
    for _, _, process in ended:
        assert process.stdout is not None
        if sent := process.stdout.read():
            kind, message = json.loads(sent)
            return getattr(errors, kind, RuntimeError)(message)
    if not ended:
        return None
    status, number, _ = min(ended)  # a process killed by a signal has a negative status
    return RuntimeError(
        f"process {number} of trainer.devices={len(processes) + 1} ended with status {status}"
    )


def _start(number: int, folder: Path) -> subprocess.Popen[bytes]:
    # config.yaml may name classes that only this process's path leads to.
    environment = {
        **os.environ,
        "LOCAL_RANK": str(number),
        RANK: str(number),
        "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
    }
    command = [sys.executable, "-P", "-m", RUN, str(os.getpid()), str(folder)]
    log = (folder / "train.log").open("a", encoding="utf-8")
    with log, signals.blocking():  # rank 0 handles the signals
        return subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log
        )
