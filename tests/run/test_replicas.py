"""The other processes of a run on several devices: how they end, with commands in their place."""

import json
import os
import signal
import subprocess

import pytest

from posfuse.errors import InputError
from posfuse.training import replicas
from small_runs import small_config


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


def broken(cfg, folder):
    """The run, of which the first process sees only a broken connection."""
    with replicas.replicas(cfg, folder):
        raise RuntimeError("connection closed by peer")


def test_a_process_that_cannot_start_leaves_nothing_behind(cfg, begun, tmp_path):
    processes = begun(["sleep", "100"], [tmp_path / "absent"])
    before = dict(os.environ)
    with pytest.raises(OSError, match="absent"), replicas.replicas(cfg, tmp_path):
        pass
    assert [process.returncode for process in processes] == [-signal.SIGKILL]
    assert dict(os.environ) == before


def test_the_error_that_a_process_sends_is_the_runs(cfg, begun, tmp_path):
    (tmp_path / "error").write_text(json.dumps(["InputError", "model.d_ff: too large"]))
    begun(["false"], ["sh", "-c", f"cat {tmp_path / 'error'}; exit 1"])
    with pytest.raises(InputError, match=r"model\.d_ff: too large"):
        broken(cfg, tmp_path)


def test_a_process_that_a_signal_killed_is_named(cfg, begun, tmp_path):
    begun(["false"], ["sh", "-c", "kill -9 $$"])
    message = r"process 2 of trainer\.devices=3 ended with status -9"
    with pytest.raises(RuntimeError, match=message):
        broken(cfg, tmp_path)


def test_an_error_of_the_first_process_alone_is_its_own(cfg, begun, tmp_path, monkeypatch):
    monkeypatch.setattr(replicas, "FAILURE_SECONDS", 0)
    processes = begun(["sleep", "100"], ["sleep", "100"])
    with pytest.raises(RuntimeError, match="connection closed"):
        broken(cfg, tmp_path)
    assert [process.returncode for process in processes] == [-signal.SIGKILL] * 2
