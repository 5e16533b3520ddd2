"""A linear probe, which predicts a token's position from the vectors of each layer.

Shapes: N tokens, d = d_model.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from posfuse.data.batching import Batch
from posfuse.model.network import PositionClassifier
from posfuse.runs.measurements import WHOLE, Measurement
from posfuse.training.diagnostics import places

WITHIN = 2  # tokens
PENALTY = 1.0  # of the ridge regression

Array = NDArray[np.float64]


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
    rows = _rows(WHOLE, np.full(test.sum(), place[fit].mean()), place[test])
    for layer, x in enumerate(layers):
        weight, bias = ridge(x[fit], place[fit])
        rows += _rows(layer, x[test] @ weight + bias, place[test])
    return rows


def _rows(layer: int, predicted: Array, place: Array) -> list[Measurement]:
    error = predicted - place
    r2 = 1 - float((error**2).sum() / ((place - place.mean()) ** 2).sum())
    within = float((np.abs(error) <= WITHIN).mean())
    values = {"probe_r2": r2, f"probe_within_{WITHIN}": within}
    return [Measurement(name, layer, len(place), value) for name, value in values.items()]


def ridge(x: Array, y: Array, penalty: float = PENALTY) -> tuple[Array, float]:
    """x (N, d), y (N,) -> weight (d,), bias, for which the sum of (y - x weight - bias)^2 plus
    penalty times |weight|^2 in units of each column's standard deviation is smallest."""
    mean, scale = x.mean(0), x.std(0)
    scale = np.where(scale > 0, scale, 1.0)  # a constant column
    z = (x - mean) / scale
    gram = z.T @ z + penalty * np.eye(x.shape[1])
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
