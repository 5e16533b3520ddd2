"""Runs per hour of a sweep, by the number of runs at once.

    python benchmarks/grid.py --imdb FOLDER

On a CPU: a grid with the quickstart's model and settings on BBC's lead paragraphs, two operators.
On a GPU, which a small run leaves idle: seeds of the longest task of the demo by several processes,
and the IMDB row of Table 1 (add, concat and gate_scalar, five seeds each, the authors' settings);
start nvidia-cuda-mps-control -d first to measure both with MPS. The time is that of the whole
command, with its imports.
"""

import argparse
import os
import shutil
import statistics
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from joblib import cpu_count

import harness
import store

MEASURES = (
    "model training data.batching data.datamodule process sweeps.launching train "
    "hydra_plugins.posfuse_parallel conf/protocol conf/model/small.yaml conf/quickstart.yaml "
    "conf/experiment/quickstart.yaml conf/experiment/table1.yaml conf/data/lead_story_long.yaml"
)
FOLDERS = ("imdb",)
IS_GPU = harness.DEVICE.type == "cuda"
SMALL = [
    "experiment=quickstart", "data=bbc_lead_paragraph", "fusion=add,gate_scalar",
    "trainer.max_epochs=3",
]  # fmt: skip
ON_GPU = [
    "data=lead_story_long", "fusion=add", "model.n_layers=1", "model.attention_dropout=0",
    "data.batch_size=32", "trainer.max_epochs=5", "trainer=gpu",
]  # fmt: skip
IMDB = ["experiment=table1", "data=imdb", "fusion=add,concat,gate_scalar", "trainer=gpu"]


def rate(root: Path, cell: list[str], seeds: int, at_once: int, threads: int = 1) -> float:
    """Runs per hour of a sweep with so many runs at once."""
    shutil.rmtree(root / "runs", ignore_errors=True)
    launcher = ["hydra/launcher=parallel", f"hydra.launcher.n_jobs={at_once}"]
    place = "runs_per_gpu" if IS_GPU else "runs_per_core"
    own = [*launcher, f"hydra.launcher.{place}={at_once}", f"seed=range({seeds})"]
    own += [] if IS_GPU else [f"trainer.threads={threads}"]
    found: list[Any] = []
    seconds = harness.seconds(lambda: found.extend(harness.trained(root, "-m", *cell, *own)))
    return 3600 * len(found) / seconds


def rates(
    root: Path, cell: list[str], seeds: int, cases: list[tuple[int, int]], repeats: int
) -> list[store.Row]:
    """Rows: runs at once, threads of each, runs per hour, and their ratio to the first case."""
    harness.trained(root, "-m", *cell, "seed=0", "trainer.limit_batches=1")  # writes the ids
    turns = {case: partial(rate, root, cell, seeds, *case) for case in cases}
    found = {case: statistics.median(of) for case, of in harness.in_turn(turns, repeats).items()}
    return [[*case, round(found[case]), found[case] / found[cases[0]]] for case in cases]


def measure(given: argparse.Namespace) -> tuple[list[store.Table], Any]:
    # One device, also where there are several.
    os.environ["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    cores = cpu_count()
    at_once = sorted({1, *given.at_once, *([] if IS_GPU else [cores])})
    cases = [(n, 1 if IS_GPU else max(cores // n, 1)) for n in at_once]
    cell, seeds = [*(ON_GPU if IS_GPU else SMALL), *given.overrides], given.seeds
    columns = ["runs at once", "threads per run", "runs per hour", "ratio"]
    note = f"{seeds} seeds, medians of {given.repeats} sweeps; ratios are to the first row."
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        rows = rates(root, cell, seeds, cases, given.repeats)
        tables = [store.table("Several runs at once", columns, rows, note)]
        if IS_GPU and given.imdb:
            row = [*IMDB, f"data.path={given.imdb}", *given.overrides]
            rows = rates(root, row, 5, [(1, 1), (3, 1)], 1)
            about = "15 runs with the authors' settings and number of epochs, bfloat16."
            tables.append(store.table("The IMDB row of Table 1", columns, rows, about))
    return tables, {}


if __name__ == "__main__":
    store.main(
        __file__, measure, seeds=24 if IS_GPU else 8, repeats=1 if IS_GPU else 2,
        at_once=[4, 8, 12, 24] if IS_GPU else [2, 4], overrides=[],
    )  # fmt: skip
