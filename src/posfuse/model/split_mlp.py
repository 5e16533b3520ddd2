"""The MLP of [E; P] in two fusion operators, whose first layer is split into two halves.

Shapes: N = rows of the position table, d = d_model.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posfuse.model.initial_values import check_choice, gate_, linear_


class SplitMLP(nn.Module):
    """An MLP of [E; P] with one hidden layer, of width d unless `hidden` is given.

    `start` is "linear" (as nn.Linear), "zero" (as nn.Linear with biases 0), or "half" (biases 0,
    and the second layer as for a gate near 0.5, see initial_values.py).
    """

    def __init__(
        self, d_model: int, hidden: int | None, start: str, activation: str = "gelu"
    ) -> None:
        super().__init__()
        if hidden is not None and hidden < 1:
            raise ValueError(f"hidden is {hidden}; use 1 or more, or null for d_model")
        check_choice("activation", activation, "gelu", "relu")
        self.activation: Callable[[Tensor], Tensor] = getattr(F, activation)
        self.start = start
        width = hidden or d_model
        self.weight_token = nn.Parameter(torch.empty(width, d_model))
        self.weight_position = nn.Parameter(torch.empty(width, d_model))
        self.bias = nn.Parameter(torch.zeros(width))
        self.weight_out = nn.Parameter(torch.empty(d_model, width))
        self.bias_out = nn.Parameter(torch.zeros(d_model))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        d_model, width = self.weight_out.shape
        linear_(2 * d_model, self.weight_token, self.weight_position)
        nn.init.zeros_(self.bias)
        if self.start == "linear":
            linear_(2 * d_model, self.bias)
        if self.start == "zero":
            linear_(width, self.weight_out)
            nn.init.zeros_(self.bias_out)
        else:
            gate_(self.start, d_model, width, (self.weight_out,), (self.bias_out,))

    def token_half(self, tokens: Tensor) -> Tensor:
        """Tokens (..., d) -> (..., hidden)."""
        return F.linear(tokens, self.weight_token)

    def position_half(self, table: Tensor) -> Tensor:
        """Table (N, d) -> (N, hidden)."""
        return F.linear(table, self.weight_position, self.bias)

    def forward(self, token: Tensor, position: Tensor) -> Tensor:
        """The two halves (..., hidden) -> (..., d)."""
        return F.linear(self.activation(token + position), self.weight_out, self.bias_out)
