"""The other processes of a run on several devices: how they end, with commands in their place."""

import os
import signal
import subprocess
from dataclasses import replace

import pytest
import torch

from posfuse.errors import InputError
from posfuse.process import threads
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


def test_lightning_does_not_change_the_threads_of_a_run(cfg, begun, tmp_path, monkeypatch):
    """It sets them itself if OMP_NUM_THREADS is not set."""
    begun(["true"], ["true"])
    for before in (None, "7"):
        monkeypatch.delenv(threads.OMP_THREADS, raising=False)
        if before:
            monkeypatch.setenv(threads.OMP_THREADS, before)
        with replicas.replicas(cfg, tmp_path):
            assert os.environ[threads.OMP_THREADS] == str(torch.get_num_threads())
        assert os.environ.get(threads.OMP_THREADS) == before


@pytest.mark.parametrize(
    ("own", "variable", "expected"), [(None, None, 4), (None, "12", 12), (3, None, 3)]
)
def test_the_processes_of_a_run_share_the_cores(own, variable, expected, monkeypatch, cfg):
    monkeypatch.delenv(threads.OMP_THREADS, raising=False)
    if variable:
        monkeypatch.setenv(threads.OMP_THREADS, variable)
    with threads.keeping_threads():
        torch.set_num_threads(12)
        threads.set_threads(replace(cfg.trainer, threads=own))  # three devices
        assert torch.get_num_threads() == expected
