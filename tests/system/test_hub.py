"""A sweep asks an unreachable Hugging Face hub once in each process."""

import sys

from processes import ended, importing
from small_runs import SMALL
from sweeps import PARALLEL, results

# Replaces the library `datasets`: writes down each call that would use the network.
NO_NETWORK = """
import os
from types import SimpleNamespace

config = SimpleNamespace(HF_HUB_OFFLINE=False)
disable_progress_bars = lambda: None

def load_dataset(id, revision=None):
    if not config.HF_HUB_OFFLINE:
        with open(os.environ["CALLS"], "a") as file:
            file.write(f"{id} {os.getpid()}\\n")
    raise ConnectionError(f"Couldn't reach {id!r} on the Hub")
"""


def test_a_process_of_a_sweep_asks_an_unreachable_hub_once(tmp_path) -> None:
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "datasets.py").write_text(NO_NETWORK)
    calls = tmp_path / "calls"
    env = importing(tmp_path / "library", CALLS=str(calls))
    argv = [sys.executable, "-m", "posfuse", "train", "-m", *SMALL, *PARALLEL]
    argv += ["trainer.progress=none", "data=agnews,imdb", "seed=0,1,2"]
    done = ended(argv, tmp_path / "work", env)
    assert done.returncode == 1
    assert "error: 6 of 6 runs failed. Run the same command again" in done.stderr
    asked_by = [line.split()[1] for line in calls.read_text().splitlines()]
    assert 1 <= len(asked_by) == len(set(asked_by)) <= 2  # workers
    assert not results(tmp_path / "work")
