"""Measures the attention to keys at each distance from the query.

Shapes: B documents, L tokens, Q of them as queries, H heads, M tokens of the longest document.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from posfuse.data.batching import Batch
from posfuse.model.encoder import valid_positions
from posfuse.model.network import PositionClassifier
from posfuse.runs.measurements import WHOLE, Measurement
from posfuse.training.diagnostics import bins, by_layer, places


def attention_rows(model: PositionClassifier, batches: Sequence[Batch]) -> list[Measurement]:
    """The attention of every layer, mean over heads, queries and documents. Padding does not count.

    By distance (the key's index minus the query's): `attention_mean`, the weight, and
    `attention_ratio`, the weight times the document's length, which is 1 at every distance if
    attention is uniform. The buckets are 0, and -1, -2..-3, -4..-7 and so on before the query, and
    the same after it.

    By layer: a query's attention to the document's first token (`attention_first`), to the token
    before the query (`attention_previous`; the first token has none) and to itself
    (`attention_same`). `attention_uniform` is the weight of one token if attention is uniform. In a
    document longer than diagnostics.QUERIES tokens, only some tokens are queries.

    `model` is in eval mode.
    """
    n_layers = len(model.encoder.blocks)
    if not n_layers:  # of a pretrained model, which hides its attention
        return []
    longest = max(batch.ids.shape[1] for batch in batches)
    width = 2 * longest - 1  # distances from -(M - 1) to M - 1
    pairs = np.zeros(width)
    by_distance = {name: np.zeros((n_layers, width)) for name in ("mean", "ratio")}
    # For each layer: the sum of the queries' shares, and the number of queries.
    on_kind = {kind: np.zeros((n_layers, 2)) for kind in ("first", "previous", "same")}
    uniform = np.zeros(2)
    for batch in batches:
        queries, length = places(batch), batch.ids.shape[1]
        asked = queries < batch.lengths[:, None]  # (B, Q)
        seen = asked[:, :, None] & valid_positions(batch.lengths, length)[:, None]  # (B, Q, L)
        n_tokens = batch.lengths[:, None].float()
        distances = torch.arange(length, device=queries.device) - queries[:, None]  # (Q, L)
        index = (distances + longest - 1).flatten().cpu().numpy()
        pairs += np.bincount(index, seen.sum(0).flatten().cpu().numpy(), width)

        def sums(of_pairs: Tensor, seen: Tensor = seen, index: np.ndarray = index) -> np.ndarray:
            total = of_pairs.where(seen, of_pairs.new_zeros(())).sum(0).flatten()
            return np.bincount(index, total.cpu().double().numpy(), width)

        keys = {"first": 0 * queries, "previous": (queries - 1).clamp(min=0), "same": queries}
        weights = by_layer(model, batch, lambda of_heads: of_heads.mean(1))
        uniform += _sum_and_number((1 / n_tokens).expand_as(asked), asked)
        for layer, of_layer in enumerate(weights):  # (B, Q, L)
            by_distance["mean"][layer] += sums(of_layer)
            by_distance["ratio"][layer] += sums(of_layer * n_tokens[:, :, None])
            for kind, key in keys.items():
                on_key = of_layer.gather(2, key.expand(len(asked), -1)[:, :, None])[:, :, 0]
                has_key = asked & (queries > 0) if kind == "previous" else asked
                on_kind[kind][layer] += _sum_and_number(on_key, has_key)

    rows = _shares("uniform", WHOLE, uniform)
    distance = np.arange(1 - longest, longest)
    lows, highs = (np.sign(distance) * ends for ends in bins(np.abs(distance), 2))
    for layer in range(n_layers):
        for kind, totals in on_kind.items():
            rows += _shares(kind, layer + 1, totals[layer])
        for low in np.unique(lows):
            of = lows == low
            n, ends = int(pairs[of].sum()), sorted((int(low), int(highs[of][0])))
            for name, sums_of in by_distance.items():
                if n:  # with a sample of the queries a bucket may be empty
                    mean = float(sums_of[layer][of].sum() / n)
                    rows.append(Measurement(f"attention_{name}", layer + 1, n, mean, *ends))
    return rows


def _sum_and_number(shares: Tensor, chosen: Tensor) -> tuple[float, int]:
    """The sum and the number of the chosen values of shares (B, Q)."""
    return float(shares[chosen].double().sum()), int(chosen.sum())


def _shares(kind: str, layer: int, total: np.ndarray) -> list[Measurement]:
    """The mean share of attention on this kind of key; none without queries."""
    share, n = float(total[0]), int(total[1])
    return [Measurement(f"attention_{kind}", layer, n, share / n)] if n else []
