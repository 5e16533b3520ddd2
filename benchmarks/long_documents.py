"""Time the paper's ArXiv model on long documents: by tokens, speed and runs at once.

    python benchmarks/long_documents.py

The documents are those of arxiv_path.py. Each measurement trains one epoch in a process with one
thread; the settings take turns, and the median of the repeats counts. A second table gives the rate
of the test by the size of its batches.
"""

import shutil
import statistics
import subprocess
import tempfile
from itertools import product
from pathlib import Path

import results
from arxiv_path import EXECUTABLE, write_corpus
from posfuse.runs import records

MEASURES = (
    "model.network model.fusion model.encoder model.attention model.kernels model.dropout "
    "data.batching data.datamodule training.build training.module training.classifier "
    "training.run conf/protocol/arxiv.yaml conf/speed"
)
SPEEDS = {
    "exact": ["speed=exact"],
    "exact, no dropout inside attention": ["speed=exact", "model.attention_dropout=0"],
    "fast": ["speed=fast"],
}
AT_ONCE = (1, 2)  # runs
TOKENS = (512, 1024, 2048)
EVALUATED = ((1024, 8), (1024, 32), (1024, 128), (4096, 8), (4096, 32))  # tokens, documents


def runs(corpus: Path, folder: Path, overrides: list[str], at_once: int) -> list[records.Record]:
    """The records of equal runs that start together; later runs use the same token ids."""
    command = [EXECUTABLE, "data=arxiv", "protocol=arxiv", "model=paper_long", "logger=none"]
    command += [f"data.corpus.id={corpus}", f"cache_dir={folder / 'cache'}", "data.batch_size=16"]
    command += ["trainer.max_epochs=1", "trainer.threads=1", "trainer.mechanism=false"]
    command += ["trainer.progress=none", *overrides]
    places = [folder / f"out{i}" for i in range(at_once)]
    started = [subprocess.Popen([*command, f"output_dir={place}"]) for place in places]
    if sum(process.wait() for process in started):
        raise SystemExit("error: a run failed; see its message above")
    found = []
    for place in places:
        (path,) = place.rglob(records.RESULT)
        found.append(records.read_result(path))
        shutil.rmtree(place)
    return found


def main() -> None:
    parser = results.parser(__file__, __doc__)
    parser.add_argument("--documents", type=int, default=96, help="for training; a quarter: test")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    cells = [*product(TOKENS, SPEEDS, AT_ONCE)]
    rates: dict[tuple[int, str, int], list[float]] = {cell: [] for cell in cells}
    tests: dict[tuple[int, int], list[float]] = {cell: [] for cell in EVALUATED}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        corpus = write_corpus(folder / "hub", arguments.documents)
        for _ in range(arguments.repeats):
            for tokens, speed, at_once in cells:
                given = [*SPEEDS[speed], f"data.max_len={tokens}"]
                found = runs(corpus, folder, given, at_once)
                total = sum(record["documents_per_second"] for record in found)
                rates[tokens, speed, at_once].append(total)
            for tokens, batch in EVALUATED:
                given = [f"data.max_len={tokens}", f"data.eval_batch_size={batch}"]
                given += ["trainer.limit_batches=1"]  # of training
                (record,) = runs(corpus, folder, given, 1)
                tests[tokens, batch].append(1000 / record["latency_ms"])
    rate = {cell: statistics.median(values) for cell, values in rates.items()}
    rows = [[*cell, rate[cell], rate[cell] / rate[cell[0], "exact", cell[2]]] for cell in cells]
    note = (
        f"{arguments.documents} documents for training, {arguments.documents // 4} for validation, "
        "which the rates include; d=128, 8 heads, 2 layers, batches of 16, one thread in each run. "
        "Documents per second are the sum over the runs."
    )
    columns = ["tokens", "settings", "runs at once", "docs/s", "times exact"]
    trained = results.table("Training on long documents", columns, rows, note)
    rows = [[*cell, statistics.median(values)] for cell, values in tests.items()]
    columns = ["tokens", "documents per batch", "docs/s"]
    tested = results.table("Test of long documents", columns, rows, "Forward passes, speed=exact.")
    results.write(arguments, [trained, tested], {"rates": [*map(list, rates.values())]})


if __name__ == "__main__":
    main()
