"""Time each fusion operator: in a training step, and at inference, unfolded and folded.

    python benchmarks/operators.py

The networks are those of conf/protocol: imdb (d=256, 512 tokens) and arxiv (d=128, 4,096 tokens,
the paper's Table 2 and Figure 4). Documents are random words and fill every position. The operators
take turns; ratios are medians over the rounds. The fusion is also timed alone, because whole steps
vary by more than most operators cost.
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
from torch import Tensor

import harness
import store
from harness import DEVICE, median_ratio
from posfuse.config import CONF_DIR, Config
from posfuse.data.batching import Batch
from posfuse.evidence.published import numbers
from posfuse.model.network import PositionClassifier
from posfuse.process.environment import flushing_denormals, keep_memory
from posfuse.runs.checks import task_of
from posfuse.training.build import build_module
from steps import stepper

MEASURES = "model training.build training.module training.classifier conf/fusion conf/protocol"
BASELINE = "add"
FUSIONS = sorted(p.stem for p in (CONF_DIR / "fusion").glob("*.yaml"))
# A gate's initial values do not change its cost.
FUSIONS = [f for f in FUSIONS if f != BASELINE and not f.endswith("_linear_start")]
FUSIONS = [BASELINE, *FUSIONS]
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
    for turn in turns.values():
        turn()
    timed = {name: partial(harness.seconds, turn) for name, turn in turns.items()}
    found = harness.in_turn(timed, rounds)
    return {name: [1000 * seconds for seconds in of] for name, of in found.items()}


def fusion_alone(cfg: Config, batch: Batch) -> Callable[[], None]:
    """Forward and backward pass of the fusion, from and to the embeddings."""
    model = build_module(cfg, of_random_words(cfg)).to(DEVICE).train().model
    tokens, table = model.tokens(batch.ids).detach().requires_grad_(), model.table().detach()
    gradient = torch.randn_like(tokens)

    def turn() -> None:
        torch.autograd.backward(model.fusion(tokens, table), gradient)
        tokens.grad = None

    return turn


def training(name: str, configs: dict[str, Config]) -> dict[str, Any]:
    """Times of a step and of the fusion alone, by operator."""
    batch = documents(SETTINGS[name].batch, configs[BASELINE].data.max_len)
    alone = {fusion: fusion_alone(cfg, batch) for fusion, cfg in configs.items()}
    steps = {f: partial(stepper(cfg, of_random_words(cfg)), batch) for f, cfg in configs.items()}
    step = in_turn(steps, SETTINGS[name].rounds)
    return {"alone": in_turn(alone, ALONE), "step": step}


@torch.no_grad()
def inference(name: str, configs: dict[str, Config]) -> dict[int, dict[str, Times]]:
    """By batch size: times of the whole forward pass, and of the part before the encoder, for
    "FUSION" and "FUSION folded". On a CPU, of larger batches only the paper's operators."""
    models = {f: build_module(cfg, of_random_words(cfg)).model for f, cfg in configs.items()}
    models = {fusion: model.to(DEVICE).eval() for fusion, model in models.items()}
    found = {}
    for n, rounds in SETTINGS[name].latency_rounds.items():
        batch = documents(n, configs[BASELINE].data.max_len)
        whole: dict[str, Callable[[], Any]] = {}
        before: dict[str, Callable[[], Any]] = {}
        for fusion, model in models.items():
            folded = model.fold()
            before[fusion] = partial(fuse, model, batch.ids)
            before[f"{fusion} folded"] = partial(folded.fuse, batch.ids)
            if DEVICE.type == "cuda" or n == 1 or fusion in PUBLISHED:
                whole[fusion] = partial(model, batch.ids, batch.lengths)
                whole[f"{fusion} folded"] = partial(folded, batch.ids, batch.lengths)
        found[n] = {"before": in_turn(before, max(rounds, ALONE)), "whole": in_turn(whole, rounds)}
    return found


def fuse(model: PositionClassifier, ids: Tensor) -> Tensor:
    return model.fusion(model.tokens(ids), model.table())


def training_table(measured: dict[str, Any]) -> store.Table:
    rows: list[store.Row] = []
    for name, found in measured.items():
        alone = {f: statistics.median(t) for f, t in found["alone"].items()}
        base = statistics.median(found["step"][BASELINE])
        for f, times in found["step"].items():
            rows.append(
                [f"{name}, batch {SETTINGS[name].batch}", f, statistics.median(times),
                 f"{median_ratio(found['step'], f, BASELINE):.3f}×", alone[f],
                 f"{(alone[f] - alone[BASELINE]) / base:+.2%}"]
            )  # fmt: skip
    return store.table(
        "A training step by operator",
        ["settings", "fusion", "step ms", "× add", "fusion alone ms",
         "more than add, of add's step"],
        rows,
        '"fusion alone" is its forward and backward pass. The last column is a more precise form '
        "of the fourth, which has the noise of whole steps.",
    )  # fmt: skip


def latency_table(measured: dict[str, Any]) -> store.Table:
    """The forward pass of a batch, and its part before the encoder, where operators differ."""
    rows: list[store.Row] = []
    for name, by_batch in measured.items():
        for n, found in by_batch.items():
            before = {variant: statistics.median(of) for variant, of in found["before"].items()}
            for f in FUSIONS:
                row = [f"{name}, batch {n}", f]
                for kind in ("", " folded"):
                    times, baseline = found["whole"].get(f + kind), BASELINE + kind
                    whole: store.Row = ["", "", ""]
                    if times:
                        ratio = f"{median_ratio(found['whole'], f + kind, baseline):.3f}×"
                        whole = [statistics.median(times), float(np.percentile(times, 95)), ratio]
                    more = before[f + kind] - before[baseline]
                    share = more / statistics.median(found["whole"][baseline])
                    row += [*whole, before[f + kind], f"{share:+.2%}"]
                theirs = f"{PUBLISHED[f]} ms" if name == "arxiv" and f in PUBLISHED else ""
                rows.append([*row, theirs])
    each = [
        "median ms",
        "p95 ms",
        "× add",
        "before the encoder ms",
        "more than add, of its latency",
    ]
    columns = ["settings", "fusion", *each, *(f"folded: {name}" for name in each), "published"]
    note = (
        "The forward pass of a batch, float32. Before the encoder stand lookup, scale, projections "
        "and merge, where operators differ. Published: the paper's Figure 4, which names neither "
        "the unit of work nor the machine."
    )
    return store.table("Latency by operator", columns, rows, note)


@flushing_denormals()  # as a run is
def measure(given: argparse.Namespace) -> tuple[list[store.Table], Any]:
    keep_memory()  # as a run does
    trained, latencies = {}, {}
    for name in given.settings:
        print(name, flush=True)
        own = configs(name, given.overrides)
        trained[name], latencies[name] = training(name, own), inference(name, own)
    raw = {"training_ms": trained, "latency_ms": latencies}
    return [training_table(trained), latency_table(latencies)], raw


if __name__ == "__main__":
    store.main(__file__, measure, settings=list(SETTINGS), overrides=[])
