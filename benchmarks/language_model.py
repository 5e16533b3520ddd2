"""Train a small language model on bytes with posfuse, a plain loop and nanoGPT.

    python benchmarks/language_model.py --nanogpt FOLDER    # a checkout of nanoGPT; may be left out

The settings are those with which nanoGPT trains on a CPU, but 500 steps in place of 2,000. The
plain loop is benchmarks/plain_language_model.py; nanoGPT's own model trains in the same loop.

posfuse also runs with speed=fast. Where this chooses bfloat16, nanoGPT runs in bfloat16 too, though
its own script trains in float32 on a CPU.

What differs in posfuse: it has biases, so the plain loop runs with them too, an option of nanoGPT.
It has Adam's usual beta2 of 0.999, starts embeddings and positions from N(0, 1) instead of
N(0, 0.02), and divides the output of tied embeddings by sqrt(d). It reads windows that do not
overlap; the plain loop draws them at random. Times are of training alone; posfuse's contain its
trainer and its callbacks, but no checkpoints.
"""

import argparse
import importlib
import statistics
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch

import harness
import plain_language_model as plain
import store
from posfuse.config import Config
from posfuse.data.datamodule import TextDataModule
from posfuse.process import precision
from posfuse.training.build import build_data, build_module
from systems import fit

MEASURES = (
    "model training.build training.module training.next_token training.optimizer training.task "
    "training.observers training.diagnostics data.batching data.windows data.datamodule "
    "process.environment process.precision process.distributed conf/speed"
)
FOLDERS = ("nanogpt",)
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
POSFUSE = {"posfuse": "exact", "posfuse, fast": "fast"}  # speed by system
NANOGPT = "nanoGPT"
HALF = f"{NANOGPT}, bfloat16"
SYSTEMS = ("plain", "plain with biases", *POSFUSE)


@dataclass(frozen=True)
class Job:
    """One training of one system."""

    system: str
    steps: int
    windows: int  # of the validation split, to evaluate
    cache: str
    nanogpt: Path | None = None
    seed: int = 0


def config(job: Job) -> Config:
    own = [f"seed={job.seed}", f"trainer.limit_batches={job.steps}", f"cache_dir={job.cache}"]
    own.append(f"optim.warmup={min(plain.WARMUP, job.steps - 1)}")
    own += [f"speed={POSFUSE.get(job.system, 'exact')}", f"output_dir={job.cache}"]
    cfg = harness.config(*OVERRIDES, *own, f"trainer.threads={torch.get_num_threads()}")
    cfg.trainer.precision = precision.precision_of(cfg)  # as posfuse train does
    return cfg


def data_of(cfg: Config, job: Job) -> TextDataModule:
    """The run's data, with the first windows of the validation split alone."""
    data = build_data(cfg)
    windows = data.documents["validation"]
    windows.starts = windows.starts[: job.windows]  # type: ignore[attr-defined]
    windows.lengths = windows.lengths[: job.windows]
    return data


def train(_: Any, job: Job) -> tuple[float, float]:
    """CPU milliseconds of a step, and bits per byte after the last one."""
    if job.system in POSFUSE:
        harness.set_as_in_a_run()
    cfg = config(job)
    data = data_of(cfg, job)
    if job.system in POSFUSE:
        clock, metrics = fit(cfg, build_module(cfg, data), data, harness.used)
        seconds, bits = clock.training, float(metrics["val/bits_per_byte"])
    else:
        seconds, bits = baseline(job, data)
    return 1000 * seconds / job.steps, bits


def baseline(job: Job, data: TextDataModule) -> tuple[float, float]:
    text = (data.store.splits["train"].ids - FIRST_BYTE).astype(np.uint8)
    windows = data.documents["validation"]
    held_out = windows[np.arange(len(windows))]
    torch.manual_seed(job.seed)
    if job.system in (NANOGPT, HALF):
        model, updates = nanogpt(job.nanogpt)
    else:
        model = plain.PlainLanguageModel(D, HEADS, LAYERS, BLOCK, bias="biases" in job.system)
        updates = plain.optimizer(model, LR)
    work = partial(plain.train, model, updates, text, BATCH, BLOCK, job.steps, LR)
    # Without a cache, because it would keep the weights of the first step.
    with torch.autocast("cpu", torch.bfloat16, job.system == HALF, cache_enabled=False):
        seconds = harness.seconds(work, harness.used)
    ids, targets = held_out.ids - FIRST_BYTE, held_out.labels - FIRST_BYTE
    return seconds, plain.bits_per_byte(model, ids, targets)


def nanogpt(folder: Path | None) -> tuple[Any, torch.optim.Optimizer]:
    """The model and the optimiser of the file model.py in a checkout of nanoGPT."""
    sys.path.insert(0, str(folder))
    code = importlib.import_module("model")
    sizes = code.GPTConfig(BLOCK, plain.BYTES, LAYERS, HEADS, D, dropout=0.0, bias=False)
    model = code.GPT(sizes)
    return model, model.configure_optimizers(plain.DECAY, LR, plain.BETAS, "cpu")


def turn(job: Job, seeds: Iterator[int]) -> tuple[float, float]:
    """A whole training in a process of its own, with the system's next seed."""
    seed = next(seeds)
    with harness.apart() as process:
        ms, bits = process(train, replace(job, seed=seed))
    print(f"{job.system}, seed {seed}: {ms:.2f} ms per step, {bits:.3f} bits per byte", flush=True)
    return ms, bits


def measure(given: argparse.Namespace) -> list[store.Table]:
    torch.set_num_threads(given.threads)
    with tempfile.TemporaryDirectory() as cache:
        job = Job("posfuse, fast", given.steps, given.windows, cache, given.nanogpt)
        cfg = config(job)
        build_data(cfg)  # writes the ids
        halves = [HALF] if cfg.trainer.precision == precision.BFLOAT16 else []
        systems = [*SYSTEMS, NANOGPT, *halves] if given.nanogpt else SYSTEMS
        jobs = {system: replace(job, system=system) for system in systems}
        turns = {s: partial(turn, job, count()) for s, job in jobs.items()}
        found = harness.in_turn(turns, given.repeats)
    times = harness.compared({s: [ms for ms, _ in of] for s, of in found.items()}, "plain")
    rows = []
    for system, of in found.items():
        bits = [bits for _, bits in of]
        spread = f"{min(bits):.3f}..{max(bits):.3f}"
        rows.append([system, *times[system], f"{statistics.median(bits):.3f}", spread])
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
    return [table]


if __name__ == "__main__":
    store.main(__file__, measure, repeats=4, steps=500, windows=1200, threads=1)
