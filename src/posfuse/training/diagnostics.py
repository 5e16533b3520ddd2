"""Measures how a model uses position: after each epoch on a few validation documents, and in the
test by the accuracy that the trained model loses without it.

Shapes: B documents, L tokens, T of them valid, V words, H heads, k gates per position (1 or d).
The number of documents keeps the cost below 3 % of a run's time.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import lightning as L
import numpy as np
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor
from torch.nn.modules.module import register_module_forward_pre_hook

from posfuse.data.batching import Batch, SortedBatches
from posfuse.data.datamodule import TextDataModule
from posfuse.model.encoder import Attention, valid_positions
from posfuse.model.fusion import Gated
from posfuse.model.network import PositionClassifier
from posfuse.model.positions import as_tensor
from posfuse.runs.records import Diagnostic
from posfuse.training.evaluations import Evaluations

SHARE = 0.01  # of the documents that training reads
EPOCH_DOCUMENTS = (8, 64)  # at least and at most
TEST_DOCUMENTS = (32, 1000)  # at least and at most
BATCH = 16  # documents
GRADIENT_STEPS = 4  # the gradient is measured at every fourth step
QUERIES = 128  # of a document, at most
SHUFFLE_SEED = 0  # the same in every run, so that all runs shuffle alike


def fusion_of_tokens(model: PositionClassifier, batch: Batch) -> dict[str, Tensor]:
    """For each valid token, shape (T,): its `position` and `id`; if the operator separates the two
    parts of the fused vector, their norms `token_norm` and `position_norm`; if it has gates, the
    means over them of `gate`, `gate_square` and `gate_entropy` (bits)."""
    length = batch.ids.shape[1]
    valid = valid_positions(batch.lengths, length)
    tokens = model.tokens(batch.ids)
    given = model.sampler.given(0, batch.ids)
    parts = model.fusion.parts(tokens, model.table(), given)
    positions = as_tensor(given, tokens)
    found = {"position": positions.expand_as(batch.ids)[valid], "id": batch.ids[valid]}
    part = model.fusion.token_part(*parts)
    if part is not None:
        found["token_norm"] = part.norm(dim=-1)[valid]
        found["position_norm"] = (model.fusion.merge(*parts) - part).norm(dim=-1)[valid]
    if isinstance(model.fusion, Gated):
        gate = model.fusion.gate(*parts)
        # In double precision: the spread is the difference of two means.
        gate = gate.expand(*batch.ids.shape, gate.shape[-1])[valid].double()  # (T, k)
        found["gate"], found["gate_square"] = gate.mean(-1), gate.square().mean(-1)
        nats = torch.special.entr(gate) + torch.special.entr(1 - gate)
        found["gate_entropy"] = nats.mean(-1) / np.log(2)
    return found


def fusion_values(found: dict[str, np.ndarray], chosen: np.ndarray) -> dict[str, float]:
    """Means over the chosen tokens of the columns of `fusion_of_tokens`. `norm_ratio` divides the
    mean norm of tokens by that of positions, and is left out if the latter is 0; `gate_std` is the
    standard deviation of the gates."""
    mean = {name: float(column[chosen].mean()) for name, column in found.items()}
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
    """The lowest and the highest count of each count's bin. The bins are 0, then 1 to factor - 1,
    factor to factor^2 - 1 and so on."""
    edges = np.array([0, *(factor**power for power in range(int(63 / np.log2(factor))))])
    above = np.searchsorted(edges, counts, side="right")
    return edges[above - 1], edges[above] - 1


def fusion_rows(
    epoch: int, found: dict[str, np.ndarray], counts: np.ndarray
) -> Iterator[Diagnostic]:
    """Rows over all tokens, by position and by frequency. `counts` (V,): a word's in training."""
    by = {
        "": (np.zeros_like(found["position"]),) * 2,
        "position": bins(found["position"], 2),
        "frequency": bins(counts[found["id"]], 10),
    }
    for kind, (lows, highs) in by.items():
        for low in np.unique(lows):
            chosen = lows == low
            for name, value in fusion_values(found, chosen).items():
                high = int(highs[chosen][0])
                yield Diagnostic(epoch, name, kind, int(low), high, int(chosen.sum()), value)


def places(batch: Batch) -> Tensor:
    """The indices of at most QUERIES tokens of each document, at equal distances: (queries,)."""
    length = batch.ids.shape[1]
    every = torch.linspace(0, length - 1, min(length, QUERIES), device=batch.ids.device)
    return every.round().long()


def attention_entropy(model: PositionClassifier, batch: Batch) -> list[Tensor]:
    """For each layer the entropy of the attention weights in bits, mean over heads: (queries,)."""
    found: list[Tensor] = []
    queries = places(batch)
    valid = queries < batch.lengths[:, None]

    def look(module: Any, arguments: tuple[Any, ...]) -> None:
        if isinstance(module, Attention):
            x, mask, position = arguments
            weights = module.weights(x, mask, position, queries).float()  # (B, H, Q, L)
            found.append(torch.special.entr(weights).sum(-1).mean(1)[valid] / np.log(2))

    with register_module_forward_pre_hook(look):
        model.forward(batch.ids, batch.lengths)  # not a compiled graph, which ignores hooks
    return found


def random_order(batch: Batch, generator: torch.Generator) -> Tensor:
    """A random order of each document's own tokens: the tokens' indices, (B, L)."""
    draws = torch.rand(batch.ids.shape, generator=generator).to(batch.ids.device)
    draws[~valid_positions(batch.lengths, batch.ids.shape[1])] = 2.0  # padding stays at the end
    return draws.argsort(1)


def shuffled(batch: Batch, generator: torch.Generator) -> Batch:
    """The batch with each document's own tokens in random order."""
    return replace(batch, ids=batch.ids.gather(1, random_order(batch, generator)))


def worth_of_position(
    model: PositionClassifier, batches: Iterable[Batch], longest: int, offset: int
) -> dict[str, float]:
    """Accuracy on the documents as they are (`accuracy`) and with each one's tokens in random order
    (`shuffled`). Also on the documents cut to `longest` tokens: as they are (`unshifted`) and with
    positions that begin at `offset` (`shifted`); uncut, these would leave the table."""
    generator = torch.Generator().manual_seed(SHUFFLE_SEED)
    right, documents = dict.fromkeys(("accuracy", "shuffled", "unshifted", "shifted"), 0), 0
    for batch in batches:
        short = replace(batch, ids=batch.ids[:, :longest], lengths=batch.lengths.clamp(max=longest))
        logits = {
            "accuracy": model(batch.ids, batch.lengths),
            "shuffled": model(shuffled(batch, generator).ids, batch.lengths),
            "shifted": model(short.ids, short.lengths, offset),
        }
        is_cut = batch.ids.shape[1] > longest
        logits["unshifted"] = model(short.ids, short.lengths) if is_cut else logits["accuracy"]
        for name, scores in logits.items():
            right[name] += int((scores.argmax(-1) == batch.labels).sum())
        documents += len(batch.labels)
    return {name: count / documents for name, count in right.items()}


def mean_of(values: Tensor, epoch: int, name: str, by: str = "", at: int = 0) -> Diagnostic:
    """The row of the values' mean."""
    return Diagnostic(epoch, name, by, at, at, values.numel(), values.mean().item())


def sample(
    data: TextDataModule, split: str, n: int, device: torch.device | str = "cpu"
) -> Iterator[Batch]:
    """Batches of n documents of a split, at equal distances; of all if there are fewer."""
    documents = data.documents[split]
    chosen = np.linspace(0, len(documents) - 1, min(n, len(documents))).astype(int)
    for members in SortedBatches(documents.lengths[chosen], BATCH):
        yield documents[chosen[members]].to(device)


class Diagnostics(Callback):
    """Collects `rows` after each whole epoch, which checkpoints save, and `worth` in the test."""

    def __init__(self, data: TextDataModule) -> None:
        self.data, self.evaluations = data, Evaluations(data.evaluations)
        self.rows: list[Diagnostic] = []
        self.worth: dict[str, float] = {}
        self.gradients: list[Tensor] = []  # of steps of this epoch, before any clipping
        self.steps = 0  # of this epoch
        self.counts = data.documents["train"].counts(data.store.vocabulary_size)  # (V,)

    def on_before_optimizer_step(self, trainer: L.Trainer, module: Any, optimizer: Any) -> None:
        if self.steps % GRADIENT_STEPS == 0:
            found = [p.grad for p in module.model.fusion.parameters() if p.grad is not None]
            if found:
                self.gradients.append(torch.nn.utils.get_total_norm(found))
        self.steps += 1

    def on_train_epoch_end(self, trainer: L.Trainer, module: Any) -> None:
        if not self.evaluations.ends_epoch(trainer.current_epoch):
            return
        epoch = self.evaluations.epoch(trainer.current_epoch)
        model = module.model
        n = int(np.clip(SHARE * len(self.data.documents["train"]), *EPOCH_DOCUMENTS))
        tokens, entropies = [], []
        with evaluating(trainer, model):
            for batch in sample(self.data, "validation", n, module.device):
                found = fusion_of_tokens(model, batch)
                tokens.append({name: x.double().cpu().numpy() for name, x in found.items()})
                entropies.append(attention_entropy(model, batch))
        joined = {name: np.concatenate([t[name] for t in tokens]) for name in tokens[0]}
        joined |= {name: joined[name].astype(int) for name in ("position", "id")}
        rows = [*fusion_rows(epoch, joined, self.counts)]
        for layer, values in enumerate(zip(*entropies, strict=True), 1):
            rows.append(mean_of(torch.cat(values), epoch, "attention_entropy", "layer", layer))
        if self.gradients:
            norms = torch.stack([norm.cpu() for norm in self.gradients])
            rows.append(mean_of(norms, epoch, "fusion_gradient_norm"))
        scale = torch.as_tensor(model.token_scale.value())
        self.rows += [*rows, mean_of(scale, epoch, "token_scale")]
        self.gradients, self.steps = [], 0

    def on_test_epoch_end(self, trainer: L.Trainer, module: Any) -> None:
        if self.data.tested != "test" or not isinstance(module.model, PositionClassifier):
            return  # another task has other targets in another order
        epochs = max(int(self.evaluations.epochs(trainer.current_epoch)), 1)
        read = len(self.data.documents["train"]) * epochs
        n = int(np.clip(SHARE * read, *TEST_DOCUMENTS))
        n = min(n, len(self.data.documents["test"]))
        max_len = self.data.cfg.max_len
        offset = min(max(max_len // 8, 1), max_len - 1)
        batches = sample(self.data, "test", n, module.device)
        with evaluating(trainer, module.model):
            found = worth_of_position(module.model, batches, max_len - offset, offset)
        self.worth = {"documents": n, "offset": offset, **found}

    def worth_rows(self, epoch: int) -> list[Diagnostic]:
        """`worth` as rows of the epoch whose weights were tested; none of a language model."""
        if not self.worth:
            return []
        n, offset = int(self.worth["documents"]), int(self.worth["offset"])
        places = {"": ("", 0), "_shuffled": ("", 0), "_unshifted": ("offset", 0)}
        places["_shifted"] = ("offset", offset)
        return [
            Diagnostic(epoch, f"accuracy{end}", by, at, at, n, self.worth[end[1:] or "accuracy"])
            for end, (by, at) in places.items()
        ]

    def state_dict(self) -> dict[str, Any]:
        rows = [vars(row) for row in self.rows]
        return {"rows": rows, "gradients": self.gradients, "steps": self.steps}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.rows = [Diagnostic(**row) for row in state_dict["rows"]]
        self.gradients, self.steps = list(state_dict["gradients"]), state_dict["steps"]


@contextmanager
def evaluating(trainer: L.Trainer, model: PositionClassifier) -> Iterator[None]:
    """Without gradients and dropout, in the precision of the run."""
    training = model.training
    model.eval()
    try:
        with torch.no_grad(), trainer.precision_plugin.forward_context():
            yield
    finally:
        model.train(training)
