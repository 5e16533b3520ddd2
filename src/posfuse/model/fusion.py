"""Fusion operators, which join the position table P with the token embeddings E.

Shapes: B documents, L tokens of a padded document, T tokens of a packed batch, d = d_model,
N = rows of the position table. Equations are those of Hallam & Tseng, Fusion Matters (2026).

An operator splits its work in three:

- `project(table)` computes everything that depends only on the position, once a batch;
- `project_tokens(tokens)` computes everything that depends only on the token;
- `merge(token, position)` joins the parts of each token with the parts of its position.

A folded model (network.py) stores the first two for all words and positions, and only merges.
A new operator is one subclass here (or in your own module) and one YAML file in conf/fusion.
"""

from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posfuse.model.initial_values import check_choice, gate_, linear_
from posfuse.model.positions import Parts, Positions, rows_at
from posfuse.model.split_mlp import SplitMLP


class Fusion(nn.Module, ABC):
    """Fuses token embeddings with a position table.

    A subclass defines `merge`. It may move work to `project` and `project_tokens`.
    """

    uses_table = True  # False: the model builds no table, so no parameter stays untrained
    # Names of parameters whose learning rate is optim.scalar_lr_factor times optim.lr.
    scalars: tuple[str, ...] = ()

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.d_model = d_model

    def project(self, table: Tensor) -> Parts:
        """Table (N, d) -> position parts, each (N, k), which depend only on the position."""
        return (table,)

    def project_tokens(self, tokens: Tensor) -> Parts:
        """Tokens (..., d) -> token parts, each (..., k), which depend only on the token."""
        return (tokens,)

    @abstractmethod
    def merge(self, token: Parts, position: Parts) -> Tensor:
        """The tokens' parts and the parts of their positions, each (..., k) -> fused (..., d)."""

    def forward(self, tokens: Tensor, table: Tensor, positions: Positions = 0) -> Tensor:
        """Fuse a padded batch (B, L, d) whose tokens are at `positions` (L,), or at contiguous
        positions from `positions` on; or a packed batch (T, d) with `positions` (T,)."""
        return self.merge(*self.parts(tokens, table, positions))

    def parts(self, tokens: Tensor, table: Tensor, positions: Positions = 0) -> tuple[Parts, Parts]:
        """The arguments of `merge`, `token_part` and `gate`: token parts and position parts."""
        position = rows_at(self.project(table), tokens.shape[-2], positions)
        return self.project_tokens(tokens), position

    def token_part(self, token: Parts, position: Parts) -> Tensor | None:
        """The term of `merge` from the tokens, (..., d); the rest comes from the position. None if
        `merge` is not such a sum."""
        return None


class Add(Fusion):
    """H = E + P (eq. 1)."""

    def merge(self, token: Parts, position: Parts) -> Tensor:
        return token[0] + position[0]

    def token_part(self, token: Parts, position: Parts) -> Tensor:
        return token[0]


class NoFusion(Add):
    """H = E: only the tokens."""

    uses_table = False

    def project(self, table: Tensor) -> Parts:
        return ()

    def merge(self, token: Parts, position: Parts) -> Tensor:
        return token[0]


class AddScaled(Add):
    """H = E + alpha P with one learned alpha that starts at 1: a control for scale."""

    scalars = ("alpha",)

    def __init__(self, d_model: int) -> None:
        super().__init__(d_model)
        self.alpha = nn.Parameter(torch.ones(()))

    def project(self, table: Tensor) -> Parts:
        return (self.alpha * table,)


class Multiply(Fusion):
    """H = E * P, feature by feature: in the authors' notebooks, not in the paper."""

    def merge(self, token: Parts, position: Parts) -> Tensor:
        return token[0] * position[0]


class Concat(Add):
    """H = W [E; P] (eq. 2), computed as W_E E + W_P P: [E; P] never exists in memory.

    Weights start as those of nn.Linear(2d, d). `bias` adds its bias as well, as in the authors'
    notebooks. It belongs to the token's part, so the position's part is zero if P is zero.
    """

    def __init__(self, d_model: int, bias: bool = False) -> None:
        super().__init__(d_model)
        self.weight_token = nn.Parameter(torch.empty(d_model, d_model))
        self.weight_position = nn.Parameter(torch.empty(d_model, d_model))
        self.bias = nn.Parameter(torch.empty(d_model)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        linear_(2 * self.d_model, *self.parameters())

    def project(self, table: Tensor) -> Parts:
        return (F.linear(table, self.weight_position),)

    def project_tokens(self, tokens: Tensor) -> Parts:
        return (F.linear(tokens, self.weight_token, self.bias),)


class Gated(Fusion):
    """H = g E + (1 - g) P (eq. 4 and 6).

    E is the first token part, and P is the last position part. The gate reads the other parts.
    """

    def merge(self, token: Parts, position: Parts) -> Tensor:
        tokens, rows = token[0], position[-1]
        # lerp is one pass over the batch. Under autocast the gate, and the rows of an encoding that
        # computes them by products, have a smaller type than E.
        gate = self.gate(token, position).to(tokens.dtype)
        return torch.lerp(rows.to(tokens.dtype), tokens, gate)

    def token_part(self, token: Parts, position: Parts) -> Tensor:
        return self.gate(token, position) * token[0]

    @abstractmethod
    def gate(self, token: Parts, position: Parts) -> Tensor:
        """The arguments of `merge` -> g, (..., 1) or (..., d).

        A gate that depends only on the position has the shape of the position's rows and broadcasts
        over the documents.
        """


class PositionGated(Gated):
    """g depends only on the position: one gate per position, computed from the table."""

    def project(self, table: Tensor) -> Parts:
        return torch.sigmoid(self.position_logit(table)), table

    def gate(self, token: Parts, position: Parts) -> Tensor:
        return position[0]

    @abstractmethod
    def position_logit(self, table: Tensor) -> Tensor:
        """Table (N, d) -> the gates' logits (N, 1)."""


class GateConstant(PositionGated):
    """g is one learned number: a control whose gate depends on neither token nor position."""

    scalars = ("bias",)

    def __init__(self, d_model: int) -> None:
        super().__init__(d_model)
        self.bias = nn.Parameter(torch.zeros(1))

    def position_logit(self, table: Tensor) -> Tensor:
        return self.bias.expand(len(table), 1)


class GateLinear(Gated):
    """g = sigmoid(W [E; P] + b) with `n_gates` gates a position.

    With start="half" W and b start near zero, so gates start at 0.5. With start="linear" they start
    as in nn.Linear(2d, n_gates). Then, at the token scale sqrt(d), 32 % (d = 128) and 48 % (d =
    256) of the gates start below 0.01 or above 0.99.
    """

    scalars = ("bias",)

    def __init__(self, d_model: int, n_gates: int, start: str = "half") -> None:
        super().__init__(d_model)
        self.start = start
        self.weight_token = nn.Parameter(torch.empty(n_gates, d_model))
        self.weight_position = nn.Parameter(torch.empty(n_gates, d_model))
        self.bias = nn.Parameter(torch.zeros(n_gates))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        weights = self.weight_token, self.weight_position
        gate_(self.start, self.d_model, 2 * self.d_model, weights, (self.bias,))

    def project(self, table: Tensor) -> Parts:
        return F.linear(table, self.weight_position, self.bias), table

    def project_tokens(self, tokens: Tensor) -> Parts:
        return tokens, F.linear(tokens, self.weight_token)

    def gate(self, token: Parts, position: Parts) -> Tensor:
        return torch.sigmoid(token[1] + position[0])


class GateScalar(GateLinear):
    """g_i = sigmoid(w . [E_i; P_i] + b): one gate a position, shared by all features (eq. 3)."""

    def __init__(self, d_model: int, start: str = "half") -> None:
        super().__init__(d_model, 1, start)


class GateFeature(GateLinear):
    """d gates a position. The authors' notebooks call it Gate-Scalar on the short corpora."""

    def __init__(self, d_model: int, start: str = "half") -> None:
        super().__init__(d_model, d_model, start)


class GateCNN(PositionGated):
    """g_i = sigmoid(sum_k w_k . P_(i+k)), k = -K..K (eq. 5): a depth-wise convolution over P whose
    channels are summed to one gate a position, as the paper's text asks.

    Rows beyond the ends of the table count as zero. The convolution covers the whole table, so a
    document's gates do not depend on its padding. With start="linear" the weights start as those of
    the depth-wise nn.Conv1d, whose channels have 2K + 1 inputs each. Eq. 5 has no bias.
    """

    def __init__(self, d_model: int, half_width: int = 2, start: str = "half") -> None:
        if half_width < 0:
            raise ValueError(f"half_width is {half_width}; use 0 or more")
        super().__init__(d_model)
        self.half_width, self.start = half_width, start
        self.weight = nn.Parameter(torch.empty(1, d_model, 2 * half_width + 1))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        gate_(self.start, self.d_model, 2 * self.half_width + 1, (self.weight,))

    def position_logit(self, table: Tensor) -> Tensor:
        # A depth-wise convolution summed over channels is an ordinary one with one output.
        return F.conv1d(table.T[None], self.weight, padding=self.half_width)[0].T


class GateMLP(Gated):
    """d gates a position from an MLP of [E; P] (the paper's Gate-MLP, section 11.1). With
    start="linear" both layers start as nn.Linear does."""

    scalars = ("mlp.bias_out",)

    def __init__(self, d_model: int, hidden: int | None = None, start: str = "half") -> None:
        super().__init__(d_model)
        check_choice("start", start, "half", "linear")
        self.mlp = SplitMLP(d_model, hidden, start)

    def project(self, table: Tensor) -> Parts:
        return self.mlp.position_half(table), table

    def project_tokens(self, tokens: Tensor) -> Parts:
        return tokens, self.mlp.token_half(tokens)

    def gate(self, token: Parts, position: Parts) -> Tensor:
        return torch.sigmoid(self.mlp(token[1], position[0]))


class MLP(Fusion):
    """H = MLP([E; P]) without a gate. The authors' notebook calls it mlp.

    `biases` start at "zero", or as in nn.Linear and the notebook with "linear".
    """

    def __init__(
        self,
        d_model: int,
        hidden: int | None = None,
        activation: str = "gelu",
        biases: str = "zero",
    ) -> None:
        super().__init__(d_model)
        check_choice("biases", biases, "linear", "zero")
        self.mlp = SplitMLP(d_model, hidden, biases, activation)

    def project(self, table: Tensor) -> Parts:
        return (self.mlp.position_half(table),)

    def project_tokens(self, tokens: Tensor) -> Parts:
        return (self.mlp.token_half(tokens),)

    def merge(self, token: Parts, position: Parts) -> Tensor:
        return self.mlp(token[0], position[0])
