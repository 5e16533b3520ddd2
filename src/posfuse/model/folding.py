"""Folded inference: parts that depend only on a word or only on a position are computed once.

Shapes: B documents, L tokens, d = d_model, N = rows of the position table, V words, C classes. A
folded model stores the token parts of all words and the position parts of all positions
(fusion.py), and merges them.
"""

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posfuse.model.encoder import mean_pool
from posfuse.model.positions import Parts, Positions, rows_at


class FoldedClassifier(nn.Module):
    """A PositionClassifier for inference only, with the same outputs; `PositionClassifier.fold()`
    creates it.

    It stores copies. V rows of each token part replace the embeddings: V d numbers as before, V
    more for gate_scalar, V d more for gate_feature and gate_mlp.
    """

    def __init__(self, origin: Any) -> None:
        """origin: the PositionClassifier."""
        super().__init__()
        words = origin.token_scale(origin.embedding.weight)  # (V, d)
        self.words = _copies(origin.fusion.project_tokens(words))
        self.positions = _copies(origin.fusion.project(origin.table()))
        self.fusion, self.fused_norm = copy.deepcopy((origin.fusion, origin.fused_norm))
        self.encoder, self.head = copy.deepcopy((origin.encoder, origin.head))
        self.sampler = origin.sampler
        self.requires_grad_(False).eval()

    def train(self, mode: bool = True) -> "FoldedClassifier":
        """Raises ValueError for mode=True: a folded model has no parameters to train."""
        if mode:
            raise ValueError("a folded model cannot be trained; train its origin, then fold again")
        return super().train(False)

    def fuse(self, ids: Tensor, positions: Positions = 0) -> Tensor:
        """ids (..., L) -> the encoder's input (..., L, d); `positions` as in Fusion.forward."""
        token = tuple(F.embedding(ids, part) for part in self.words)
        rows = rows_at(self.positions, ids.shape[-1], positions)
        return self.fused_norm(self.fusion.merge(token, rows))

    def forward(self, ids: Tensor, lengths: Tensor, positions: Positions = 0) -> Tensor:
        """As PositionClassifier: ids (B, L), lengths (B,), positions -> logits (B, C)."""
        lengths = lengths.clamp(min=1)
        positions = self.sampler.given(positions, ids)
        pooled = mean_pool(self.encoder(self.fuse(ids, positions), lengths, positions), lengths)
        return self.head(pooled)


def _copies(parts: Parts) -> nn.ParameterList:
    """Contiguous copies: a part may be the table itself, or an expanded view of one number."""
    return nn.ParameterList(
        nn.Parameter(part.clone(memory_format=torch.contiguous_format), requires_grad=False)
        for part in parts
    )
