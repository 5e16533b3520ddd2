"""How a model uses position: norms, gates and attention on a few validation documents, and the
accuracy of a trained model without position.

Shapes: B documents, L tokens, T of them valid, V words, H heads, k gates per position (1 or d).
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.modules.module import register_module_forward_pre_hook

from posfuse.data.batching import Batch, SortedBatches
from posfuse.data.datamodule import TextDataModule
from posfuse.model.encoder import Attention, valid_positions
from posfuse.model.fusion import Gated
from posfuse.model.network import PositionClassifier
from posfuse.model.positions import as_tensor
from posfuse.runs.measurements import Diagnostic

BATCH = 16  # documents
QUERIES = 128  # largest number in a document
SHUFFLE_SEED = 0  # the same in every run


def fusion_of_tokens(model: PositionClassifier, batch: Batch) -> dict[str, Tensor]:
    """For each valid token, shape (T,): its `position` and `id`. If the operator separates the two
    parts of the fused vector, also their norms `token_norm` and `position_norm`. If it has gates,
    also the means over gates of `gate`, `gate_square` and `gate_entropy` (bits)."""
    length = batch.ids.shape[1]
    valid = valid_positions(batch.lengths, length)
    tokens = model.tokens(batch.ids)
    given = model.sampler.given(0, batch.ids)
    parts = model.fusion.parts(tokens, model.table(), given)
    positions = as_tensor(given, tokens)
    columns = {"position": positions.expand_as(batch.ids)[valid], "id": batch.ids[valid]}
    part = model.fusion.token_part(*parts)
    if part is not None:
        columns["token_norm"] = part.norm(dim=-1)[valid]
        columns["position_norm"] = (model.fusion.merge(*parts) - part).norm(dim=-1)[valid]
    if isinstance(model.fusion, Gated):
        gate = model.fusion.gate(*parts)
        # In double precision, because the spread is the difference of two means.
        gate = gate.expand(*batch.ids.shape, gate.shape[-1])[valid].double()  # (T, k)
        columns["gate"], columns["gate_square"] = gate.mean(-1), gate.square().mean(-1)
        nats = torch.special.entr(gate) + torch.special.entr(1 - gate)
        columns["gate_entropy"] = nats.mean(-1) / np.log(2)
    return columns


def fusion_values(columns: dict[str, np.ndarray], chosen: np.ndarray) -> dict[str, float]:
    """Means over the chosen tokens of the columns of `fusion_of_tokens`. `norm_ratio` is the mean
    norm of tokens divided by the mean norm of positions; it is left out if the divisor is 0.
    `gate_std` is the standard deviation of the gates."""
    mean = {name: float(column[chosen].mean()) for name, column in columns.items()}
    values: dict[str, float] = {}
    if "token_norm" in mean:
        values |= {name: mean[name] for name in ("token_norm", "position_norm")}
        if mean["position_norm"] > 0:
            values["norm_ratio"] = mean["token_norm"] / mean["position_norm"]
    if "gate" in mean:
        variance = mean["gate_square"] - mean["gate"] ** 2
        values |= {"gate_mean": mean["gate"], "gate_std": max(variance, 0.0) ** 0.5}
        values["gate_entropy"] = mean["gate_entropy"]
    return values


def bins(counts: np.ndarray, factor: int) -> tuple[np.ndarray, np.ndarray]:
    """Counts (n,) -> the lowest and the highest count of the bin of each, both (n,). The bins are
    0, then 1 to factor - 1, factor to factor^2 - 1 and so on."""
    edges = np.array([0, *(factor**power for power in range(int(63 / np.log2(factor))))])
    above = np.searchsorted(edges, counts, side="right")
    return edges[above - 1], edges[above] - 1


def fusion_rows(
    epoch: int, columns: dict[str, np.ndarray], counts: np.ndarray
) -> Iterator[Diagnostic]:
    """Rows over all tokens, by position and by frequency. `counts` (V,): a word's in training."""
    by = {
        "": (np.zeros_like(columns["position"]),) * 2,
        "position": bins(columns["position"], 2),
        "frequency": bins(counts[columns["id"]], 10),
    }
    for kind, (lows, highs) in by.items():
        for low in np.unique(lows):
            chosen = lows == low
            for name, value in fusion_values(columns, chosen).items():
                high = int(highs[chosen][0])
                yield Diagnostic(epoch, name, kind, int(low), high, int(chosen.sum()), value)


def places(batch: Batch) -> Tensor:
    """The indices of at most QUERIES tokens of each document, at equal distances: (queries,)."""
    length = batch.ids.shape[1]
    every = torch.linspace(0, length - 1, min(length, QUERIES), device=batch.ids.device)
    return every.round().long()


def by_layer(
    model: PositionClassifier, batch: Batch, of_weights: Callable[[Tensor], Tensor]
) -> list[Tensor]:
    """For each layer a function of its attention weights (B, H, Q, L). The queries are `places` of
    the documents. The weights come from `AttentionEncoding.weights`, the plain form of the kernels.
    Only one layer's weights exist at a time."""
    results: list[Tensor] = []
    queries = places(batch)

    def look(module: Any, arguments: tuple[Any, ...]) -> None:
        if isinstance(module, Attention):
            x, mask, position = arguments
            results.append(of_weights(module.weights(x, mask, position, queries).float()))

    with register_module_forward_pre_hook(look):
        model.forward(batch.ids, batch.lengths)  # not a compiled graph, which ignores hooks
    return results


def attention_entropy(model: PositionClassifier, batch: Batch) -> list[Tensor]:
    """For each layer the entropy of the attention weights in bits, mean over heads: (queries,)."""
    valid = places(batch) < batch.lengths[:, None]
    return by_layer(
        model, batch, lambda w: torch.special.entr(w).sum(-1).mean(1)[valid] / np.log(2)
    )


def random_order(batch: Batch, generator: torch.Generator) -> Tensor:
    """A random order of the tokens of each document: the tokens' indices, (B, L)."""
    draws = torch.rand(batch.ids.shape, generator=generator).to(batch.ids.device)
    draws[~valid_positions(batch.lengths, batch.ids.shape[1])] = 2.0  # padding stays at the end
    return draws.argsort(1)


def worth_of_position(
    model: PositionClassifier, batches: Iterable[Batch], longest: int, offset: int
) -> dict[str, float]:
    """Accuracy on the documents (`accuracy`), and with the tokens of each in random order
    (`shuffled`). Also accuracy on the documents cut to `longest` tokens (`unshifted`), and with
    positions that begin at `offset` (`shifted`). Without the cut, shifted positions would exceed
    the table."""
    generator = torch.Generator().manual_seed(SHUFFLE_SEED)
    right, documents = dict.fromkeys(("accuracy", "shuffled", "unshifted", "shifted"), 0), 0
    for batch in batches:
        short = replace(batch, ids=batch.ids[:, :longest], lengths=batch.lengths.clamp(max=longest))
        logits = {
            "accuracy": model(batch.ids, batch.lengths),
            "shuffled": model(batch.ids.gather(1, random_order(batch, generator)), batch.lengths),
            "shifted": model(short.ids, short.lengths, offset),
        }
        is_cut = batch.ids.shape[1] > longest
        logits["unshifted"] = model(short.ids, short.lengths) if is_cut else logits["accuracy"]
        for name, scores in logits.items():
            right[name] += int((scores.argmax(-1) == batch.labels).sum())
        documents += len(batch.labels)
    return {name: count / documents for name, count in right.items()}


def mean_of(values: Tensor, epoch: int, name: str, by: str = "", at: int = 0) -> Diagnostic:
    """The row with the mean of the values."""
    return Diagnostic(epoch, name, by, at, at, values.numel(), values.mean().item())


def sample(
    data: TextDataModule, split: str, n: int, device: torch.device | str = "cpu"
) -> Iterator[Batch]:
    """Batches of n documents of a split, at equal distances, or of all documents if there are
    fewer."""
    documents = data.documents[split]
    chosen = np.linspace(0, len(documents) - 1, min(n, len(documents))).astype(int)
    for members in SortedBatches(documents.lengths[chosen], BATCH):
        yield documents[chosen[members]].to(device)
