"""The network up to the encoder's output, and the classifier: embed, scale, fuse, encode, pool,
classify.

Shapes: B documents, L tokens, d = d_model, N = rows of the position table, V words, C classes.
"""

import copy
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posfuse.model.dropout import Dropout
from posfuse.model.encoder import Encoder, mean_pool
from posfuse.model.encoding import NoTable, Table
from posfuse.model.fusion import Fusion
from posfuse.model.initial_values import check_choice
from posfuse.model.positions import Parts, Positions, PositionSampler, rows_at


class TokenScale(nn.Module):
    """Multiplies embeddings by a number, by sqrt(d), or by a learned positive number.

    The parameter of a learned scale is its logarithm, so a step of the optimiser changes the scale
    by a fraction of its value. It starts at sqrt(d).
    """

    def __init__(self, scale: float | str, d_model: int) -> None:
        super().__init__()
        self.initial = math.sqrt(d_model) if isinstance(scale, str) else float(scale)
        self.log_scale = nn.Parameter(torch.empty(())) if scale == "learned" else None
        self.scalars = () if self.log_scale is None else ("log_scale",)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.log_scale is not None:
            nn.init.constant_(self.log_scale, math.log(self.initial))

    def value(self) -> Tensor | float:
        """The factor of the embeddings, a number or a tensor ()."""
        return self.initial if self.log_scale is None else self.log_scale.exp()

    def forward(self, tokens: Tensor) -> Tensor:
        return tokens * self.value()


@torch.no_grad()
def check_merge(fusion: Fusion) -> None:
    """Raise ValueError unless an operator turns tokens (..., d) into a tensor of the same shape."""
    tokens, table = torch.zeros(2, 3, fusion.d_model), torch.zeros(3, fusion.d_model)
    given, wrong = f"tokens {tuple(tokens.shape)} and a table {tuple(table.shape)}", ""
    d_model = f"(..., d) with d = {fusion.d_model}"
    fusion.eval()  # without dropout, which would draw from torch's generator
    try:
        if (shape := getattr(fusion(tokens, table), "shape", "no tensor")) != tokens.shape:
            wrong = f"returns {shape} for {given}; return a tensor of the tokens' shape, {d_model}"
    except Exception as error:  # noqa: BLE001 - an operator of the user's own may raise anything
        why = f"{type(error).__name__}: {' '.join(str(error).split())}"
        wrong = f"fails for {given} ({why}); correct it for parts of shape {d_model}"
    fusion.train()
    if wrong:
        raise ValueError(f"{type(fusion).__name__}.merge {wrong}")


@dataclass(frozen=True)
class Backbone:
    """The parts of one network that do not depend on its task.

    With fused_norm="layer" a LayerNorm follows the operator, as in BERT (Devlin et al. 2019). Then
    the operator changes only the ratio of token to position, not the magnitude of their sum.
    """

    fusion: Fusion
    table: Table | None  # None if the fusion uses none
    encoder: Encoder
    token_scale: float | str = "sqrt_d"
    fused_norm: str = "none"  # or "layer"
    sampler: PositionSampler | None = None  # None: contiguous positions
    embedding: nn.Embedding | None = None  # of a pretrained model; None: a new one


class FusionTransformer(nn.Module):
    """A Transformer encoder with one fusion operator, one position table, and a head.

    A kind of task extends it with `forward`.
    """

    def __init__(
        self,
        backbone: Backbone,
        vocabulary_size: int,
        head: nn.Module | None = None,
        dropout: float = 0.1,  # before the head
    ) -> None:
        super().__init__()
        check_choice("fused_norm", backbone.fused_norm, "layer", "none")
        fusion, d_model = backbone.fusion, backbone.fusion.d_model
        new = nn.Embedding(vocabulary_size, d_model, padding_idx=0)
        self.embedding = backbone.embedding or new
        self.token_scale = TokenScale(backbone.token_scale, d_model)
        table = backbone.table
        self.table = table if table and fusion.uses_table else NoTable(d_model, 1)
        self.fusion = fusion
        has_norm = backbone.fused_norm == "layer"
        self.fused_norm = nn.LayerNorm(d_model) if has_norm else nn.Identity()
        self.encoder = backbone.encoder
        self.sampler = backbone.sampler or PositionSampler()
        self.dropout = Dropout(dropout)
        self.head = head

    def tokens(self, ids: Tensor) -> Tensor:
        """ids (..., L) -> scaled embeddings (..., L, d), the input of the fusion."""
        return self.token_scale(self.embedding(ids))

    def fuse(self, ids: Tensor, positions: Positions = 0) -> Tensor:
        """ids (..., L) -> the encoder's input (..., L, d); `positions` as in Fusion.forward."""
        return self.fused_norm(self.fusion(self.tokens(ids), self.table(), positions))

    def encode(self, ids: Tensor, lengths: Tensor, positions: Positions = 0) -> Tensor:
        """ids (B, L), lengths (B,) of at least 1 -> the encoder's output (B, L, d).

        `positions` (L,) of the tokens, ascending, int64. A number o means the positions after o
        other tokens: o, o + 1 and so on, unless positions are random.
        """
        positions = self.sampler.given(positions, ids)
        return self.encoder(self.fuse(ids, positions), lengths, positions)


class PositionClassifier(FusionTransformer):
    """Classifies documents by the mean of the encoder's output."""

    head: nn.Linear

    def __init__(
        self, backbone: Backbone, vocabulary_size: int, n_classes: int, dropout: float = 0.1
    ) -> None:
        head = nn.Linear(backbone.encoder.d_model, n_classes)
        super().__init__(backbone, vocabulary_size, head, dropout)

    def forward(self, ids: Tensor, lengths: Tensor, positions: Positions = 0) -> Tensor:
        """ids (B, L), lengths (B,), positions as in `encode` -> logits (B, C). An empty document
        counts as one `<pad>`."""
        positions = self.sampler.given(positions, ids)
        return self.classify(self.fuse(ids, positions), lengths, positions)

    def classify(self, fused: Tensor, lengths: Tensor, positions: Positions = 0) -> Tensor:
        """The encoder's input (B, L, d), lengths (B,), positions (L,) inside attention or the first
        of contiguous ones -> logits (B, C)."""
        lengths = lengths.clamp(min=1)
        pooled = mean_pool(self.encoder(fused, lengths, positions), lengths)
        return self.head(self.dropout(pooled))

    @torch.no_grad()
    def fold(self) -> "FoldedClassifier":
        """A copy for inference with the same logits, whose token and position parts are already
        computed. Raises ValueError if the class of this network or of its operator reads or pools
        documents in a way of its own, or if a word's token part depends on other words."""
        own = PositionClassifier, ("forward", "classify", "encode", "fuse", "tokens")
        for part, usual, names in ((self, *own), (self.fusion, Fusion, ("forward", "parts"))):
            kind = type(part)
            for name in names:
                if getattr(kind, name) is not getattr(usual, name):
                    raise ValueError(
                        f"{kind.__name__} has its own {name}, which a folded model does not use; "
                        "do not fold it"
                    )
        three = self.token_scale(self.embedding.weight[1:4])
        alone = [self.fusion.project_tokens(word) for word in three.split(1)]
        together = zip(self.fusion.project_tokens(three), *alone, strict=True)
        if not all(torch.allclose(part, torch.cat(own), atol=1e-4) for part, *own in together):
            raise ValueError(
                f"{type(self.fusion).__name__}.project_tokens mixes words, which a folded model "
                "stores one by one; do not fold it"
            )
        return FoldedClassifier(self)


class FoldedClassifier(PositionClassifier):
    """A classifier for inference only, made by `fold`. It looks up and merges the parts that depend
    only on a word or only on a position.

    It stores copies. V rows of each token part replace the embeddings: V d numbers as before, V
    more for gate_scalar, V d more for gate_feature and gate_mlp.
    """

    def __init__(self, origin: PositionClassifier) -> None:
        nn.Module.__init__(self)  # it has no embeddings and no table
        words = origin.token_scale(origin.embedding.weight)  # (V, d)
        self.words = _copies(origin.fusion.project_tokens(words))
        self.positions = _copies(origin.fusion.project(origin.table()))
        for name in ("fusion", "fused_norm", "encoder", "dropout", "head"):
            setattr(self, name, copy.deepcopy(getattr(origin, name)))
        self.sampler = origin.sampler
        self.requires_grad_(False).eval()

    def train(self, mode: bool = True) -> "FoldedClassifier":
        """Raises ValueError for mode=True: a folded model has no parameters to train."""
        if mode:
            raise ValueError("a folded model cannot be trained; train its origin, then fold again")
        return super().train(False)

    def fuse(self, ids: Tensor, positions: Positions = 0) -> Tensor:
        """As FusionTransformer.fuse."""
        token = tuple(F.embedding(ids, part) for part in self.words)
        rows = rows_at(self.positions, ids.shape[-1], positions)
        return self.fused_norm(self.fusion.merge(token, rows))


def _copies(parts: Parts) -> nn.ParameterList:
    """Contiguous copies: a part may be the table itself, or an expanded view of one number."""
    return nn.ParameterList(
        nn.Parameter(part.clone(memory_format=torch.contiguous_format), requires_grad=False)
        for part in parts
    )


def learned_scalars(model: nn.Module) -> list[nn.Parameter]:
    """The parameters that the model's modules name in `scalars`. They have a separate learning
    rate, because usual steps cannot move them far within a run.

    A name is relative to its module, as in ("bias",) or ("mlp.bias_out",). Raises ValueError for a
    name that is not a parameter.
    """
    named = [(m, name) for m in model.modules() for name in getattr(m, "scalars", ())]
    try:
        scalars = [module.get_parameter(name) for module, name in named]
    except AttributeError as error:
        raise ValueError(f"scalars: {error}") from error
    return list({id(scalar): scalar for scalar in scalars}.values())  # two modules may name one


def seed_from(seed: int, *names: object) -> int:
    """A different 63-bit seed for every (seed, names)."""
    text = "/".join(map(str, (seed, *names)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def initialize(
    model: nn.Module, seed: int, shared_stream: bool = False, pretrained: Sequence[nn.Module] = ()
) -> None:
    """Draw every module's initial values from a separate generator, seeded by (seed, name).

    Two models with the same seed have bitwise equal initial values in every parameter that they
    share. With `shared_stream` all modules draw from one generator in the order
    embedding, table, fusion, encoder, head, as in the authors' notebooks: then the encoder's
    values depend on how many numbers the fusion draws. The modules of `pretrained`, and those in
    them, keep their values.
    """
    pretrained_ids = {id(module) for host in pretrained for module in host.modules()}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for name, module in model.named_modules():
            reset = getattr(module, "reset_parameters", None)
            if callable(reset) and id(module) not in pretrained_ids:
                if not shared_stream:
                    torch.manual_seed(seed_from(seed, "initial values", name))
                reset()


def copy_first_block(encoder: Encoder) -> None:
    """Copy the first block's values, and its attention encoding's, to all blocks, as in
    nn.TransformerEncoder, whose layers start as copies of one layer."""
    for stack in (encoder.blocks, encoder.positions):
        for module in stack[1:]:
            module.load_state_dict(stack[0].state_dict())
