"""Runs per hour of a sweep, by the number of runs at once.

    python benchmarks/grid.py --imdb FOLDER --arxiv FOLDER

On a CPU: a grid with the quickstart's settings on BBC's lead paragraphs, two operators, and long
documents by their tokens and the speed. On a GPU,
which a small run leaves idle: seeds of the longest task of the demo, and the IMDB row of Table 1;
start nvidia-cuda-mps-control -d first to measure with MPS. Times are those of the whole command.
"""

import argparse
import os
import shutil
import statistics
import tempfile
from functools import partial
from itertools import product
from pathlib import Path

from joblib import cpu_count

import harness
import store
from generated_texts import folder_of
from harness import IS_GPU

MEASURES = (
    "model training.run training.recording training.build training.module training.classifier "
    "training.optimizer training.task training.observers training.diagnostics training.mechanism "
    "training.checkpoints training.progress data.batching data.datamodule process.precision "
    "process.environment process.distributed process.devices process.signals sweeps.launching "
    "train hydra_plugins.posfuse_parallel conf/protocol conf/model/small.yaml "
    "conf/quickstart.yaml conf/experiment/quickstart.yaml conf/experiment/table1.yaml "
    "conf/data/lead_story_long.yaml conf/speed conf/trainer conf/model/paper_long.yaml"
)
FOLDERS = ("imdb", "arxiv")
SMALL = [
    "experiment=quickstart", "data=bbc_lead_paragraph", "fusion=add,gate_scalar",
    "trainer.max_epochs=3",
]  # fmt: skip
ON_GPU = [
    "data=lead_story_long", "fusion=add", "model.n_layers=1", "model.attention_dropout=0",
    "data.batch_size=32", "trainer.max_epochs=5", "trainer=gpu",
]  # fmt: skip
IMDB = ["experiment=table1", "data=imdb", "fusion=add,concat,gate_scalar", "trainer=gpu"]


LONG = [
    "data=arxiv", "protocol=arxiv", "model=paper_long", "model.attention_dropout=0", "fusion=add",
    "data.batch_size=16", "data.limit=100", "trainer.max_epochs=1",
]  # fmt: skip


def rate(
    root: Path, cell: list[str], seeds: int, at_once: int, threads: int
) -> tuple[float, float]:
    """Runs per hour of a sweep with so many runs at once, and the documents that they train on per
    second."""
    shutil.rmtree(root / "runs", ignore_errors=True)
    launcher = ["hydra/launcher=parallel", f"hydra.launcher.n_jobs={at_once}"]
    own = [*launcher, f"seed=range({seeds})"]
    own += [f"hydra.launcher.runs_per_gpu={at_once}" if IS_GPU else f"trainer.threads={threads}"]
    start = harness.now()
    records = harness.trained(root, "-m", *cell, *own)
    each = statistics.mean(r["documents_per_second"] for r in records)
    return 3600 * len(records) / (harness.now() - start), at_once * each


def rates(
    root: Path, cell: list[str], seeds: int, cases: list[tuple[int, int]], repeats: int
) -> list[store.Row]:
    """Rows: runs at once, threads of each, runs per hour, their ratio to the first case, docs/s."""
    harness.trained(root, "-m", *cell, "seed=0", "trainer.limit_batches=1")  # writes the ids
    turns = {case: partial(rate, root, cell, seeds, *case) for case in cases}
    every = harness.in_turn(turns, repeats)
    found = {
        case: [statistics.median(of) for of in zip(*every[case], strict=True)] for case in cases
    }
    return [
        [*case, round(runs), runs / found[cases[0]][0], round(documents, 1)]
        for case, (runs, documents) in found.items()
    ]


def measure(given: argparse.Namespace) -> list[store.Table]:
    # One device, also where there are several.
    os.environ["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    cores = 1 if IS_GPU else cpu_count()
    cases = [(n, max(cores // n, 1)) for n in sorted({1, cores, *given.at_once})]
    columns = ["runs at once", "threads per run", "runs per hour", "ratio", "docs/s"]
    note = f"{given.seeds} seeds, medians of {given.repeats} sweeps; ratios are to the first row."
    with tempfile.TemporaryDirectory() as folder:
        root, cell = Path(folder), [*(ON_GPU if IS_GPU else SMALL), *given.overrides]
        rows = rates(root, cell, given.seeds, cases, given.repeats)
        tables = [store.table("Several runs at once", columns, rows, note)]
        if not IS_GPU:
            texts, rows = folder_of("arxiv", given.arxiv, root), []
            for tokens, speed in product(given.tokens, ("exact", "fast")):
                own = [f"data.path={texts}", f"data.max_len={tokens}", f"speed={speed}"]
                of_cell = rates(root, [*LONG, *own], 2, [(1, 1), (2, 1)], given.repeats)
                rows += [[tokens, speed, *row] for row in of_cell]
            about = "The paper's ArXiv model, 100 documents for training. docs/s: of all runs."
            longer = ["tokens", "speed", *columns]
            tables.append(store.table("Long documents", longer, rows, about))
        if IS_GPU and given.imdb:
            row = [*IMDB, f"data.path={given.imdb}", *given.overrides]
            rows = rates(root, row, 5, [(1, 1), (3, 1)], 1)
            about = "15 runs with the authors' settings and number of epochs, bfloat16."
            tables.append(store.table("The IMDB row of Table 1", columns, rows, about))
    return tables


if __name__ == "__main__":
    store.main(
        __file__, measure, seeds=24 if IS_GPU else 8, repeats=1 if IS_GPU else 2,
        at_once=[4, 8, 12, 24] if IS_GPU else [2, 4], tokens=[512, 1024, 2048], overrides=[],
    )  # fmt: skip
