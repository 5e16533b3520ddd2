"""Dropout that is fast on a CPU; the tests compare it with the definition.

On a CPU torch draws a double for every number, which takes longer than the matrix products of the
model. This module draws the gaps between dropped numbers, which are geometric. At a rate of 0.1
this is one draw of 16 bits for ten numbers, and only dropped numbers are written.
"""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

LEVELS = 2**16  # of a draw
SPARE = 6.0  # gaps to draw beyond the expected number, in its standard deviations


class Dropout(nn.Dropout):
    """nn.Dropout with p < 1.

    The dropped numbers depend on torch's global generator, and on a CPU also on the number of
    elements.
    """

    def forward(self, x: Tensor) -> Tensor:
        """x (...) -> (...)."""
        if x.device.type != "cpu" or not self.training or self.p == 0:
            return super().forward(x)
        return _Dropout.apply(x, self.p)  # type: ignore[no-untyped-call]


class _Dropout(torch.autograd.Function):
    """Dropout on a CPU."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        """x (...) -> (...)."""
        dropped = Draws(p, new_seed(), x.device).next(x)
        ctx.p = p
        ctx.save_for_backward(dropped)
        return zero_(x.contiguous() * (1 / (1 - p)), dropped)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        """The gradient of the output (...) -> the gradient of x (...)."""
        (dropped,) = ctx.saved_tensors
        return zero_(grads[0].contiguous() * (1 / (1 - ctx.p)), dropped), None


def new_seed() -> int:
    """A seed for `Draws`, from torch's global generator."""
    return int(torch.randint(2**63 - 1, ()))


class Draws:
    """Draws the numbers to drop, for one tensor after another. The same seed repeats the draws."""

    def __init__(self, p: float, seed: int, device: torch.device) -> None:
        """p, 0 <= p < 1: the probability with which each number is dropped."""
        self.p, self.source = p, _generator(device, seed)

    def next(self, like: Tensor) -> Tensor | None:
        """The numbers to drop from a tensor of this shape: on a CPU their flat indices, ascending,
        int64; elsewhere a mask of this shape; None if p = 0."""
        if self.p == 0:
            return None
        if not isinstance(self.source, np.random.SFC64):
            mask = torch.empty_like(like, dtype=torch.bool)
            return mask.bernoulli_(self.p, generator=self.source)
        n = like.numel()
        places = _places(n, self.p, self.source)
        while places[-1] < n:
            more = _places(n - int(places[-1]), self.p, self.source)
            places = torch.cat((places, places[-1] + 1 + more))
        return places[: places.numpy().searchsorted(n)]


def _generator(device: torch.device, seed: int) -> np.random.SFC64 | torch.Generator:
    """A random generator on the device; on a CPU numpy's is five times as fast as torch's."""
    if device.type == "cpu":
        return np.random.SFC64(seed)
    return torch.Generator(device).manual_seed(seed)


def _places(n: int, p: float, source: np.random.SFC64) -> Tensor:
    """The first dropped indices, ascending: almost always all below n, and a few more."""
    mean = n * p
    words = int(mean + SPARE * mean**0.5) // 4 + 4  # of 64 bits, four draws each
    # The logarithm of a uniform number over log(1 - p), rounded up, is geometric.
    uniform = torch.from_numpy(source.random_raw(words).view(np.int16)).float()
    scale = 1 / math.log1p(-p)
    gaps = uniform.add_(LEVELS / 2 + 0.5).log_().mul_(scale).add_(1 - scale * math.log(LEVELS))
    places = gaps.long()
    places[0] -= 1
    return torch.cumsum(places, 0, out=places)


def zero_(x: Tensor, dropped: Tensor | None) -> Tensor:
    """Zero the `dropped` numbers of a contiguous x (...) in place, and return x. `dropped` is the
    result of `Draws.next`."""
    if dropped is None:
        return x
    if dropped.dtype == torch.bool:
        return x.masked_fill_(dropped, 0)
    x.view(-1).index_fill_(0, dropped, 0)
    return x
