"""Fusion operators: how the position table P meets the token embeddings E.

Shapes: B documents, L tokens of a padded document, T tokens of a packed batch, d = d_model,
N = rows of the position table. Equations are those of Hallam & Tseng, Fusion Matters (2026).

An operator splits its work in three:

- `project(table)` is everything that depends on the position alone, computed once a batch
  (and once for ever at inference): a tuple of tensors whose row i belongs to position i;
- `project_tokens(tokens)` is likewise what depends on the token alone, which a folded model
  (folding.py) looks up by word; the tokens themselves unless an operator says otherwise;
- `merge(*token_parts, *rows)` joins the two, the rows being those of the tokens' positions.

A new operator is one subclass here (or in your own module) and one YAML file in conf/fusion.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posfuse.model.initial_values import check_choice, gate_, linear_
from posfuse.model.two_layer import TwoLayer, hidden_width

Parts = tuple[Tensor, ...]  # of positions each (N, k), row i belongs to i; of tokens each (..., k)


class Fusion(nn.Module, ABC):
    """Fuses token embeddings with a position table; subclasses give `merge`, and what of their
    work can be done ahead of it in `project` and `project_tokens`."""

    uses_table = True  # False: the model builds no table, so no parameter is left untrained

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.d_model = d_model

    def project(self, table: Tensor) -> Parts:
        """Table (N, d) -> what depends on the position alone, each (N, k)."""
        return (table,)

    def project_tokens(self, tokens: Tensor) -> Parts:
        """Tokens (..., d) -> what depends on the token alone, each (..., k)."""
        return (tokens,)

    @abstractmethod
    def merge(self, tokens: Tensor, *rows: Tensor) -> Tensor:
        """The tokens' parts and the rows of their positions, each (..., k) -> fused (..., d)."""

    def forward(self, tokens: Tensor, table: Tensor, positions: Tensor | int = 0) -> Tensor:
        """Fuse a padded batch (B, L, d), its first token at this position, or a packed one (T, d)
        with its positions (T,)."""
        return self.merge(*self.parts(tokens, table, positions))

    def parts(self, tokens: Tensor, table: Tensor, positions: Tensor | int = 0) -> Parts:
        """All that `merge` takes, and `gate` and `token_part` with it."""
        rows = rows_at(self.project(table), tokens.shape[-2], positions)
        return *self.project_tokens(tokens), *rows

    def token_part(self, tokens: Tensor, *rows: Tensor) -> Tensor | None:
        """The part of `merge` that carries the tokens, (..., d); the rest carries the position.
        None where the two cannot be told apart."""
        return None


def rows_at(parts: Iterable[Tensor], length: int, positions: Tensor | int) -> Parts:
    """Of parts (N, k) the rows at `positions`, which must be among the N, or `length` rows from
    that one on; then raises ValueError beyond the end."""
    if isinstance(positions, Tensor):
        return tuple(part[positions] for part in parts)
    end = positions + length
    rows = tuple(part[positions:end] for part in parts)
    if rows and len(rows[0]) < length:
        raise ValueError(
            f"{end} tokens, but the position table ends at {positions + len(rows[0])}; cut the "
            f"documents or train with data.max_len={end}"
        )
    return rows


class NoFusion(Fusion):
    """H = E: tokens alone."""

    uses_table = False

    def project(self, table: Tensor) -> Parts:
        return ()

    def merge(self, tokens: Tensor, *rows: Tensor) -> Tensor:
        return tokens

    def token_part(self, tokens: Tensor, *rows: Tensor) -> Tensor:
        return tokens


class Add(Fusion):
    """H = E + P (eq. 1)."""

    def merge(self, tokens: Tensor, *rows: Tensor) -> Tensor:
        return tokens + rows[0]

    def token_part(self, tokens: Tensor, *rows: Tensor) -> Tensor:
        return tokens


class AddScaled(Add):
    """H = E + alpha P with one learned alpha, 1 at the start: a control for scale."""

    def __init__(self, d_model: int) -> None:
        super().__init__(d_model)
        self.alpha = nn.Parameter(torch.ones(()))

    def reset_parameters(self) -> None:
        nn.init.ones_(self.alpha)

    def project(self, table: Tensor) -> Parts:
        return (self.alpha * table,)


class Multiply(Fusion):
    """H = E * P, feature by feature: in the authors' notebooks, not in the paper."""

    def merge(self, tokens: Tensor, *rows: Tensor) -> Tensor:
        return tokens * rows[0]


class Concat(Add):
    """H = W [E; P] (eq. 2), computed as W_E E + W_P P: [E; P] never exists in memory.

    Weights start as those of nn.Linear(2d, d). `bias` adds its bias too, as in the authors'
    notebooks: in the token's part, so that the position's part is zero where P is.
    """

    def __init__(self, d_model: int, bias: bool = False) -> None:
        super().__init__(d_model)
        self.weight_token = nn.Parameter(torch.empty(d_model, d_model))
        self.weight_position = nn.Parameter(torch.empty(d_model, d_model))
        self.bias = nn.Parameter(torch.empty(d_model)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        linear_(2 * self.d_model, self.weight_token, self.weight_position)
        if self.bias is not None:
            linear_(2 * self.d_model, self.bias)

    def project(self, table: Tensor) -> Parts:
        return (F.linear(table, self.weight_position),)

    def project_tokens(self, tokens: Tensor) -> Parts:
        return (F.linear(tokens, self.weight_token, self.bias),)


class Gated(Fusion):
    """H = g E + (1 - g) P (eq. 4 and 6). The table is the last of the rows; a gate that looks at
    the token too has its own half of the token, then the position's, before it."""

    def merge(self, tokens: Tensor, *rows: Tensor) -> Tensor:
        # One pass over the batch; under autocast gates come in less than the tokens' precision.
        return torch.lerp(rows[-1], tokens, self.gate(tokens, *rows).to(tokens.dtype))

    def token_part(self, tokens: Tensor, *rows: Tensor) -> Tensor:
        return self.gate(tokens, *rows) * tokens

    @abstractmethod
    def gate(self, tokens: Tensor, *rows: Tensor) -> Tensor:
        """What `merge` takes -> g, (..., 1) or (..., d).

        A gate that looks at the position alone, as GateCNN's, has the rows' shape: it broadcasts.
        """


class PositionGated(Gated):
    """g depends on the position alone: one number for each, worked out with the table."""

    def project(self, table: Tensor) -> Parts:
        return torch.sigmoid(self.position_logit(table)), table

    def gate(self, tokens: Tensor, *rows: Tensor) -> Tensor:
        return rows[0]

    @abstractmethod
    def position_logit(self, table: Tensor) -> Tensor:
        """Table (N, d) -> the gates' logits (N, 1)."""


class GateConstant(PositionGated):
    """g is one learned number: a control that mixes without looking."""

    def __init__(self, d_model: int) -> None:
        super().__init__(d_model)
        self.bias = nn.Parameter(torch.zeros(1))

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.bias)

    def position_logit(self, table: Tensor) -> Tensor:
        return self.bias.expand(len(table), 1)


class GateLinear(Gated):
    """g = sigmoid(W [E; P] + b) with `n_gates` gates a position.

    W and b start near zero, so that gates start at 0.5, or as nn.Linear(2d, n_gates) does: then
    32 % (d = 128) and 48 % (d = 256) of the gates start below 0.01 or above 0.99 at the token scale
    sqrt(d).
    """

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

    def gate(self, tokens: Tensor, *rows: Tensor) -> Tensor:
        return torch.sigmoid(rows[0] + rows[1])


class GateScalar(GateLinear):
    """g_i = sigmoid(w . [E_i; P_i] + b): one gate a position, shared by all features (eq. 3)."""

    def __init__(self, d_model: int, start: str = "half") -> None:
        super().__init__(d_model, 1, start)


class GateFeature(GateLinear):
    """d gates a position: what the authors' notebooks run as Gate-Scalar on the short corpora."""

    def __init__(self, d_model: int, start: str = "half") -> None:
        super().__init__(d_model, d_model, start)


class GateCNN(PositionGated):
    """g_i = sigmoid(sum_k w_k . P_(i+k)), k = -K..K (eq. 5), a depth-wise convolution over P.

    The products are summed over the channels to one gate a position, as the text asks. Rows
    beyond the ends of the table count as zero; the convolution sees the whole table, so a
    document's gate never depends on how far its batch is padded. With start="linear" the weights
    start as those of the depth-wise nn.Conv1d, each of whose channels has 2K + 1 inputs; eq. 5 has
    no bias.
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
        # Depth-wise, then summed over channels, is one ordinary convolution with one output.
        return F.conv1d(table.T[None], self.weight, padding=self.half_width)[0].T


class GateMLP(Gated):
    """d gates a position from an MLP of [E; P] (the paper's Gate-MLP, section 11.1). With
    start="linear" both layers start as nn.Linear does."""

    def __init__(self, d_model: int, hidden: int | None = None, start: str = "half") -> None:
        super().__init__(d_model)
        check_choice("start", start, "half", "linear")
        self.mlp = TwoLayer(d_model, hidden_width(d_model, hidden), start)

    def project(self, table: Tensor) -> Parts:
        return self.mlp.position_half(table), table

    def project_tokens(self, tokens: Tensor) -> Parts:
        return tokens, self.mlp.token_half(tokens)

    def gate(self, tokens: Tensor, *rows: Tensor) -> Tensor:
        return torch.sigmoid(self.mlp(rows[0], rows[1]))


class MLP(Fusion):
    """H = MLP([E; P]) with no gate: what the authors' notebook runs under the name mlp.

    `biases` start at "zero" or, as in the notebook, as nn.Linear starts them: "linear".
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
        self.mlp = TwoLayer(d_model, hidden_width(d_model, hidden), biases, activation)

    def project(self, table: Tensor) -> Parts:
        return (self.mlp.position_half(table),)

    def project_tokens(self, tokens: Tensor) -> Parts:
        return (self.mlp.token_half(tokens),)

    def merge(self, tokens: Tensor, *rows: Tensor) -> Tensor:
        fused: Tensor = self.mlp(tokens, rows[0])
        return fused
