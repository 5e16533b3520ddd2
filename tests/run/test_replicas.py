"""The other processes of a run on several devices: how they end, with commands in their place."""

import os
import signal
import subprocess

import pytest

from posfuse.errors import InputError
from posfuse.training import replicas
from small_runs import small_config

SLEEPS, KILLED = ["sleep", "100"], ["sh", "-c", "kill -9 $$"]
SENDS = ["sh", "-c", """echo '["InputError", "model.d_ff: too large"]'; exit 1"""]


@pytest.fixture
def cfg(corpus):
    return small_config(corpus, "trainer=ddp", "trainer.devices=3")


@pytest.fixture
def begun(monkeypatch):
    """Call with the command of each process; returns the processes that are then started."""

    def call(*commands):
        found = []

        def start(number, folder):
            pipe = subprocess.PIPE
            found.append(subprocess.Popen(commands[number - 1], stdin=pipe, stdout=pipe))
            return found[-1]

        monkeypatch.setattr(replicas, "_start", start)
        return found

    return call


def test_a_process_that_cannot_start_leaves_nothing_behind(cfg, begun, tmp_path):
    processes = begun(SLEEPS, [tmp_path / "absent"])
    before = dict(os.environ)
    with pytest.raises(OSError, match="absent"), replicas.replicas(cfg, tmp_path):
        pass
    assert [process.returncode for process in processes] == [-signal.SIGKILL]
    assert dict(os.environ) == before


@pytest.mark.parametrize(
    ("commands", "error"),
    [
        ((["false"], SENDS), InputError("model.d_ff: too large")),
        ((["false"], KILLED), RuntimeError("process 2 of trainer.devices=3 ended with status -9")),
        ((SLEEPS, SLEEPS), RuntimeError("connection closed by peer")),
    ],
    ids=["a process has sent its error", "a signal has killed a process", "only the first failed"],
)
def test_the_error_of_a_run_is_that_of_the_process_that_failed(
    commands, error, cfg, begun, tmp_path, monkeypatch
):
    """The first process sees only a broken connection."""
    if SLEEPS in commands:
        monkeypatch.setattr(replicas, "FAILURE_SECONDS", 0)
    processes = begun(*commands)
    with pytest.raises(type(error), match=f"^{error}$"), replicas.replicas(cfg, tmp_path):
        raise RuntimeError("connection closed by peer")
    assert None not in [process.returncode for process in processes]
