"""Patching: give a document's tokens the position parts of another order, and measure which order
the prediction follows.

Two documents of a batch have the same positions, so with equal lengths they would exchange equal
position parts. So the second document A' is A with its tokens in a random order: the token at place
i of A is at place r(i) of A', and its fused vector there has the position part of r(i). The encoder
gets the order in two ways, from the fused vectors and from the positions inside attention, so there
are two patches:

- input: the tokens have their fused vectors of A', and inside attention their places in A;
- attention: the tokens have their fused vectors of A, and inside attention their places in A'.

Self-attention and mean pooling see a document as a set of tokens with these two positions. So
without a position inside attention, the input patch gives the prediction of A', and the attention
patch gives the prediction of A. Without a position in the input, it is the reverse. Without any
position nothing changes. If a model has both, the patches show which of them its predictions
follow.

The order is random and not a rotation, because a rotation of a string w w is a duplicate again and
would change nothing in a task about duplicates.

Shapes: B documents, L tokens, d = d_model.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from posfuse.data.batching import Batch
from posfuse.model.network import PositionClassifier
from posfuse.runs.measurements import WHOLE, Measurement
from posfuse.training.diagnostics import SHUFFLE_SEED, random_order

PATCHES = ("input", "attention")


def patch_rows(model: PositionClassifier, batches: Sequence[Batch]) -> list[Measurement]:
    """Fractions of documents whose prediction changes: `patch_reordered_changed` if the tokens are
    in random order, in the input and inside attention; `patch_P_changed` for each patch P.

    Fractions of the documents that the random order changes, if there are any: `patch_P_followed`
    if the patched prediction is that of the new order, and `patch_P_stayed` if it is that of the
    document. The other documents get a third class.

    `model` is in eval mode. The random order is the same in every run.
    """
    generator = torch.Generator().manual_seed(SHUFFLE_SEED)
    classes: dict[str, list[Tensor]] = {}
    for batch in batches:
        order = random_order(batch, generator)
        for name, logits in patched_logits(model, batch, order).items():
            classes.setdefault(name, []).append(logits.argmax(-1).cpu())
    own, reordered, *patched = (torch.cat(parts) for parts in classes.values())
    moved = own != reordered
    shares = {"reordered_changed": moved}
    for name, predicted in zip(PATCHES, patched, strict=True):
        shares[f"{name}_changed"] = predicted != own
        shares[f"{name}_followed"] = (predicted == reordered)[moved]
        shares[f"{name}_stayed"] = (predicted == own)[moved]
    return [
        Measurement(f"patch_{name}", WHOLE, len(is_so), is_so.double().mean().item())
        for name, is_so in shares.items()
        if len(is_so)
    ]


def patched_logits(model: PositionClassifier, batch: Batch, order: Tensor) -> dict[str, Tensor]:
    """The logits (B, C) of the documents (`own`), of the documents with their tokens in this order
    (`reordered`), and with the two patches (`input`, `attention`).

    order (B, L): for each place of the new document, the place of its token in the old document.
    Padding stays at the end.
    """
    positions = model.sampler.given(0, batch.ids)
    own = model.fuse(batch.ids, positions)
    reordered = model.fuse(batch.ids.gather(1, order), positions)
    fused = {
        "own": own,
        "reordered": reordered,
        "input": _reorder(reordered, order.argsort(1)),  # the new vectors in the old order
        "attention": _reorder(own, order),
    }
    return {name: model.classify(x, batch.lengths, positions) for name, x in fused.items()}


def _reorder(x: Tensor, order: Tensor) -> Tensor:
    """x (B, L, d) in this order (B, L)."""
    return x.gather(1, order[:, :, None].expand_as(x))
