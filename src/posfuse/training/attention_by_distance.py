"""How much attention goes to keys at each distance from the query.

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

    By distance, the index of the key minus that of the query: `attention_mean`, the weight, and
    `attention_ratio`, the weight times the document's length, which is 1 at every distance if
    attention is uniform. A bucket is 0, or -1, -2..-3, -4..-7 and so on before the query, and the
    same after it.

    By layer: the share of a query's attention on the document's first token (`attention_first`), on
    the token before the query (`attention_previous`; the first token has none) and on the query's
    own token (`attention_same`). `attention_uniform` is the share of one token if attention is
    uniform. Of a document longer than diagnostics.QUERIES tokens, some tokens are queries.

    `model` is in eval mode.
    """
    longest = max(batch.ids.shape[1] for batch in batches)
    tallies = [_Tally(longest) for _ in model.encoder.blocks]
    for batch in batches:
        weights = by_layer(model, batch, lambda of_heads: of_heads.mean(1))
        for tally, of_layer in zip(tallies, weights, strict=True):
            tally.add(of_layer, places(batch), batch.lengths)
    rows = [row for layer, tally in enumerate(tallies, 1) for row in tally.rows(layer)]
    return tallies[0].shares(WHOLE, "uniform") + rows if tallies else []


class _Tally:
    """Sums over the queries of one layer, by distance from -(M - 1) to M - 1 and by kind of key."""

    def __init__(self, longest: int) -> None:
        self.longest = longest
        self.sums = {name: np.zeros(2 * longest - 1) for name in ("mean", "ratio", "pairs")}
        self.totals = dict.fromkeys(("first", "previous", "same", "uniform"), (0.0, 0))

    def add(self, weights: Tensor, queries: Tensor, lengths: Tensor) -> None:
        """weights (B, Q, L) of the queries with these indices (Q,), documents' lengths (B,)."""
        n_documents, _, length = weights.shape
        asked = queries < lengths[:, None]  # (B, Q)
        pairs = asked[:, :, None] & valid_positions(lengths, length)[:, None]
        n_tokens = lengths[:, None].to(weights.dtype)
        distances = torch.arange(length, device=queries.device) - queries[:, None]  # (Q, L)
        index = (distances + self.longest - 1).flatten().cpu().numpy()
        values = {"mean": weights, "ratio": weights * n_tokens[:, :, None]}
        values["pairs"] = torch.ones_like(weights)
        for name, value in values.items():
            total = value.where(pairs, value.new_zeros(())).sum(0).flatten().cpu().double().numpy()
            self.sums[name] += np.bincount(index, total, minlength=2 * self.longest - 1)

        keys = {"first": 0 * queries, "previous": (queries - 1).clamp(min=0), "same": queries}
        for name, key in keys.items():
            on_key = weights.gather(2, key.expand(n_documents, -1)[:, :, None])[:, :, 0]
            self._count(name, on_key, asked & (queries > 0) if name == "previous" else asked)
        self._count("uniform", (1 / n_tokens).expand_as(asked), asked)

    def _count(self, name: str, share: Tensor, chosen: Tensor) -> None:
        total, n = self.totals[name]
        self.totals[name] = total + float(share[chosen].double().sum()), n + int(chosen.sum())

    def rows(self, layer: int) -> list[Measurement]:
        """The measurements of this layer."""
        return self.shares(layer, "first", "previous", "same") + self._by_distance(layer)

    def shares(self, layer: int, *names: str) -> list[Measurement]:
        """The mean shares of attention on these kinds of keys."""
        return [
            Measurement(f"attention_{name}", layer, n, total / n)
            for name, (total, n) in self.totals.items()
            if name in names and n
        ]

    def _by_distance(self, layer: int) -> list[Measurement]:
        distances = np.arange(1 - self.longest, self.longest)
        signs = np.sign(distances)
        lows, highs = (signs * ends for ends in bins(np.abs(distances), 2))
        rows = []
        for low in np.unique(lows):
            of = lows == low
            pairs = int(self.sums["pairs"][of].sum())
            ends = sorted((int(low), int(highs[of][0])))
            for name in ("mean", "ratio"):
                if pairs:  # a sample of the queries may leave a bucket without any
                    mean = float(self.sums[name][of].sum() / pairs)
                    rows.append(Measurement(f"attention_{name}", layer, pairs, mean, *ends))
        return rows
