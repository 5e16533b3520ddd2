"""Time a sweep besides training: the start, further runs, finished runs and reports.

    python benchmarks/overhead.py

Runs have one epoch of one batch, so training takes almost none of their time.
"""

import argparse
import resource
import statistics
import subprocess
import tempfile
from functools import partial
from itertools import count, product
from pathlib import Path
from typing import Any

import harness
import store

MEASURES = (
    "train training runs tracking.live data.datamodule evidence statistics verdicts report "
    "hydra_plugins.posfuse_sweeper"
)
RUN = [
    "data=bbc_lead_paragraph", "trainer.max_epochs=1", "trainer.limit_batches=1",
    "trainer.threads=1", "trainer.accelerator=cpu", "trainer.progress=none",
]  # fmt: skip
FURTHER = 6  # runs of a sweep whose further runs are timed
LOGGERS = ("none", "wandb")


def command(root: Path, seeds: int, *overrides: str) -> float:
    """Seconds of the command of a sweep over operators and seeds."""
    sweep = partial(harness.trained, root, "-m", *RUN, f"seed=range({seeds})", *overrides)
    return harness.seconds(sweep)


def start_table(root: Path, repeats: int) -> store.Table:
    harness.trained(root, "-m", *RUN, "seed=0")  # writes the ids
    number = count()

    def sweep(logger: str, seeds: int) -> float:
        return command(root, seeds, f"logger={logger}", f"sweep_id=new{next(number)}")

    turns = {case: partial(sweep, *case) for case in product(LOGGERS, (1, FURTHER))}
    times = {case: statistics.median(of) for case, of in harness.in_turn(turns, repeats).items()}
    rows: list[store.Row] = []
    for logger in LOGGERS:
        first = times[logger, 1]
        further = (times[logger, FURTHER] - first) / (FURTHER - 1)
        rows.append([f"a command with one run, logger={logger}", first])
        rows.append([f"a further run in the process, logger={logger}", further])
    note = (
        f"Medians of {repeats} processes. The process starts cold; token ids exist. A run is one "
        "batch of training, validation and test, diagnostics, checkpoints and record."
    )
    return store.table("Time of a sweep besides training", ["", "seconds"], rows, note)


def sizes_table(root: Path, sizes: list[int]) -> store.Table:
    """The command and the report of finished sweeps of so many runs, half of each operator."""
    rows: list[store.Row] = []
    for size in sizes:
        own = ["fusion=add,concat", "sweep_id=sizes"]
        command(root, size // 2, *own)  # trains those that are not finished
        with harness.apart() as process:
            report = process(reported, root / "runs" / "sizes")
        rows.append([size, command(root, size // 2, *own), *report])
    columns = ["runs", "command s", "report s", "report's peak memory GB"]
    note = "Two operators. The command finds every run finished; the report is posfuse report."
    return store.table("Finished sweeps", columns, rows, note)


def reported(_: Any, sweep: Path) -> tuple[float, float]:
    """Seconds and peak memory in GB of the report of a sweep."""
    command = [*harness.POSFUSE, "report", str(sweep)]
    seconds = harness.seconds(lambda: subprocess.run(command, check=True, capture_output=True))
    return seconds, 1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e9


def measure(given: argparse.Namespace) -> list[store.Table]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        return [start_table(root, given.repeats), sizes_table(root, given.runs)]


if __name__ == "__main__":
    store.main(__file__, measure, repeats=3, runs=[10, 100])
