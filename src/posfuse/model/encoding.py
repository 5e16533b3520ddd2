"""Position encodings, the table half: (N, d), which a fusion operator joins with the tokens.

Shapes: N = max_len rows, one for each possible position; d = d_model. An encoding in conf/encoding
names its `table`, and its `attention` half if it has one (attention_encoding.py).
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn


class Table(nn.Module, ABC):
    """A position table; `forward()` returns all of it, (N, d)."""

    trained_length_only = False  # whether training teaches each position only its own row

    def __init__(self, d_model: int, max_len: int) -> None:
        super().__init__()
        self.d_model, self.max_len = d_model, max_len

    @abstractmethod
    def forward(self) -> Tensor: ...


class FixedTable(Table):
    """A table without parameters, computed once from its shape."""

    table: Tensor

    def __init__(self, d_model: int, max_len: int) -> None:
        super().__init__(d_model, max_len)
        self.register_buffer("table", self.build(d_model, max_len), persistent=False)

    @abstractmethod
    def build(self, d_model: int, max_len: int) -> Tensor:
        """The table (N, d)."""

    def forward(self) -> Tensor:
        return self.table


class NoTable(FixedTable):
    """P = 0: an operator keeps its parameters but gets no position."""

    def build(self, d_model: int, max_len: int) -> Tensor:
        return torch.zeros(max_len, d_model)


class Sinusoidal(FixedTable):
    """P[i, 2j] = sin(i / 10000^(2j/d)), P[i, 2j+1] = cos of the same (Vaswani et al. 2017, 3.5)."""

    def build(self, d_model: int, max_len: int) -> Tensor:
        angles = rotary_angles(d_model, max_len)
        return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1).float()


class RopeFeatures(FixedTable):
    """[sin | cos] of the rotary frequencies as an absolute table: what the authors' notebook runs
    under the name RoPE. It is the sinusoidal table with permuted columns."""

    def build(self, d_model: int, max_len: int) -> Tensor:
        angles = rotary_angles(d_model, max_len)
        return torch.cat((angles.sin(), angles.cos()), dim=-1).float()


class Learned(Table):
    """One learned vector per position, drawn from N(0, 1)."""

    trained_length_only = True

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

    Initial values follow from a module's name (network.py), so the name `relative` gives an
    independent draw from the same distribution, as in the paper's Table 3.
    """

    trained_length_only = True

    def __init__(self, d_model: int, max_len: int) -> None:
        super().__init__(d_model, max_len)
        self.relative = Learned(d_model, max_len)

    def forward(self) -> Tensor:
        rows: Tensor = self.relative()
        return rows


def rotary_angles(
    d_model: int, max_len: int, base: float = 10000.0, interpolation: float = 1.0
) -> Tensor:
    """Angles (i / interpolation) / base^(2j/d) in radians, (N, d/2), float64."""
    if d_model % 2:
        raise ValueError(
            f"d_model is {d_model}, but sines and cosines come in pairs; use an even model.d_model "
            "or encoding=learned"
        )
    positions = torch.arange(max_len, dtype=torch.float64) / interpolation
    frequencies = base ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    return torch.outer(positions, frequencies)
