"""The whole network: embed, scale, fuse, encode, pool, classify.

Shapes: B documents, L tokens, d = d_model, V words, C classes.
"""

import hashlib
import math

import torch
from torch import Tensor, nn

from posfuse.model.dropout import Dropout
from posfuse.model.encoder import Encoder, mean_pool
from posfuse.model.encoding import NoTable, Table
from posfuse.model.folding import FoldedClassifier
from posfuse.model.fusion import Fusion


class TokenScale(nn.Module):
    """Multiplies embeddings by a number, by sqrt(d), or by a learned positive number.

    The learned one is kept as its logarithm, so a step of the optimiser changes it by a share of
    itself, and starts at sqrt(d).
    """

    def __init__(self, scale: float | str, d_model: int) -> None:
        super().__init__()
        self.initial = math.sqrt(d_model) if isinstance(scale, str) else float(scale)
        self.log_scale = nn.Parameter(torch.empty(())) if scale == "learned" else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.log_scale is not None:
            nn.init.constant_(self.log_scale, math.log(self.initial))

    def value(self) -> Tensor | float:
        """What embeddings are multiplied by."""
        return self.initial if self.log_scale is None else self.log_scale.exp()

    def forward(self, tokens: Tensor) -> Tensor:
        return tokens * self.value()


class PositionClassifier(nn.Module):
    """A Transformer encoder classifier with one fusion operator and one position table."""

    def __init__(
        self,
        fusion: Fusion,
        table: Table | None,  # None where the fusion uses none
        encoder: Encoder,
        vocabulary_size: int,
        n_classes: int,
        token_scale: float | str = "sqrt_d",
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        d_model = fusion.d_model
        self.embedding = nn.Embedding(vocabulary_size, d_model, padding_idx=0)
        self.token_scale = TokenScale(token_scale, d_model)
        used = table if fusion.uses_table else None
        self.table = NoTable(d_model, 1) if used is None else used
        self.fusion = fusion
        self.encoder = encoder
        self.dropout = Dropout(dropout)
        self.head = nn.Linear(d_model, n_classes)

    def tokens(self, ids: Tensor) -> Tensor:
        """ids (..., L) -> embeddings as the fusion takes them (..., L, d)."""
        scaled: Tensor = self.token_scale(self.embedding(ids))
        return scaled

    def forward(self, ids: Tensor, lengths: Tensor, offset: int = 0) -> Tensor:
        """ids (B, L), lengths (B,) -> logits (B, C); no tokens count as one `<pad>`. The first
        token takes row `offset` of the position table."""
        lengths = lengths.clamp(min=1)
        fused = self.fusion(self.tokens(ids), self.table(), offset)
        pooled = mean_pool(self.encoder(fused, lengths), lengths)
        logits: Tensor = self.head(self.dropout(pooled))
        return logits

    @torch.no_grad()
    def fold(self) -> FoldedClassifier:
        """A copy for inference, with the same logits: what a word or a position alone decides is
        worked out ahead, and the embeddings are replaced by it."""
        tokens = self.token_scale(self.embedding.weight)
        return FoldedClassifier(self.fusion, tokens, self.table(), self.encoder, self.head)


def seed_from(seed: int, *names: object) -> int:
    """A 63-bit seed of its own for every (seed, names)."""
    text = "/".join(map(str, (seed, *names)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def initialize(model: nn.Module, seed: int, shared_stream: bool = False) -> None:
    """Draw every module's initial values from a generator of its own, derived from (seed, name).

    So two models with the same seed start bitwise equal in every parameter they share, whatever
    else either of them has: the literal meaning of paired seeds. With `shared_stream` all draw
    from one generator in the order of construction, embedding, table, fusion, encoder, head, as
    in the authors' notebooks: what the fusion draws, the encoder finds gone.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for name, module in model.named_modules():
            reset = getattr(module, "reset_parameters", None)
            if callable(reset):
                if not shared_stream:
                    torch.manual_seed(seed_from(seed, "initial values", name))
                reset()


def copy_first_block(encoder: Encoder) -> None:
    """Make every block start as the first one, with what it has inside attention: so
    nn.TransformerEncoder begins, whose layers are copies of the one it is given."""
    for stack in (encoder.blocks, encoder.positions):
        for module in stack[1:]:
            module.load_state_dict(stack[0].state_dict())
