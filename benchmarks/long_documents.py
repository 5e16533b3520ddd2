"""Time the paper's ArXiv model on long documents: by tokens, speed and runs at once.

    python benchmarks/long_documents.py

The documents are generated. Each measurement trains one epoch in a process with
one thread; the settings take turns, and the median of the repeats counts. A second table gives the
rate of the test by the size of its batches.
"""

import argparse
import statistics
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import generated_texts
import harness
import store

MEASURES = "model training data.batching data.datamodule conf/protocol/arxiv.yaml conf/speed"
SPEEDS = {
    "exact": ["speed=exact"],
    "exact, no dropout inside attention": ["speed=exact", "model.attention_dropout=0"],
    "fast": ["speed=fast"],
}
AT_ONCE = (1, 2)  # runs
TOKENS = (512, 1024, 2048)
EVALUATED = ((1024, 8), (1024, 32), (1024, 128), (4096, 8), (4096, 32))  # tokens, documents
SHARED = [
    "data=arxiv", "protocol=arxiv", "model=paper_long", "data.batch_size=16",
    "trainer.max_epochs=1", "trainer.threads=1", "trainer.mechanism=false", "trainer.progress=none",
]  # fmt: skip


def records(folder: Path, at_once: int, *overrides: str) -> list[Any]:
    """The records of equal runs that start together; all runs use the same token ids."""
    given = [*SHARED, f"data.corpus.id={folder / 'hub'}", *overrides]

    def run(i: int) -> list[Any]:
        with tempfile.TemporaryDirectory(dir=folder) as output:
            return harness.trained(Path(output), *given, f"cache_dir={folder / 'cache'}")

    with ThreadPoolExecutor(at_once) as pool:
        return [record for found in pool.map(run, range(at_once)) for record in found]


def trained(folder: Path, tokens: int, speed: str, at_once: int, *overrides: str) -> float:
    """Documents per second, the sum over the runs."""
    own = [*SPEEDS[speed], f"data.max_len={tokens}", *overrides]
    return float(sum(r["documents_per_second"] for r in records(folder, at_once, *own)))


def tested(folder: Path, tokens: int, batch: int, *overrides: str) -> float:
    """Documents per second of the test."""
    own = [f"data.max_len={tokens}", f"data.eval_batch_size={batch}", *overrides]
    (record,) = records(folder, 1, *own, "trainer.limit_batches=1")  # of training
    return float(1000 / record["latency_ms"])


def measure(given: argparse.Namespace) -> tuple[list[store.Table], Any]:
    cells = [*product(given.tokens, SPEEDS, AT_ONCE)]
    evaluated = [cell for cell in EVALUATED if cell[0] in (*given.tokens, 4096)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        generated_texts.write_arxiv(folder / "hub", given.documents, is_hub=True)
        turns = {c: partial(trained, folder, *c, *given.overrides) for c in cells}
        tests = {c: partial(tested, folder, *c, *given.overrides) for c in evaluated}
        found = harness.in_turn({**turns, **tests}, given.repeats)
    rate = {cell: statistics.median(values) for cell, values in found.items()}
    rows = [[*cell, rate[cell], rate[cell] / rate[cell[0], "exact", cell[2]]] for cell in cells]
    note = (
        f"{given.documents} documents for training, {given.documents // 4} for validation, "
        "which the rates include; d=128, 8 heads, 2 layers, batches of 16, one thread in each run. "
        "Documents per second are the sum over the runs."
    )
    columns = ["tokens", "settings", "runs at once", "docs/s", "times exact"]
    training = store.table("Training on long documents", columns, rows, note)
    rows = [[*cell, rate[cell]] for cell in evaluated]
    columns = ["tokens", "documents per batch", "docs/s"]
    test = store.table("Test of long documents", columns, rows, "Forward passes, speed=exact.")
    return [training, test], [*map(list, found.values())]


if __name__ == "__main__":
    store.main(__file__, measure, documents=96, repeats=3, tokens=list(TOKENS), overrides=[])
