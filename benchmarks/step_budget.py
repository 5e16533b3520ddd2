"""Where the time of a small run goes, and what alternatives give; studies consist of such runs.

    python benchmarks/step_budget.py

Two cells with one thread: the longest task of the demo (one layer, 180 words) and a task of
experiment=positions (two layers, up to 40 symbols). CPU times, in which other processes on the
machine count less. A whole run and a bare loop (forward and backward pass, clipping, optimiser)
train on the same batches in turn. The alternatives train the bare loop, and take turns as well.
"""

import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Any

import lightning as L
import torch
import torch.nn.functional as F
from hydra import compose, initialize_config_dir
from lightning.pytorch.callbacks import Callback
from torch.profiler import ProfilerActivity, profile

import results
from posfuse.config import CONF_DIR, Config
from posfuse.data.batching import Batch
from posfuse.model import attention_encoding
from posfuse.process.environment import denormals_flushed, do_without_broken_amx, keep_memory
from posfuse.runs.checks import checked
from posfuse.training import run
from posfuse.training.build import build_data, build_module

MEASURES = (
    "model.network model.fusion model.encoder model.attention model.dropout "
    "model.attention_encoding data.batching data.datamodule training.build training.module "
    "training.classifier training.diagnostics training.mechanism training.history training.run"
)
SHARED = [
    "fusion=add", "encoding=sinusoidal", "model.token_scale=1", "model.attention_dropout=0",
    "trainer.accelerator=cpu", "trainer.threads=1", "trainer.progress=none", "logger=none",
]  # fmt: skip
CELLS = {
    "lead_story_long": [
        "data.batch_size=32", "model.n_layers=1", "optim.lr=0.003", "data.split_seed=seed",
        "trainer.max_epochs=5",
    ],
    "missing_duplicate": [
        "data.batch_size=128", "model.n_layers=2", "model.dropout=0", "optim.lr=0.001",
        "trainer.max_epochs=1", "trainer.evaluations=5", "data.test_lengths=[40]",
    ],
}  # fmt: skip
WARM, STEPS = 20, 40  # of an alternative's turn
Step = Callable[[Batch], None]

# torch's names of operators, by the kind of work that the table shows. The rest is "other".
KINDS = {
    "matrix products": ("aten::mm", "aten::addmm", "aten::bmm"),
    "attention kernel": ("aten::_scaled_dot_product",),
    "copies": ("aten::copy_", "aten::cat"),
    "dropout": ("_Dropout", "aten::index_fill_", "aten::log_", "aten::cumsum"),
    "GELU": ("aten::gelu",),
    "LayerNorm": ("aten::native_layer_norm",),
    "optimiser": ("aten::_fused_adamw", "Optimizer.", "aten::_foreach", "aten::linalg"),
    "embedding": ("aten::embedding", "aten::index_select"),
}


class Clock(Callback):
    """CPU seconds of a fit."""

    seconds = 0.0

    def on_fit_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        self.seconds -= time.process_time()

    def on_fit_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        self.seconds += time.process_time()


def config(cell: str, cache: str) -> Config:
    with initialize_config_dir(str(CONF_DIR), version_base="1.3"):
        overrides = [f"data={cell}", *CELLS[cell], *SHARED, f"cache_dir={cache}"]
        return checked(compose("train", overrides))


def fit_seconds(cfg: Config) -> float:
    """CPU seconds of the fit of a whole run: steps, validation, diagnostics and checkpoints."""
    clock, build = Clock(), run.build_trainer
    run.build_trainer = lambda cfg, folder, observers: build(cfg, folder, [*observers, clock])
    try:
        with tempfile.TemporaryDirectory() as folder:
            run.run(cfg, Path(folder))
    finally:
        run.build_trainer = build
    return clock.seconds


def batches(cfg: Config) -> list[Batch]:
    """The training batches before the first evaluation, as often as the run has evaluations."""
    found = list(islice(build_data(cfg).train_dataloader(), cfg.trainer.limit_batches))
    return found * cfg.trainer.max_epochs * cfg.trainer.evaluations


def stepper(cfg: Config, autocast: bool = False, compiled: bool = False) -> Step:
    """A bare training step of the cell's network."""
    module = build_module(cfg, build_data(cfg))
    optimizer = module.configure_optimizers()
    module.model.train()
    if compiled:
        module.model.compile(dynamic=True)

    def step(batch: Batch) -> None:
        with torch.autocast("cpu", torch.bfloat16) if autocast else nullcontext():
            logits = module.model(batch.ids, batch.lengths)
        optimizer.zero_grad()
        F.cross_entropy(logits.float(), batch.labels).backward()
        module.configure_gradient_clipping(optimizer, cfg.trainer.clip_norm)
        optimizer.step()

    return step


def seconds(step: Step, on: Sequence[Batch]) -> float:
    start = time.process_time()
    for batch in on:
        step(batch)
    return time.process_time() - start


def plain_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None, *_: Any
) -> torch.Tensor:
    """Attention by batched products, without a fused kernel."""
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return scores.softmax(-1) @ v


def with_plain_attention(step: Step) -> Step:
    def replaced(batch: Batch) -> None:
        own = attention_encoding.attention
        attention_encoding.attention = plain_attention  # type: ignore[assignment]
        try:
            step(batch)
        finally:
            attention_encoding.attention = own

    return replaced


def alternatives(cfg: Config, repeats: int) -> list[list[str | float]]:
    """ms per step of the usual step and of each alternative, and its ratio to the usual one in the
    same turn, medians over the turns."""
    on = batches(cfg)[: WARM + STEPS]
    steps = {"float32, torch's attention kernel": stepper(cfg)}
    steps["attention by batched products"] = with_plain_attention(stepper(cfg))
    steps["bfloat16"] = stepper(cfg, autocast=True)
    if shutil.which("c++"):
        steps["torch.compile"] = stepper(cfg, compiled=True)
    for step in steps.values():
        seconds(step, on[:WARM])
    turns = [
        {name: seconds(step, on[WARM:]) for name, step in steps.items()} for _ in range(repeats)
    ]
    usual = next(iter(steps))
    return [
        [
            cfg.data.name,
            name,
            1e3 * statistics.median(turn[name] for turn in turns) / len(on[WARM:]),
            f"{statistics.median(turn[usual] / turn[name] for turn in turns):.2f}×",
        ]
        for name in steps
    ]


def budget(cfg: Config) -> list[list[str | float]]:
    """The share of a bare step's CPU time in each kind of operator."""
    step, on = stepper(cfg), batches(cfg)[: WARM + STEPS]
    seconds(step, on[:WARM])
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        seconds(step, on[WARM:])
    shares = dict.fromkeys((*KINDS, "other"), 0.0)
    for event in profiled.key_averages():
        kind = next((k for k, names in KINDS.items() if event.key.startswith(names)), "other")
        shares[kind] += event.self_cpu_time_total
    total = sum(shares.values())
    return [[cfg.data.name, kind, f"{time / total:.0%}"] for kind, time in shares.items()]


def main() -> None:
    parser = results.parser(__file__, __doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cells", nargs="+", choices=CELLS, default=list(CELLS))
    arguments = parser.parse_args()
    do_without_broken_amx()
    torch.set_num_threads(1)
    keep_memory()
    runs, parts, others = [], [], []
    with tempfile.TemporaryDirectory() as cache, denormals_flushed():
        for cell in arguments.cells:
            cfg = config(cell, cache)
            on, pairs = batches(cfg), []
            for _ in range(arguments.repeats):
                bare = seconds(stepper(cfg), on)
                pairs.append((fit_seconds(cfg), bare))
            fit, bare = (statistics.median(times) for times in zip(*pairs, strict=True))
            share = statistics.median(bare / fit for fit, bare in pairs)
            runs.append([cell, len(on), fit, bare, f"{share:.0%}"])
            parts += budget(cfg)
            others += alternatives(cfg, arguments.repeats)
    tables = [
        results.table(
            "A small run",
            ["cell", "steps", "fit, CPU s", "bare loop, CPU s", "share"],
            runs,
            "The bare loop is forward and backward pass, clipping and optimiser on the run's "
            "batches. The rest of the fit is validation, diagnostics, checkpoints and Lightning. "
            f"Medians of {arguments.repeats} turns, one thread.",
        ),
        results.table(
            "A step of the bare loop",
            ["cell", "operators", "share"],
            parts,
            f"Shares of CPU time over {STEPS} steps, by torch's profiler.",
        ),
        results.table(
            "Alternatives for a step",
            ["cell", "step", "CPU ms", "speed"],
            others,
            f"Steps of the bare loop, {STEPS} in a turn, after {WARM} that do not count; the speed "
            "is relative to the first row of the cell in the same turn.",
        ),
    ]
    results.write(arguments, tables, {"repeats": arguments.repeats})


if __name__ == "__main__":
    main()
