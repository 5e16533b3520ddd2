"""The language model: embed, scale, fuse, decode, and score each next token.

Shapes: B windows, L tokens, d = d_model, V tokens of the vocabulary, H heads, D = d / H.
"""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posfuse.model.attention_encoding import AttentionEncoding
from posfuse.model.encoder import Attention, visible
from posfuse.model.network import Backbone, FusionTransformer
from posfuse.model.positions import Positions, as_tensor

PLACES = 6  # random places at which `looks_ahead` cuts a text


class LanguageModel(FusionTransformer):
    """Predicts each next token with a causal encoder.

    The output layer is a separate matrix without a bias, or, if `tied`, the embeddings divided by
    sqrt(d) (Raffel et al. 2020). Embeddings start from N(0, 1), so the logits start with a variance
    of 1.
    """

    def __init__(
        self, backbone: Backbone, vocabulary_size: int, dropout: float = 0.1, tied: bool = False
    ) -> None:
        """Raises ValueError for an encoder that is not causal."""
        if not backbone.encoder.causal:
            raise ValueError("a language model needs an encoder with causal=True")
        matrix = nn.Linear(backbone.encoder.d_model, vocabulary_size, bias=False)
        super().__init__(backbone, vocabulary_size, None if tied else matrix, dropout)

    def forward(self, ids: Tensor, lengths: Tensor, positions: Positions = 0) -> Tensor:
        """ids (B, L), lengths (B,), positions as in `encode` -> the logits of each token's
        successor, (B, L, V). Padding comes after the tokens, so it changes nothing."""
        return self.logits(self.encode(ids, lengths, positions))

    def logits(self, encoded: Tensor) -> Tensor:
        """The encoder's output (..., d) -> (..., V)."""
        dropped = self.dropout(encoded)
        if self.head is not None:
            return self.head(dropped)
        return F.linear(dropped, self.embedding.weight) * self.fusion.d_model**-0.5

    @torch.no_grad()
    def step(self, ids: Tensor, positions: Tensor, cache: "Cache") -> Tensor:
        """The logits (B, V) of the token after the last one of ids (B, Q), which follow the tokens
        of the cache and are added to it; positions (Q,) are theirs. Call it in
        evaluation mode."""
        x = self.fuse(ids, positions)
        encodings = self.encoder.positions
        cache.positions = torch.cat((cache.positions, positions))
        for i, block in enumerate(self.encoder.blocks):
            attend = partial(cache.attend, i, block.attention, encodings[i % len(encodings)])
            x = block.around(attend, x)
        return self.logits(self.encoder.norm(x)[:, -1])

    @torch.no_grad()
    def generate(
        self,
        ids: Tensor,
        n: int,
        temperature: float = 0.0,
        draws: torch.Generator | None = None,
    ) -> Tensor:
        """n successors of ids (B, L), one after another: (B, n). Call it in evaluation mode;
        positions are those of L + n tokens.

        Each is the most probable token. With a temperature above 0 it is a draw from the softmax of
        the logits divided by the temperature.
        """
        positions = self.positions(ids.new_zeros(1, ids.shape[1] + n))
        cache = Cache(positions[:0])
        successors: list[Tensor] = []
        new, start = ids, 0
        for _ in range(n):
            at = positions[start : start + new.shape[1]]
            start += new.shape[1]
            logits = self.step(new, at, cache)
            if temperature:
                above = logits.double() - logits.double().amax(-1, keepdim=True)  # at most 0
                p = (above / temperature).softmax(-1)
                new = torch.multinomial(p, 1, generator=draws)
            else:
                new = logits.argmax(-1, keepdim=True)
            successors.append(new)
        return torch.cat(successors, 1)

    @torch.no_grad()
    def decode(self, ids: Tensor, is_target: Tensor) -> Tensor:
        """The most probable successor at each place of ids (B, L) with a target: (B, L), 0 at
        places without one. is_target (B, L). Call it in evaluation mode.

        After a target the model reads its own token as the next one; elsewhere it reads the next
        token of ids. A string ends at its last target.
        """
        positions = self.positions(ids)
        cache = Cache(positions[:0])
        decoded = torch.zeros_like(ids)
        places = is_target.any(0).nonzero().flatten().tolist()
        if not places:
            return decoded
        start, new = 0, ids[:, : places[0] + 1]
        for end in range(places[0] + 1, places[-1] + 2):
            best = self.step(new, positions[start:end], cache).argmax(-1)  # (B,)
            decoded[:, end - 1] = best.where(is_target[:, end - 1], 0)
            if end < ids.shape[1]:
                new = best.where(is_target[:, end - 1], ids[:, end])[:, None]
            start = end
        return decoded

    def positions(self, ids: Tensor) -> Tensor:
        """The positions (L,) of the tokens ids (B, L) outside training."""
        return as_tensor(self.sampler.given(0, ids), ids)


@torch.no_grad()
def looks_ahead(model: FusionTransformer, length: int) -> bool:
    """True if replacing the last tokens of a text of `length` tokens changes the encoding of an
    earlier token by more than rounding.

    The text is cut at its ends and at random places, because an operator may look far ahead or only
    within blocks of tokens.
    """
    draws = torch.Generator().manual_seed(0)
    n = model.embedding.num_embeddings
    ids, lengths = torch.randint(n, (1, length), generator=draws), torch.tensor([length])
    cuts = {1, length - 1, *torch.randint(1, max(2, length), (PLACES,), generator=draws).tolist()}
    is_training = model.training
    model.eval()
    encoded = model.encode(ids, lengths)

    def changes_before(cut: int) -> bool:
        changed = torch.cat((ids[:, :cut], (ids[:, cut:] + 1) % n), 1)
        again = model.encode(changed, lengths)
        return not torch.allclose(encoded[:, :cut], again[:, :cut], rtol=1e-4, atol=1e-5)

    is_ahead = any(changes_before(cut) for cut in cuts if 0 < cut < length)
    model.train(is_training)
    return is_ahead


class Cache:
    """The positions (L,) of the tokens so far, and their keys and values (B, H, L, D) by block."""

    def __init__(self, positions: Tensor) -> None:
        self.positions = positions
        self.keys: dict[int, Tensor] = {}
        self.values: dict[int, Tensor] = {}

    def attend(
        self, block: int, attention: Attention, encoding: AttentionEncoding, x: Tensor
    ) -> Tensor:
        """A block's attention for its last tokens, x (B, Q, d) -> (B, Q, d). The cache has their
        positions already; this adds their keys and values."""
        q, k, v = attention.heads(x)
        at = self.positions[-x.shape[1] :]
        q, k = encoding.turn(q, at, "query"), encoding.turn(k, at, "key")
        if block in self.keys:
            k, v = torch.cat((self.keys[block], k), 2), torch.cat((self.values[block], v), 2)
        self.keys[block], self.values[block] = k, v
        scores = encoding.scores(q, k, at, self.positions)
        order = torch.arange(k.shape[2], device=x.device)
        hidden = ~visible(order[-x.shape[1] :], order)
        return attention.output(scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v)
