"""How a trained model uses position: attention by distance, a probe of position, and patching.

Patching: give a document's tokens the position parts of another order, and measure which order
the prediction follows.

The second document A' is A with its tokens in a random order: the token at place i of A is at place
r(i) of A'. The encoder gets the order in two ways, so there are two patches:

- input: the tokens have their fused vectors of A', and inside attention their places in A;
- attention: the tokens have their fused vectors of A, and inside attention their places in A'.

Self-attention and mean pooling see a document as a set of tokens with these two positions. So
without a position inside attention, the input patch gives the prediction of A', and the attention
patch gives that of A. Without a position in the input, it is the reverse. If a model has both, the
patches show which of them its predictions follow.

The order is not a rotation, because a rotation of a string w w is a duplicate again.

Shapes: B documents, L tokens, Q of them as queries, H heads, d = d_model, N tokens of all
documents, M tokens of the longest document.
"""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from posfuse.data.batching import Batch
from posfuse.model.encoder import valid_positions
from posfuse.model.network import PositionClassifier
from posfuse.runs.measurements import WHOLE, Measurement
from posfuse.training.diagnostics import SHUFFLE_SEED, bins, by_layer, places, random_order

WITHIN = 2  # tokens
PENALTY = 1.0  # of the ridge regression
PATCHES = ("input", "attention")

Array = NDArray[np.float64]


@torch.no_grad()
def measure(model: PositionClassifier, batches: Iterable[Batch]) -> list[Measurement]:
    """How a model in eval mode uses position on these documents of `sample`: attention by distance,
    a probe of position, and patching. It does not draw from the random streams of training."""
    batches = list(batches)
    rows = (attention_rows, probe_rows, patch_rows)
    return [row for rows_of in rows for row in rows_of(model, batches)]


def attention_rows(model: PositionClassifier, batches: Sequence[Batch]) -> list[Measurement]:
    """The attention of every layer, mean over heads, queries and documents. Padding does not count.

    By distance (the key's index minus the query's): `attention_mean`, the weight, and
    `attention_ratio`, the weight times the document's length, which is 1 at every distance if
    attention is uniform. The buckets are 0, and -1, -2..-3, -4..-7 and so on before the query, and
    the same after it.

    By layer: a query's attention to the document's first token (`attention_first`), to the token
    before it (`attention_previous`) and to itself (`attention_same`). `attention_uniform` is the
    weight of one token if attention is uniform. Queries are `places`. `model` is in eval mode.
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


def probe_rows(model: PositionClassifier, batches: Sequence[Batch]) -> list[Measurement]:
    """For the fused input (layer 0) and the output of each block (from 1): `probe_r2`, the R^2 of a
    ridge regression of a token's place in its document (from 0) on its vector, and
    `probe_within_2`, the fraction of tokens whose predicted place is wrong by at most 2 tokens.

    The regression is fitted on every second document and tested on the others. The layer WHOLE has
    the same numbers for a baseline that always predicts the mean place. They show the effect of the
    documents' lengths. The place counts tokens, also with random positions.

    With fewer than two documents, or if all tokens of a half have one place, there are no rows.
    """
    layers, place, half = token_vectors(model, batches)
    fit, test = half == 0, half == 1
    if not all(len(np.unique(place[chosen])) > 1 for chosen in (fit, test)):
        return []
    rows = _probed(WHOLE, np.full(test.sum(), place[fit].mean()), place[test])
    for layer, x in enumerate(layers):
        weight, bias = ridge(x[fit], place[fit])
        rows += _probed(layer, x[test] @ weight + bias, place[test])
    return rows


def _probed(layer: int, predicted: Array, place: Array) -> list[Measurement]:
    error = predicted - place
    r2 = 1 - float((error**2).sum() / ((place - place.mean()) ** 2).sum())
    within = float((np.abs(error) <= WITHIN).mean())
    values = {"probe_r2": r2, f"probe_within_{WITHIN}": within}
    return [Measurement(name, layer, len(place), value) for name, value in values.items()]


def ridge(x: Array, y: Array) -> tuple[Array, float]:
    """x (N, d), y (N,) -> weight (d,), bias, for which the sum of (y - x weight - bias)^2 plus
    PENALTY times |weight|^2 in units of each column's standard deviation is smallest."""
    mean, scale = x.mean(0), x.std(0)
    scale = np.where(scale > 0, scale, 1.0)  # a constant column
    z = (x - mean) / scale
    gram = z.T @ z + PENALTY * np.eye(x.shape[1])
    weight = np.linalg.solve(gram, z.T @ (y - y.mean())) / scale
    return weight, float(y.mean() - mean @ weight)


def token_vectors(
    model: PositionClassifier, batches: Sequence[Batch]
) -> tuple[list[Array], Array, NDArray[np.int64]]:
    """For the tokens of all documents: their vectors in each layer, each (N, d), their places in
    their documents (N,), and the half of the documents that they belong to, 0 or 1 (N,).

    From a document longer than diagnostics.QUERIES tokens it takes some tokens at equal distances.
    """
    layers: list[list[Array]] = [[] for _ in range(1 + len(model.encoder.blocks))]
    place, half, before = [], [], 0
    for batch in batches:
        chosen = places(batch)
        valid = (chosen < batch.lengths[:, None]).cpu().numpy()
        positions = model.sampler.given(0, batch.ids)
        fused = model.fuse(batch.ids, positions)
        outputs = [fused]

        def keep(module: Any, given: Any, output: Tensor, outputs: list[Tensor] = outputs) -> None:
            outputs.append(output)

        with ExitStack() as hooks:
            for block in model.encoder.blocks:
                hooks.enter_context(block.register_forward_hook(keep))
            model.encoder(fused, batch.lengths, positions)
        for layer, output in zip(layers, outputs, strict=True):
            layer.append(output[:, chosen].cpu().double().numpy()[valid])
        document = before + np.arange(len(valid))[:, None]
        place.append(np.broadcast_to(chosen.cpu().double().numpy(), valid.shape)[valid])
        half.append(np.broadcast_to(document % 2, valid.shape)[valid])
        before += len(valid)
    return [np.concatenate(x) for x in layers], np.concatenate(place), np.concatenate(half)


def patch_rows(model: PositionClassifier, batches: Sequence[Batch]) -> list[Measurement]:
    """Fractions of documents whose prediction changes: `patch_reordered_changed` if the tokens are
    in random order, in the input and inside attention; `patch_P_changed` for each patch P.

    Fractions of the documents that the random order changes, if there are any: `patch_P_followed`
    if the patched prediction is that of the new order, and `patch_P_stayed` if it is that of the
    document. The other documents get a third class.

    `model` is in eval mode. The random order is the same in every run.
    """
    generator = torch.Generator().manual_seed(SHUFFLE_SEED)
    classes: dict[str, list[Tensor]] = {}
    for batch in batches:
        order = random_order(batch, generator)
        for name, logits in patched_logits(model, batch, order).items():
            classes.setdefault(name, []).append(logits.argmax(-1).cpu())
    own, reordered, *patched = (torch.cat(parts) for parts in classes.values())
    moved = own != reordered
    shares = {"reordered_changed": moved}
    for name, predicted in zip(PATCHES, patched, strict=True):
        shares[f"{name}_changed"] = predicted != own
        shares[f"{name}_followed"] = (predicted == reordered)[moved]
        shares[f"{name}_stayed"] = (predicted == own)[moved]
    return [
        Measurement(f"patch_{name}", WHOLE, len(is_so), is_so.double().mean().item())
        for name, is_so in shares.items()
        if len(is_so)
    ]


def patched_logits(model: PositionClassifier, batch: Batch, order: Tensor) -> dict[str, Tensor]:
    """The logits (B, C) of the documents (`own`), of the documents with their tokens in this order
    (`reordered`), and with the two patches (`input`, `attention`).

    order (B, L): for each place of the new document, the place of its token in the old document.
    Padding stays at the end.
    """
    positions = model.sampler.given(0, batch.ids)
    own = model.fuse(batch.ids, positions)
    reordered = model.fuse(batch.ids.gather(1, order), positions)
    fused = {
        "own": own,
        "reordered": reordered,
        "input": reordered.take_along_dim(order.argsort(1)[:, :, None], 1),  # in the old order
        "attention": own.take_along_dim(order[:, :, None], 1),
    }
    return {name: model.classify(x, batch.lengths, positions) for name, x in fused.items()}
