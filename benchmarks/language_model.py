"""Train a small language model on bytes with posfuse and with a plain loop, and compare both.

    python benchmarks/language_model.py

The settings are those with which nanoGPT trains on a CPU: 4 layers of width 128, 4 heads, windows
of 64 bytes, 12 windows per step, learning rate 1e-3, no dropout. It trains for 2,000 steps, the
default here is 500. The text is data=bbc_bytes, with its splits. The plain loop is
benchmarks/plain_language_model.py.

posfuse has the settings that come closest: learned positions that are added, pre-norm blocks, tied
embeddings, a cosine schedule with a warm-up, weight decay of matrices. What differs: it has biases,
so the plain loop runs with them too, an option of nanoGPT. It has Adam's usual beta2 of 0.999, and
starts embeddings and positions from N(0, 1) instead of N(0, 0.02). It reads windows that do not
overlap, each once in an epoch; the plain loop draws them at random.

The systems take turns, each in its own process, and evaluate the same windows, the first of the
validation split. Times are of training alone; posfuse's contain its trainer and its callbacks, but
no checkpoints, since the plain loop has none.
"""

import argparse
import statistics
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import harness
import plain_language_model as plain
import store
from posfuse.config import Config
from posfuse.data.datamodule import TextDataModule
from posfuse.training.build import build_data, build_module, build_trainer
from posfuse.training.observers import Diagnostics, History
from systems import Clock

MEASURES = "model training data.windows data.datamodule process"
D, HEADS, LAYERS, BLOCK, BATCH, LR = 128, 4, 4, 64, 12, 1e-3
OVERRIDES = [
    "task=language_model", "data=bbc_bytes", "data.test_lengths=[]", f"data.max_len={BLOCK}",
    f"data.batch_size={BATCH}", "encoding=learned", "fusion=add", f"model.d_model={D}",
    f"model.d_ff={4 * D}", f"model.n_heads={HEADS}", f"model.n_layers={LAYERS}", "model.dropout=0",
    "model.norm_first=true", "model.token_scale=1", "task.output=tied", f"optim.lr={LR}",
    "optim.weight_decay=0.1", "optim.weight_decay_of=matrices", "optim.schedule=cosine",
    f"optim.end_factor={plain.LAST}", "trainer.clip_norm=1", "trainer.max_epochs=1",
    "trainer.accelerator=cpu", "logger=none",
]  # fmt: skip
FIRST_BYTE = 2  # its id, after those of <pad> and <unk>
SYSTEMS = ("plain", "plain with biases", "posfuse")


@dataclass(frozen=True)
class Job:
    """One training of one system."""

    system: str
    steps: int
    windows: int  # of the validation split, to evaluate
    cache: str
    seed: int = 0


def config(job: Job) -> Config:
    own = [f"seed={job.seed}", f"trainer.limit_batches={job.steps}", f"cache_dir={job.cache}"]
    own.append(f"optim.warmup={min(plain.WARMUP, job.steps - 1)}")
    return harness.config(*OVERRIDES, *own, f"trainer.threads={torch.get_num_threads()}")


def data_of(cfg: Config, job: Job) -> TextDataModule:
    """The run's data, with the first windows of the validation split alone."""
    data = build_data(cfg)
    windows = data.documents["validation"]
    windows.starts = windows.starts[: job.windows]  # type: ignore[attr-defined]
    windows.lengths = windows.lengths[: job.windows]
    return data


def train(_: Any, job: Job) -> tuple[float, float]:
    """CPU milliseconds of a step, and bits per byte after the last one."""
    cfg = config(job)
    data = data_of(cfg, job)
    seconds, bits = (posfuse if job.system == "posfuse" else baseline)(cfg, job, data)
    return 1000 * seconds / job.steps, bits


def posfuse(cfg: Config, job: Job, data: TextDataModule) -> tuple[float, float]:
    clock = Clock(harness.used)
    with tempfile.TemporaryDirectory() as folder:
        trainer = build_trainer(cfg, Path(folder), [History(), Diagnostics(data), clock])
        trainer.fit(build_module(cfg, data), data)
    return clock.training, float(trainer.callback_metrics["val/bits_per_byte"])


def baseline(cfg: Config, job: Job, data: TextDataModule) -> tuple[float, float]:
    text = (data.store.splits["train"].ids - FIRST_BYTE).astype(np.uint8)
    windows = data.documents["validation"]
    held_out = windows[np.arange(len(windows))]
    ids, targets = held_out.ids - FIRST_BYTE, held_out.labels - FIRST_BYTE
    torch.manual_seed(job.seed)
    model = plain.PlainLanguageModel(D, HEADS, LAYERS, BLOCK, bias="biases" in job.system)
    given = model, plain.optimizer(model, LR), text, BATCH, BLOCK, range(job.steps), job.steps, LR
    seconds = harness.seconds(lambda: plain.train(*given), harness.used)
    return seconds, plain.bits_per_byte(model, ids, targets)


def turn(system: str, job: Job, seeds: dict[str, int]) -> tuple[float, float]:
    """A whole training in a process of its own, with the system's next seed."""
    seed = seeds[system] = seeds.get(system, -1) + 1
    with harness.apart() as process:
        ms, bits = process(train, Job(system, job.steps, job.windows, job.cache, seed))
    print(f"{system}, seed {seed}: {ms:.2f} ms per step, {bits:.3f} bits per byte", flush=True)
    return ms, bits


def measure(given: argparse.Namespace) -> tuple[list[store.Table], Any]:
    torch.set_num_threads(given.threads)
    seeds: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as cache:
        job = Job("posfuse", given.steps, given.windows, cache)
        build_data(config(job))  # writes the ids
        found = harness.in_turn({s: partial(turn, s, job, seeds) for s in SYSTEMS}, given.repeats)
    times = {system: [ms for ms, _ in of] for system, of in found.items()}
    rows = []
    for system, of in found.items():
        bits = [bits for _, bits in of]
        ratio = f"{harness.median_ratio(times, system, 'plain'):.2f}×"
        spread = f"{min(bits):.3f}..{max(bits):.3f}"
        median = f"{statistics.median(bits):.3f}"
        rows.append([system, statistics.median(times[system]), ratio, median, spread])
    table = store.table(
        "A small language model",
        ["system", "CPU ms per step", "× plain", "bits per byte", "of the seeds"],
        rows,
        f"{given.steps:,} steps of {BATCH} × {BLOCK} bytes, d = {D}, {LAYERS} layers, {HEADS} "
        "heads, no dropout, on data=bbc_bytes. The systems take turns; times and ratios are "
        f"medians over {given.repeats} seeds. Bits per byte are those after the last step, of the "
        f"first {given.windows:,} validation windows: the median over the seeds, the lowest and "
        "the highest.",
    )
    return [table], found


if __name__ == "__main__":
    store.main(__file__, measure, repeats=4, steps=500, windows=1200, threads=1)
