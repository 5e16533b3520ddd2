"""KERPLE, FIRE, TUPE, DIET and PoPE: initial values, gradients, bounds, and memory.
test_attention_encoding.py compares every score with a second implementation."""

import math

import pytest
import torch
from torch import nn

from memory import Peak
from posfuse.model import kernels
from posfuse.model.biases import Fire, Kerple
from posfuse.model.polar import Pope
from posfuse.model.untied import Diet, Tupe
from posfuse.runs.checks import checked
from posfuse.training.build import build_network
from posfuse.training.classifier import Classifier
from small_runs import composed
from variants import ENCODINGS, build, random_tensor

NAMES = [name for name, node in ENCODINGS.items() if node.get("attention")]


# KERPLE


def test_kerples_parameters_start_within_the_authors_ranges():
    torch.manual_seed(0)
    for kernel, ends in (("logarithmic", (2, 1)), ("power", (1, 2))):
        found = Kerple(4000, 2000, 9, kernel)
        for r, end in zip((found.r1(), found.r2()), ends, strict=True):
            assert r.min() > 0.004 * end
            assert r.max() < end
            assert r.mean().item() == pytest.approx(end / 2, abs=0.05)


def test_fires_mlp_is_an_mlp_of_relus_with_its_gradients():
    torch.manual_seed(0)
    encoding = Fire(6, 3, 9, hidden=7).double()
    encoding.weight_in.data[2] = 0.0  # never bends
    encoding.weight_in.data[3], encoding.bias_in.data[3] = 0.0, 0.0
    encoding.bias_in.data[4] = 50.0  # bends far outside
    plain = nn.Sequential(nn.Linear(1, 7), nn.ReLU(), nn.Linear(7, 3, bias=False)).double()
    plain[0].weight.data = encoding.weight_in.data[:, None].clone()
    plain[0].bias.data = encoding.bias_in.data.clone()
    plain[2].weight.data = encoding.weight_out.data.clone()
    x = torch.linspace(-1, 1, 999, dtype=torch.float64).view(27, 37).requires_grad_()
    found, expected = encoding.mlp(x), plain(x[..., None]).permute(2, 0, 1)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    dy = random_tensor(3, 27, 37)
    mine = torch.autograd.grad(
        (found * dy).sum(), (x, encoding.weight_in, encoding.bias_in, encoding.weight_out)
    )
    theirs = torch.autograd.grad((expected * dy).sum(), (x, *plain.parameters()))
    for own, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(own.flatten(), other.flatten(), rtol=0, atol=1e-11)


def test_diet_starts_near_plain_attention_and_tupe_at_the_scale_of_content():
    torch.manual_seed(0)
    diet, tupe = Diet(64, 4, 200), Tupe(64, 4, 200)
    a, b = diet.features(torch.arange(200), "query"), diet.features(torch.arange(200), "key")
    assert (a @ b.transpose(-2, -1) / 4).std() < 0.01
    a, b = tupe.features(torch.arange(200), "query"), tupe.features(torch.arange(200), "key")
    assert 0.5 < (a @ b.transpose(-2, -1) / 32**0.5).std() < 1


def test_the_starts_of_popes_delta():
    torch.manual_seed(0)
    assert not Pope(8, 2, 5).delta.any()
    uniform = Pope(4000, 2, 5, delta="uniform").delta
    assert uniform.max() < 0
    assert uniform.min() > -2 * math.pi
    assert uniform.mean().item() == pytest.approx(-math.pi, abs=0.15)
    assert Pope(8, 2, 5, delta="none").delta is None
    assert Pope(8, 2, 5).per_layer


def test_popes_delta_learns_again_after_a_step_beyond_its_bound():
    torch.manual_seed(0)
    encoding, every = Pope(8, 2, 20), torch.arange(20)
    encoding.delta.data.fill_(0.1)
    q, k = torch.randn(2, 8, 2, 20, 4).unbind()

    def gradient():
        encoding.delta.grad = None
        scores = encoding.turn(q, every, "query") @ encoding.turn(k, every, "key").mT
        scores.square().mean().backward()
        return encoding.delta.grad

    assert not gradient().any()
    encoding.keep_bounds()
    assert encoding.delta.max() <= 0
    assert gradient().all()


class Bounded(Kerple):
    """An encoding of a user, with a parameter that has bounds."""

    @torch.no_grad()
    def keep_bounds(self):
        self.raw_r1.clamp_(max=0)


def test_training_keeps_the_bounds_of_any_module():
    overrides = ["encoding=kerple", "model.d_model=8", "model.n_heads=2"]
    cfg = checked(composed(*overrides))
    cfg.encoding.attention["_target_"] = f"{__name__}.Bounded"
    module = Classifier(build_network(cfg, 9, 2), cfg.optim, 2, 0)
    (encoding,) = module.model.encoder.positions
    encoding.raw_r1.data.fill_(0.3)
    module.keep_bounds()
    assert not encoding.raw_r1.any()


@pytest.mark.parametrize("name", NAMES)
def test_training_never_holds_all_scores(name, monkeypatch):
    """Only a bias without parameters has (H, L, L) numbers; no tensor has (B, H, L, L)."""
    documents, heads, length, most = 4, 2, 256, 2**12
    monkeypatch.setitem(kernels.SCORES, "cpu", most)
    encoding = build(ENCODINGS[name].attention, d_model=16, n_heads=heads, max_len=length)
    if hasattr(encoding, "reset_parameters"):
        encoding.reset_parameters()
    at = [x.float().requires_grad_() for x in random_tensor(3, documents, heads, length, 8)]
    every = torch.arange(length)
    bias = encoding.bias(every)
    with Peak() as found:
        y = encoding(*at, None, every, bias, 0.1)
        y.sum().backward()
    features = 2 * documents * heads * length * 8  # of a q or k with twice the features
    assert found.numel <= max(2 * most, 2 * features, 0 if bias is None else bias.numel())
    assert found.numel < documents * heads * length**2 / 2
