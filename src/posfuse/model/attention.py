"""Attention of queries on keys, by a kernel that never holds a score or by blocks of scores.

Shapes: B documents, H heads, L tokens, D features of a head.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.attention.varlen import varlen_attn

from posfuse.model.dropout import Draws, new_seed, zero_

# As many scores are held at once where a kernel cannot do without them: on a CPU what fits in its
# cache, elsewhere enough to keep the device at work.
SCORES = {"cpu": 2**20}
MOST_SCORES = 2**26
SHORT = 200  # tokens; up to here the blocks beat the kernel's backward pass in bfloat16 on a CPU
# q (B, H, Q, D), divided by sqrt(D), and offsets (Q, L) -> added to the scores, (..., H, Q, L)
Extra = Callable[[Tensor, Tensor], Tensor | None]


def attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, bias: Tensor | None, p: float
) -> Tensor:
    """softmax(q k^T / sqrt(D) + bias) v with dropout p of the weights.

    q, k, v (B, H, L, D); mask (B, 1, 1, L), True where a key may be looked at; bias (H, L, L),
    without gradient -> (B, H, L, D).
    """
    half = q.dtype in (torch.bfloat16, torch.float16)
    # torch's own dropout of the weights on a CPU costs more than all of the rest.
    if q.device.type == "cpu" and (p or (half and q.requires_grad and q.shape[2] <= SHORT)):
        out: Tensor = BlockAttention.apply(q, k, v, mask, bias, p)  # type: ignore[no-untyped-call]
        return out
    if q.device.type == "cuda" and half and mask is not None and bias is None and not p:
        return unpadded(q, k, v, mask)
    if mask is None or bias is None:
        both = mask if bias is None else bias.to(q.dtype)[None]
        return F.scaled_dot_product_attention(q, k, v, both, p)
    return masked_and_biased(q, k, v, mask, bias.to(q.dtype)[None], p)


def unpadded(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """`attention` on a GPU, in half precision, without dropout: padding looks at padding alone."""
    n_documents, n_heads, length, d_head = q.shape
    q, k, v = (x.transpose(1, 2).flatten(0, 1) for x in (q, k, v))  # (B L, H, D), no copies
    ends = parts(mask)
    y: Tensor = varlen_attn(q, k, v, ends, ends, length, length)  # type: ignore[assignment]
    return y.view(n_documents, length, n_heads, d_head).transpose(1, 2)


def parts(mask: Tensor) -> Tensor:
    """Where the tokens of each of B documents and its padding, which comes behind them, begin in
    the row of all B L positions, and the row's end: (2 B + 1,) int32."""
    n_valid = mask.flatten(1).sum(1)
    both = torch.stack((n_valid, mask.shape[-1] - n_valid), 1).flatten()
    return F.pad(both.cumsum(0), (1, 0)).int()


def masked_and_biased(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor, bias: Tensor, p: float
) -> Tensor:
    """`attention` with a mask (B, 1, 1, L) and a bias (1, H, L, L).

    Their sum would be (B, H, L, L) numbers in memory. Instead q gets a further feature of 1 and k
    one of 0, or of -inf at padding. Features of 0 follow: the kernels are aligned to 8 of them. The
    gradient of q's further feature is NaN there; no parameter receives it.
    """
    d_head = q.shape[-1]
    scale = d_head**-0.5
    hidden = torch.where(mask, 0.0, -torch.inf).to(q.dtype).transpose(-2, -1)  # (B, 1, L, 1)
    q = F.pad(q, (0, 1), value=1.0)
    k = torch.cat((k, hidden.expand(*k.shape[:-1], 1)), -1)
    q, k, v = (F.pad(x, (0, d_head + 8 - x.shape[-1])) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, bias, p, scale=scale)[..., :d_head]


def blocks(shape: torch.Size, device: torch.device) -> Iterator[tuple[slice, slice]]:
    """Which documents and which queries of (B, H, L, ...) have their scores held together."""
    n_documents, n_heads, length = shape[:3]
    most = SCORES.get(device.type, MOST_SCORES)
    documents = max(1, most // (n_heads * length**2))
    queries = max(1, most // (documents * n_heads * length))
    for document in range(0, n_documents, documents):
        for query in range(0, length, queries):
            yield slice(document, document + documents), slice(query, query + queries)


def offsets(queries: Tensor, length: int) -> Tensor:
    """j - i for each of these queries i (Q,) and every key j, (Q, L) int64."""
    return torch.arange(length, device=queries.device) - queries[:, None]


class BlockAttention(torch.autograd.Function):
    """`attention` by blocks; what is added to the scores may follow from q and from learned
    parameters. The backward pass computes the scores and draws what is dropped once more. In
    float32 it takes sum_j w_ij dw_ij from y_i . dy_i (Dao et al. 2022, appendix B.2), unless
    parameters learn; in half precision y_i is rounded, and the sum is taken over j.

    Scores and weights are of float32, also where q, k, v are of half precision: in the products
    with v and in the backward pass's products each is rounded once, as in torch's kernels."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None,
        bias: Tensor | None,
        p: float,
        extra: Extra | None = None,
        *learned: Tensor,
    ) -> Tensor:
        """As `attention`; instead of a bias an `extra`, and the parameters that it reads."""
        n_documents, n_heads, length, d_head = q.shape
        # A block's products would copy them each time.
        k, v = k.contiguous(), _times(v, 1 / (1 - p))
        wide = torch.promote_types(q.dtype, torch.float32)
        wide_k = k.to(wide)
        # Added to the scores: booleans that fill them take ten times as long.
        padding = None
        if mask is not None:
            padding = wide_k.new_zeros(mask.shape).masked_fill_(~mask, -torch.inf)
        y = q.new_empty(n_documents, length, n_heads, d_head).transpose(1, 2)
        seed = new_seed() if p else 0
        draws = Draws(p, seed, q.device) if p else None
        with _without_autocast(q.device.type):  # it would round the scores' factors
            for documents, queries in blocks(q.shape, q.device):
                some = _times(q[documents, :, queries].to(wide), d_head**-0.5)
                added = _added(bias, extra, some, queries, length)
                hidden = None if padding is None else padding[documents]
                weights = _weights(some, wide_k[documents], hidden, added)
                if draws:
                    zero_(weights, draws.next(weights))
                y[documents, :, queries] = weights.to(v.dtype) @ v[documents]
        ctx.save_for_backward(q, k, v, y, padding, bias, *learned)
        ctx.p, ctx.extra, ctx.seed = p, extra, seed
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """dy (B, H, L, D) -> the gradients of q, k, v and the parameters."""
        q, k, v, y, padding, bias, *learned = ctx.saved_tensors
        dy = grads[0].contiguous()
        dq = q.new_empty(q.shape)
        # Sums over the blocks of queries, in float32 even where the products are of bfloat16.
        wide = torch.promote_types(q.dtype, torch.float32)
        wide_k, scale = k.to(wide), q.shape[-1] ** -0.5
        dk, dv = torch.zeros_like(k, dtype=wide), torch.zeros_like(v, dtype=wide)
        asked = [x for x in learned if x.requires_grad]
        d_asked = [torch.zeros_like(x, dtype=torch.promote_types(x.dtype, wide)) for x in asked]
        is_half = q.dtype != wide
        dots = None if asked or is_half else (dy * y).sum(-1, keepdim=True)
        draws = Draws(ctx.p, ctx.seed, q.device) if ctx.p else None
        for documents, queries in blocks(q.shape, q.device):
            some = _times(q[documents, :, queries].to(wide), scale).requires_grad_()
            with torch.enable_grad():
                added = _added(bias, ctx.extra, some, queries, q.shape[2])
            hidden = None if padding is None else padding[documents]
            weights = _weights(some.detach(), wide_k[documents], hidden, added)
            g = dy[documents, :, queries]
            d_weights = (g @ v[documents].transpose(-2, -1)).to(wide)
            drops = draws.next(weights) if draws else None
            if drops is not None:
                zero_(d_weights, drops)
            if dots is None:
                # The rows' sums are those of these numbers. From y, which is rounded, each row
                # would get a surplus, which adds up in a parameter that many keys share.
                d_scores = torch.ops.aten._softmax_backward_data(
                    d_weights, weights, -1, weights.dtype
                )
            else:
                d_scores = d_weights.sub_(dots[documents, :, queries]).mul_(weights)
            if drops is not None:
                zero_(weights, drops)
            dv[documents] += weights.to(g.dtype).transpose(-2, -1) @ g
            rounded = d_scores.to(k.dtype)
            dq[documents, :, queries] = rounded @ k[documents]
            dk[documents] += rounded.transpose(-2, -1) @ some.detach().to(k.dtype)
            if added is not None and added.requires_grad:
                of_q, *parts = torch.autograd.grad(
                    added, (some, *asked), d_scores.sum_to_size(added.shape), allow_unused=True
                )
                if of_q is not None:
                    dq[documents, :, queries] += of_q
                for total, part in zip(d_asked, parts, strict=True):
                    total += 0 if part is None else part
        dq *= scale
        dv *= 1 / (1 - ctx.p)
        found = iter(d_asked)
        d_learned = (next(found).to(x.dtype) if x.requires_grad else None for x in learned)
        return dq, dk.to(k.dtype), dv.to(v.dtype), None, None, None, None, *d_learned


def _without_autocast(device: str) -> AbstractContextManager[Any]:
    """Products in the precision of their factors; meta tensors know no autocast."""
    if torch.amp.is_autocast_available(device):
        return torch.autocast(device, enabled=False)
    return nullcontext()


def _times(x: Tensor, factor: float) -> Tensor:
    """x times a number, contiguous, in one pass."""
    return torch.mul(x, factor, out=x.new_empty(x.shape))


def _added(
    bias: Tensor | None, extra: Extra | None, q: Tensor, queries: slice, length: int
) -> Tensor | None:
    """What is added to the scores of these queries, (..., H, Q, L)."""
    if extra is None:
        return None if bias is None else bias[:, queries]
    return extra(q, offsets(torch.arange(length, device=q.device)[queries], length))


def _weights(q: Tensor, k: Tensor, padding: Tensor | None, added: Tensor | None) -> Tensor:
    """What queries (b, H, Q, D), already divided by sqrt(D), give to each key: (b, H, Q, L);
    padding (b, 1, 1, L) is -inf where a key may not be looked at, else 0."""
    scores = q @ k.transpose(-2, -1)
    if added is not None:
        scores += added
    if padding is not None:
        scores += padding
    return scores.softmax(-1)
