"""The Transformer encoder: attention, blocks, pooling (Vaswani et al. 2017).

Shapes: B documents, L tokens, d = d_model, H heads, D = d / H. With the same weights it gives the
output of nn.TransformerEncoder (tested).
"""

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posfuse.model.attention_encoding import AttentionEncoding
from posfuse.model.dropout import Dropout
from posfuse.model.positions import Positions, as_tensor

# The encoding, the positions (L,) of the batch's tokens, and the encoding's bias (H, L, L) for
# them, or None.
InAttention = tuple[AttentionEncoding, Tensor, Tensor | None]


class Attention(nn.Module):
    """Multi-head self-attention over the valid tokens of each document. If causal, each token sees
    itself and earlier tokens. The encoding adds position."""

    def __init__(self, d_model: int, n_heads: int, dropout: float, causal: bool = False) -> None:
        super().__init__()
        self.d_model, self.n_heads = d_model, n_heads
        self.dropout, self.causal = dropout, causal
        self.qkv_weight = nn.Parameter(torch.empty(3 * d_model, d_model))
        self.qkv_bias = nn.Parameter(torch.zeros(3 * d_model))
        self.out_weight = nn.Parameter(torch.empty(d_model, d_model))
        self.out_bias = nn.Parameter(torch.zeros(d_model))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.xavier_uniform_(self.qkv_weight)  # as nn.MultiheadAttention
        nn.init.zeros_(self.qkv_bias)
        bound = self.out_weight.shape[1] ** -0.5  # as nn.Linear
        nn.init.uniform_(self.out_weight, -bound, bound)
        nn.init.zeros_(self.out_bias)

    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """x (B, L, d) -> q, k, v, each (B, H, L, D)."""
        qkv = linear(x, self.qkv_weight, self.qkv_bias)
        split = qkv.view(*x.shape[:2], 3, self.n_heads, -1)
        # Unbound before the transpose, so that the backward pass writes qkv's gradient in one copy.
        q, k, v = (part.transpose(1, 2) for part in split.unbind(2))
        return q, k, v

    def forward(self, x: Tensor, mask: Tensor | None, position: InAttention) -> Tensor:
        """x (B, L, d); mask (B, 1, 1, L), True at valid tokens -> (B, L, d)."""
        q, k, v = self.heads(x)
        dropout = self.dropout if self.training else 0.0
        encoding, positions, bias = position
        return self.output(encoding(q, k, v, mask, positions, bias, dropout, causal=self.causal))

    def output(self, y: Tensor) -> Tensor:
        """The heads' outputs (B, H, L, D) -> (B, L, d)."""
        return linear(y.transpose(1, 2).flatten(2), self.out_weight, self.out_bias)

    def weights(
        self, x: Tensor, mask: Tensor | None, position: InAttention, queries: Tensor
    ) -> Tensor:
        """The attention weights (B, H, Q, L) of the queries with these indices (Q,)."""
        q, k, _ = self.heads(x)
        encoding, positions, _ = position
        if self.causal:
            mask = visible(queries, torch.arange(x.shape[1], device=x.device))
        return encoding.weights(q, k, mask, positions, queries)


class Block(nn.Module):
    """Attention and feed-forward, each with a residual connection and a LayerNorm after it, or
    before it with `norm_first`."""

    def __init__(
        self, attention: Attention, d_ff: int, dropout: float, activation: str, norm_first: bool
    ) -> None:
        super().__init__()
        self.norm_first, self.attention = norm_first, attention
        d_model = attention.d_model
        self.norm1 = nn.LayerNorm(d_model)
        self.linear1 = nn.Linear(d_model, d_ff)
        self.linear2 = nn.Linear(d_ff, d_model)
        self.norm2 = nn.LayerNorm(d_model)
        self.activation: Callable[[Tensor], Tensor] = getattr(F, activation)
        self.dropout = Dropout(dropout)

    def feed_forward(self, x: Tensor) -> Tensor:
        hidden = self.activation(linear(x, self.linear1.weight, self.linear1.bias))
        hidden = self.dropout(hidden)
        return self.dropout(linear(hidden, self.linear2.weight, self.linear2.bias))

    def forward(self, x: Tensor, mask: Tensor | None, position: InAttention) -> Tensor:
        """x (B, L, d), mask (B, 1, 1, L) or None -> (B, L, d)."""
        return self.around(lambda y: self.attention(y, mask, position), x)

    def around(self, attend: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """The block with this function as its attention: x (B, L, d) -> (B, L, d)."""
        if self.norm_first:
            x = x + self.dropout(attend(self.norm1(x)))
            return x + self.feed_forward(self.norm2(x))
        x = self.norm1(x + self.dropout(attend(x)))
        return self.norm2(x + self.feed_forward(x))


class Encoder(nn.Module):
    """A stack of blocks; with `norm_first` a LayerNorm follows the last one. With causal attention
    it is the decoder of a language model."""

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        n_layers: int,
        d_ff: int,
        dropout: float = 0.1,
        *,
        activation: str = "gelu",
        norm_first: bool = False,
        attention_dropout: float | None = None,  # None: the same as dropout
        position: AttentionEncoding | None = None,  # None: no position inside attention
        causal: bool = False,
    ) -> None:
        super().__init__()
        self.d_model, self.causal = d_model, causal
        inside = dropout if attention_dropout is None else attention_dropout
        self.blocks: Any = nn.ModuleList(
            Block(
                Attention(d_model, n_heads, inside, causal), d_ff, dropout, activation, norm_first
            )
            for _ in range(n_layers)
        )
        self.norm = nn.LayerNorm(d_model) if norm_first else nn.Identity()
        position = position or AttentionEncoding(d_model, n_heads, 1)
        copies = n_layers if position.per_layer else 1
        # The encodings inside attention: one for each block, or one for all.
        self.positions: Any = nn.ModuleList(copy.deepcopy(position) for _ in range(copies))

    def forward(self, x: Tensor, lengths: Tensor, positions: Positions = 0) -> Tensor:
        """x (B, L, d), lengths (B,) of at least 1, positions (L,) of the tokens, or the first of
        contiguous ones -> (B, L, d), undefined at padding.

        Raises ValueError if an encoding has no rows for so many positions.
        """
        mask = None
        if not self.causal:  # in causal attention no token sees the padding after it
            valid = valid_positions(lengths, x.shape[1])
            # Without padding attention needs no mask and is faster. On a GPU this check would wait
            # for queued work.
            full = x.device.type == "cpu" and bool(valid.all())
            mask = None if full else valid[:, None, None, :]
        # Do not read the values of a tensor: on a GPU this would wait for queued work.
        end = x.shape[1] + (positions if isinstance(positions, int) else 0)
        rows = self.positions[0].rows
        if rows is not None and end > rows:
            raise ValueError(
                f"got {end} tokens, but the encoding inside attention ends at {rows}; cut the "
                f"documents or train with data.max_len={end}"
            )
        at = as_tensor(positions, x)
        inside = [(encoding, at, self.bias(encoding, at)) for encoding in self.positions]
        for i, block in enumerate(self.blocks):
            x = block(x, mask, inside[i % len(inside)])  # one per block, or one for all
        return self.norm(x)

    def bias(self, encoding: AttentionEncoding, positions: Tensor) -> Tensor | None:
        """The encoding's bias (H, L, L), or None; in causal attention -inf at keys after the
        query."""
        bias = encoding.bias(positions)
        if bias is None or not self.causal:
            return bias
        order = torch.arange(len(positions), device=positions.device)
        return bias.masked_fill(~visible(order, order), -torch.inf)


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x (..., in), weight (out, in), bias (out,) -> (..., out)."""
    if x.device.type == "cpu":  # as fast as F.linear with a bias, which rounds differently
        y = F.linear(x, weight)
        return y.add_(bias.to(y.dtype))  # a float32 bias takes longer than the product in bfloat16
    return F.linear(x, weight, bias)


def valid_positions(lengths: Tensor, length: int) -> Tensor:
    """lengths (B,) -> (B, L), True at a document's tokens, False at its padding."""
    return torch.arange(length, device=lengths.device) < lengths[:, None]


def visible(i: Tensor, j: Tensor) -> Tensor:
    """True where the token with index i (Q,) sees the token with index j (L,) in causal attention:
    (Q, L)."""
    return j <= i[:, None]


def mean_pool(x: Tensor, lengths: Tensor) -> Tensor:
    """Mean of x (B, L, d) over each document's own positions -> (B, d)."""
    valid = valid_positions(lengths, x.shape[1])[:, :, None]
    # where, not a product: inf or nan at padding must not reach the sum.
    return x.where(valid, x.new_zeros(())).sum(1) / lengths[:, None]
