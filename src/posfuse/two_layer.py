"""The MLP of two fusion operators, its first layer split by what it sees: token or position.

Shapes: N = rows of the position table, d = d_model.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def uniform_(fan_in: int, *parameters: Tensor) -> None:
    """Draw each parameter in place as nn.Linear draws the weights and bias of `fan_in` inputs."""
    bound = fan_in**-0.5
    for parameter in parameters:
        nn.init.uniform_(parameter, -bound, bound)


class TwoLayer(nn.Module):
    """Weights of an MLP of [E; P] with one hidden layer, the first layer split into E and P."""

    def __init__(self, d_model: int, hidden: int, out_std: float | None) -> None:
        super().__init__()
        self.out_std = out_std
        self.weight_token = nn.Parameter(torch.empty(hidden, d_model))
        self.weight_position = nn.Parameter(torch.empty(hidden, d_model))
        self.bias = nn.Parameter(torch.zeros(hidden))
        self.weight_out = nn.Parameter(torch.empty(d_model, hidden))
        self.bias_out = nn.Parameter(torch.zeros(d_model))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        hidden, d_model = self.weight_token.shape
        uniform_(2 * d_model, self.weight_token, self.weight_position)
        nn.init.zeros_(self.bias)
        if self.out_std is None:
            uniform_(hidden, self.weight_out)
        else:
            nn.init.normal_(self.weight_out, std=self.out_std)
        nn.init.zeros_(self.bias_out)

    def token_half(self, tokens: Tensor) -> Tensor:
        """Tokens (..., d) -> (..., hidden)."""
        return F.linear(tokens, self.weight_token)

    def position_half(self, table: Tensor) -> Tensor:
        """Table (N, d) -> (N, hidden)."""
        return F.linear(table, self.weight_position, self.bias)

    def forward(self, token: Tensor, position: Tensor) -> Tensor:
        """The two halves (..., hidden) -> (..., d)."""
        return F.linear(F.gelu(token + position), self.weight_out, self.bias_out)


def hidden_width(d_model: int, hidden: int | None) -> int:
    """Width of an MLP's hidden layer: d unless told otherwise."""
    if hidden is not None and hidden < 1:
        raise ValueError(f"hidden is {hidden}; use 1 or more, or null for d_model")
    return d_model if hidden is None else hidden
