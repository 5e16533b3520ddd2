"""Control operators that differ from addition or from concat in one thing.

Shapes: d = d_model. `add_scaled` and `gate_constant`, which learn one number, are in fusion.py.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posfuse.model.fusion import Add
from posfuse.model.initial_values import linear_
from posfuse.model.positions import Parts

EPSILON = 1e-12  # added to a mean square: a vector with features below 1e-6 counts as zero


class Linear(Add):
    """H = W E + P: concat without a matrix for the position.

    W starts from U(-b, b) with b = 1 / sqrt(2d), as the token half of concat. Both operators draw
    it first, so with one seed W equals concat's W_E bit by bit. The ratio of token to position
    starts at 1 / sqrt(6) of concat's.
    """

    def __init__(self, d_model: int) -> None:
        super().__init__(d_model)
        self.weight_token = nn.Parameter(torch.empty(d_model, d_model))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        linear_(2 * self.d_model, self.weight_token)

    def project_tokens(self, tokens: Tensor) -> Parts:
        return (F.linear(tokens, self.weight_token),)


class AddMatched(Add):
    """H = E / rms(E) + P / rms(P): addition with equal magnitudes of token and position.

    rms(x) = sqrt(mean(x^2) + 1e-12), the mean over the d features of one token or one position.
    Neither the token scale nor the norm of an embedding has an effect. A vector of zeros stays
    zero.
    """

    def project(self, table: Tensor) -> Parts:
        return (_with_unit_rms(table),)

    def project_tokens(self, tokens: Tensor) -> Parts:
        return (_with_unit_rms(tokens),)


def _with_unit_rms(x: Tensor) -> Tensor:
    """x (..., d) divided by its rms over the features."""
    return F.rms_norm(x, x.shape[-1:], eps=EPSILON)
