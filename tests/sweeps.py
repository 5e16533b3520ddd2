"""Sweeps as commands of their own, and what to ask of them while they go on and afterwards."""

import json
from pathlib import Path

from posfuse.runs import records
from processes import assert_same_files, command, ended

# On a machine of one core too.
PARALLEL = ["hydra/launcher=parallel", "hydra.launcher.n_jobs=2", "hydra.launcher.runs_per_core=4"]
SIX = ["fusion=add,concat", "seed=0,1,2"]


def sweep(corpus: Path, *overrides: str) -> list[str]:
    return command(corpus, "-m", "trainer.progress=none", *overrides)


def one_after_another(corpus: Path, folder: Path, *overrides: str) -> Path:
    """Do a sweep by no launcher but Hydra's own: what the others are held against."""
    done = ended(sweep(corpus, *overrides), folder)
    assert done.returncode == 0, done.stderr
    return folder


def at_work(folder: Path) -> list[Path]:
    """The runs that have done an epoch and are not done."""
    logs = folder.rglob("train.log")
    return [
        log.parent
        for log in logs
        if "epoch 1/" in log.read_text() and not (log.parent / records.RESULT).exists()
    ]


def kinds(folder: Path) -> list[str]:
    """What became of the runs that did not end well."""
    found = folder.rglob(records.FAILURE)
    return sorted(json.loads(path.read_text())["kind"] for path in found)


def results(folder: Path) -> dict[str, Path]:
    """The folders of the runs that are done, by where they lie in multirun."""
    root = folder / "multirun"
    return {str(p.parent.relative_to(root)): p.parent for p in sorted(root.rglob(records.RESULT))}


def assert_same_results(one: Path, other: Path, n: int) -> None:
    """Both folders hold the same n runs, bit for bit but for times."""
    left, right = results(one), results(other)
    assert len(left) == n
    assert left.keys() == right.keys()
    for name in left:
        assert_same_files(left[name], right[name])
