"""How the parameters of the fusion operators start."""

from collections.abc import Sequence

from torch import Tensor, nn

# Weights of a gate start this small divided by d: |E| is about d at the paper's token scale, so
# every gate opens at 0.5 to within a few thousandths, and yet each weight receives a gradient.
GATE_STD = 0.01


def check_choice(name: str, value: str, *known: str) -> None:
    """Raises ValueError for an argument's value that is not among the known ones."""
    if value not in known:
        raise ValueError(f"{name} is {value!r}; use {' or '.join(known)}")


def linear_(fan_in: int, *parameters: Tensor) -> None:
    """Draw each parameter in place as nn.Linear draws weights and bias for `fan_in` inputs: from
    U(-b, b) with b = 1 / sqrt(fan_in)."""
    bound = fan_in**-0.5
    for parameter in parameters:
        nn.init.uniform_(parameter, -bound, bound)


def gate_(
    start: str, d_model: int, fan_in: int, weights: Sequence[Tensor], biases: Sequence[Tensor] = ()
) -> None:
    """Start in place what makes a gate's logit: with "half" every gate is near 0.5, with "linear"
    weights and biases start as nn.Linear starts them. Raises ValueError for another start."""
    check_choice("start", start, "half", "linear")
    if start == "linear":
        linear_(fan_in, *weights, *biases)
        return
    for weight in weights:
        nn.init.normal_(weight, std=GATE_STD / d_model)
    for bias in biases:
        nn.init.zeros_(bias)
