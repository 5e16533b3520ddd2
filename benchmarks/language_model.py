"""Train a small language model on bytes with posfuse and with a plain loop, and compare both.

    python benchmarks/language_model.py

The settings are those with which nanoGPT trains on a CPU: 4 layers of width 128, 4 heads, windows
of 64 bytes, 12 windows per step, learning rate 1e-3, no dropout. It trains for 2,000 steps, the
default here is 500. The text is data=bbc_bytes, with its splits. The plain loop is
benchmarks/plain_language_model.py.

posfuse has the settings that come closest: learned positions that are added, pre-norm blocks, tied
embeddings. What differs: its learning rate is constant, so the plain loop runs with its own
schedule and with a constant rate. It has biases, so the plain loop runs with a constant rate and
biases too, an option of nanoGPT. It decays every parameter, has Adam's usual beta2 of 0.999, and
starts embeddings and positions from N(0, 1) instead of N(0, 0.02). It reads windows that do not
overlap, each once in an epoch; the plain loop draws them at random.

Each system has its own process. They take turns: each trains a part of its steps and evaluates the
same windows, the first of the validation split. Times are of training alone; posfuse's contain its
trainer and its callbacks, but no checkpoints, since the plain loop has none.
"""

import multiprocessing
import statistics
import tempfile
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import torch
from hydra import compose, initialize_config_dir
from lightning.pytorch.callbacks import Callback

import plain_language_model as plain
import results
from posfuse.config import CONF_DIR, Config
from posfuse.data.datamodule import TextDataModule
from posfuse.process.environment import denormals_flushed, keep_memory
from posfuse.runs.checks import checked
from posfuse.training.build import build_data, build_module, build_trainer
from posfuse.training.diagnostics import Diagnostics
from posfuse.training.history import History

MEASURES = (
    "model.language_model model.network model.fusion model.encoder model.attention model.kernels "
    "model.dropout model.attention_encoding model.encoding data.windows data.datamodule "
    "training.build training.module training.next_token training.diagnostics"
)
D, HEADS, LAYERS, BLOCK, BATCH, LR = 128, 4, 4, 64, 12, 1e-3
OVERRIDES = [
    "task=language_model", "data=bbc_bytes", "data.test_lengths=[]", f"data.max_len={BLOCK}",
    f"data.batch_size={BATCH}", "encoding=learned", "fusion=add", f"model.d_model={D}",
    f"model.d_ff={4 * D}", f"model.n_heads={HEADS}", f"model.n_layers={LAYERS}", "model.dropout=0",
    "model.norm_first=true", "model.token_scale=1", "task.output=tied", f"optim.lr={LR}",
    "optim.weight_decay=0.1", "trainer.clip_norm=1", "trainer.max_epochs=1",
    "trainer.accelerator=cpu", "trainer.progress=none", "logger=none",
]  # fmt: skip
FIRST_BYTE = 2  # its id, after those of <pad> and <unk>
SYSTEMS = ("plain", "plain, constant rate", "plain, constant rate and biases", "posfuse")
Part = dict[str, float]  # ms per step, CPU ms per step, and bits per byte after a part


@dataclass(frozen=True)
class Job:
    """One training of one system."""

    system: str
    seed: int
    steps: int
    parts: int
    windows: int  # of the validation split, to evaluate
    threads: int
    cache: str


def config(job: Job) -> Config:
    more = [
        f"seed={job.seed}", f"trainer.limit_batches={job.steps}", f"cache_dir={job.cache}",
        f"trainer.evaluations={job.parts}", f"trainer.threads={job.threads}",
    ]  # fmt: skip
    with initialize_config_dir(str(CONF_DIR), version_base="1.3"):
        return checked(compose("train", [*OVERRIDES, *more]))


def data_of(cfg: Config, job: Job) -> TextDataModule:
    """The run's data, with the first windows of the validation split alone."""
    data = build_data(cfg)
    windows = data.documents["validation"]
    windows.starts = windows.starts[: job.windows]  # type: ignore[attr-defined]
    windows.lengths = windows.lengths[: job.windows]
    return data


class Turns(Callback):
    """Waits for its turn, then measures a part's training, evaluates it, and reports both."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.clocks = (time.perf_counter, time.process_time)

    def begin(self) -> None:
        self.connection.recv()
        self.start = [clock() for clock in self.clocks]

    def end(self) -> None:
        self.seconds = [clock() - s for clock, s in zip(self.clocks, self.start, strict=True)]

    def report(self, steps: int, bits: float) -> None:
        elapsed, of_cpu = (1000 * seconds / steps for seconds in self.seconds)
        self.connection.send({"ms": elapsed, "cpu_ms": of_cpu, "bits_per_byte": bits})

    def on_train_epoch_start(self, trainer: L.Trainer, module: Any) -> None:
        self.begin()
        self.before = trainer.global_step

    def on_validation_start(self, trainer: L.Trainer, module: Any) -> None:
        self.end()

    def on_train_epoch_end(self, trainer: L.Trainer, module: Any) -> None:
        bits = float(trainer.callback_metrics["val/bits_per_byte"])
        self.report(trainer.global_step - self.before, bits)


def train_posfuse(cfg: Config, job: Job, turns: Turns) -> None:
    keep_memory()  # as a run does
    data = data_of(cfg, job)
    module = build_module(cfg, data)
    with denormals_flushed(), tempfile.TemporaryDirectory() as folder:
        observers = [History(cfg.trainer.evaluations), Diagnostics(data), turns]
        build_trainer(cfg, Path(folder), observers).fit(module, data)


def train_plain(cfg: Config, job: Job, turns: Turns) -> None:
    data = data_of(cfg, job)
    text = (data.store.splits["train"].ids - FIRST_BYTE).astype(np.uint8)
    windows = data.documents["validation"]
    held_out = windows[np.arange(len(windows))]
    ids, targets = held_out.ids - FIRST_BYTE, held_out.labels - FIRST_BYTE
    torch.manual_seed(job.seed)
    model = plain.PlainLanguageModel(D, HEADS, LAYERS, BLOCK, bias="biases" in job.system)
    updates = plain.optimizer(model, LR)
    steps = job.steps if job.system == "plain" else None
    for part in range(job.parts):
        first, end = (job.steps * n // job.parts for n in (part, part + 1))
        turns.begin()
        plain.train(model, updates, text, BATCH, BLOCK, range(first, end), steps, LR)
        turns.end()
        turns.report(end - first, plain.bits_per_byte(model, ids, targets))


def work(job: Job, connection: Connection) -> None:
    """A whole training, in a process of its own."""
    torch.set_num_threads(job.threads)
    cfg, turns = config(job), Turns(connection)
    train = train_posfuse if job.system == "posfuse" else train_plain
    train(cfg, job, turns)


def measure(jobs: list[Job]) -> dict[str, list[Part]]:
    """The parts of each job, which take turns."""
    context = multiprocessing.get_context("spawn")
    connections, processes = {}, []
    for job in jobs:
        connections[job.system], other = context.Pipe()
        processes.append(context.Process(target=work, args=(job, other)))
        processes[-1].start()
        other.close()  # so that the end of the process ends the wait for it
    found: dict[str, list[Part]] = {job.system: [] for job in jobs}
    for _ in range(jobs[0].parts):
        for system, connection in connections.items():
            connection.send("begin")
            found[system].append(connection.recv())
    for process in processes:
        process.join()
    return found


def rows(runs: list[dict[str, list[Part]]]) -> list[list[str | float]]:
    """A row for each system: medians over all parts of all runs; ratios part by part."""
    found: list[list[str | float]] = []
    for system in runs[0]:
        parts = [part for run in runs for part in run[system]]
        firsts = [part for run in runs for part in run[SYSTEMS[0]]]
        pairs = zip(parts, firsts, strict=True)
        ratio = statistics.median(mine["cpu_ms"] / its["cpu_ms"] for mine, its in pairs)
        ms, of_cpu = (statistics.median(part[key] for part in parts) for key in ("ms", "cpu_ms"))
        bits = [run[system][-1]["bits_per_byte"] for run in runs]
        spread = f"{min(bits):.3f}..{max(bits):.3f}"
        median = f"{statistics.median(bits):.3f}"
        found.append([system, ms, of_cpu, f"{ratio:.2f}×", median, spread])
    return found


def main() -> None:
    parser = results.parser(__file__, __doc__)
    parser.add_argument("--repeats", type=int, default=2, help="seeds")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--parts", type=int, default=8, help="turns of a training")
    parser.add_argument("--windows", type=int, default=1200, help="of an evaluation")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    given = arguments.steps, arguments.parts, arguments.windows, arguments.threads
    runs = []
    with tempfile.TemporaryDirectory() as cache:
        build_data(config(Job("posfuse", 0, *given, cache)))  # writes the ids
        for seed in range(arguments.repeats):
            runs.append(measure([Job(system, seed, *given, cache) for system in SYSTEMS]))
            for row in rows(runs):
                print(f"{seed + 1} of {arguments.repeats}", *row, sep=", ", flush=True)
    steps = f"{arguments.steps:,} steps of {BATCH} × {BLOCK} bytes"
    table = results.table(
        "A small language model",
        ["system", "ms per step", "CPU ms", "× plain", "bits per byte", "of the seeds"],
        rows(runs),
        f"{steps}, d = {D}, {LAYERS} layers, {HEADS} heads, no dropout, on data=bbc_bytes. The "
        "systems take turns. Times are medians over all turns; the ratio is the median of the "
        "turns' own ratios of CPU time. Bits per byte are those after the last step, of the "
        f"first {arguments.windows:,} validation windows: the median over the seeds, the "
        "lowest and the highest.",
    )
    results.write(arguments, [table], {"runs": runs})


if __name__ == "__main__":
    main()
