"""Fusion operators: how the position table P meets the token embeddings E.

Shapes: B documents, L tokens of a padded document, T tokens of a packed batch, d = d_model,
N = rows of the position table. Equations are those of Hallam & Tseng, Fusion Matters (2026).

An operator splits its work in two:

- `project(table)` is everything that depends on the position alone, computed once a batch
  (and once for ever at inference): a tuple of tensors whose row i belongs to position i;
- `merge(tokens, *rows)` joins the tokens with the rows of their positions.

A new operator is one subclass here (or in your own module) and one YAML file in conf/fusion.
"""

from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PositionPart = tuple[Tensor, ...]  # each (N, k): row i belongs to position i

# Weights of a gate start this small divided by d: |E| is about d at the paper's token scale, so
# every gate opens at 0.5 to within a few thousandths, and yet each weight receives a gradient.
GATE_STD = 0.01


class Fusion(nn.Module, ABC):
    """Fuses token embeddings with a position table; subclasses give `project` and `merge`."""

    uses_table = True  # False: the model builds no table, so no parameter is left untrained

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.d_model = d_model

    def project(self, table: Tensor) -> PositionPart:
        """Table (N, d) -> what depends on the position alone, each (N, k)."""
        return (table,)

    @abstractmethod
    def merge(self, tokens: Tensor, *rows: Tensor) -> Tensor:
        """Tokens (..., d) and the rows (..., k) of their positions -> fused (..., d)."""

    def forward(self, tokens: Tensor, table: Tensor, positions: Tensor | None = None) -> Tensor:
        """Fuse a padded batch (B, L, d), at positions (L,), 0 to L - 1 unless told otherwise, or a
        packed one (T, d) with its positions (T,)."""
        return self.merge(tokens, *self.rows(table, tokens.shape[-2], positions))

    def rows(self, table: Tensor, length: int, positions: Tensor | None = None) -> PositionPart:
        """What `merge` takes beside `length` tokens: the rows at `positions`, which must be in the
        table, or from 0 on; then raises ValueError beyond the table's end."""
        if positions is not None:
            return tuple(part[positions] for part in self.project(table))
        if self.uses_table and length > len(table):
            raise ValueError(
                f"{length} tokens, but the position table ends at {len(table)}; cut the documents "
                f"or train with data.max_len={length}"
            )
        return tuple(part[:length] for part in self.project(table))

    def token_part(self, tokens: Tensor, *rows: Tensor) -> Tensor | None:
        """The part of `merge` that carries the tokens, (..., d); the rest carries the position.
        None where the two cannot be told apart."""
        return None


class NoFusion(Fusion):
    """H = E: tokens alone."""

    uses_table = False

    def project(self, table: Tensor) -> PositionPart:
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

    def project(self, table: Tensor) -> PositionPart:
        return (self.alpha * table,)


class Concat(Fusion):
    """H = W [E; P] (eq. 2), computed as W_E E + W_P P: [E; P] never exists in memory."""

    def __init__(self, d_model: int) -> None:
        super().__init__(d_model)
        self.weight_token = nn.Parameter(torch.empty(d_model, d_model))
        self.weight_position = nn.Parameter(torch.empty(d_model, d_model))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        bound = (2 * self.d_model) ** -0.5  # what nn.Linear(2d, d) draws from
        nn.init.uniform_(self.weight_token, -bound, bound)
        nn.init.uniform_(self.weight_position, -bound, bound)

    def project(self, table: Tensor) -> PositionPart:
        return (F.linear(table, self.weight_position),)

    def merge(self, tokens: Tensor, *rows: Tensor) -> Tensor:
        return self.token_part(tokens) + rows[0]

    def token_part(self, tokens: Tensor, *rows: Tensor) -> Tensor:
        return F.linear(tokens, self.weight_token)


class Gated(Fusion):
    """H = g E + (1 - g) P (eq. 4 and 6) with g = sigmoid(token logit + position logit)."""

    def project(self, table: Tensor) -> PositionPart:
        return table, self.position_logit(table)

    def merge(self, tokens: Tensor, *rows: Tensor) -> Tensor:
        position = rows[0]
        return position + self.gate(tokens, *rows) * (tokens - position)

    def token_part(self, tokens: Tensor, *rows: Tensor) -> Tensor:
        return self.gate(tokens, *rows) * tokens

    def gate(self, tokens: Tensor, *rows: Tensor) -> Tensor:
        """Tokens (..., d) and the rows of their positions -> g, (..., 1) or (..., d).

        A gate that looks at the position alone, as GateCNN's, has the rows' shape: it broadcasts.
        """
        return torch.sigmoid(self.gate_logit(tokens, rows[1]))

    @abstractmethod
    def position_logit(self, table: Tensor) -> Tensor:
        """Table (N, d) -> the position's part of the gate's logit (N, k)."""

    def gate_logit(self, tokens: Tensor, logit: Tensor) -> Tensor:
        """Tokens (..., d) and the position's part (..., k) -> logit (..., 1) or (..., d)."""
        return logit


class GateConstant(Gated):
    """g is one learned number: a control that mixes without looking."""

    def __init__(self, d_model: int) -> None:
        super().__init__(d_model)
        self.bias = nn.Parameter(torch.zeros(1))

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.bias)

    def position_logit(self, table: Tensor) -> Tensor:
        return self.bias.expand(len(table), 1)


class GateLinear(Gated):
    """g = sigmoid(W [E; P] + b) with `n_gates` gates a position."""

    def __init__(self, d_model: int, n_gates: int) -> None:
        super().__init__(d_model)
        self.weight_token = nn.Parameter(torch.empty(n_gates, d_model))
        self.weight_position = nn.Parameter(torch.empty(n_gates, d_model))
        self.bias = nn.Parameter(torch.zeros(n_gates))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight_token, std=GATE_STD / self.d_model)
        nn.init.normal_(self.weight_position, std=GATE_STD / self.d_model)
        nn.init.zeros_(self.bias)

    def position_logit(self, table: Tensor) -> Tensor:
        return F.linear(table, self.weight_position, self.bias)

    def gate_logit(self, tokens: Tensor, logit: Tensor) -> Tensor:
        return F.linear(tokens, self.weight_token) + logit


class GateScalar(GateLinear):
    """g_i = sigmoid(w . [E_i; P_i] + b): one gate a position, shared by all features (eq. 3)."""

    def __init__(self, d_model: int) -> None:
        super().__init__(d_model, n_gates=1)


class GateFeature(GateLinear):
    """d gates a position: what the authors' notebooks run as Gate-Scalar on the short corpora."""

    def __init__(self, d_model: int) -> None:
        super().__init__(d_model, n_gates=d_model)


class GateCNN(Gated):
    """g_i = sigmoid(sum_k w_k . P_(i+k)), k = -K..K (eq. 5), a depth-wise convolution over P.

    The products are summed over the channels to one gate a position, as the text asks. Rows
    beyond the ends of the table count as zero; the convolution sees the whole table, so a
    document's gate never depends on how far its batch is padded.
    """

    def __init__(self, d_model: int, half_width: int = 2) -> None:
        if half_width < 0:
            raise ValueError(f"half_width is {half_width}; use 0 or more")
        super().__init__(d_model)
        self.half_width = half_width
        self.weight = nn.Parameter(torch.empty(1, d_model, 2 * half_width + 1))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=GATE_STD / self.d_model)

    def position_logit(self, table: Tensor) -> Tensor:
        # Depth-wise, then summed over channels, is one ordinary convolution with one output.
        return F.conv1d(table.T[None], self.weight, padding=self.half_width)[0].T


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
        bound = (2 * d_model) ** -0.5
        nn.init.uniform_(self.weight_token, -bound, bound)
        nn.init.uniform_(self.weight_position, -bound, bound)
        nn.init.zeros_(self.bias)
        if self.out_std is None:
            nn.init.uniform_(self.weight_out, -(hidden**-0.5), hidden**-0.5)
        else:
            nn.init.normal_(self.weight_out, std=self.out_std)
        nn.init.zeros_(self.bias_out)

    def position_half(self, table: Tensor) -> Tensor:
        """Table (N, d) -> (N, hidden)."""
        return F.linear(table, self.weight_position, self.bias)

    def forward(self, tokens: Tensor, position: Tensor) -> Tensor:
        """Tokens (..., d) and the position's half (..., hidden) -> (..., d)."""
        hidden = F.gelu(F.linear(tokens, self.weight_token) + position)
        return F.linear(hidden, self.weight_out, self.bias_out)


class GateMLP(Gated):
    """d gates a position from an MLP of [E; P] (the paper's Gate-MLP, section 11.1)."""

    def __init__(self, d_model: int, hidden: int | None = None) -> None:
        super().__init__(d_model)
        self.mlp = TwoLayer(d_model, hidden_width(d_model, hidden), GATE_STD / d_model)

    def position_logit(self, table: Tensor) -> Tensor:
        return self.mlp.position_half(table)

    def gate_logit(self, tokens: Tensor, logit: Tensor) -> Tensor:
        gates: Tensor = self.mlp(tokens, logit)
        return gates


class MLP(Fusion):
    """H = MLP([E; P]) with no gate: what the authors' notebook runs under the name mlp."""

    def __init__(self, d_model: int, hidden: int | None = None) -> None:
        super().__init__(d_model)
        self.mlp = TwoLayer(d_model, hidden_width(d_model, hidden), None)

    def project(self, table: Tensor) -> PositionPart:
        return (self.mlp.position_half(table),)

    def merge(self, tokens: Tensor, *rows: Tensor) -> Tensor:
        fused: Tensor = self.mlp(tokens, rows[0])
        return fused


def hidden_width(d_model: int, hidden: int | None) -> int:
    """Width of an MLP's hidden layer: d unless told otherwise."""
    if hidden is not None and hidden < 1:
        raise ValueError(f"hidden is {hidden}; use 1 or more, or null for d_model")
    return d_model if hidden is None else hidden
