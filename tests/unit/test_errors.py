"""Messages of errors, and when memory runs out outside of a training step."""

import errno

import pytest
import torch

from posfuse.errors import NO_MEMORY, lacks_memory, reason
from posfuse.runs import hydra_errors
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
    torch.OutOfMemoryError("CUDA out of memory"),
]


@pytest.mark.parametrize("error", FULL, ids=[type(error).__name__ for error in FULL])
def test_every_error_of_memory_has_one_message(error, tmp_path):
    assert message_of(error, tmp_path) == hydra_errors.line_of(error) == NO_MEMORY


def test_other_errors_get_their_own_message():
    # oneDNN gives this message for any error of a kernel.
    others = [RuntimeError("could not create a primitive"), OSError(errno.ENOSPC, "x")]
    assert not any(map(lacks_memory, others))


def test_a_cause_of_itself_ends():
    one, other = ValueError("first"), ValueError("second")
    one.__cause__, other.__cause__ = other, one
    assert reason(one) == "first"
    other.__cause__ = other
    assert reason(other) == "second"


def test_a_module_that_runs_out_of_memory_is_not_an_import_error(own_module):
    own_module("hungry_operator", "raise MemoryError")
    with pytest.raises(MemoryError):
        checked(composed("fusion._target_=hungry_operator.Operator"))
