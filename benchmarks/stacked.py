"""Several seeds of one network, trained as a stack in one process by torch.func.

A small run leaves a GPU idle. A stack gives it larger operators: each parameter has a first
dimension K, one entry per seed, and each seed has its own batches. The alternative is several
processes on one device (sweep_times.py). All seeds share the documents and the vocabulary.

Without dropout a stack computes what K separate runs compute, up to rounding (tested). With dropout
its masks differ from those of separate runs.

Shapes: K seeds, B documents, L tokens.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap

import steps
from posfuse.config import Config
from posfuse.data.batching import Batch
from posfuse.data.datamodule import TextDataModule
from posfuse.model import attention_encoding, encoder
from posfuse.model import dropout as own_dropout
from posfuse.model.network import PositionClassifier
from posfuse.training.build import build_module

STACK = "as a stack"
StackedStep = Callable[[Sequence[Batch]], None]


class Padding:
    """Stands in for the tensor of valid positions (B, L). Under vmap `bool(valid.all())` is an
    error. The answer is always False here, so attention uses a mask."""

    def __init__(self, valid: Tensor) -> None:
        self.valid = valid

    def all(self) -> bool:
        return False

    def __getitem__(self, index: Any) -> Tensor:
        return self.valid[index]


@contextmanager
def for_vmap() -> Iterator[None]:
    """Replace what vmap cannot map: the question whether there is padding, posfuse's dropout on a
    CPU, and torch's fused attention. Of the latter the CPU's kernel has no rule for vmap, and that
    of a GPU keeps nothing for its backward pass."""
    valid = encoder.valid_positions
    with (
        mock.patch.object(encoder, "valid_positions", lambda *of: Padding(valid(*of))),
        mock.patch.object(own_dropout, "dropout", F.dropout),
        mock.patch.object(attention_encoding, "attention", steps.plain_attention),
    ):
        yield


class Stack:
    """The networks of K seeds with stacked parameters, in training."""

    def __init__(self, models: Sequence[PositionClassifier]) -> None:
        self.parameters, self.buffers = stack_module_state(list(models))
        self.network = models[0].train()  # its code; its own parameters are not used

    def losses(self, batches: Sequence[Batch]) -> Tensor:
        """The mean loss of each seed on its own batch: (K,). All batches have B documents."""
        longest = max(batch.ids.shape[1] for batch in batches)
        ids = torch.stack([F.pad(b.ids, (0, longest - b.ids.shape[1])) for b in batches])
        lengths = torch.stack([batch.lengths for batch in batches])
        labels = torch.stack([batch.labels for batch in batches])
        stacked = vmap(self._loss, randomness="different")
        with for_vmap():
            found: Tensor = stacked(self.parameters, self.buffers, ids, lengths, labels)
        return found

    def _loss(
        self,
        parameters: dict[str, Tensor],
        buffers: dict[str, Tensor],
        ids: Tensor,
        lengths: Tensor,
        labels: Tensor,
    ) -> Tensor:
        """The loss of one seed: ids (B, L), lengths and labels (B,) -> a number."""
        logits = functional_call(self.network, (parameters, buffers), (ids, lengths))
        return F.cross_entropy(logits.float(), labels)

    def clip(self, norm: float) -> None:
        """Clip the norm of each seed's gradient, as torch.nn.utils.clip_grad_norm_ does."""
        grads = [p.grad for p in self.parameters.values() if p.grad is not None]
        norms = torch.stack([grad.reshape(len(grad), -1).norm(dim=1) for grad in grads])
        factors = (norm / (norms.norm(dim=0) + 1e-6)).clamp(max=1.0)  # (K,)
        for grad in grads:
            grad *= factors.view(-1, *[1] * (grad.dim() - 1))


def stacked_step(
    cfg: Config, data: TextDataModule, seeds: int, kind: torch.dtype | None = None
) -> tuple[Stack, StackedStep]:
    """A stack of this run's seed and the next ones, and its step on a batch of each seed, whose
    products have this number type. All parameters have the learning rate optim.lr."""
    device, optim = steps.device_of(cfg), cfg.optim
    modules = [build_module(replace(cfg, seed=cfg.seed + i), data).to(device) for i in range(seeds)]
    stack = Stack([module.model for module in modules])
    optimizer_class: Any = type(modules[0].configure_optimizers())
    # Adam updates each number separately, so one optimiser is enough.
    optimizer = optimizer_class(
        stack.parameters.values(), lr=optim.lr, weight_decay=optim.weight_decay, fused=True
    )

    def step(batches: Sequence[Batch]) -> None:
        with torch.autocast(device.type, kind) if kind else nullcontext():
            losses = stack.losses(batches)
        optimizer.zero_grad()
        losses.sum().backward()
        if cfg.trainer.clip_norm:
            stack.clip(cfg.trainer.clip_norm)
        optimizer.step()

    return stack, step


def compared(
    name: str,
    cfg: Config,
    data: TextDataModule,
    seeds: Sequence[int],
    turn: tuple[Sequence[Batch], Sequence[Batch]],  # those that do not count, and the others
    repeats: int,
    kind: torch.dtype | None = None,
) -> Iterator[list[str | float]]:
    """Rows of a table: ms of a step of so many seeds one after another, and of their stack. Seed i
    has the batches from the i-th one on."""
    full = len(turn[0][0].labels)  # an epoch's last batch can have fewer documents
    warm, on = ([batch for batch in part if len(batch.labels) == full] for part in turn)
    every = [*warm, *on]
    for n in seeds:
        alone = steps.stepper(cfg, data, kind)
        _, together = stacked_step(cfg, data, n, kind)
        of_seeds = {
            id(batch): [every[(at + i) % len(every)] for i in range(n)]
            for at, batch in enumerate(every)
        }
        found = {
            steps.USUAL: partial(_one_by_one, alone, of_seeds),
            STACK: partial(_at_once, together, of_seeds),
        }
        yield from steps.compared(f"{name}, {n} seeds", found, warm, on, repeats)


def _one_by_one(step: steps.Step, of_seeds: dict[int, list[Batch]], first: Batch) -> None:
    for batch in of_seeds[id(first)]:
        step(batch)


def _at_once(step: StackedStep, of_seeds: dict[int, list[Batch]], first: Batch) -> None:
    step(of_seeds[id(first)])
