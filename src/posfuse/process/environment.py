"""The machine: the facts in a record, and settings of a process for speed."""

import ctypes
import importlib.metadata
import os
import platform
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch

import posfuse
from posfuse.process.commit import commit

# The libraries that can change a number.
PACKAGES = ("torch", "lightning", "torchmetrics", "tokenizers", "datasets", "numpy", "wandb")
CPU_INFO = Path("/proc/cpuinfo")
# One bfloat16 product. A crash leaves no core file.
PRODUCT = """
import resource, torch
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
x = torch.ones(64, 64, dtype=torch.bfloat16)
x @ x
"""


def costs(seconds: dict[str, float], seen: dict[str, int], device: str) -> dict[str, Any]:
    """A record's times and memory. `seconds` has the times of setup, fit and test. `seen` counts
    the documents and tokens of training during fit. `device` is the run's (devices.py). The memory
    is that of the process that finished the run, not of earlier interrupted processes."""
    return {
        "seconds": seconds,
        "documents_per_second": seen["documents"] / seconds["fit"],
        "tokens_per_second": seen["tokens"] / seconds["fit"],
        "peak_memory_bytes": peak_memory(device),
    }


def origin(device: str) -> dict[str, Any]:
    """The code and the machine of a run on this kind of device, which are known when it starts."""
    name = torch.cuda.get_device_name() if device == "cuda" else platform.machine()
    return {
        "versions": {
            "python": platform.python_version(),
            "posfuse": posfuse.__version__,
            **{name: importlib.metadata.version(name) for name in PACKAGES},
        },
        "commit": commit(),
        "host": {"name": platform.node(), "device": name, "threads": torch.get_num_threads()},
    }


def keep_memory() -> None:
    """Make glibc keep freed memory. By default it returns each large tensor's memory to the system,
    and allocating it again takes longer than many operations on it."""
    if platform.libc_ver()[0] == "glibc":
        mmap_max, trim_threshold = -4, -1  # M_MMAP_MAX and M_TRIM_THRESHOLD of malloc.h
        libc = ctypes.CDLL(None)
        libc.mallopt(mmap_max, 0)
        libc.mallopt(trim_threshold, 2**31 - 1)


def return_memory() -> None:
    """Return the memory that glibc keeps. It is in pieces, which over several runs of a process
    would add up to several times the memory of one run."""
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)


@contextmanager
def flushing_denormals() -> Iterator[None]:
    """Treat numbers below 1e-38 as 0, in this thread and in threads that it starts. If attention
    goes to a single token, the other weights are so small, and an Intel processor takes a hundred
    times as long for them. torch has no function for the current setting, but a product shows
    it."""
    smallest = torch.tensor(torch.finfo(torch.float32).tiny)
    was_flushed = not (smallest * 0.5).item()
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(was_flushed)


@cache
def do_without_broken_amx() -> bool:
    """Keep oneDNN from matrix units (AMX) that do not work. Returns True if this was needed.

    Some virtual machines announce AMX but hide its tile sizes (CPUID leaf 1DH). A bfloat16 product
    then ends the process by SIGILL. Call this before the process's first product in bfloat16:
    oneDNN reads the variable then.
    """
    if not CPU_INFO.exists() or "amx_bf16" not in CPU_INFO.read_text():
        return False
    done = subprocess.run([sys.executable, "-c", PRODUCT], capture_output=True, check=False)
    is_broken = done.returncode == -signal.SIGILL
    if is_broken:
        os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX10_1_512"  # all but AMX
    return is_broken


def reset_peak_memory() -> None:
    """Reset the peaks of the GPU and of the process, so that each run has its own."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    if sys.platform == "linux":
        try:
            Path("/proc/self/clear_refs").write_text("5")
        except OSError:
            return  # not permitted in some containers; the peak is then the process's


def peak_memory(device: str = "cuda") -> int:
    """In bytes: of the GPU if the device is "cuda" and in use, else of this process."""
    is_gpu = device == "cuda" and torch.cuda.is_available()
    if is_gpu and torch.cuda.max_memory_allocated():
        return torch.cuda.max_memory_allocated()
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
