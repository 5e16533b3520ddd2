"""The model of masked pretraining: embed, scale, fuse, encode, and predict the masked tokens.

Shapes: B documents, L tokens, d = d_model, V words, M masked tokens of a batch.
"""

import torch
from torch import Tensor, nn

from posfuse.model.encoder import valid_positions
from posfuse.model.network import Backbone, FusionTransformer
from posfuse.model.positions import Positions

HIDDEN, REPLACED = 0.8, 0.1  # of the masked tokens; the rest stays as it is


class MaskedModel(FusionTransformer):
    """Predicts masked tokens from all others (Devlin et al. 2019, section 3.1).

    Its parts have the names and the initial values of a PositionClassifier's, except for the head.
    """

    head: nn.Linear

    def __init__(self, backbone: Backbone, vocabulary_size: int, dropout: float = 0.1) -> None:
        head = nn.Linear(backbone.encoder.d_model, vocabulary_size)
        super().__init__(backbone, vocabulary_size, head, dropout)

    def forward(
        self, ids: Tensor, lengths: Tensor, masked: Tensor, positions: Positions = 0
    ) -> Tensor:
        """ids (B, L), lengths (B,), masked (B, L) booleans, positions as in `encode` -> the logits
        of the masked tokens, row by row: (M, V)."""
        encoded = self.encode(ids, lengths, positions)[masked]
        return self.head(self.dropout(encoded))


def mask(
    ids: Tensor, lengths: Tensor, share: float, vocabulary_size: int, unknown: int, seed: int
) -> tuple[Tensor, Tensor]:
    """What the model reads, (B, L), and which tokens it predicts, (B, L) booleans.

    A token is masked with probability `share`. Of the masked tokens 80 % become `unknown`, 10 % a
    random other word, and 10 % stay. Padding and tokens that are `unknown` already are never
    masked. If no token of a document is drawn, one is masked. The draws depend only on the seed and
    on the shape of ids.
    """
    draws = torch.Generator().manual_seed(seed)
    shape = ids.shape
    chance, kind = (torch.rand(shape, generator=draws).to(ids.device) for _ in range(2))
    words = torch.randint(unknown + 1, vocabulary_size, shape, generator=draws).to(ids.device)
    known = valid_positions(lengths, shape[1]) & (ids != unknown)
    chance = chance.masked_fill(~known, 2.0)
    least = chance.min(1, keepdim=True).values
    masked = known & ((chance < share) | (chance == least))
    read = ids.masked_fill(masked & (kind < HIDDEN), unknown)
    is_replaced = masked & (kind >= HIDDEN) & (kind < HIDDEN + REPLACED)
    return torch.where(is_replaced, words, read), masked
