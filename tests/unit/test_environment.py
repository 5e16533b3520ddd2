"""The memory that a run used."""

import mmap
import os
import platform
import re
import resource
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch

from posfuse.process import environment


def use(size):
    """Map so much memory, touch every page of it and free it."""
    with mmap.mmap(-1, size) as memory:
        for start in range(0, size, mmap.PAGESIZE):
            memory[start] = 1


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="needs Linux")
def test_the_peak_of_memory_is_that_since_the_reset(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    use(2**26)
    before = environment.peak_memory()
    environment.reset_peak_memory()
    after = environment.peak_memory()
    assert after < before - 2**25
    use(2**26)
    assert environment.peak_memory() > after + 2**25
    monkeypatch.setattr(Path, "write_text", Mock(side_effect=PermissionError))
    environment.reset_peak_memory()  # without an error, as in some containers


def test_on_a_machine_with_a_gpu_a_run_has_the_peak_and_the_name_of_its_device(monkeypatch):
    reset = []
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(Path, "write_text", lambda path, text: reset.append(str(path)))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: reset.append("GPU"))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 7)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    environment.reset_peak_memory()
    assert reset == ["GPU", "/proc/self/clear_refs"]
    for device, name in (("cpu", platform.machine()), ("cuda", "a GPU")):
        found = environment.costs({"fit": 1.0}, {"documents": 1, "tokens": 1}, device)
        assert environment.origin(device)["host"]["device"] == name
        assert (found["peak_memory_bytes"] == 7) == (device == "cuda")
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 0)
    assert environment.peak_memory() > 7  # of the process


def test_a_system_without_proc_has_its_own_unit(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(Path, "exists", lambda self: False)
    monkeypatch.setattr(resource, "getrusage", lambda who: SimpleNamespace(ru_maxrss=5))
    for system, expected in (("linux", 5 * 1024), ("darwin", 5)):
        monkeypatch.setattr(sys, "platform", system)
        assert environment.peak_memory() == expected


def resident():
    """The memory of this process that is in use, in MB."""
    return int(re.search(r"VmRSS:\s*(\d+)", Path("/proc/self/status").read_text())[1]) / 1000


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_a_run_returns_the_memory_that_earlier_ones_freed():
    environment.keep_memory()
    pieces = [torch.ones(2**18) for _ in range(300)]  # 315 MB
    last = torch.ones(2**18)  # keeps the pieces from the end of the heap
    del pieces
    before = resident()
    environment.return_memory()
    assert resident() < before - 250
    assert last.sum() == 2**18
