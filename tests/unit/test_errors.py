"""What is said when memory runs out outside of a training step."""

import errno

import pytest
import torch

from posfuse.errors import NO_MEMORY, lacks_memory
from posfuse.runs import refusals
from posfuse.runs.checks import checked
from posfuse.sweeps.failures import message_of
from small_runs import composed


def torchs_error():
    with pytest.raises(RuntimeError) as raised:
        torch.empty(2**60, dtype=torch.uint8, device="cpu")
    return raised.value


FULL = [
    MemoryError(),
    OSError(errno.ENOMEM, "Cannot allocate memory"),
    ImportError("libtorch_cpu.so: failed to map segment from shared object"),
    torchs_error(),
]


@pytest.mark.parametrize("error", FULL, ids=[type(error).__name__ for error in FULL])
def test_memory_that_ran_out_is_told_with_what_to_do(error, tmp_path):
    assert message_of(error, tmp_path) == refusals.of_hydra(error) == NO_MEMORY
    assert "ulimit -v" in NO_MEMORY


def test_other_errors_are_not_taken_for_it():
    # What oneDNN says of anything that keeps it from making a kernel.
    others = [RuntimeError("could not create a primitive"), OSError(errno.ENOSPC, "x")]
    assert not any(map(lacks_memory, others))


def test_an_operator_is_not_blamed_for_it(tmp_path, monkeypatch):
    (tmp_path / "hungry_operator.py").write_text("raise MemoryError")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MemoryError):
        checked(composed("fusion._target_=hungry_operator.Operator"))
