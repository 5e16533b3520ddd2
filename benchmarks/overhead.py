"""Time a sweep besides training: the start, further runs, finished runs and reports.

    python benchmarks/overhead.py

Runs have one epoch of one batch, so training takes almost none of their time.
"""

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
from functools import partial
from itertools import count, product
from pathlib import Path

import harness
import store
from posfuse.runs import records
from posfuse.runs.identity import fingerprint_of

MEASURES = (
    "train training runs tracking.live data.datamodule evidence statistics verdicts report "
    "sweeps hydra_plugins.posfuse_sweeper"
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


def sizes_table(root: Path, sizes: list[int], copies: int) -> store.Table:
    """The command and the report of finished sweeps of so many runs, half of each operator; the
    command alone of a sweep of copies."""
    rows: list[store.Row] = []
    own = ["-m", *RUN, "fusion=add,concat", "sweep_id=sizes"]
    report = [*harness.POSFUSE, "report", str(root / "runs" / "sizes")]
    for size in sizes:
        seeds = f"seed=range({size // 2})"
        harness.trained(root, *own, seeds)  # those that are not finished
        found = [costs(*harness.command(root, *own, seeds)), costs(*report)]
        rows.append([size, *found[0], *found[1]])
    for folder in (root / "runs" / "sizes").rglob("seed=0"):
        copy(folder, range(max(sizes) // 2, copies // 2))
    found = [costs(*harness.command(root, *own, f"seed=range({copies // 2})"))]
    rows.append([copies, *found[0], "–", "–"])
    columns = ["runs", "command CPU s", "its memory GB", "report CPU s", "its memory GB"]
    note = "Two operators. The command finds every run finished; the report is posfuse report."
    return store.table("Finished sweeps", columns, rows, note)


def copy(folder: Path, seeds: range) -> None:
    """Copies of a finished run as runs of other seeds, without its weights."""
    record = records.read_result(folder / records.RESULT)
    (folder / records.BEST).write_bytes(b"")
    for seed in seeds:
        settings = {**record["settings"], "seed": seed}
        shutil.copytree(folder, place := folder.with_name(f"seed={seed}"))
        changed = {"seed": seed, "settings": settings, "fingerprint": fingerprint_of(settings)}
        records.write_result(place, record | changed)


def costs(*command: str) -> tuple[float, float]:
    """CPU seconds and peak memory in GB of a command."""
    small = [sys.executable, "-c", SMALL, *command]
    done = subprocess.run(small, check=True, capture_output=True, text=True)
    seconds, memory = map(float, done.stdout.split())
    return seconds, memory


# A child's peak memory contains that of the process that starts it, so this one is small.
SMALL = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, capture_output=True)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, 1024 * used.ru_maxrss / 1e9)
"""


def measure(given: argparse.Namespace) -> list[store.Table]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        return [start_table(root, given.repeats), sizes_table(root, given.runs, given.copies)]


if __name__ == "__main__":
    store.main(__file__, measure, repeats=3, runs=[10, 100], copies=10_000)
