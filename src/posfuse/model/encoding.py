"""The table part of position encodings: (N, d), which a fusion operator joins with the tokens.

Shapes: N = max_len rows, one for each possible position; d = d_model. An encoding in conf/encoding
names its `table`, and its `attention` half if it has one (attention_encoding.py).
"""

from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posfuse.model.initial_values import check_positive


class Table(nn.Module, ABC):
    """A position table; `forward()` returns all of it, (N, d)."""

    trained_length_only = False  # True: each position has a row of its own to learn

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
    """[sin | cos] of the rotary frequencies as an absolute table. It is the sinusoidal table with
    permuted columns. The authors' notebook calls it RoPE."""

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
    """An absolute table like `Learned`. The authors' notebook calls it relative.

    Initial values follow from a module's name (network.py), so the name `relative` gives an
    independent draw from the same distribution, as in the paper's Table 3.
    """

    trained_length_only = True

    def __init__(self, d_model: int, max_len: int) -> None:
        super().__init__(d_model, max_len)
        self.relative = Learned(d_model, max_len)

    def forward(self) -> Tensor:
        return self.relative()


class Fourier(Table):
    """P[i] = W2 GELU(W1 r_i + b1) + b2 with r_i = [cos(i w / gamma), sin(i w / gamma)] / sqrt(F).
    The F / 2 frequencies w are learned and start from N(0, 1) (Li et al. 2021, Learnable Fourier
    Features for Multi-Dimensional Spatial Positional Encoding, eq. 2 and 6, one dimension and one
    group).

    `gamma` is the distance, in tokens, at which positions differ. `features` is F (null:
    d_model, rounded up to an even number). `hidden` is the width of the layer (null: d_model). The
    features of P start with an rms near that of the sinusoidal table, 0.71.
    """

    def __init__(
        self,
        d_model: int,
        max_len: int,
        gamma: float = 10.0,
        features: int | None = None,
        hidden: int | None = None,
    ) -> None:
        super().__init__(d_model, max_len)
        features = d_model + d_model % 2 if features is None else features
        hidden = d_model if hidden is None else hidden
        check_positive(gamma=gamma, features=features, hidden=hidden)
        if features % 2:
            raise ValueError(f"features is {features}; use an even number, half of them cosines")
        self.gamma = gamma
        self.frequencies = nn.Parameter(torch.empty(features // 2))
        self.weight_in = nn.Parameter(torch.empty(hidden, features))
        self.bias_in = nn.Parameter(torch.empty(hidden))
        self.weight_out = nn.Parameter(torch.empty(d_model, hidden))
        self.bias_out = nn.Parameter(torch.empty(d_model))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.frequencies)
        nn.init.normal_(self.weight_in, std=2**0.5)  # |r| is sqrt(1/2): hidden features ~ N(0, 1)
        # E[GELU(z)^2] = 0.425 for z ~ N(0, 1).
        nn.init.normal_(self.weight_out, std=(0.5 / (0.425 * len(self.bias_in))) ** 0.5)
        nn.init.zeros_(self.bias_in)
        nn.init.zeros_(self.bias_out)

    def forward(self) -> Tensor:
        w = self.frequencies
        positions = torch.arange(self.max_len, dtype=w.dtype, device=w.device)
        angles = torch.outer(positions / self.gamma, w)
        features = torch.cat((angles.cos(), angles.sin()), -1) * self.weight_in.shape[1] ** -0.5
        hidden = F.gelu(F.linear(features, self.weight_in, self.bias_in))
        return F.linear(hidden, self.weight_out, self.bias_out)


def rotary_angles(
    d_model: int, max_len: int, base: float = 10000.0, interpolation: float = 1.0
) -> Tensor:
    """Angles (i / interpolation) / base^(2j/d) in radians, (N, d/2), float64. Raises ValueError if
    d is odd."""
    if d_model % 2:
        raise ValueError(
            f"d_model is {d_model}, but sines and cosines come in pairs; use an even model.d_model"
        )
    positions = torch.arange(max_len, dtype=torch.float64) / interpolation
    frequencies = base ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    return torch.outer(positions, frequencies)
