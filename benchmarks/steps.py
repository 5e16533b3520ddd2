"""A bare training step of a run's network, and what could replace parts of it.

A bare step is forward and backward pass, clipping and optimiser. The alternatives that train the
same network have the same results up to rounding; those named "bound" compute less, and limit what
a change could gain.
"""

import shutil
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

import timing
from posfuse.config import Config
from posfuse.data.batching import Batch
from posfuse.data.datamodule import TextDataModule
from posfuse.model import attention_encoding
from posfuse.model import dropout as own_dropout
from posfuse.training.build import build_module
from timing import DEVICE

Step = Callable[[Batch], None]
USUAL = "as posfuse-train"

# torch's names of operators, by the kind of work that the table shows. The rest is "other".
KINDS = {
    "matrix products": ("aten::mm", "aten::addmm", "aten::bmm"),
    "attention kernel": ("aten::_scaled_dot_product",),
    "softmax": ("aten::_softmax",),
    "dropout": ("_Dropout", "aten::index_fill_", "aten::log_", "aten::cumsum"),
    "sums and products of numbers": ("aten::add", "aten::mul", "aten::sub"),
    "copies": ("aten::copy_", "aten::cat"),
    "GELU": ("aten::gelu",),
    "LayerNorm": ("aten::native_layer_norm",),
    "optimiser": ("aten::_fused_adamw", "Optimizer.", "aten::_foreach", "aten::linalg"),
    "embedding": ("aten::embedding", "aten::index_select"),
}


def batches(data: TextDataModule, n: int | None = None) -> list[Batch]:
    """The first n training batches, or all of them before the first evaluation, on the device."""
    return [batch.to(DEVICE) for batch in islice(data.train_dataloader(), n)]


def stepper(
    cfg: Config, data: TextDataModule, kind: torch.dtype | None = None, compiled: bool = False
) -> Step:
    """A bare step of the run's network, whose products have this number type."""
    module = build_module(cfg, data).to(DEVICE)
    optimizer = module.configure_optimizers()
    module.model.train()
    if compiled:
        module.model.compile(dynamic=True)

    def step(batch: Batch) -> None:
        with torch.autocast(DEVICE.type, kind) if kind else nullcontext():
            logits = module.model(batch.ids, batch.lengths)
        optimizer.zero_grad()
        F.cross_entropy(logits.float(), batch.labels).backward()
        module.configure_gradient_clipping(optimizer, cfg.trainer.clip_norm)
        optimizer.step()

    return step


def seconds(step: Step, on: Sequence[Batch]) -> float:
    """Seconds of a step on each batch: CPU time, or on a GPU those of the clock."""
    start = timing.used()
    for batch in on:
        step(batch)
    return timing.used() - start


def alternatives(
    cfg: Config, data: TextDataModule, kind: torch.dtype | None = None
) -> dict[str, Step]:
    """The usual step, whose products have this number type, and its alternatives, by name."""
    make, model = partial(stepper, data=data, kind=kind), cfg.model
    without = replace(cfg, model=replace(model, dropout=0.0, attention_dropout=0.0))
    has_dropout = model.dropout > 0 or bool(model.attention_dropout)
    found = {USUAL: make(cfg)}
    found["attention by batched products"] = replacing(
        make(cfg), attention_encoding, "attention", plain_attention
    )
    if has_dropout and DEVICE.type == "cpu":
        found["torch's dropout, outside attention"] = replacing(
            make(cfg), own_dropout, "dropout", F.dropout
        )
    if has_dropout:
        found["no dropout (bound of masks drawn once)"] = make(without)
    usual = make(cfg)
    found["no padding (bound of packed documents)"] = lambda batch: usual(even(batch))
    if kind:
        found["float32"] = stepper(cfg, data)
    else:
        found["bfloat16"] = stepper(cfg, data, torch.bfloat16)
    if shutil.which("c++"):
        found["torch.compile"] = make(cfg, compiled=True)
    if shutil.which("c++") and has_dropout:
        name = "torch.compile, no dropout (bound of fused elementwise work)"
        found[name] = make(without, compiled=True)
    return found


def replacing(step: Step, module: Any, name: str, other: Callable[..., Any]) -> Step:
    """The step with another function in place of a module's own."""

    def replaced(batch: Batch) -> None:
        with mock.patch.object(module, name, other):
            step(batch)

    return replaced


def plain_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, bias: Tensor | None, p: float, *_: Any
) -> Tensor:
    """posfuse.model.attention by batched products, without a fused kernel or blocks."""
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
    if bias is not None:
        scores = scores + bias
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return own_dropout.dropout(scores.softmax(-1), p) @ v


def even(batch: Batch) -> Batch:
    """As many tokens, in documents of the batch's mean length."""
    length = round(batch.lengths.double().mean().item())
    return replace(batch, ids=batch.ids[:, :length], lengths=torch.full_like(batch.lengths, length))


def compared(
    name: str, steps: dict[str, Step], warm: Sequence[Batch], on: Sequence[Batch], repeats: int
) -> Iterator[list[str | float]]:
    """Rows of a table: ms of each step, and the usual one's time divided by it. The steps take
    turns; medians over the turns."""
    for step in steps.values():
        seconds(step, warm)
    turns = [{of: seconds(step, on) for of, step in steps.items()} for _ in range(repeats)]
    for of in steps:
        ratio = statistics.median(turn[USUAL] / turn[of] for turn in turns)
        ms = 1e3 * statistics.median(turn[of] for turn in turns) / len(on)
        yield [name, of, ms, f"{ratio:.2f}×"]


def budget(name: str, step: Step, on: Sequence[Batch]) -> list[list[str | float]]:
    """Rows of a table: the share of each kind of operator in the CPU time of the step."""
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        seconds(step, on)
    shares = dict.fromkeys((*KINDS, "other"), 0.0)
    for event in profiled.key_averages():
        kind = next((k for k, names in KINDS.items() if event.key.startswith(names)), "other")
        shares[kind] += event.self_cpu_time_total
    total = sum(shares.values())
    return [[name, kind, f"{time / total:.0%}"] for kind, time in shares.items()]
