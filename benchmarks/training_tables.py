"""The tables of benchmarks/training.py."""

import statistics
from typing import Any

import results
from systems import Rates
from timing import SIDE


def times_plain(rates: dict[str, list[Rates]], system: str, what: str) -> float:
    """Median over the repeats of a system's rate divided by the baseline's in the same repeat."""
    pairs = zip(rates[system], rates["plain"], strict=True)
    return statistics.median(mine[what] / plain[what] for mine, plain in pairs)


def tables(measured: dict[str, dict[str, Any]], imports: int) -> list[results.Table]:
    """`imports` in bytes."""
    speeds, shares, memory = [], [], []
    of_imports = f"Imports alone take {imports / 1e9:.2f} GB" if imports else "On a GPU, its memory"
    for name, found in measured.items():
        (_, _, plain_bytes), *_ = found["peak_bytes"]
        for system, own in found["rates"].items():
            median = {k: statistics.median(r[k] for r in own) for k in ("training", "evaluation")}
            ratio = {k: f"{times_plain(found['rates'], system, k):.3g}×" for k in median}
            used = next(b for _, of, b in found["peak_bytes"] if of == system)
            speeds.append(
                [name, system, median["training"], ratio["training"], median["evaluation"],
                 ratio["evaluation"], used / 1e9, f"{used / plain_bytes:.2f}×"]
            )  # fmt: skip
            flops = 3 * found["forward_flops"]
            products = statistics.median(r["products"] for r in own)
            share = statistics.median(flops * r["training"] / r["products"] for r in own)
            shares.append(
                [name, system, found["tokens"], found["tokens_of_corpus"], flops / 1e9,
                 flops * median["training"] / 1e9,
                 f"{found['numbers'][system]}, {products / 1e9:.0f}", f"{share:.1%}"]
            )  # fmt: skip
        memory += [[name, batch, system, b / 1e9] for batch, system, b in found["peak_bytes"]]
    return [
        results.table(
            "Against the plain baseline",
            ["settings", "system", "training docs/s", "× plain", "evaluation docs/s", "× plain",
             "peak memory GB", "× plain"],
            speeds,
            "`plain` is benchmarks/plain.py, `exact` and `fast` are posfuse with `speed=exact` "
            "(float32, the protocol's dropout) and `speed=fast` (no dropout inside attention, and "
            "bfloat16 mixed precision where it is faster); the fusion is add. All systems get the "
            "same documents, model, protocol and threads. They take turns, each in its own "
            "process; rates and ratios are medians over the repeats. posfuse's training includes "
            "its diagnostics, on 8 documents per epoch, but not its checkpoints, because the "
            "baseline has none. In evaluation the baseline uses torch's fast path, which skips "
            "padding. ArXiv's documents are generated. Its batch size on a CPU, 2, is the largest "
            "with which the baseline fits into 24 GB; on a GPU it is the authors', 64.",
        ),
        results.table(
            "Share of the machine's matrix product rate in training",
            ["settings", "system", "tokens a document", "of the corpus", "GFLOP a document",
             "GFLOP/s", "machine's GFLOP/s", "share"],
            shares,
            "GFLOP counts the matrix products over the documents' own tokens: 2mnk forward, three "
            "times that with the backward pass, attention once. Padding and recomputation are not "
            f"counted. The machine's rate is that of a product of two {SIDE:,} × {SIDE:,} matrices "
            "of the same number type with the same threads, measured beside every turn. Rates and "
            "shares are medians.",
        ),
        results.table(
            "Peak memory",
            ["settings", "batch", "system", "GB"],
            memory,
            "Peak of a process that does one training step on the longest documents and evaluates "
            f"the longest ones, posfuse with its usual evaluation batch. {of_imports}.",
        ),
    ]  # fmt: skip
