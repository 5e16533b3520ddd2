"""Dropout that is cheap on a CPU.

torch draws a double for every number there, one after another, and spends more time on it than on
the matrix products around it; 16 bits a number are enough for a rate.
"""

import math
from collections.abc import Sequence

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
    return (x * rescale(p)).masked_fill_(dropped(x.shape, p, new_seed()), 0)


def levels(p: float) -> int:
    """How many of LEVELS stand for a number that is dropped."""
    return min(round(p * LEVELS), LEVELS - 1)


def rescale(p: float) -> float:
    """What the numbers that stay are multiplied by."""
    return LEVELS / (LEVELS - levels(p))


def new_seed() -> int:
    """A seed for `dropped`, from torch's global generator."""
    return int(torch.randint(2**63 - 1, ()))


def dropped(shape: Sequence[int], p: float, seed: int) -> Tensor:
    """A mask of this shape on the CPU, True with probability p; the same for the same seed."""
    n = math.prod(shape)
    # One 64-bit draw holds four numbers' bits; SFC64 draws five times as fast as torch.
    draws = np.random.Generator(np.random.SFC64(seed)).integers(
        0, 2**64 - 1, -(-n // 4), dtype=np.uint64, endpoint=True
    )
    bits = torch.from_numpy(draws.view(np.int16)[:n]).view(tuple(shape))
    return bits < levels(p) - LEVELS // 2


class Dropout(nn.Module):
    """`dropout` in training, nothing in evaluation."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """x (...) -> (...)."""
        return dropout(x, self.p) if self.training else x
