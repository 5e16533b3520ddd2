"""Dropout that is cheap on a CPU.

torch draws a double for every number there, one after another, and spends more time on it than on
the matrix products around it; 16 bits a number are enough for a rate.
"""

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
    dropped = min(round(p * LEVELS), LEVELS - 1)
    if dropped == 0:
        return x
    # One 64-bit draw holds four numbers' bits.
    draws = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    levels = draws.view(torch.int16)[: x.numel()].view(x.shape)
    kept = (levels >= dropped - LEVELS // 2).to(x.dtype)
    return x * kept.mul_(LEVELS / (LEVELS - dropped))


class Dropout(nn.Module):
    """`dropout` in training, nothing in evaluation."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """x (...) -> (...)."""
        return dropout(x, self.p) if self.training else x
