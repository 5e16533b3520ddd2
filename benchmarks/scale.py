"""How cost grows with tokens, documents, predictions and runs.

    python benchmarks/scale.py

Each row has its own process. Tokens: training steps of a small model. Documents: the ids of a
corpus of so many texts of 40 words. Predictions: the report of a sweep of four runs with so many
test documents. Runs: the command and the report of a finished sweep of so many runs, copies of two
real ones.
"""

import multiprocessing
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import torch.nn.functional as F
from hydra import compose, initialize_config_dir

import results
from copied_sweeps import copies, skipping, trained
from posfuse.config import CONF_DIR, DataConfig
from posfuse.data.token_store import open_store
from posfuse.evidence.collect import collect
from posfuse.process.environment import denormals_flushed, keep_memory, peak_memory
from posfuse.runs.checks import checked
from posfuse.runs.records import RESULT
from posfuse.training.build import build_network

MEASURES = (
    "model.network model.encoder model.attention model.dropout model.attention_encoding "
    "model.encoding data.token_store training.build process.environment train runs "
    "analysis.report analysis.findings analysis.drawings analysis.evidence.collect "
    "analysis.evidence.mechanism analysis.statistics.paired analysis.statistics.documents "
    "analysis.statistics.over_documents hydra_plugins.posfuse_sweeper"
)
TOKENS = (40, 80, 160, 320, 640, 1280, 2560, 4096)
STEPS, BATCH_TOKENS = 5, 8192  # tokens of a batch, in documents of equal length
WORDS, PART = 5_000, 20_000  # different words; texts that are written at a time
MOST_SKIPPED = 100  # runs of a sweep whose commands are timed
NOTES = {
    "tokens of a document": f"A training step of one layer of d = 64 on {BATCH_TOKENS:,} tokens; "
    f"median of {STEPS}, one thread.",
    "documents of a corpus": "Reading, counting and encoding texts of 40 words.",
    "predictions of a run": "posfuse-report of two operators and two seeds.",
    "runs of a sweep": "Composing: the configs of all runs, and their checks. Skipping: the same "
    "command on the finished sweep, in one process. Both are left out for the larger sweeps "
    "(--most-skipped). Report: posfuse-report of two operators, which collects the records first.",
}
EACH = ["seconds", "peak memory GB"]
OF_SWEEP = ["composing s", "skipping s", "collecting s", "report s", "report's peak memory GB"]
Measured = tuple[float, float]  # seconds, peak memory in GB


def apart(work: Callable[[], float], memory: Callable[[], int] = peak_memory) -> Measured:
    """Seconds that the work returns in a process of its own, and the peak memory in GB."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(_apart, work, memory).result()


def _apart(work: Callable[[], float], memory: Callable[[], int]) -> Measured:
    torch.set_num_threads(1)
    keep_memory()
    with denormals_flushed():
        seconds = work()
    return seconds, memory() / 1e9


def of_command() -> int:
    """Peak memory in bytes of the largest child, for work that runs a command. Other work has
    small children too: importing scipy starts one."""
    return 1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss


def step(length: int) -> float:
    """Seconds of a training step with documents of this length."""
    overrides = ["fusion=add", "model.n_layers=1", "model.attention_dropout=0"]
    overrides += [f"data.max_len={length}", "trainer.accelerator=cpu"]
    with initialize_config_dir(str(CONF_DIR), version_base="1.3"):
        cfg = checked(compose("train", overrides))
    network = build_network(cfg, WORDS, 4)
    optimizer = torch.optim.AdamW(network.parameters(), fused=True)
    documents = max(1, BATCH_TOKENS // length)
    ids = torch.randint(2, WORDS, (documents, length))
    lengths, labels = torch.full((documents,), length), torch.randint(4, (documents,))
    times = []
    for _ in range(1 + STEPS):
        start = time.perf_counter()
        optimizer.zero_grad()
        F.cross_entropy(network(ids, lengths), labels).backward()
        optimizer.step()
        times.append(time.perf_counter() - start)
    return float(np.median(times[1:]))


def write_texts(folder: Path, n: int) -> None:
    """n training texts of 40 words, and a few for test."""
    draw = np.random.default_rng(0)
    folder.mkdir()
    schema = pa.schema([("text", pa.string()), ("label", pa.int64())])
    for split, size in (("train", n), ("test", 1000)):
        with pq.ParquetWriter(folder / f"{split}.parquet", schema) as file:
            for start in range(0, size, PART):
                words = draw.integers(WORDS, size=(min(PART, size - start), 40))
                texts = [" ".join(f"w{word}" for word in text) for text in words.tolist()]
                labels = [i % 4 for i in range(len(texts))]
                file.write_table(pa.table({"text": texts, "label": labels}, schema=schema))


def ids(folder: Path) -> float:
    """Seconds to make the ids of a corpus."""
    start = time.perf_counter()
    open_store(DataConfig("generated", path=str(folder)), str(folder / "ids"))
    return time.perf_counter() - start


def reported(sweep: Path) -> float:
    """Seconds of the report of a sweep."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "posfuse.report.entry", str(sweep)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def collected(sweep: Path) -> float:
    """Seconds to read the records of a sweep."""
    start = time.perf_counter()
    collect(sweep)
    return time.perf_counter() - start


def by_runs(sweep: Path, most_skipped: int) -> list[str | float]:
    """Seconds of composing, skipping, collecting and reporting, and the report's memory in GB."""
    runs = len(list(sweep.rglob(RESULT)))
    commands: list[str | float] = ["", ""]
    if runs <= most_skipped:
        commands = [apart(partial(skipping, sweep, compose))[0] for compose in (True, False)]
    report = apart(partial(reported, sweep), of_command)
    return [runs, *commands, apart(partial(collected, sweep))[0], *report]


def rows(
    counts: Sequence[int],
    work: Callable[[int], Callable[[], float]],
    memory: Callable[[], int] = peak_memory,
) -> list[list[str | float]]:
    return [[count, *apart(work(count), memory)] for count in counts]


def main() -> None:
    parser = results.parser(__file__, __doc__)
    parser.add_argument("--tokens", type=int, nargs="+", default=list(TOKENS))
    parser.add_argument("--documents", type=int, nargs="+", default=[10**n for n in (3, 4, 5, 6)])
    parser.add_argument("--predictions", type=int, nargs="+", default=[10**n for n in (3, 4, 5, 6)])
    parser.add_argument("--runs", type=int, nargs="+", default=[10, 100, 1000, 10_000])
    about = "largest sweep of which composing and skipping are timed (default: %(default)s)"
    parser.add_argument("--most-skipped", type=int, default=MOST_SKIPPED, help=about)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)

        def corpus(n: int) -> Callable[[], float]:
            write_texts(root / f"{n}", n)
            return partial(ids, root / f"{n}")

        def predictions(n: int) -> Callable[[], float]:
            copies(one, root / f"{n}_predictions", 2, n)
            return partial(reported, root / f"{n}_predictions")

        def sweep(n: int) -> Path:
            copies(one, root / f"{n}_runs", n // 2)
            return root / f"{n}_runs"

        measured = {
            "tokens of a document": rows(arguments.tokens, lambda length: partial(step, length)),
            "documents of a corpus": rows(arguments.documents, corpus),
        }
        one = trained(root)
        measured["predictions of a run"] = rows(arguments.predictions, predictions, of_command)
        measured["runs of a sweep"] = [
            by_runs(sweep(n), arguments.most_skipped) for n in arguments.runs
        ]
    tables = [
        results.table(
            f"By {of}", [of, *(OF_SWEEP if of == "runs of a sweep" else EACH)], found, NOTES[of]
        )
        for of, found in measured.items()
    ]
    results.write(arguments, tables, {})


if __name__ == "__main__":
    main()
