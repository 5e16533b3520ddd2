"""Folded inference: what a word or a position alone decides is worked out once, then looked up.

Shapes: B documents, L tokens, d = d_model, N = rows of the position table, V words, C classes.
Every operator is split into parts of the token, parts of the position, and what merges the two
(fusion.py); a folded model keeps the parts of all words and all positions, and merges.
"""

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posfuse.model.encoder import Encoder, mean_pool
from posfuse.model.fusion import Fusion, rows_at


class FoldedClassifier(nn.Module):
    """A PositionClassifier for inference alone, with its outputs; `PositionClassifier.fold()`
    makes it.

    It holds copies, and V rows of each part of the operator in place of the embeddings: V d
    numbers as before, V more for gate_scalar, V d more for gate_feature and gate_mlp.
    """

    def __init__(
        self, fusion: Fusion, tokens: Tensor, table: Tensor, encoder: Encoder, head: nn.Linear
    ) -> None:
        """tokens (V, d) as the fusion takes them, of every word; table (N, d)."""
        super().__init__()
        self.words = _kept(fusion.project_tokens(tokens))
        self.positions = _kept(fusion.project(table))
        self.fusion, self.encoder, self.head = copy.deepcopy((fusion, encoder, head))
        self.requires_grad_(False).eval()

    def train(self, mode: bool = True) -> "FoldedClassifier":
        """Raises ValueError: there is nothing left to train."""
        if mode:
            raise ValueError("a folded model cannot be trained; train its origin, then fold again")
        return super().train(False)

    def fuse(self, ids: Tensor, positions: Tensor | int = 0) -> Tensor:
        """ids (..., L) -> fused (..., L, d); positions as a Fusion takes them."""
        words = (F.embedding(ids, part) for part in self.words)
        return self.fusion.merge(*words, *rows_at(self.positions, ids.shape[-1], positions))

    def forward(self, ids: Tensor, lengths: Tensor, offset: int = 0) -> Tensor:
        """As PositionClassifier: ids (B, L), lengths (B,) -> logits (B, C)."""
        lengths = lengths.clamp(min=1)
        pooled = mean_pool(self.encoder(self.fuse(ids, offset), lengths), lengths)
        logits: Tensor = self.head(pooled)
        return logits


def _kept(parts: tuple[Tensor, ...]) -> nn.ParameterList:
    """Copies of their own: a part may be the table itself, or one number seen as many."""
    return nn.ParameterList(
        nn.Parameter(part.clone(memory_format=torch.contiguous_format), requires_grad=False)
        for part in parts
    )
