"""Dropout against its definition: its rate, scale, gradient and independent draws."""

import pytest
import torch

import posfuse.model.dropout
from posfuse.model.dropout import Draws, Dropout, zero_

N = 4 * 50_000
CPU = torch.device("cpu")


def test_a_share_of_p_is_zeroed_and_the_rest_scaled():
    torch.manual_seed(0)
    for p in (1e-4, 0.01, 0.1, 0.5, 0.9, 0.9999):
        out = Dropout(p)(torch.ones(N))
        kept = out != 0
        deviation = (p * (1 - p) / N) ** 0.5
        assert 1 - kept.double().mean().item() == pytest.approx(p, abs=5 * deviation)
        torch.testing.assert_close(out[kept], torch.full_like(out[kept], 1 / (1 - p)))


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_numbers_near_and_far_are_dropped_independently(p):
    """Four in a row have 16 joint outcomes, chi-square with 15 degrees of freedom; two at a
    distance are both dropped with probability p^2."""
    torch.manual_seed(0)
    drops = torch.cat([(Dropout(p)(torch.ones(N)) == 0) for _ in range(10)]).long()
    counts = torch.bincount(drops.view(-1, 4) @ torch.tensor([1, 2, 4, 8]), minlength=16)
    of_four = [p**k * (1 - p) ** (4 - k) for k in map(int.bit_count, range(16))]
    expected = len(drops) / 4 * torch.tensor(of_four).double()
    assert ((counts - expected) ** 2 / expected).sum() < 44  # p = 0.0001
    for distance in (1, 2, 3, 10, 100):
        both = (drops[distance:] * drops[:-distance]).double().mean().item()
        assert both == pytest.approx(p**2, abs=5 * (p**2 / len(drops)) ** 0.5)


def test_the_first_number_and_the_last_are_dropped_as_often_as_others():
    draws, like = Draws(0.3, 0, CPU), torch.empty(7)
    counts = sum(zero_(torch.ones(7), draws.next(like)) == 0 for _ in range(20_000))
    torch.testing.assert_close(counts / 20_000, torch.full((7,), 0.3), rtol=0, atol=0.017)


def test_more_gaps_are_drawn_if_the_first_are_too_few(monkeypatch):
    """Indices drawn in many parts are ascending, within range and at the right rate."""
    monkeypatch.setattr(posfuse.model.dropout, "SPARE", -1.0)
    places = Draws(0.1, 0, CPU).next(torch.empty(N))
    assert (places.diff() > 0).all()
    assert 0 <= places[0] < places[-1] < N
    assert len(places) / N == pytest.approx(0.1, abs=0.003)


@pytest.mark.parametrize("shape", [(), (1,), (3,), (5, 7), (2, 3, 4)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_any_shape_and_type_stay(shape, dtype):
    out = Dropout(0.5)(torch.ones(shape, dtype=dtype))
    assert (out.shape, out.dtype) == (shape, dtype)
    assert set(out.flatten().tolist()) <= {0.0, 2.0}


def test_the_gradient_is_the_mask():
    x = torch.randn(1000, requires_grad=True)
    out = Dropout(0.3)(x)
    out.sum().backward()
    torch.testing.assert_close(out, x * x.grad)


def test_nothing_is_dropped_or_drawn_in_evaluation_or_at_rate_zero():
    x, state = torch.randn(100), torch.get_rng_state()
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpus_mask_follows_from_its_seed():
    like = torch.empty(N, device="cuda", dtype=torch.bfloat16)
    first, again, other = (Draws(0.3, seed, like.device).next(like) for seed in (5, 5, 6))
    assert torch.equal(first, again)
    assert torch.equal(first, Draws(0.3, 5, like.device).next(like.float()))
    assert not torch.equal(first, other)
    assert first.double().mean().item() == pytest.approx(0.3, abs=0.01)
