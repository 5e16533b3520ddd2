"""Sweeps as commands, and the state of their runs during and after them."""

from pathlib import Path

from posfuse.runs import records
from processes import assert_same_files, below, command, succeeded

PARALLEL = ["hydra/launcher=parallel", "hydra.launcher.n_jobs=2"]
SIX = ["fusion=add,concat", "seed=0,1,2"]


def sweep(corpus: Path, *overrides: str) -> list[str]:
    return command(corpus, "-m", "trainer.progress=none", *overrides)


def one_after_another(corpus: Path, folder: Path, *overrides: str) -> Path:
    """Run a sweep with Hydra's own launcher: the reference for the other launchers."""
    succeeded(sweep(corpus, *overrides), folder)
    return folder


def at_work(folder: Path) -> list[Path]:
    """The runs that have finished an epoch and have no result yet."""
    logs = (path for path in below(folder) if path.name == "train.log")
    return [
        log.parent
        for log in logs
        if "epoch 1/" in log.read_text() and not (log.parent / records.RESULT).exists()
    ]


def kinds(folder: Path) -> list[str]:
    """The kinds of the failures in the folder."""
    return sorted(failure["kind"] for _, failure in records.failures_in(folder))


def results(folder: Path) -> dict[str, Path]:
    """The folders of finished runs, by their path below multirun."""
    root = folder / "multirun"
    return {str(p.parent.relative_to(root)): p.parent for p in sorted(root.rglob(records.RESULT))}


def assert_same_results(one: Path, other: Path, n: int) -> None:
    """Both folders hold the same n runs, bit for bit except for times."""
    left, right = results(one), results(other)
    assert len(left) == n
    assert left.keys() == right.keys()
    for name in left:
        assert_same_files(left[name], right[name])
