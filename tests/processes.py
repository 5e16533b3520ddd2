"""posfuse train as a process: start it, wait for it, and look for processes that it has left."""

import contextlib
import os
import subprocess
import sys
import time
from itertools import chain
from pathlib import Path

import pandas as pd
import psutil

from posfuse.runs import records
from small_runs import small_overrides

HANG = 600  # seconds after which a process counts as hanging; the only time limit of the tests


def command(corpus, *overrides):
    """The command line of a small run on `corpus`; a later override replaces an earlier one."""
    options = [given for given in overrides if given.startswith("-")]
    own = [given for given in overrides if not given.startswith("-")]
    return [sys.executable, "-m", "posfuse", "train", *options, *small_overrides(corpus, *own)]


def importing(folder, **more):
    """The environment of a process that can import the modules of a folder, with more variables."""
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, **more}


def started(argv, folder, env=None):
    folder.mkdir(exist_ok=True)
    pipe = subprocess.PIPE
    return subprocess.Popen(argv, cwd=folder, env=env, text=True, stdout=pipe, stderr=pipe)


def ended(argv, folder, env=None):
    """Run the command to its end and return its result."""
    folder.mkdir(exist_ok=True)
    return subprocess.run(
        argv, cwd=folder, env=env, timeout=HANG, capture_output=True, text=True, check=False
    )


def succeeded(argv, folder, env=None):
    """As `ended`; the command must succeed."""
    done = ended(argv, folder, env)
    assert done.returncode == 0, f"{argv}:\n{done.stdout}{done.stderr}"
    return done


def wait_for(condition):
    """Poll until the condition holds."""
    end = time.monotonic() + HANG
    while not condition():
        assert time.monotonic() < end, f"the condition did not hold within {HANG} seconds"
        time.sleep(0.05)


def below(folder):
    """The files and folders below a folder. Another process may remove some meanwhile, which
    os.walk ignores and Path.rglob does not."""
    return [Path(root, name) for root, *names in os.walk(folder) for name in chain(*names)]


def descendants(pid):
    """The processes that a process has started, those that they have started, and so on."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def alive(processes, named=""):
    """The processes that still run, with this text in their command lines; a zombie does not."""
    found = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended in the meantime
            runs = process.is_running() and process.status() != psutil.STATUS_ZOMBIE
            found += [process] * (runs and named in " ".join(process.cmdline()))
    return found


def assert_one_line(result, *parts):
    """The command failed with one line on stderr that contains the parts."""
    assert result.code != 0
    assert result.err.count("\n") == 1, result.err
    assert result.err.startswith("error: ")
    assert "Traceback" not in result.out + result.err
    for part in parts:
        assert part in result.err


def assert_same_files(one, other):
    """Two runs wrote the same files, bit for bit, except for times."""
    left, right = (records.read_result(folder / records.RESULT) for folder in (one, other))
    counts = ("best_evaluation", "evaluations", "best_epoch", "epochs")
    for key in ("test", "validation", "lengths", *counts, "position", "fingerprint"):
        assert left.get(key) == right.get(key), key
    names, others = ({path.name for path in folder.glob("*.parquet")} for folder in (one, other))
    assert names == others
    for name in names:
        frames = [pd.read_parquet(folder / name) for folder in (one, other)]
        pd.testing.assert_frame_equal(*frames, check_exact=True)
    assert (one / records.HISTORY).read_bytes() == (other / records.HISTORY).read_bytes()
