"""Scaled dot-product attention by the fastest kernel for its arguments.

Shapes: B documents, H heads, L tokens, D features of a head's q and k, E <= D those of its v.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from posfuse.model.kernels import block_attention, padded_bias_attention

SHORT = 200  # tokens; in bfloat16 on a CPU the blocks' backward pass is faster up to here


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
    # On a CPU torch's own dropout of the weights takes longer than the rest of attention.
    if q.device.type == "cpu" and (p or (half and q.requires_grad and q.shape[2] <= SHORT)):

        def added(_: Tensor, queries: slice) -> Tensor | None:
            return None if bias is None else bias[:, queries]

        return block_attention(q, k, v, mask, p, added, causal=causal)
    if missing:  # torch's fused kernels have one width; its plain one needs (B, H, L, L) numbers
        return attention(q, k, F.pad(v, (0, missing)), mask, bias, p, causal)[..., : v.shape[-1]]
    if bias is None:
        return F.scaled_dot_product_attention(q, k, v, mask, p, is_causal=causal)
    bias = bias.to(q.dtype)[None]
    if mask is None:
        return F.scaled_dot_product_attention(q, k, v, bias, p)
    return padded_bias_attention(q, k, v, mask, bias, p)
