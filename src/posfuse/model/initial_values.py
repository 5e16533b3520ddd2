"""Initial values of the fusion operators' parameters, and checks of constructor arguments."""

import math
from collections.abc import Sequence

from torch import Tensor, nn

# Standard deviation of a gate's weights, times d: |E| is about d at the paper's token scale, so
# every gate starts within a few thousandths of 0.5, and each weight still receives a gradient.
GATE_STD = 0.01


def check_choice(name: str, value: str, *known: str) -> None:
    """Raises ValueError if an argument's value is not a known one."""
    if value not in known:
        raise ValueError(f"{name} is {value!r}; use {' or '.join(known)}")


def check_positive(**values: float) -> None:
    """Raises ValueError for the first argument that is not above 0 and finite."""
    for name, value in values.items():
        if not 0 < value < math.inf:
            raise ValueError(f"{name} is {value}; use a finite number above 0")


def linear_(fan_in: int, *parameters: Tensor) -> None:
    """Draw each parameter in place from U(-b, b), b = 1 / sqrt(fan_in), as nn.Linear does."""
    bound = fan_in**-0.5
    for parameter in parameters:
        nn.init.uniform_(parameter, -bound, bound)


def gate_(
    start: str, d_model: int, fan_in: int, weights: Sequence[Tensor], biases: Sequence[Tensor] = ()
) -> None:
    """Set the weights and biases of a gate's logit in place. start="half" puts every gate near 0.5,
    and start="linear" draws them as nn.Linear. Raises ValueError for another start."""
    check_choice("start", start, "half", "linear")
    if start == "linear":
        linear_(fan_in, *weights, *biases)
        return
    for weight in weights:
        nn.init.normal_(weight, std=GATE_STD / d_model)
    for bias in biases:
        nn.init.zeros_(bias)
