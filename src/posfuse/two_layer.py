"""The MLP of two fusion operators, its first layer split by what it sees: token or position.

Shapes: N = rows of the position table, d = d_model.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posfuse.initial_values import linear_


class TwoLayer(nn.Module):
    """Weights of an MLP of [E; P] with one hidden layer, the first layer split into E and P.

    Weights start as nn.Linear starts them, those of the second layer from N(0, out_std) where
    `out_std` is given. Biases start at 0, or with `linear_biases` as nn.Linear starts them.
    """

    def __init__(
        self,
        d_model: int,
        hidden: int,
        out_std: float | None = None,
        linear_biases: bool = False,
        activation: str = "gelu",
    ) -> None:
        super().__init__()
        if activation not in ("gelu", "relu"):
            raise ValueError(f"activation is {activation!r}; use gelu or relu")
        self.activation: Callable[[Tensor], Tensor] = getattr(F, activation)
        self.out_std, self.linear_biases = out_std, linear_biases
        self.weight_token = nn.Parameter(torch.empty(hidden, d_model))
        self.weight_position = nn.Parameter(torch.empty(hidden, d_model))
        self.bias = nn.Parameter(torch.zeros(hidden))
        self.weight_out = nn.Parameter(torch.empty(d_model, hidden))
        self.bias_out = nn.Parameter(torch.zeros(d_model))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        hidden, d_model = self.weight_token.shape
        linear_(2 * d_model, self.weight_token, self.weight_position)
        nn.init.zeros_(self.bias)
        if self.out_std is None:
            linear_(hidden, self.weight_out)
        else:
            nn.init.normal_(self.weight_out, std=self.out_std)
        nn.init.zeros_(self.bias_out)
        if self.linear_biases:
            linear_(2 * d_model, self.bias)
            linear_(hidden, self.bias_out)

    def token_half(self, tokens: Tensor) -> Tensor:
        """Tokens (..., d) -> (..., hidden)."""
        return F.linear(tokens, self.weight_token)

    def position_half(self, table: Tensor) -> Tensor:
        """Table (N, d) -> (N, hidden)."""
        return F.linear(table, self.weight_position, self.bias)

    def forward(self, token: Tensor, position: Tensor) -> Tensor:
        """The two halves (..., hidden) -> (..., d)."""
        return F.linear(self.activation(token + position), self.weight_out, self.bias_out)


def hidden_width(d_model: int, hidden: int | None) -> int:
    """Width of an MLP's hidden layer: d unless told otherwise."""
    if hidden is not None and hidden < 1:
        raise ValueError(f"hidden is {hidden}; use 1 or more, or null for d_model")
    return d_model if hidden is None else hidden
