"""Each attention kernel against its plain twin, and which kernel runs when."""

from itertools import product

import pytest
import torch
import torch.nn.functional as F

from posfuse.model import kernels
from posfuse.model.attention_encoding import Alibi
from posfuse.model.kernels import block_attention
from variants import check_equal, drawn_masks, random_tensor

B, H, L, D = 3, 2, 9, 4
BLOCKS = {"whole": 10**6, "documents": 2 * H * L**2, "queries": 4 * H * L, "one score": 0}


def qkv(length=L):
    return [x.requires_grad_() for x in random_tensor(3, B, H, length, D)]


def lengths_mask(length=L):
    lengths = torch.tensor([[length], [max(1, length // 2)], [1]])
    return (torch.arange(length) < lengths)[:, None, None]


def alibi(length=L):
    return Alibi(H * D, H, length).bias(torch.arange(length)).double()


def by_blocks(q, k, v, mask, bias, p, causal=False):
    def added(_, queries):
        return None if bias is None else bias[:, queries]

    learned = [] if bias is None or not bias.requires_grad else [bias]
    return block_attention(q, k, v, mask, p, added, learned, causal=causal)


def plain(q, k, v, mask, bias, dropped, causal):
    """softmax(q k^T / sqrt(D) + bias) v with a rescaled dropout mask (B, H, L, L)."""
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -torch.inf)
    if bias is not None:
        scores = scores + bias
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return (scores.softmax(-1) * dropped) @ v


@pytest.mark.parametrize("blocks", BLOCKS)
def test_blocks_equal_plain_attention(blocks, monkeypatch):
    """With any mask: none, of padding, or of the future. A causal encoder needs none of padding."""
    monkeypatch.setitem(kernels.SCORES, "cpu", BLOCKS[blocks])
    hidden, biases = ("nothing", "future", "padding"), ("none", "fixed", "learned")
    for length, hides, kind, p in product((1, 9, 20), hidden, biases, (0.0, 0.3)):
        inputs, causal = qkv(length), hides == "future"
        mask = lengths_mask(length) if hides == "padding" else None
        bias = None if kind == "none" else alibi(length).requires_grad_(kind == "learned")
        torch.manual_seed(5)
        y = by_blocks(*inputs, mask, bias, p, causal)
        torch.manual_seed(5)
        masks = drawn_masks(inputs[0].shape, p, causal)
        expected = plain(*inputs, mask, bias, masks, causal)
        check_equal(y, expected, [*inputs, *([bias] if kind == "learned" else [])])
        if not p and not (causal and kind != "none"):  # such a bias is -inf at later keys
            fast = kernels.attention(*inputs, mask, bias, p, causal)
            torch.testing.assert_close(fast, expected, rtol=0, atol=1e-12)
    assert 0.2 < (masks == 0).double().mean() < 0.4


@pytest.mark.parametrize("factor", [1, 3])
def test_bfloat16_blocks_do_not_round_scores(factor):
    """Relative errors; with rounded scores they are 5e-3 and 6e-3, times 3 1.2e-2 and 2.6e-2."""
    q, k, v, dy = (x.float().bfloat16() for x in random_tensor(4, 4, 4, 128, 32))
    halves = [x.requires_grad_() for x in (factor * q, factor * k, v)]
    wide = [x.detach().double().requires_grad_() for x in halves]
    for p in (0.0, 0.1):
        found = []
        for inputs in (halves, wide):
            torch.manual_seed(0)
            with torch.autocast("cpu", torch.bfloat16, enabled=inputs is halves):
                y = by_blocks(*inputs, None, None, p)
            assert y.dtype == inputs[0].dtype
            found.append([y, *torch.autograd.grad(y, inputs, dy.to(y.dtype))])
        errors = [(mine - exact).norm() / exact.norm() for mine, exact in zip(*found, strict=True)]
        assert errors[0] < 3e-3
        assert max(errors[1:]) < 4e-3


@pytest.mark.parametrize("length", [9, kernels.LONG])
def test_short_attention_in_bfloat16_trains_in_float32(length):
    """Its results and gradients are those in float32, rounded."""
    halves = [x.detach().bfloat16().requires_grad_() for x in qkv(length)]
    wide = [x.detach().float().requires_grad_() for x in halves]
    for mask, bias in product((None, lengths_mask(length)), (None, alibi(length).float())):
        found = []
        for inputs in (halves, wide):
            with torch.autocast("cpu", torch.bfloat16, enabled=inputs is halves):
                y = kernels.attention(*inputs, mask, bias, 0.0)
            dy = torch.ones_like(y)
            found.append([x.bfloat16() for x in (y, *torch.autograd.grad(y, inputs, dy))])
        assert all(map(torch.equal, *found))


@pytest.mark.parametrize("length", [12, 300, 1200])  # one and several blocks of torch's kernel
def test_padding_beside_a_bias_gets_no_weight_from_large_scores(length):
    """Some scores of padding are above all others. Integers keep the products exact."""
    q, k, v = (x.detach().float() for x in qkv(length))
    q, k = (300 * q).round(), (300 * k).round()
    assert (q @ k.transpose(-2, -1) / D**0.5).abs().max() > 3.5e4
    bias, mask = alibi(length).float(), lengths_mask(length)
    inputs = [x.requires_grad_() for x in (q, k, v)]
    wide = [x.detach().double().requires_grad_() for x in inputs]
    y = kernels.attention(*inputs, mask, bias, 0.0)
    expected = F.scaled_dot_product_attention(*wide, bias.double().masked_fill(~mask, -torch.inf))
    torch.testing.assert_close(y.double(), expected, rtol=0, atol=0.01)
    weights = random_tensor(*y.shape, seed=7)
    mine, exact = (
        torch.autograd.grad((out * weights).sum(), of)
        for out, of in ((y, inputs), (expected, wide))
    )
    torch.testing.assert_close(mine[2].double(), exact[2], rtol=0.01, atol=0.01)  # of v
    assert all(x.isfinite().all() for x in mine)
