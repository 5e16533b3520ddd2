"""posfuse-train as a process of its own, and what is left of it."""

import subprocess
import sys
import time
from pathlib import Path

import pandas as pd

from posfuse.runs import records
from small_runs import small_overrides

HANG = 600  # seconds after which a process is taken to hang; the only time limit of the tests


def command(corpus, *overrides):
    """The last of equal keys counts, and Hydra takes no overrides on both sides of an option."""
    options = [given for given in overrides if given.startswith("-")]
    own = [given for given in overrides if not given.startswith("-")]
    return [sys.executable, "-m", "posfuse.train", *options, *small_overrides(corpus), *own]


def started(argv, folder, env=None):
    folder.mkdir(exist_ok=True)
    pipe = subprocess.PIPE
    return subprocess.Popen(argv, cwd=folder, env=env, text=True, stdout=pipe, stderr=pipe)


def ended(argv, folder, env=None):
    """The command's result, once it has ended."""
    folder.mkdir(exist_ok=True)
    return subprocess.run(
        argv, cwd=folder, env=env, timeout=HANG, capture_output=True, text=True, check=False
    )


def wait_for(condition):
    """Wait until the condition holds, by asking it again and again."""
    end = time.monotonic() + HANG
    while not condition():
        assert time.monotonic() < end, f"not so within {HANG} seconds"
        time.sleep(0.05)


def descendants(pid):
    """Processes that a process has started, and those that they have."""
    found = children(pid)
    return [*found, *(further for child in found for further in descendants(child))]


def children(pid):
    """The processes that a process's threads have started."""
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for listed in lists for child in listed.read_text().split()]


def alive(pids):
    """Those of the processes that are still at work: a zombie is not."""
    found = []
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            continue
        found += [pid] * (state != "Z")
    return found


def assert_one_line(result, *parts):
    """The command failed, and said so in one line that holds the parts."""
    assert result.code != 0
    assert result.err.count("\n") == 1, result.err
    assert result.err.startswith("error: ")
    assert "Traceback" not in result.out + result.err
    for part in parts:
        assert part in result.err


def assert_same_files(one, other):
    """Records but for times, and all that a run writes beside them, bit for bit."""
    left, right = (records.read_result(folder / records.RESULT) for folder in (one, other))
    for key in ("test", "validation", "best_epoch", "epochs", "position", "fingerprint"):
        assert left[key] == right[key], key
    for name in (records.PREDICTIONS, records.DIAGNOSTICS):
        frames = [pd.read_parquet(folder / name) for folder in (one, other)]
        pd.testing.assert_frame_equal(*frames, check_exact=True)
    assert (one / records.HISTORY).read_bytes() == (other / records.HISTORY).read_bytes()
