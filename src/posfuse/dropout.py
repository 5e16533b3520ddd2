"""Dropout that is cheap on a CPU.

torch draws a double for every number there, one after another, and spends more time on it than on
the matrix products around it; 16 bits a number are enough for a rate.
"""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

LEVELS = 2**16  # the rate is rounded to a multiple of 1 / LEVELS below 1


def dropout(x: Tensor, p: float) -> Tensor:
    """Zero each number of x with probability p, 0 <= p < 1, and divide the rest by 1 - p.

    The masks follow from torch's global generator, and on a CPU from the number of x's elements.
    """
    if x.device.type != "cpu":
        return F.dropout(x, p)
    if levels(p) == 0:
        return x
    out: Tensor = Thinned.apply(x, p)  # type: ignore[no-untyped-call]
    return out


class Thinned(torch.autograd.Function):
    """`dropout` on a CPU; the backward pass draws the mask again instead of keeping it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        """x (...) -> (...)."""
        ctx.p, ctx.seed = p, new_seed()
        return kept(x, p, ctx.seed).mul_(x).mul_(rescale(p))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        """The gradient (...) of what came out -> that of x."""
        return kept(grads[0], ctx.p, ctx.seed).mul_(grads[0]).mul_(rescale(ctx.p)), None


def levels(p: float) -> int:
    """How many of LEVELS stand for a number that is dropped."""
    return min(round(p * LEVELS), LEVELS - 1)


def rescale(p: float) -> float:
    """What the numbers that stay are multiplied by."""
    return LEVELS / (LEVELS - levels(p))


def new_seed() -> int:
    """A seed for `kept`, from torch's global generator."""
    return int(torch.randint(2**63 - 1, ()))


def kept(like: Tensor, p: float, seed: int) -> Tensor:
    """0 with probability p, else 1, of the shape and type of `like`; the same for one seed."""
    if like.device.type != "cpu":
        stays = 1 - levels(p) / LEVELS
        return torch.empty_like(like).bernoulli_(stays, generator=seeded(like.device, seed))
    # One 64-bit draw holds four numbers' bits; SFC64 draws five times as fast as torch.
    draws = np.random.Generator(np.random.SFC64(seed)).integers(
        0, 2**64 - 1, -(-like.numel() // 4), dtype=np.uint64, endpoint=True
    )
    bits = torch.from_numpy(draws.view(np.int16)[: like.numel()]).view(like.shape)
    # Numbers, not booleans: a product with them takes a fifth of the time of a masked_fill.
    out = torch.empty(like.shape, dtype=like.dtype)
    return torch.ge(bits, levels(p) - LEVELS // 2, out=out)


def seeded(device: torch.device, seed: int) -> torch.Generator:
    """A generator on the device, of its own."""
    return torch.Generator(device).manual_seed(seed)


class Dropout(nn.Module):
    """`dropout` in training, nothing in evaluation."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """x (...) -> (...)."""
        return dropout(x, self.p) if self.training else x
