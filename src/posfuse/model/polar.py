"""Polar coordinate position embedding: content gives the magnitude, position the phase.

Shapes: B documents, H heads, L tokens, D = d / H features of a head, N positions.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posfuse.model.attention_encoding import AttentionEncoding
from posfuse.model.encoding import rotary_angles
from posfuse.model.initial_values import check_choice, check_positive


class Pope(AttentionEncoding):
    """The score of a query at position i and a key at j is the sum over features c = 0 .. D - 1 of
    softplus(q_c) softplus(k_c) cos((j - i) base^(-c/D) + delta_c) / sqrt(D) (Gopalakrishnan et al.
    2025, Decoupling the "What" and "Where" With Polar Coordinate Positional Embeddings, eq. 3 to
    8). q and k get 2D features for these products.

    Each head of each layer learns its delta, bounded to [-2 pi, 0] as in the paper. Beyond a bound
    delta has no gradient, so training calls `keep_bounds` before each step. `delta` is its initial
    value: "zero" (the paper's choice for longer documents), "uniform" over the interval (in the
    paper slightly better at the trained length), or "none" for no delta (eq. 5).
    """

    per_layer = True
    angles: Tensor

    def __init__(
        self, d_model: int, n_heads: int, max_len: int, base: float = 10000.0, delta: str = "zero"
    ) -> None:
        super().__init__(d_model, n_heads, max_len)
        check_positive(base=base)
        check_choice("delta", delta, "zero", "uniform", "none")
        self.rows, self.start = max_len, delta
        angles = rotary_angles(2 * self.d_head, max_len, base)
        both = torch.stack((angles.cos(), angles.sin())).float()  # (2, N, D)
        self.register_buffer("angles", both, persistent=False)
        has_delta = delta != "none"
        self.delta = nn.Parameter(torch.empty(n_heads, 1, self.d_head)) if has_delta else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.delta is not None:
            nn.init.uniform_(self.delta, -2 * math.pi if self.start == "uniform" else 0.0, 0.0)

    @torch.no_grad()
    def keep_bounds(self) -> None:
        """Move delta back to its bounds."""
        if self.delta is not None:
            self.delta.clamp_(-2 * math.pi, 0)

    def turn(self, x: Tensor, positions: Tensor, role: str) -> Tensor:
        cos, sin = self.angles[:, positions]
        if role == "key" and self.delta is not None:
            bounded = self.delta.clamp(-2 * math.pi, 0)
            c, s = bounded.cos(), bounded.sin()
            cos, sin = cos * c - sin * s, sin * c + cos * s  # of the sum of the angles, (H, L, D)
        magnitude = F.softplus(x)
        return torch.cat((magnitude * cos, magnitude * sin), -1).to(x.dtype)
