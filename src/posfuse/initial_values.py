"""How the parameters of the fusion operators start."""

from torch import Tensor, nn


def linear_(fan_in: int, *parameters: Tensor) -> None:
    """Draw each parameter in place as nn.Linear draws weights and bias for `fan_in` inputs: from
    U(-b, b) with b = 1 / sqrt(fan_in)."""
    bound = fan_in**-0.5
    for parameter in parameters:
        nn.init.uniform_(parameter, -bound, bound)
