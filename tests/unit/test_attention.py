"""Attention by blocks against torch's own, and its dropout against masks drawn by hand."""

import pytest
import torch
import torch.nn.functional as F

from posfuse.model import attention
from posfuse.model.attention import BlockAttention, masked_and_biased, parts, unpadded
from posfuse.model.attention_encoding import Alibi
from variants import drawn_masks, random_tensor

B, H, L, D = 3, 2, 9, 4


def qkv(length=L, batch=B, seed=0):
    x = random_tensor(3, batch, H, length, D, seed=seed)
    return tuple(part.requires_grad_() for part in x.unbind())


def lengths_mask(length=L):
    lengths = torch.tensor([[length], [max(1, length // 2)], [1]])
    return (torch.arange(length) < lengths)[:, None, None]


def alibi(length=L):
    return Alibi(H * D, H, length).bias(length).double()


def gradients(y, *inputs):
    weights = random_tensor(*y.shape, seed=7)
    return torch.autograd.grad((y * weights).sum(), inputs)


@pytest.mark.parametrize("length", [1, 7, 9, 20])
@pytest.mark.parametrize("scores", [10**6, 2 * H * 81, 4 * H * 9, 0])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_without_dropout_it_is_torchs_own(length, scores, masked, biased, monkeypatch):
    monkeypatch.setitem(attention.SCORES, "cpu", scores)
    q, k, v = qkv(length)
    mask = lengths_mask(length) if masked else None
    bias = alibi(length) if biased else None
    y = BlockAttention.apply(q, k, v, mask, bias, 0.0)
    added = torch.zeros(B, H, length, length, dtype=torch.float64)
    if bias is not None:
        added = added + bias
    if mask is not None:
        added = added.masked_fill(~mask, -torch.inf)
    expected = F.scaled_dot_product_attention(q, k, v, added)
    torch.testing.assert_close(y, expected, rtol=0, atol=1e-12)
    for mine, torchs in zip(gradients(y, q, k, v), gradients(expected, q, k, v), strict=True):
        torch.testing.assert_close(mine, torchs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("scores", [10**6, 3 * H * 9])
def test_dropout_and_its_gradients_are_those_of_the_masks_drawn(scores, monkeypatch):
    monkeypatch.setitem(attention.SCORES, "cpu", scores)
    q, k, v = qkv()
    mask, bias, p = lengths_mask(), alibi(), 0.3
    torch.manual_seed(5)
    y = BlockAttention.apply(q, k, v, mask, bias, p)
    torch.manual_seed(5)
    masks = drawn_masks(q.shape, p)
    scores = q @ k.transpose(-2, -1) / D**0.5 + bias
    weights = scores.masked_fill(~mask, -torch.inf).softmax(-1) * masks
    expected = weights @ v
    assert 0 < (masks == 0).double().mean() < 0.6
    torch.testing.assert_close(y, expected, rtol=0, atol=1e-12)
    for mine, plain in zip(gradients(y, q, k, v), gradients(expected, q, k, v), strict=True):
        torch.testing.assert_close(mine, plain, rtol=0, atol=1e-12)


def test_blocks_are_as_large_as_allowed_and_cover_every_score_once(monkeypatch):
    for scores in (10**6, 2 * H * L**2, 4 * H * L, 0):
        monkeypatch.setitem(attention.SCORES, "cpu", scores)
        times = torch.zeros(B, L)
        for documents, queries in attention.blocks(torch.Size((B, H, L, D)), times.device):
            part = times[documents, queries]
            part += 1
            assert part.numel() == 1 or part.numel() * H * L <= scores
        assert (times == 1).all()


@pytest.mark.parametrize("p", [0.0, 0.1])
def test_bfloat16_is_near_float32(p):
    q, k, v = (x.detach().float().requires_grad_() for x in qkv(40, seed=1))
    halves = [x.detach().bfloat16().requires_grad_() for x in (q, k, v)]
    both = []
    for inputs in ((q, k, v), halves):
        torch.manual_seed(0)
        y = BlockAttention.apply(*inputs, None, None, p)
        assert y.dtype == inputs[0].dtype
        both.append([y, *gradients(y, *inputs)])
    for wide, half in zip(*both, strict=True):
        assert (wide - half).abs().max() < 0.03 * wide.abs().max()


@pytest.mark.parametrize(("times", "of_y", "of_grads"), [(1, 3e-3, 4e-3), (3, 3e-3, 4e-3)])
def test_bfloat16_rounds_no_score(times, of_y, of_grads):
    """Relative errors; with rounded scores they are 5e-3 and 6e-3, tripled 1.2e-2 and 2.6e-2."""
    q, k, v, dy = (x.float().bfloat16() for x in random_tensor(4, 4, 4, 128, 32))
    halves = [x.requires_grad_() for x in (times * q, times * k, v)]
    wide = [x.detach().double().requires_grad_() for x in halves]
    found = []
    for inputs in (halves, wide):
        with torch.autocast("cpu", torch.bfloat16, enabled=inputs is halves):
            y = BlockAttention.apply(*inputs, None, None, 0.0)
        found.append([y, *torch.autograd.grad(y, inputs, dy.to(y.dtype))])
    errors = [(mine - exact).norm() / exact.norm() for mine, exact in zip(*found, strict=True)]
    assert errors[0] < of_y
    assert max(errors[1:]) < of_grads


@pytest.mark.parametrize(
    ("length", "p", "dtype", "learns", "expected"),
    [
        (9, 0.0, torch.float32, True, "kernel"),
        (300, 0.0, torch.float32, True, "kernel"),
        (300, 0.1, torch.float32, True, "blocks"),
        (9, 0.0, torch.bfloat16, False, "kernel"),
        (attention.SHORT, 0.0, torch.bfloat16, True, "blocks"),
        (attention.SHORT + 1, 0.0, torch.bfloat16, True, "kernel"),
    ],
)
def test_a_kernel_of_torch_runs_but_with_dropout_and_where_its_backward_pass_is_slow(
    length, p, dtype, learns, expected, monkeypatch
):
    called = []
    monkeypatch.setattr(attention.BlockAttention, "apply", lambda *a: called.append("blocks"))
    monkeypatch.setattr(F, "scaled_dot_product_attention", lambda *a: called.append("kernel"))
    x = torch.zeros(1, 1, length, 2, dtype=dtype, requires_grad=learns)
    attention.attention(x, x, x, None, None, p)
    assert called == [expected]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_both_ways_agree(masked, biased):
    q, k, v = qkv(12)
    mask = lengths_mask(12) if masked else None
    bias = alibi(12) if biased else None
    blocks = attention.BlockAttention.apply(q, k, v, mask, bias, 0.0)
    kernel = attention.attention(q, k, v, mask, bias, 0.0)
    torch.testing.assert_close(blocks, kernel, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("dtype", "atol"), [(torch.float32, 1e-6), (torch.bfloat16, 1e-2)])
def test_padding_beside_a_bias_is_as_if_it_were_not_there(dtype, atol):
    q, k, v = (x.detach().to(dtype) for x in qkv(12))
    bias = alibi(12).to(dtype)
    mask = (torch.arange(12) < 7)[None, None, None].expand(3, 1, 1, 12)
    padded = masked_and_biased(q, k, v, mask, bias[None], 0.0)[:, :, :7]
    q, k, v = (x[:, :, :7] for x in (q, k, v))
    alone = F.scaled_dot_product_attention(q, k, v, bias[None, :, :7, :7])
    torch.testing.assert_close(padded, alone, rtol=10 * atol, atol=atol)


@pytest.mark.parametrize("length", [12, 300, 1200])  # one and several blocks of torch's kernel
def test_padding_beside_a_bias_gets_no_weight_from_large_scores(length):
    """Some of the padding's scores are above all others. Whole numbers keep the products exact."""
    q, k, v = (x.detach().float() for x in qkv(length))
    q, k = (300 * q).round(), (300 * k).round()
    assert (q @ k.transpose(-2, -1) / D**0.5).abs().max() > 3.5e4
    bias, mask = alibi(length).float(), lengths_mask(length)
    inputs = [x.requires_grad_() for x in (q, k, v)]
    wide = [x.detach().double().requires_grad_() for x in inputs]
    y = attention.attention(*inputs, mask, bias, 0.0)
    added = bias.double().masked_fill(~mask, -torch.inf)
    expected = F.scaled_dot_product_attention(*wide, added)
    torch.testing.assert_close(y.double(), expected, rtol=0, atol=0.01)
    mine, reference = gradients(y, *inputs), gradients(expected, *wide)
    torch.testing.assert_close(mine[2].double(), reference[2], rtol=0.01, atol=0.01)  # of v
    assert all(x.isfinite().all() for x in mine)


def test_the_parts_of_a_padded_batch_are_documents_and_paddings_in_turn():
    mask = (torch.arange(4) < torch.tensor([[3], [1], [4]]))[:, None, None]
    assert parts(mask).tolist() == [0, 3, 4, 5, 8, 12, 12]
    assert parts(mask).dtype == torch.int32


def by_parts(q, k, v, ends, ends_of_keys, longest, longest_of_keys):
    """varlen_attn, which is for GPUs alone: each part of the row by itself."""
    sizes = ends.diff().tolist()
    assert max(sizes) <= longest
    assert ends is ends_of_keys
    split = ([x.transpose(0, 1) for x in whole.split(sizes)] for whole in (q, k, v))
    attended = [F.scaled_dot_product_attention(*part) for part in zip(*split, strict=True)]
    return torch.cat([part.transpose(0, 1) for part in attended])


def test_unpadded_attention_is_that_with_a_mask(monkeypatch):
    monkeypatch.setattr(attention, "varlen_attn", by_parts)
    q, k, v = qkv()
    mask = lengths_mask()
    used = mask.transpose(-2, -1).expand(q.shape)
    y, expected = unpadded(q, k, v, mask), F.scaled_dot_product_attention(q, k, v, mask)
    torch.testing.assert_close(y[used], expected[used], rtol=0, atol=1e-12)
    # What comes of padding is not used, so it has no gradient.
    pairs = zip(gradients(y * used, q, k, v), gradients(expected * used, q, k, v), strict=True)
    for mine, masked in pairs:
        torch.testing.assert_close(mine, masked, rtol=0, atol=1e-12)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_unpadded_attention_on_a_gpu_is_that_with_a_mask():
    x = random_tensor(3, B, H, 24, 16).to("cuda", torch.bfloat16)
    q, k, v = (part.requires_grad_() for part in x.unbind())
    mask = lengths_mask(24).cuda()
    used = mask.transpose(-2, -1).expand(q.shape)
    y, expected = unpadded(q, k, v, mask), F.scaled_dot_product_attention(q, k, v, mask)
    torch.testing.assert_close(y[used], expected[used], rtol=0.02, atol=0.02)
    weights = random_tensor(*y.shape, seed=7).to("cuda", torch.bfloat16) * used
    for mine, masked in zip(
        torch.autograd.grad((y * weights).sum(), (q, k, v)),
        torch.autograd.grad((expected * weights).sum(), (q, k, v)),
        strict=True,
    ):
        torch.testing.assert_close(mine, masked, rtol=0.03, atol=0.03)
