"""A sweep that is killed at random moments gives the results of an undisturbed one."""

import contextlib
import os
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from posfuse.runs import records
from processes import HANG, alive, below, descendants, started, wait_for
from small_runs import write_corpus
from sweeps import PARALLEL, assert_same_results, one_after_another, sweep

KILLS = 50
GRID = ["fusion=add,gate_cnn", "seed=0,1", "trainer.max_epochs=6"]
GRID += ["trainer.checkpoint_minutes=1e-9"]


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """The folder of an undisturbed sweep, its corpus, and its seconds."""
    folder = tmp_path_factory.mktemp("reference")
    corpus = write_corpus(folder / "corpus")
    start = time.monotonic()
    one_after_another(corpus, folder, *GRID)
    return folder, corpus, time.monotonic() - start


def parts(folder):
    """Files and folders that are being written."""
    return {p for p in below(folder) if p.suffix == ".part" or p.name.startswith("tiny-")}


def wait_for_writing(folder, process, seconds):
    """Wait until something new is being written, at most so many seconds."""
    before, end = parts(folder), time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < end:
        if parts(folder) - before:
            return


def kill(process, name, alone):
    """Send the signal to the process, and SIGKILL to its descendants too unless `alone`. Check that
    all of them end; returns the process's stderr."""
    pids = [process.pid, *descendants(process.pid)]
    for pid in pids if name == "SIGKILL" and not alone else pids[:1]:
        with contextlib.suppress(ProcessLookupError):  # a descendant that has just ended
            os.kill(pid, signal.Signals[name])
    _, err = process.communicate(timeout=HANG)
    wait_for(lambda: not alive(pids))
    return err


@pytest.mark.slow
@pytest.mark.parametrize("launcher", [[], PARALLEL], ids=["basic", "parallel"])
def test_a_sweep_killed_many_times_gives_the_same_results(launcher, reference, tmp_path):
    whole, corpus, seconds = reference
    corpus = Path(shutil.copytree(corpus, tmp_path / "corpus"))  # with a cache of its own
    argv = sweep(corpus, *GRID, *launcher)
    draw = np.random.default_rng(0)
    kills = 0
    while kills < KILLS // 2:
        process = started(argv, tmp_path)
        name = draw.choice(["SIGKILL"] * 6 + ["SIGTERM", "SIGINT", "SIGUSR1", "SIGUSR2"])
        if draw.random() < 0.5:
            time.sleep(draw.uniform(0, seconds))
        else:
            time.sleep(draw.uniform(0.3, 0.6) * seconds)
            wait_for_writing(tmp_path, process, seconds)
        if process.poll() is None:
            err = kill(process, name, alone=draw.random() < 0.5)
            kills += name == "SIGKILL"
            # Before main() has installed the handler, a signal ends any Python program.
            early = (-signal.Signals[name], 1, 130)
            is_early = "saved at step" not in err and process.returncode in early
            assert process.returncode in (75, 0) or is_early, err
            assert "Traceback" not in err or "KeyboardInterrupt" in err, err
        else:
            _, err = process.communicate(timeout=HANG)
            assert process.returncode == 0, err
            assert_same_results(whole, tmp_path, 4)
            shutil.rmtree(tmp_path / "multirun")
            shutil.rmtree(tmp_path / "cache")
        for path in tmp_path.rglob(records.RESULT):
            records.read_result(path)
    one_after_another(corpus, tmp_path, *GRID, *launcher)
    assert_same_results(whole, tmp_path, 4)
