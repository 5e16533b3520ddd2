"""Dropout that is cheap on a CPU.

torch draws a double for every number there, one after another, and spends more time on it than on
the matrix products around it. Here the gaps between numbers that are dropped are drawn, which are
geometric: at a rate of 0.1 that is one draw of 16 bits for ten numbers, and only what is dropped
is written.
"""

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

LEVELS = 2**16  # of a draw
SPARE = 6.0  # standard deviations of the number of gaps that are drawn beyond its mean


def dropout(x: Tensor, p: float) -> Tensor:
    """Zero each number of x with probability p, 0 <= p < 1, and divide the rest by 1 - p.

    Which ones follows from torch's global generator, and on a CPU from the number of x's elements.
    """
    if x.device.type != "cpu":
        return F.dropout(x, p)
    if p == 0:
        return x
    out: Tensor = Thinned.apply(x, p)  # type: ignore[no-untyped-call]
    return out


class Thinned(torch.autograd.Function):
    """`dropout` on a CPU; the backward pass draws again instead of keeping what was drawn."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        """x (...) -> (...)."""
        ctx.p, ctx.seed = p, new_seed()
        return thinned(x, p, ctx.seed)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        """The gradient (...) of what came out -> that of x."""
        return thinned(grads[0], ctx.p, ctx.seed), None


def thinned(x: Tensor, p: float, seed: int) -> Tensor:
    """`dropout` by this seed."""
    return zero_(x.contiguous() * (1 / (1 - p)), Draws(p, seed, x.device).next(x))


def new_seed() -> int:
    """A seed for `Draws`, from torch's global generator."""
    return int(torch.randint(2**63 - 1, ()))


class Draws:
    """What is dropped of one tensor after another; the same for one seed."""

    def __init__(self, p: float, seed: int, device: torch.device) -> None:
        """p, 0 < p < 1: with which each number is dropped."""
        self.p, self.source = p, seeded(device, seed)

    def next(self, like: Tensor) -> Tensor:
        """Which numbers of a tensor like this one are dropped, whatever their type: on a CPU their
        places in it, flat and ascending, int64, else a mask of its shape."""
        if not isinstance(self.source, np.random.SFC64):
            drops = torch.empty_like(like, dtype=torch.bool)
            return drops.bernoulli_(self.p, generator=self.source)
        n = like.numel()
        places = _places(n, self.p, self.source)
        while places[-1] < n:
            more = _places(n - int(places[-1]), self.p, self.source)
            places = torch.cat((places, places[-1] + 1 + more))
        return places[: places.numpy().searchsorted(n)]


def seeded(device: torch.device, seed: int) -> np.random.SFC64 | torch.Generator:
    """A source of random numbers on the device; numpy's draws five times as fast as torch's."""
    if device.type == "cpu":
        return np.random.SFC64(seed)
    return torch.Generator(device).manual_seed(seed)


def _places(n: int, p: float, source: np.random.SFC64) -> Tensor:
    """The first places that are dropped, ascending: most likely all of n numbers', and some."""
    mean = n * p
    words = int(mean + SPARE * mean**0.5) // 4 + 4  # of 64 bits, four draws each
    # A uniform number's logarithm over that of 1 - p, rounded up, is geometric.
    uniform = torch.from_numpy(source.random_raw(words).view(np.int16)).float()
    scale = 1 / math.log1p(-p)
    gaps = uniform.add_(LEVELS / 2 + 0.5).log_().mul_(scale).add_(1 - scale * math.log(LEVELS))
    places = gaps.long()
    places[0] -= 1
    return torch.cumsum(places, 0, out=places)


def zero_(x: Tensor, which: Tensor) -> Tensor:
    """Zero these numbers of x, which is contiguous, in place; `which` as `Draws` has it."""
    if which.dtype == torch.bool:
        return x.masked_fill_(which, 0)
    x.view(-1).index_fill_(0, which, 0)
    return x


class Dropout(nn.Module):
    """`dropout` in training, nothing in evaluation."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """x (...) -> (...)."""
        return dropout(x, self.p) if self.training else x
