"""Time each fusion operator: in a training step, and at inference, unfolded and folded.

    python benchmarks/operators.py

The networks are those of conf/protocol: imdb (d=256, 512 tokens) and arxiv (d=128, 4,096 tokens,
the paper's Table 2 and Figure 4). Documents are random words and fill every position. A round times
all variants, the next round in reverse order; ratios are medians over the rounds. The fusion is
also timed alone, because whole steps vary by more than most operators cost.
"""

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from hydra import compose, initialize_config_dir
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

import results
import timing
from posfuse.config import CONF_DIR, Config
from posfuse.evidence.published import numbers
from posfuse.model.network import PositionClassifier
from posfuse.process.environment import denormals_flushed, keep_memory
from posfuse.runs.checks import checked
from posfuse.training.build import build_module
from posfuse.training.classifier import Classifier
from timing import DEVICE

MEASURES = (
    "model.network model.fusion model.encoder model.attention model.kernels model.dropout "
    "model.controls model.split_mlp model.folding model.attention_encoding model.encoding "
    "training.build training.module training.classifier conf/fusion conf/protocol"
)
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
    rounds: int  # of training, at least
    latency_rounds: dict[int, int]  # by batch size


SETTINGS = {
    "imdb": Settings(batch=8, rounds=5, latency_rounds={1: 20, 64: 3}),
    "arxiv": Settings(batch=2, rounds=2, latency_rounds={1: 10, 16: 1}),
}


def config(protocol: str, fusion: str) -> Config:
    overrides = [f"data={protocol}", f"protocol={protocol}", "encoding=sinusoidal"]
    with initialize_config_dir(str(CONF_DIR), version_base="1.3"):
        return checked(compose("train", [*overrides, f"fusion={fusion}"]))


def network(cfg: Config) -> Classifier:
    store = SimpleNamespace(label_names=range(CLASSES), vocabulary_size=WORDS)
    data: Any = SimpleNamespace(store=store)  # the only parts of the data that the network uses
    return build_module(cfg, data).to(DEVICE)


def documents(n: int, length: int) -> tuple[Tensor, Tensor]:
    """ids (n, length) and lengths (n,): no padding."""
    draw = torch.Generator().manual_seed(0)
    ids = torch.randint(2, WORDS, (n, length), generator=draw)
    return ids.to(DEVICE), torch.full((n,), length, device=DEVICE)


def in_turn(turns: dict[str, Callable[[], Any]], rounds: int) -> Times:
    """Milliseconds of each turn in every round, after one uncounted round."""
    times: Times = {name: [] for name in turns}
    for turn in turns.values():
        turn()
    for i in range(rounds):
        for name in list(turns)[:: 1 if i % 2 == 0 else -1]:
            start = timing.now(DEVICE)
            turns[name]()
            times[name].append(1000 * (timing.now(DEVICE) - start))
    return times


def median_ratio(times: Times, name: str, baseline: str) -> float:
    """Median over the rounds of a variant's time divided by the baseline's in the same round."""
    return statistics.median(a / b for a, b in zip(times[name], times[baseline], strict=True))


def step(cfg: Config, classifier: Classifier, ids: Tensor, lengths: Tensor) -> Callable[[], None]:
    """A training step: loss, gradients, clipping, optimiser."""
    optimizer = classifier.configure_optimizers()
    labels = torch.arange(len(ids), device=DEVICE) % CLASSES

    def turn() -> None:
        loss = F.cross_entropy(classifier.model(ids, lengths), labels)
        optimizer.zero_grad()
        loss.backward()
        classifier.configure_gradient_clipping(optimizer, cfg.trainer.clip_norm)
        optimizer.step()

    return turn


def fusion_alone(classifier: Classifier, ids: Tensor) -> Callable[[], None]:
    """Forward and backward pass of the fusion, from and to the embeddings."""
    model = classifier.model
    tokens, table = model.tokens(ids).detach().requires_grad_(), model.table().detach()
    gradient = torch.randn_like(tokens)

    def turn() -> None:
        torch.autograd.backward(model.fusion(tokens, table), gradient)
        tokens.grad = None

    return turn


def training(name: str, rounds: int) -> dict[str, Any]:
    """Times of a step and of the fusion alone, and the fusion's FLOPs in matrix products."""
    configs = {fusion: config(name, fusion) for fusion in FUSIONS}
    batch = documents(SETTINGS[name].batch, configs[BASELINE].data.max_len)
    classifiers = {fusion: network(cfg).train() for fusion, cfg in configs.items()}
    alone = {fusion: fusion_alone(c, batch[0]) for fusion, c in classifiers.items()}
    flops = {}
    for fusion, turn in alone.items():
        with FlopCounterMode(display=False) as counter:
            turn()
        flops[fusion] = counter.get_total_flops()
    turns = {f: step(configs[f], classifiers[f], *batch) for f in FUSIONS}
    return {"alone": in_turn(alone, ALONE), "step": in_turn(turns, rounds), "flops": flops}


@torch.no_grad()
def inference(name: str, every: bool) -> dict[int, dict[str, Times]]:
    """By batch size: times of the whole forward pass, and of the part before the encoder, for
    "FUSION" and "FUSION folded". Of larger batches only the paper's operators, unless `every`."""
    models = {fusion: network(config(name, fusion)).model.eval() for fusion in FUSIONS}
    length = config(name, BASELINE).data.max_len
    found = {}
    for n, rounds in SETTINGS[name].latency_rounds.items():
        ids, lengths = documents(n, length)
        whole: dict[str, Callable[[], Any]] = {}
        before: dict[str, Callable[[], Any]] = {}
        for fusion, model in models.items():
            folded = model.fold()
            before[fusion] = partial(fuse, model, ids)
            before[f"{fusion} folded"] = partial(folded.fuse, ids)
            if every or n == 1 or fusion in PUBLISHED:
                whole[fusion] = partial(model, ids, lengths)
                whole[f"{fusion} folded"] = partial(folded, ids, lengths)
        found[n] = {"before": in_turn(before, max(rounds, ALONE)), "whole": in_turn(whole, rounds)}
    return found


def fuse(model: PositionClassifier, ids: Tensor) -> Tensor:
    return model.fusion(model.tokens(ids), model.table())


def training_table(measured: dict[str, Any], product_rate: float) -> results.Table:
    """`product_rate` in FLOP/s."""
    rows: list[list[str | float]] = []
    for name, found in measured.items():
        alone = {f: statistics.median(t) for f, t in found["alone"].items()}
        base = statistics.median(found["step"][BASELINE])
        for f, times in found["step"].items():
            rows.append(
                [f"{name}, batch {SETTINGS[name].batch}", f, statistics.median(times),
                 f"{median_ratio(found['step'], f, BASELINE):.3f}×", alone[f],
                 1000 * found["flops"][f] / product_rate,
                 f"{(alone[f] - alone[BASELINE]) / base:+.2%}"]
            )  # fmt: skip
    return results.table(
        "A training step by operator",
        ["settings", "fusion", "step ms", "× add", "fusion alone ms", "floor of its products ms",
         "more than add, of add's step"],
        rows,
        '"fusion alone" is its forward and backward pass. The floor is the time of its matrix '
        f"products at the rate of a {timing.SIDE}-cubed product in this run, "
        f"{product_rate / 1e9:.0f} GFLOP/s. The last column is a more precise form of the fourth, "
        "which has the noise of whole steps.",
    )  # fmt: skip


def latency_tables(measured: dict[str, Any]) -> list[results.Table]:
    whole_rows: list[list[str | float]] = []
    before_rows: list[list[str | float]] = []
    for name, by_batch in measured.items():
        for n, found in by_batch.items():
            whole, before = found["whole"], found["before"]
            rounds = len(whole[BASELINE])
            for f in FUSIONS:
                label: list[str | float] = [f"{name}, batch {n}", f]
                spent = {k: statistics.median(t) for k, t in before.items()}
                share = {
                    kind: (spent[f + kind] - spent[BASELINE + kind])
                    / statistics.median(whole[BASELINE + kind])
                    for kind in ("", " folded")
                }
                before_rows.append(
                    [*label, spent[f], f"{share['']:+.2%}", spent[f"{f} folded"],
                     f"{share[' folded']:+.2%}"]
                )  # fmt: skip
                if f not in whole:
                    continue
                row = [*label, rounds]
                for kind in ("", " folded"):
                    times = whole[f + kind]
                    ratio = median_ratio(whole, f + kind, BASELINE + kind)
                    p95 = float(np.percentile(times, 95))
                    row += [statistics.median(times), p95, f"{ratio:.3f}×"]
                theirs = f"{PUBLISHED[f]} ms" if name == "arxiv" and f in PUBLISHED else ""
                whole_rows.append([*row, theirs])
    return [
        results.table(
            "Latency by operator",
            ["settings", "fusion", "rounds", "median ms", "p95 ms", "× add", "folded median ms",
             "folded p95 ms", "× folded add", "published"],
            whole_rows,
            "The forward pass of a batch, float32. Published: the paper's Figure 4, which names "
            "neither the unit of work nor the machine.",
        ),
        results.table(
            "Before the encoder",
            ["settings", "fusion", "ms", "more than add, of add's latency", "folded ms",
             "more than folded add, of its latency"],
            before_rows,
            "Everything from the ids to the encoder's input, where operators differ: lookup, "
            "scale, projections, merge.",
        ),
    ]  # fmt: skip


@denormals_flushed()  # as a run is
def main() -> None:
    parser = results.parser(__file__, __doc__)
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--rounds", type=int, help="of training steps (default: by settings)")
    parser.add_argument(
        "--every", action="store_true", default=DEVICE.type == "cuda",
        help="large batches with every operator, not only the paper's (default on a GPU)",
    )  # fmt: skip
    arguments = parser.parse_args()
    keep_memory()  # as a run does
    rate = timing.product_rate(torch.float32, DEVICE)
    trained, latencies = {}, {}
    for name in arguments.settings:
        print(f"{name}: training", flush=True)
        trained[name] = training(name, arguments.rounds or SETTINGS[name].rounds)
        print(f"{name}: inference", flush=True)
        latencies[name] = inference(name, arguments.every)
    found = [training_table(trained, rate), *latency_tables(latencies)]
    raw = {"training_ms": trained, "latency_ms": latencies, "product_rate": rate}
    results.write(arguments, found, raw)


if __name__ == "__main__":
    main()
