"""A sweep that is killed at random moments gives the results of an undisturbed one."""

import contextlib
import multiprocessing
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from posfuse import cli
from posfuse.runs import records
from processes import HANG, alive, below, descendants, wait_for
from small_runs import write_corpus
from sweeps import PARALLEL, assert_same_results, one_after_another, sweep

KILLS = 50
GRID = ["fusion=add,gate_cnn", "seed=0,1", "trainer.max_epochs=6"]
GRID += ["trainer.checkpoint_minutes=1e-9"]
# A sweep is forked from a process that has already imported torch. Otherwise most signals arrive
# during the imports, which take longer than the four runs.
IMPORTED = multiprocessing.get_context("forkserver")
IMPORTED.set_forkserver_preload(["posfuse.train", "posfuse.training.run"])


def command(argv, folder):
    """Call posfuse in this process and folder. Its output goes to a file."""
    os.chdir(folder)
    with open("output.txt", "a") as file:
        os.dup2(file.fileno(), sys.stdout.fileno())
        os.dup2(file.fileno(), sys.stderr.fileno())
    sys.argv = argv
    cli.main()


def started(argv, folder):
    """A process with the command of this list, as `python -m posfuse ...`."""
    (folder / "output.txt").write_text("")  # the process may be killed before it opens the file
    process = IMPORTED.Process(target=command, args=(argv[2:], folder))
    process.start()
    return process


def output(process, folder):
    """The output of a process that ends."""
    process.join(HANG)
    assert process.exitcode is not None, f"a sweep did not end within {HANG} seconds"
    return (folder / "output.txt").read_text()


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """The folder of an undisturbed sweep, its corpus, and its seconds."""
    first = tmp_path_factory.mktemp("first")  # also starts the process with the imports
    corpus = write_corpus(first / "corpus")
    for folder in (first, tmp_path_factory.mktemp("reference")):
        start = time.monotonic()
        process = started(sweep(corpus, *GRID), folder)
        text = output(process, folder)
        assert process.exitcode == 0, text
    return folder, corpus, time.monotonic() - start


def parts(folder):
    """Files and folders that are being written."""
    return {p for p in below(folder) if p.suffix == ".part" or p.name.startswith("tiny-")}


def wait_for_writing(folder, process, seconds):
    """Wait until something new is being written, at most so many seconds."""
    before, end = parts(folder), time.monotonic() + seconds
    while process.is_alive() and time.monotonic() < end:
        if parts(folder) - before:
            return


def kill(process, name, alone):
    """Send the signal to the process, and SIGKILL to its descendants too unless `alone`. Check that
    all of them end."""
    try:
        processes = [psutil.Process(process.pid), *descendants(process.pid)]
    except psutil.NoSuchProcess:  # it has just ended
        return
    for one in processes if name == "SIGKILL" and not alone else processes[:1]:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.send_signal(signal.Signals[name])
    wait_for(lambda: not alive(processes))


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
        if process.is_alive():
            kill(process, name, alone=draw.random() < 0.5)
            kills += name == "SIGKILL"
            text = output(process, tmp_path)
            # Before main() has installed the handler, a signal ends any Python program.
            early = (-signal.Signals[name], *([1, 130] if name == "SIGINT" else []))
            is_early = "saved at step" not in text and process.exitcode in early
            assert process.exitcode in (75, 0) or is_early, text
            assert "Traceback" not in text or "KeyboardInterrupt" in text, text
        else:
            text = output(process, tmp_path)
            assert process.exitcode == 0, text
            assert_same_results(whole, tmp_path, 4)
            shutil.rmtree(tmp_path / "multirun")
            shutil.rmtree(tmp_path / "cache")
        for path in tmp_path.rglob(records.RESULT):
            records.read_result(path)
    one_after_another(corpus, tmp_path, *GRID, *launcher)
    assert_same_results(whole, tmp_path, 4)
