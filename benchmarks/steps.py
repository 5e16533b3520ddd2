"""A bare training step of a run's network, and what could replace parts of it.

A bare step is forward and backward pass, clipping and optimiser. The alternatives that train the
same network have the same results up to rounding; those named "bound" compute less, and limit what
a change could gain.
"""

import math
import os
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
from posfuse.data.batching import Batch, ResidentDocuments
from posfuse.data.datamodule import TextDataModule
from posfuse.model import attention_encoding
from posfuse.model import dropout as own_dropout
from posfuse.process.environment import denormals_flushed, keep_memory
from posfuse.training.build import build_module
from timing import DEVICE

Step = Callable[[Batch], None]
USUAL = "as posfuse-train"

# torch's names of operators, by the kind of work that the table shows. The rest is "other".
KINDS = {
    "matrix products": ("aten::mm", "aten::addmm", "aten::bmm"),
    "attention kernel": ("aten::_scaled_dot_product",),
    "softmax": ("aten::_softmax",),
    "dropout": ("_Dropout", "aten::index_fill_", "aten::cumsum"),
    "sums and products of numbers": ("aten::add", "aten::mul", "aten::sub"),
    "copies": ("aten::copy_", "aten::cat"),
    "GELU": ("aten::gelu",),
    "LayerNorm": ("aten::native_layer_norm",),
    "optimiser": ("aten::_fused_adamw", "Optimizer.", "aten::_foreach", "aten::linalg"),
    "embedding": ("aten::embedding", "aten::index_select"),
}


def device_of(cfg: Config) -> torch.device:
    return torch.device("cpu") if cfg.trainer.accelerator == "cpu" else DEVICE


def batches(cfg: Config, data: TextDataModule, n: int | None = None) -> list[Batch]:
    """The first n training batches of a run, or all of them before the first evaluation."""
    documents, device = data.documents["train"], device_of(cfg)
    if device.type != "cpu":  # as in a run: other lengths, and padding to a multiple of 8
        documents = ResidentDocuments(documents, documents.max_len, device)
    return [documents[members] for members in islice(data.train_dataloader().sampler, n)]


def as_in_a_run() -> None:
    """The settings of torch that a run makes."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    keep_memory()
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False


def stepper(
    cfg: Config, data: TextDataModule, kind: torch.dtype | None = None, compiled: bool = False
) -> Step:
    """A bare step of the run's network, whose products have this number type."""
    device = device_of(cfg)
    module = build_module(cfg, data).to(device)
    optimizer = module.configure_optimizers()
    module.model.train()
    if compiled:
        module.model.compile(dynamic=True)

    def step(batch: Batch) -> None:
        with torch.autocast(device.type, kind) if kind else nullcontext():
            logits = module.model(batch.ids, batch.lengths)
        optimizer.zero_grad()
        F.cross_entropy(logits.float(), batch.labels).backward()
        module.configure_gradient_clipping(optimizer, cfg.trainer.clip_norm)
        optimizer.step()

    return step


@denormals_flushed()  # as a run is
def seconds(step: Step, on: Sequence[Batch]) -> float:
    """Seconds of a step on each batch: CPU time, or on a GPU those of the clock."""
    start = timing.used(on[0].ids.device)
    for batch in on:
        step(batch)
    return timing.used(on[0].ids.device) - start


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
    if has_dropout and device_of(cfg).type == "cpu":
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
    multiple = 8 if batch.ids.device.type == "cuda" else 1  # as a run pads
    length = multiple * math.ceil(batch.n_tokens / len(batch.lengths) / multiple)
    length = min(length, batch.ids.shape[1])
    return replace(batch, ids=batch.ids[:, :length], lengths=torch.full_like(batch.lengths, length))


def compared(
    name: str, steps: dict[str, Step], warm: Sequence[Batch], on: Sequence[Batch], repeats: int
) -> Iterator[list[str | float]]:
    """Rows of a table: ms of each step, and the usual one's time divided by it. The steps take
    turns; medians over the turns. A step that fails has a row without numbers."""
    working = {of: step for of, step in steps.items() if works(step, warm)}
    turns = [{of: seconds(step, on) for of, step in working.items()} for _ in range(repeats)]
    for of in steps.keys() - working.keys():
        yield [name, of, "", "fails here"]
    for of in working:
        ratio = statistics.median(turn[USUAL] / turn[of] for turn in turns)
        ms = 1e3 * statistics.median(turn[of] for turn in turns) / len(on)
        yield [name, of, ms, f"{ratio:.2f}×"]


def works(step: Step, warm: Sequence[Batch]) -> bool:
    """Whether a step runs: a compiler may be incomplete, and a GPU's memory too small."""
    try:
        seconds(step, warm)
    except RuntimeError as error:  # also torch's errors of memory and of the compiler
        print(f"a step fails: {str(error).splitlines()[0]}", flush=True)
        return False
    return True


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
