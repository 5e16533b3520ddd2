"""Scaled dot-product attention by the fastest kernel for its arguments; the tests compare each
kernel with plain code.

Shapes: B documents, H heads, L tokens, Q queries of a block, D features of a head's q and k,
E <= D those of its v.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from posfuse.model.dropout import Draws, new_seed, zero_

# The largest number of scores in a block: on a CPU they fit in its cache; elsewhere they keep the
# device busy.
SCORES = {"cpu": 2**20}
MOST_SCORES = 2**26
LONG = 640  # tokens; up to here torch's kernel for a CPU trains faster in float32 than in bfloat16
# q (b, H, Q, D), divided by sqrt(D), and which queries -> added to their scores, (..., H, Q, L)
Added = Callable[[Tensor, slice], Tensor | None]


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    bias: Tensor | None,
    p: float,
    causal: bool = False,
) -> Tensor:
    """softmax(q k^T / sqrt(D) + bias) v with dropout p of the weights.

    q, k (B, H, L, D); v (B, H, L, E); mask (B, 1, 1, L), True at the keys of valid tokens; bias
    (H, L, L), which gets no gradient -> (B, H, L, E). Causal attention takes no mask; its bias is
    -inf at keys after the query.
    """
    missing = q.shape[-1] - v.shape[-1]
    half = q.dtype in (torch.bfloat16, torch.float16)
    if q.device.type == "cpu" and half and not p and q.requires_grad and q.shape[2] <= LONG:
        with torch.autocast("cpu", enabled=False):
            return attention(q.float(), k.float(), v.float(), mask, bias, p, causal).to(q.dtype)
    # On a CPU torch's dropout of the weights takes longer than the rest of attention.
    if q.device.type == "cpu" and p:

        def of_queries(_: Tensor, queries: slice) -> Tensor | None:
            return None if bias is None else bias[:, queries]

        return block_attention(q, k, v, mask, p, of_queries, causal=causal)
    if missing:  # torch's fused kernels have one width; its plain one needs (B, H, L, L) numbers
        return attention(q, k, F.pad(v, (0, missing)), mask, bias, p, causal)[..., : v.shape[-1]]
    if bias is None:
        return F.scaled_dot_product_attention(q, k, v, mask, p, is_causal=causal)
    bias = bias.to(q.dtype)[None]
    if mask is None:
        return F.scaled_dot_product_attention(q, k, v, bias, p)
    return padded_bias_attention(q, k, v, mask, bias, p)


def padded_bias_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor, bias: Tensor, p: float
) -> Tensor:
    """softmax(q k^T / sqrt(D) + bias) v with a mask (B, 1, 1, L) and a bias (1, H, L, L).

    The plain form is F.scaled_dot_product_attention with bias.masked_fill(~mask, -inf), which
    needs (B, H, L, L) numbers. Here q gets one more feature of 1, and k one of 0, or of -inf at
    padding. Features of 0 follow, because the kernels are aligned to 8. The gradient of q's
    additional feature is NaN, and no parameter receives it.
    """
    d_head = q.shape[-1]
    scale = d_head**-0.5
    hidden = torch.where(mask, 0.0, -torch.inf).to(q.dtype).transpose(-2, -1)  # (B, 1, L, 1)
    q = F.pad(q, (0, 1), value=1.0)
    k = torch.cat((k, hidden.expand(*k.shape[:-1], 1)), -1)
    q, k, v = (F.pad(x, (0, d_head + 8 - x.shape[-1])) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, bias, p, scale=scale)[..., :d_head]


def block_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    p: float,
    added: Added,
    learned: Sequence[Tensor] = (),
    causal: bool = False,
) -> Tensor:
    """softmax(q k^T / sqrt(D) + added) v with dropout p of the weights, by blocks of scores.

    q, k (B, H, L, D); v (B, H, L, E); mask (B, 1, 1, L), True at the keys of valid tokens ->
    (B, H, L, E). `added` may depend on q and on the `learned` parameters; both get gradients.
    Causal: keys after the query have no weight. The plain form is AttentionEncoding.weights, times
    the dropout mask, times v.
    """
    # Not compiled: the number of blocks depends on L.
    apply = torch.compiler.disable(_BlockAttention.apply)  # type: ignore[no-untyped-call]
    return apply(q, k, v, mask, p, added, causal, *learned)


class _BlockAttention(torch.autograd.Function):
    """The backward pass computes the scores and draws the dropout a second time.

    In float32 it takes sum_j w_ij dw_ij from y_i . dy_i (Dao et al. 2022, appendix B.2), unless
    parameters learn. In half precision y_i is rounded, so the sum is taken over j.

    Scores and weights are float32 even if q, k, v have half precision. Each is rounded once, for
    the product with v and for the products of the backward pass, as in torch's kernels.
    """

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None,
        p: float,
        added: Added,
        causal: bool,
        *learned: Tensor,
    ) -> Tensor:
        """As `block_attention`."""
        n_documents, n_heads, length, d_head = q.shape
        # Otherwise the products of every block would copy them.
        k, v = k.contiguous(), _times(v, 1 / (1 - p))
        wide_k = k.to(torch.promote_types(q.dtype, torch.float32))
        padding = None
        if mask is not None:  # added to the scores, because masked_fill takes ten times as long
            padding = wide_k.new_zeros(mask.shape).masked_fill_(~mask, -torch.inf)
        y = q.new_empty(n_documents, length, n_heads, v.shape[-1]).transpose(1, 2)
        seed = new_seed() if p else 0
        draws = Draws(p, seed, q.device)
        # Autocast would round the factors of the scores. Meta tensors have no autocast.
        device = q.device.type if torch.amp.is_autocast_available(q.device.type) else "cpu"
        with torch.autocast(device, enabled=False):
            for documents, queries in _blocks(q.shape, q.device):
                keys = slice(queries.stop if causal else None)
                some = _times(q[documents, :, queries].to(wide_k.dtype), d_head**-0.5)
                bias = _of_keys(added(some, queries), keys)
                seen = wide_k[documents, :, keys]
                scores = _scores(some, seen, _of_keys(padding, keys, documents), bias)
                weights = (_hide_future(scores, queries) if causal else scores).softmax(-1)
                zero_(weights, draws.next(weights))
                y[documents, :, queries] = weights.to(v.dtype) @ v[documents, :, keys]
        ctx.save_for_backward(q, k, v, y, padding, *learned)
        ctx.p, ctx.added, ctx.seed, ctx.causal = p, added, seed, causal
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """dy (B, H, L, D) -> the gradients of q, k, v and the parameters."""
        q, k, v, y, padding, *learned = ctx.saved_tensors
        dy = grads[0].contiguous()
        dq = q.new_empty(q.shape)
        # Sums over blocks of queries are float32 even if the products are bfloat16.
        wide = torch.promote_types(q.dtype, torch.float32)
        wide_k, scale = k.to(wide), q.shape[-1] ** -0.5
        dk, dv = torch.zeros_like(k, dtype=wide), torch.zeros_like(v, dtype=wide)
        d_learned = [torch.zeros_like(x, dtype=torch.promote_types(x.dtype, wide)) for x in learned]
        dots = None if learned or q.dtype != wide else (dy * y).sum(-1, keepdim=True)
        draws = Draws(ctx.p, ctx.seed, q.device)
        for documents, queries in _blocks(q.shape, q.device):
            keys = slice(queries.stop if ctx.causal else None)
            some = _times(q[documents, :, queries].to(wide), scale).requires_grad_()
            with torch.enable_grad():
                added = _of_keys(ctx.added(some, queries), keys)
            seen = wide_k[documents, :, keys]
            scores = _scores(some.detach(), seen, _of_keys(padding, keys, documents), added)
            if ctx.causal:
                _hide_future(scores, queries)
            with torch.enable_grad():
                weights = scores.requires_grad_(dots is None).softmax(-1)
            g = dy[documents, :, queries]
            d_weights = (g @ v[documents, :, keys].transpose(-2, -1)).to(wide)
            dropped = draws.next(weights)
            zero_(d_weights, dropped)
            if dots is None:
                # The sum of each row is exact here. From a rounded y every row would have an
                # error, and the errors add up in a parameter that many keys share.
                (d_scores,) = torch.autograd.grad(weights, scores, d_weights)
                weights = weights.detach()
            else:
                d_scores = d_weights.sub_(dots[documents, :, queries]).mul_(weights)
            zero_(weights, dropped)
            dv[documents, :, keys] += weights.to(g.dtype).transpose(-2, -1) @ g
            rounded = d_scores.to(k.dtype)
            dq[documents, :, queries] = rounded @ k[documents, :, keys]
            dk[documents, :, keys] += rounded.transpose(-2, -1) @ some.detach().to(k.dtype)
            if added is not None and added.requires_grad:
                of_q, *of_each = torch.autograd.grad(
                    added, (some, *learned), d_scores.sum_to_size(added.shape), allow_unused=True
                )
                if of_q is not None:
                    dq[documents, :, queries] += of_q
                for total, own in zip(d_learned, of_each, strict=True):
                    total += 0 if own is None else own
        dq *= scale
        dv *= 1 / (1 - ctx.p)
        of_learned = (total.to(x.dtype) for total, x in zip(d_learned, learned, strict=True))
        return dq, dk.to(k.dtype), dv.to(v.dtype), None, None, None, None, *of_learned


def _blocks(shape: torch.Size, device: torch.device) -> Iterator[tuple[slice, slice]]:
    """The documents and queries of each block of the scores of q (B, H, L, D)."""
    n_documents, n_heads, length = shape[:3]
    most = SCORES.get(device.type, MOST_SCORES)
    documents = max(1, most // (n_heads * length**2))
    queries = max(1, most // (documents * n_heads * length))
    for document in range(0, n_documents, documents):
        for query in range(0, length, queries):
            yield slice(document, document + documents), slice(query, query + queries)


def _times(x: Tensor, factor: float) -> Tensor:
    """x times a number, contiguous, in one pass."""
    return torch.mul(x, factor, out=x.new_empty(x.shape))


def _of_keys(x: Tensor | None, keys: slice, documents: slice = slice(None)) -> Tensor | None:
    """The part of x (B, ..., L) that belongs to these documents and keys."""
    return None if x is None else x[documents, ..., keys]


def _scores(q: Tensor, k: Tensor, padding: Tensor | None, added: Tensor | None) -> Tensor:
    """The scores (b, H, Q, K) of queries (b, H, Q, D), already divided by sqrt(D), and keys
    (b, H, K, D); padding (b, 1, 1, K) is -inf at padding, else 0."""
    scores = q @ k.transpose(-2, -1)
    if added is not None:
        scores += added
    if padding is not None:
        scores += padding
    return scores


def _hide_future(scores: Tensor, queries: slice) -> Tensor:
    """Set the scores (b, H, Q, K) of keys after their query to -inf, in place; the last query is at
    the last key."""
    n = scores.shape[-2]
    future = scores.new_full((n, n), -torch.inf).triu_(1)
    scores[..., queries.start :] += future
    return scores
