"""The device of a run, and the GPUs of concurrent runs."""

import os

from posfuse.config import TrainerConfig
from posfuse.errors import InputError


def device_of(trainer: TrainerConfig) -> str:
    """The kind of device on which a run trains: cuda or cpu. `auto` is cuda if this machine has
    it.

    Raises InputError if the machine lacks the kind, or has too few devices of it.
    """
    import torch  # takes seconds; few commands need it

    n = {"cuda": torch.cuda.device_count(), "cpu": trainer.devices}
    kind = {"gpu": "cuda", "auto": "cuda" if n["cuda"] else "cpu"}.get(
        trainer.accelerator, trainer.accelerator
    )
    if not n[kind]:
        raise InputError(
            f"trainer.accelerator: this machine has no {trainer.accelerator} that torch can use; "
            "check CUDA_VISIBLE_DEVICES and the driver, or use trainer.accelerator=cpu"
        )
    if trainer.devices > n[kind]:
        raise InputError(
            f"trainer.devices: must be at most {n[kind]}, the number of GPUs (got "
            f"{trainer.devices}); check CUDA_VISIBLE_DEVICES, or use trainer.accelerator=cpu"
        )
    return kind


def gpus() -> list[str]:
    """The GPUs that this process may use, by their names in CUDA_VISIBLE_DEVICES."""
    import torch  # takes seconds; few commands need it

    n = torch.cuda.device_count()  # CUDA ignores the names after an invalid one, such as -1
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return [name.strip() for name in named.split(",")][:n] if named else list(map(str, range(n)))


def places(gpus: list[str], runs_per_gpu: int, devices: int) -> list[str]:
    """The GPUs of each of the runs that can train at once: `runs_per_gpu` runs on each
    group of `devices` GPUs. Runs spread over all groups first. Raises InputError if there are not
    enough GPUs for one run."""
    if devices > len(gpus):
        raise InputError(
            f"trainer.devices: must be at most {len(gpus)}, the number of GPUs (got {devices}); "
            "check CUDA_VISIBLE_DEVICES"
        )
    groups = [gpus[i : i + devices] for i in range(0, len(gpus) - devices + 1, devices)]
    return [",".join(group) for group in groups] * runs_per_gpu
