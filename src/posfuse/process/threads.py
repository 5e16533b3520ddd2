"""The number of torch's threads in each process of a run."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from posfuse.config import TrainerConfig

OMP_THREADS = "OMP_NUM_THREADS"  # without it Lightning sets the threads of each process


@contextmanager
def keeping_threads() -> Iterator[None]:
    """Restore torch's number of threads after the block. trainer.threads sets it, and the next run
    of this process may leave it to torch."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)


def set_threads(trainer: TrainerConfig) -> None:
    """Set the number for a run: trainer.threads, or by default its processes share the cores."""
    threads = trainer.threads
    if threads is None and trainer.devices > 1 and OMP_THREADS not in os.environ:
        threads = max(1, torch.get_num_threads() // trainer.devices)
    if threads is not None:
        torch.set_num_threads(threads)
