"""Position encodings: the table half, (N, d), which a fusion operator joins with the tokens.

Shapes: N = max_len rows, d = d_model. An encoding in conf/encoding names its `table`; what it does
inside attention, if anything, stands beside it as `attention` (attention_encoding.py).
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn


class Table(nn.Module, ABC):
    """A position table; `forward()` gives it whole, (N, d)."""

    def __init__(self, d_model: int, max_len: int) -> None:
        super().__init__()
        self.d_model, self.max_len = d_model, max_len

    @abstractmethod
    def forward(self) -> Tensor: ...


class NoTable(Table):
    """P = 0: with it an operator keeps its parameters and loses all knowledge of position."""

    table: Tensor

    def __init__(self, d_model: int, max_len: int) -> None:
        super().__init__(d_model, max_len)
        self.register_buffer("table", torch.zeros(max_len, d_model), persistent=False)

    def forward(self) -> Tensor:
        return self.table


class Sinusoidal(Table):
    """P[i, 2j] = sin(i / 10000^(2j/d)), P[i, 2j+1] = cos of the same (Vaswani et al. 2017, 3.5)."""

    table: Tensor

    def __init__(self, d_model: int, max_len: int) -> None:
        super().__init__(d_model, max_len)
        self.register_buffer("table", self.build(rotary_angles(d_model, max_len)), persistent=False)

    def build(self, angles: Tensor) -> Tensor:
        """Angles (N, d/2) -> table (N, d)."""
        return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1).float()

    def forward(self) -> Tensor:
        return self.table


class RopeFeatures(Sinusoidal):
    """[sin | cos] of the rotary frequencies as an absolute table: what the authors' notebook
    runs under the name RoPE. It is the sinusoidal table with its columns permuted."""

    def build(self, angles: Tensor) -> Tensor:
        return torch.cat((angles.sin(), angles.cos()), dim=-1).float()


class Learned(Table):
    """One free vector a position, drawn from N(0, 1)."""

    def __init__(self, d_model: int, max_len: int) -> None:
        super().__init__(d_model, max_len)
        self.absolute = nn.Parameter(torch.empty(max_len, d_model))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.absolute)

    def forward(self) -> Tensor:
        return self.absolute


class RelativeTable(Table):
    """What the authors' notebook runs under the name relative: an absolute table like `Learned`.

    Initial values are derived from a module's name, so the part's own name makes this an
    independent draw from the same distribution, as it is in the paper's Table 3.
    """

    def __init__(self, d_model: int, max_len: int) -> None:
        super().__init__(d_model, max_len)
        self.relative = Learned(d_model, max_len)

    def forward(self) -> Tensor:
        rows: Tensor = self.relative()
        return rows


def rotary_angles(d_model: int, max_len: int) -> Tensor:
    """Angles i / 10000^(2j/d) in radians, (N, d/2), float64."""
    if d_model % 2:
        raise ValueError(
            f"d_model is {d_model}, sines and cosines come in pairs; use an even model.d_model, or "
            "encoding=learned"
        )
    positions = torch.arange(max_len, dtype=torch.float64)
    frequencies = 10000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    return torch.outer(positions, frequencies)
