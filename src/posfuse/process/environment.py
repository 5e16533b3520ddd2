"""The machine: what a record says of it, and what a process asks of it ahead of its work."""

import ctypes
import faulthandler
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
from typing import Any, NoReturn

import torch

import posfuse

PACKAGES = ("torch", "lightning", "torchmetrics", "tokenizers", "datasets", "numpy", "wandb")
MAX_ISA = "ONEDNN_MAX_CPU_ISA"


def facts(seconds: dict[str, float], seen: dict[str, int]) -> dict[str, Any]:
    """A record's measurements: `seconds` of setup, fit and test; `seen` counts the documents and
    tokens of training in the seconds of fit. Memory is that of the process that ended the run."""
    return {
        "seconds": seconds,
        "documents_per_second": seen["documents"] / seconds["fit"],
        "tokens_per_second": seen["tokens"] / seconds["fit"],
        "peak_memory_bytes": peak_memory(),
        "versions": versions(),
        "commit": commit(),
        "host": host(),
    }


def versions() -> dict[str, str]:
    """Versions of Python, posfuse and the libraries that can change a number."""
    found = {name: importlib.metadata.version(name) for name in PACKAGES}
    return {"python": platform.python_version(), "posfuse": posfuse.__version__, **found}


def commit() -> str | None:
    """The checkout's commit, "+changes" behind it where files differ; None outside a checkout."""
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return None
    try:
        head, changes = (
            subprocess.run(
                ["git", "-C", str(root), *command], capture_output=True, text=True, check=True
            ).stdout.strip()
            for command in (["rev-parse", "HEAD"], ["status", "--porcelain"])
        )
    except (OSError, subprocess.CalledProcessError):
        return None  # no git, or a checkout without a commit
    return f"{head}+changes" if changes else head


def host() -> dict[str, str | int]:
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine()
    return {"name": platform.node(), "device": device, "threads": torch.get_num_threads()}


def keep_memory() -> None:
    """Have glibc keep what is freed, up to 2 GiB: by default it gives each large tensor's memory
    back to the system, and fetching it anew takes longer than many an operation on it."""
    if platform.libc_ver()[0] == "glibc":
        mmap_max, trim_threshold = -4, -1  # their numbers in malloc.h
        libc = ctypes.CDLL(None)
        libc.mallopt(mmap_max, 0)
        libc.mallopt(trim_threshold, 2**31 - 1)


@contextmanager
def denormals_flushed() -> Iterator[None]:
    """Have numbers below 1e-38 be 0: attention that looks at one token gives the others such, and
    an Intel processor takes a hundred times as long with each. The threads that are started in it
    do as this one."""
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


@cache
def do_without_broken_amx() -> bool:
    """Keep oneDNN off matrix units (AMX) by which a bfloat16 product ends the process; whether that
    was needed. Some virtual machines announce them and hide the sizes of their tiles (CPUID leaf
    1DH), so that oneDNN configures none. It reads the variable at its first product: this comes
    before any."""
    if "amx_bf16" not in _cpu_flags():
        return False
    try:
        child = os.fork()
        if child == 0:
            _try_bfloat16()
        _, status = os.waitpid(child, 0)
    except OSError:
        return False  # no process to be had, or none whose end is told: most such units work
    is_broken = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGILL
    if is_broken:
        os.environ[MAX_ISA] = "AVX10_1_512"  # all but AMX
    return is_broken


def _cpu_flags() -> set[str]:
    if not (info := Path("/proc/cpuinfo")).exists():
        return set()
    flags = (line for line in info.read_text().splitlines() if line.startswith("flags"))
    return set(next(flags, "").split())


def _try_bfloat16() -> NoReturn:
    """The product, in a process that has been forked for it and ends here."""
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(10)  # a fork may wait for what only its parent's threads would give
        faulthandler.disable()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # else its end may leave a file
        _multiply_bfloat16()
    finally:
        os._exit(0)


def _multiply_bfloat16() -> None:
    torch.set_num_threads(1)  # a fork has none of its parent's others
    square = torch.ones(64, 64, dtype=torch.bfloat16)
    square @ square


def reset_peak_memory() -> None:
    """Start anew to count peak memory, so that each run of a process has its own figure."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    elif sys.platform == "linux":
        try:
            Path("/proc/self/clear_refs").write_text("5")
        except OSError:
            return  # not permitted in some containers: the figure is then the process's


def peak_memory() -> int:
    """Bytes: of the GPU where one is in use, else of this process."""
    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return torch.cuda.max_memory_allocated()
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )
