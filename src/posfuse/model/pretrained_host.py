"""A pretrained Transformer whose position table is fused by any operator.

Shapes: B documents, L tokens, V words, N = rows of the position table; d = features of the
embeddings, h = features of the output (in ELECTRA and ALBERT d may be below h). This module needs
only torch. `training/hosts.py` splits a model of transformers into these parts.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from posfuse.model.encoder import Encoder, valid_positions
from posfuse.model.encoding import Table
from posfuse.model.positions import Positions


class HostTable(Table):
    """The position table of a pretrained model, which trains further; zero until `take`.

    Pretraining has trained every row, so documents may be longer than in training.
    """

    def __init__(self, d_model: int, max_len: int) -> None:
        super().__init__(d_model, max_len)
        self.pretrained = nn.Parameter(torch.zeros(max_len, d_model))

    @torch.no_grad()
    def take(self, rows: Tensor) -> None:
        """Copy the first max_len of rows (N, d)."""
        self.pretrained.copy_(rows[: self.max_len])

    def forward(self) -> Tensor:
        return self.pretrained


class NoPositions(nn.Module):
    """Replaces a pretrained model's position table by zeros."""

    zero: Tensor

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.register_buffer("zero", torch.zeros(d_model), persistent=False)

    def forward(self, positions: Tensor) -> Tensor:
        """positions (...) -> zeros (..., d)."""
        return self.zero.expand(*positions.shape, -1)


class PretrainedEncoder(Encoder):
    """The part of a pretrained model after the sum of its embeddings: normalisation and dropout,
    token types, and blocks.

    It has no blocks of this package, so its attention cannot be measured.
    """

    def __init__(self, pretrained: nn.Module, d_model: int) -> None:
        """pretrained: takes inputs_embeds (B, L, d) and attention_mask (B, L); item 0 of its
        output is (B, L, h). d_model: h."""
        super().__init__(d_model, n_heads=1, n_layers=0, d_ff=1)
        self.pretrained = pretrained

    def forward(self, x: Tensor, lengths: Tensor, positions: Positions = 0) -> Tensor:
        """x (B, L, d), lengths (B,) of at least 1 -> (B, L, h), undefined at padding. `positions`
        is ignored, because this part has no position table."""
        mask = valid_positions(lengths, x.shape[1]).long()
        return self.pretrained(inputs_embeds=x, attention_mask=mask)[0]


@dataclass(frozen=True)
class Host:
    """The parts of a pretrained model."""

    embedding: nn.Embedding  # (V, d)
    rows: Tensor  # (N, d), the position table; row 0 belongs to a document's first token
    encoder: PretrainedEncoder

    @property
    def d_model(self) -> int:
        return self.embedding.embedding_dim
