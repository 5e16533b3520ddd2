"""Time a sweep besides training: seconds to the first step, per further run, per finished run,
and for building token ids.

    python benchmarks/overhead.py

Runs use BBC's lead paragraphs with one epoch of one batch, so training takes almost none of their
time. Texts for the ids are drawn by Zipf's law from 3 million words. Each measurement has its own
processes.
"""

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import results

MEASURES = (
    "train runs training.run training.build training.checkpoints training.diagnostics "
    "tracking.live data.token_store data.vocabulary data.datamodule "
    "hydra_plugins.posfuse_sweeper"
)
RUNS = 6  # of a sweep whose further runs are timed
LOGGERS = ("none", "wandb")
OVERRIDES = [
    f"trainer.{o}" for o in ("max_epochs=1", "limit_batches=1", "threads=1", "accelerator=cpu")
]
WORDS, DOCUMENT = 3_000_000, 230  # different words, words of a document
PART = 5_000  # documents written at a time

# posfuse-train, printing the time at which each run trains its first batch.
TRAIN = """
import time
from posfuse import train
def timed_run(*arguments, tracked=train.tracked):
    train.tracked = tracked
    from posfuse.training.classifier import Classifier  # train() has imported it by now
    step = Classifier.training_step
    def timed(self, *arguments):
        print("first step", time.time(), flush=True)
        return step(self, *arguments)
    Classifier.training_step = timed
    return tracked(*arguments)
train.tracked = timed_run
train.main()
"""
SKIP = "from posfuse.train import main; main()"

# Builds a new store; prints words, seconds, and bytes before and at the peak.
IDS = """
import sys, time
from posfuse.config import DataConfig
from posfuse.data.token_store import open_store
def resident(key):
    (line,) = (l for l in open("/proc/self/status") if l.startswith(key))
    return 1024 * int(line.split()[1])
before, start = resident("VmRSS"), time.perf_counter()
store = open_store(DataConfig("generated", path=sys.argv[1]), sys.argv[2])
seconds = time.perf_counter() - start
print(sum(len(s.ids) for s in store.splits.values()), seconds, before, resident("VmHWM"))
"""


def timed(code: str, *arguments: str) -> tuple[float, float, str]:
    """Start and end, in seconds, of a process that runs the code, and its output."""
    start = time.time()
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"error: {done.stderr or done.stdout}")
    return start, time.time(), done.stdout


def sweep(root: Path, logger: str, seeds: str) -> list[str]:
    """The command line of a sweep over seeds."""
    folders = [f"output_dir={root / logger}", f"cache_dir={root / 'cache'}"]
    return ["-m", *OVERRIDES, f"logger={logger}", f"seed={seeds}", *folders]


def first_steps(root: Path, logger: str) -> tuple[float, list[float]]:
    """Seconds to a new sweep's first training step, and from each run's to the next one's."""
    shutil.rmtree(root / logger, ignore_errors=True)
    start, _, printed = timed(TRAIN, *sweep(root, logger, f"range({RUNS})"))
    lines = [line.split() for line in printed.splitlines() if line.startswith("first step")]
    steps = [float(line[2]) for line in lines]
    return steps[0] - start, [end - begin for begin, end in pairwise(steps)]


def write_corpus(folder: Path, megabytes: int) -> None:
    """Write `megabytes` of training texts, and a few for test."""
    draw = np.random.default_rng(0)
    words = np.array([f"{i:05x}" for i in range(WORDS)], dtype=object)
    schema = pa.schema([("text", pa.string()), ("label", pa.int64())])
    for split, size in (("train", megabytes * 10**6), ("test", 10**6)):
        with pq.ParquetWriter(folder / f"{split}.parquet", schema) as file:
            while size > 0:
                # The logarithm of a word's rank is uniform: Zipf's law.
                ranks = np.exp(draw.random((PART, DOCUMENT)) * np.log(WORDS)).astype(int)
                texts = [" ".join(document) for document in words[ranks - 1].tolist()]
                labels = [i % 4 for i in range(PART)]
                file.write_table(pa.table({"text": texts, "label": labels}, schema=schema))
                size -= sum(map(len, texts))


def runs_table(root: Path, repeats: int, finished: int) -> tuple[results.Table, dict[str, Any]]:
    timed(SKIP, *sweep(root, "none", "0"))  # writes the ids
    raw: dict[str, Any] = {f"{k} {log}": [] for k in ("first", "further") for log in LOGGERS}
    for _ in range(repeats):
        for logger in LOGGERS:
            first, further = first_steps(root, logger)
            raw[f"first {logger}"].append(first)
            raw[f"further {logger}"] += further
    timed(SKIP, *sweep(root, "none", f"range({finished})"))
    raw |= {"finished": [], "one": []}
    for _ in range(repeats):
        for name, seeds, n in (("finished", f"range({finished})", finished), ("one", "0", 1)):
            start, end, printed = timed(SKIP, *sweep(root, "none", seeds))
            assert printed.count("already done") == n
            raw[name].append(end - start)
    median = {name: statistics.median(values) for name, values in raw.items()}
    rows: list[list[str | float]] = []
    for logger in LOGGERS:
        rows.append(
            [f"start to the first training step, logger={logger}", median[f"first {logger}"]]
        )
    for logger in LOGGERS:
        rows.append([f"a further run in the process, logger={logger}", median[f"further {logger}"]])
    rows += [
        [f"a sweep of {finished} finished runs, from its start", median["finished"]],
        ["a further finished run", (median["finished"] - median["one"]) / (finished - 1)],
    ]
    note = (
        f"Medians of {repeats} processes each. The process starts cold; token ids exist. A further "
        "run is the time from one run's first step to the next run's first step: one batch of "
        "training, validation and test, diagnostics, checkpoints, record, and the composition of "
        "the next config by Hydra."
    )
    return results.table("Time of a sweep besides training", ["", "seconds"], rows, note), raw


def ids_table(root: Path, megabytes: int) -> tuple[results.Table, dict[str, Any]]:
    corpus = root / "corpus"
    corpus.mkdir()
    write_corpus(corpus, megabytes)
    _, _, printed = timed(IDS, str(corpus), str(root / "ids"))
    words, seconds, before, peak = map(float, printed.split())
    columns = ["text, MB", "million words", "seconds", "million words/s", "peak memory, MB",
               "of it at the start"]  # fmt: skip
    row = [megabytes, words / 1e6, seconds, words / seconds / 1e6, peak / 1e6, before / 1e6]
    note = (
        "Digest of the files, checks, counting, encoding and writing, in a separate process. "
        "Memory contains the counts of the different words, the labels and one part of the texts."
    )
    raw = {"words": words, "seconds": seconds, "before": before, "peak": peak}
    return results.table("Building ids", columns, [row], note), raw


def main() -> None:
    parser = results.parser(__file__, __doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--finished", type=int, default=20, help="finished runs")
    parser.add_argument("--megabytes", type=int, default=100, help="of text to make ids of")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        ids, raw_ids = ids_table(root, arguments.megabytes)
        runs, raw_runs = runs_table(root, arguments.repeats, arguments.finished)
    results.write(arguments, [runs, ids], {"runs": raw_runs, "ids": raw_ids})


if __name__ == "__main__":
    main()
