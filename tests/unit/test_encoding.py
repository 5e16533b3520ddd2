"""Position tables against their formulas."""

import math

import pytest
import torch
from scipy.stats import kstest

from literal_scores import dot, gelu
from posfuse.model.encoding import Fourier
from variants import ENCODINGS, make_network, make_table, randomized


@pytest.mark.parametrize("name", ENCODINGS)
def test_table_has_a_row_per_position(name):
    for d_model, max_len in ((2, 1), (8, 5), (6, 40)):
        table = make_table(name, d_model, max_len)()
        assert table.shape == (max_len, d_model)
        assert table.dtype == torch.float32
        assert table.isfinite().all()


@pytest.mark.parametrize(("d_model", "max_len"), [(6, 50), (4, 4096)])
def test_sinusoidal_follows_the_formula(d_model, max_len):
    expected = torch.zeros(max_len, d_model, dtype=torch.float64)
    for i in range(max_len):
        for j in range(d_model // 2):
            angle = i / 10000 ** (2 * j / d_model)
            expected[i, 2 * j], expected[i, 2 * j + 1] = math.sin(angle), math.cos(angle)
    table = make_table("sinusoidal", d_model, max_len)().double()
    torch.testing.assert_close(table, expected, rtol=0, atol=1e-7)


@pytest.mark.parametrize("name", ["sinusoidal", "rope_features", "none"])
def test_fixed_tables_are_neither_trained_nor_saved(name):
    table = make_table(name, 8, 5)
    assert not list(table.parameters())
    assert not table.state_dict()
    assert table().any() == (name != "none")


def test_fourier_features_follow_the_formula():
    table = randomized(Fourier(3, 50, gamma=5.0, features=4, hidden=2).double())
    w, w1, b1, w2, b2 = (parameter.tolist() for parameter in table.parameters())
    for i, row in enumerate(table().tolist()):
        angles = [i * frequency / 5 for frequency in w]
        r = [f(a) / 4**0.5 for f in (math.cos, math.sin) for a in angles]
        hidden = [gelu(dot(weights, r) + b) for weights, b in zip(w1, b1, strict=True)]
        out = [dot(weights, hidden) + b for weights, b in zip(w2, b2, strict=True)]
        assert row == pytest.approx(out, abs=1e-12)


def test_fourier_features_start_as_loud_as_the_sinusoidal_table_and_smooth():
    tables = torch.stack([make_network(encoding="fourier", seed=s).table() for s in range(50)])
    assert tables.square().mean().sqrt().item() == pytest.approx(0.71, abs=0.1)
    torch.manual_seed(0)
    w = Fourier(4000, 40, gamma=10.0).frequencies
    r = torch.cat((w.cos(), w.sin())) / 4000**0.5  # positions 0 and 10: angles 0 and w
    at_0 = torch.cat((torch.ones(2000), torch.zeros(2000))) / 4000**0.5
    assert (r @ at_0).item() == pytest.approx(math.exp(-0.5) / 2, abs=0.02)


def test_learned_and_relative_table_are_two_draws_of_one_distribution():
    seeds = range(30)  # of 12 x 8 values each
    learned, relative = (
        torch.stack([make_network(encoding=e, seed=s).table().detach().flatten() for s in seeds])
        for e in ("learned", "relative_table")
    )
    assert ((learned != relative).float().mean(1) > 0.99).all()
    for table in (learned, relative):
        assert kstest(table.flatten().numpy(), "norm").pvalue > 0.01
