"""Time each fusion operator: in a training step, and at inference, unfolded and folded.

    python benchmarks/operators.py

The networks are those of conf/protocol: imdb (512 tokens) and arxiv (4,096 tokens, the paper's
Table 2 and Figure 4). Documents are random words and fill every position. The fusion is also timed
alone, because whole steps vary by more than most operators cost.
"""

import argparse
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

import harness
import store
from harness import DEVICE, IS_GPU
from posfuse.config import CONF_DIR, Config
from posfuse.data.batching import Batch
from posfuse.evidence.published import numbers
from posfuse.model.network import PositionClassifier
from posfuse.process.environment import flushing_denormals, keep_memory
from posfuse.runs.checks import task_of
from posfuse.training.build import build_module

MEASURES = "model training.build training.module training.classifier conf/fusion conf/protocol"
BASELINE = "add"
OTHERS = {p.stem for p in (CONF_DIR / "fusion").glob("*.yaml")} - {BASELINE}
# A gate's initial values do not change its cost.
FUSIONS = [BASELINE, *(f for f in sorted(OTHERS) if not f.endswith("_linear_start"))]
WORDS, CLASSES = 50_000, 4
PUBLISHED = numbers()["figure4_arxiv"]["latency_ms"]  # by fusion
ALONE = 15  # rounds of a fusion alone
Times = dict[str, list[float]]  # ms of each round, by variant


@dataclass(frozen=True)
class Settings:
    batch: int  # documents of a training step
    rounds: int  # of training
    latency_rounds: dict[int, int]  # by batch size


SETTINGS = {
    "imdb": Settings(batch=8, rounds=5, latency_rounds={1: 20, 64: 3}),
    "arxiv": Settings(batch=2, rounds=2, latency_rounds={1: 10, 16: 1}),
}


def configs(protocol: str, overrides: list[str]) -> dict[str, Config]:
    """By operator."""
    given = [f"data={protocol}", f"protocol={protocol}", "encoding=sinusoidal", *overrides]
    return {fusion: harness.config(*given, f"fusion={fusion}") for fusion in FUSIONS}


def of_random_words(cfg: Config) -> Any:
    """The only parts of the data that a network is built from."""
    texts = SimpleNamespace(label_names=range(CLASSES), vocabulary_size=WORDS)
    return SimpleNamespace(store=texts, task=task_of(cfg))


def documents(n: int, length: int) -> Batch:
    """n documents of this length: no padding."""
    draw = torch.Generator().manual_seed(0)
    ids = torch.randint(2, WORDS, (n, length), generator=draw).to(DEVICE)
    index = torch.arange(n, device=DEVICE)
    return Batch(ids, index % CLASSES, torch.full_like(index, length), index, ids.numel())


def in_turn(turns: dict[str, Callable[[], Any]], rounds: int) -> Times:
    """Milliseconds of each turn in every round, after one uncounted round."""
    timed = {name: partial(harness.seconds, turn) for name, turn in turns.items()}
    found = harness.in_turn(timed, rounds + 1)
    return {name: [1000 * seconds for seconds in of[1:]] for name, of in found.items()}


def stepper(cfg: Config, batch: Batch, dtype: torch.dtype = torch.float32) -> Callable[[], None]:
    """A training step: forward pass with autocast to `dtype`, backward pass, clipping and
    optimiser."""
    module = build_module(cfg, of_random_words(cfg)).to(DEVICE)
    optimizer = module.configure_optimizers()
    module.model.train()

    def turn() -> None:
        optimizer.zero_grad()
        # As Lightning: only the forward pass, and no stored casts.
        is_half = dtype != torch.float32
        with torch.autocast(DEVICE.type, dtype, enabled=is_half, cache_enabled=False):
            loss = F.cross_entropy(module.model(batch.ids, batch.lengths), batch.labels)
        loss.backward()
        module.configure_gradient_clipping(optimizer, cfg.trainer.clip_norm)
        optimizer.step()

    return turn


def fusion_alone(cfg: Config, batch: Batch) -> Callable[[], None]:
    """Forward and backward pass of the fusion, from and to the embeddings."""
    model = build_module(cfg, of_random_words(cfg)).to(DEVICE).train().model
    tokens, table = model.tokens(batch.ids).detach().requires_grad_(), model.table().detach()
    gradient = torch.randn_like(tokens)

    def turn() -> None:
        torch.autograd.backward(model.fusion(tokens, table), gradient)
        tokens.grad = None

    return turn


def more_than_add(alone: Times, of: str, baseline: str, whole: Times) -> list[Any]:
    """The median ms of a part, and how much more that is than the baseline's, as a share of the
    baseline's whole."""
    ms = statistics.median(alone[of])
    more = ms - statistics.median(alone[baseline])
    return [ms, f"{more / statistics.median(whole[baseline]):+.2%}"]


def training_rows(name: str, configs: dict[str, Config]) -> list[store.Row]:
    settings = SETTINGS[name]
    batch = documents(settings.batch, configs[BASELINE].data.max_len)
    alone = in_turn({f: fusion_alone(cfg, batch) for f, cfg in configs.items()}, ALONE)
    whole = in_turn({f: stepper(cfg, batch) for f, cfg in configs.items()}, settings.rounds)
    cells = harness.compared(whole, BASELINE)
    return [
        [f"{name}, batch {settings.batch}", f, *cells[f], *more_than_add(alone, f, BASELINE, whole)]
        for f in configs
    ]


def latency_rows(name: str, models: dict[str, Any], n: int, max_len: int) -> list[store.Row]:
    """The forward pass of n documents and its part before the encoder, where operators differ. On a
    CPU only the paper's operators have the whole pass of larger batches."""
    batch, rounds = documents(n, max_len), SETTINGS[name].latency_rounds[n]
    whole: dict[str, Callable[[], Any]] = {}
    before: dict[str, Callable[[], Any]] = {}
    for fusion, model in models.items():
        folded = model.fold()
        before[fusion] = partial(fuse, model, batch.ids)
        before[f"{fusion} folded"] = partial(folded.fuse, batch.ids)
        if IS_GPU or n == 1 or fusion in PUBLISHED:
            whole[fusion] = partial(model, batch.ids, batch.lengths)
            whole[f"{fusion} folded"] = partial(folded, batch.ids, batch.lengths)
    alone, times = in_turn(before, max(rounds, ALONE)), in_turn(whole, rounds)
    rows: list[store.Row] = []
    for fusion in models:
        row: store.Row = [f"{name}, batch {n}", fusion]
        for kind in ("", " folded"):
            of, baseline = fusion + kind, BASELINE + kind
            cells: store.Row = ["", "", ""]
            if of in times:
                median, ratio = harness.compared(times, baseline)[of]
                cells = [median, float(np.percentile(times[of], 95)), ratio]
            row += [*cells, *more_than_add(alone, of, baseline, times)]
        is_published = name == "arxiv" and fusion in PUBLISHED
        rows.append([*row, f"{PUBLISHED[fusion]} ms" if is_published else ""])
    return rows


def fuse(model: PositionClassifier, ids: Tensor) -> Tensor:
    return model.fusion(model.tokens(ids), model.table())


@flushing_denormals()  # as a run is
def measure(given: argparse.Namespace) -> list[store.Table]:
    keep_memory()  # as a run does
    trained: list[store.Row] = []
    latency: list[store.Row] = []
    for name in given.settings:
        print(name, flush=True)
        own = configs(name, given.overrides)
        trained += training_rows(name, own)
        modules = {f: build_module(cfg, of_random_words(cfg)) for f, cfg in own.items()}
        models = {f: module.model.to(DEVICE).eval() for f, module in modules.items()}
        with torch.no_grad():
            for n in SETTINGS[name].latency_rounds:
                latency += latency_rows(name, models, n, own[BASELINE].data.max_len)
    step = ["settings", "fusion", "step ms", "× add", "fusion alone ms"]
    each = [
        "median ms",
        "p95 ms",
        "× add",
        "before the encoder ms",
        "more than add, of its latency",
    ]
    forward = ["settings", "fusion", *each, *(f"folded: {name}" for name in each), "published"]
    return [
        store.table(
            "A training step by operator", [*step, "more than add, of add's step"], trained,
            '"fusion alone" is its forward and backward pass. The last column is a more precise '
            "form of the fourth, which has the noise of whole steps.",
        ),
        store.table(
            "Latency by operator", forward, latency,
            "The forward pass of a batch, float32. Before the encoder stand lookup, scale, "
            "projections and merge, where operators differ. Published: the paper's Figure 4, which "
            "names neither the unit of work nor the machine.",
        ),
    ]  # fmt: skip


if __name__ == "__main__":
    store.main(__file__, measure, settings=list(SETTINGS), overrides=[])
