"""Dropout by 16 bits a number: its rate, its scale, its gradient, its draws."""

import pytest
import torch

from posfuse.dropout import LEVELS, Dropout, dropout, kept

N = 4 * 50_000


@pytest.mark.parametrize("p", [1 / LEVELS, 0.1, 0.5, 0.9, 1 - 1 / LEVELS, 0.9999999])
def test_a_share_of_p_is_zeroed_and_the_rest_scaled(p):
    torch.manual_seed(0)
    out = dropout(torch.ones(N), p)
    stays = out != 0
    rounded = min(round(p * LEVELS), LEVELS - 1) / LEVELS
    deviation = (rounded * (1 - rounded) / N) ** 0.5
    assert 1 - stays.double().mean().item() == pytest.approx(rounded, abs=5 * deviation)
    torch.testing.assert_close(out[stays], torch.full_like(out[stays], 1 / (1 - rounded)))


def test_the_four_numbers_of_one_draw_are_independent():
    """Their 16 joint outcomes are equally likely at p = 1/2: chi-square, 15 degrees of freedom."""
    torch.manual_seed(0)
    bits = (dropout(torch.ones(N), 0.5) != 0).view(-1, 4).long()
    counts = torch.bincount(bits @ torch.tensor([1, 2, 4, 8]), minlength=16).double()
    expected = N / 4 / 16
    assert ((counts - expected) ** 2 / expected).sum() < 44  # p = 0.0001
    following = (bits[1:] * bits[:-1]).double().mean(0)  # and so are those of two draws in a row
    torch.testing.assert_close(following, torch.full_like(following, 0.25), rtol=0, atol=0.01)


@pytest.mark.parametrize("shape", [(), (1,), (3,), (5, 7), (2, 3, 4)])
def test_any_shape(shape):
    out = dropout(torch.ones(shape), 0.5)
    assert out.shape == shape
    assert set(out.flatten().tolist()) <= {0.0, 2.0}


def test_the_gradient_is_the_mask():
    x = torch.randn(1000, requires_grad=True)
    out = dropout(x, 0.3)
    out.sum().backward()
    torch.testing.assert_close(out, x * x.grad)


def test_masks_follow_from_the_seed():
    masks = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        masks.append(dropout(torch.ones(100), 0.5))
    assert torch.equal(masks[0], masks[1])
    assert not torch.equal(masks[0], masks[2])


def test_nothing_is_dropped_or_drawn_in_evaluation_or_at_rate_zero():
    x, state = torch.randn(100), torch.get_rng_state()
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x
    assert torch.equal(torch.get_rng_state(), state)


def test_half_precision_stays():
    assert dropout(torch.ones(8, dtype=torch.bfloat16), 0.1).dtype == torch.bfloat16


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpus_mask_follows_from_its_seed():
    like = torch.empty(N, device="cuda", dtype=torch.bfloat16)
    first, again, other = (kept(like, 0.3, seed) for seed in (5, 5, 6))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert 1 - first.double().mean().item() == pytest.approx(0.3, abs=0.01)
