"""Sandwich, KERPLE, FIRE, TUPE, DIET and PoPE: numbers by hand, limits, and memory.
test_attention_encoding.py compares every score with a second implementation."""

import math

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from posfuse.model import kernels
from posfuse.model.attention_encoding import Alibi, AttentionEncoding
from posfuse.model.biases import Fire, Kerple, Sandwich
from posfuse.model.polar import Pope
from posfuse.model.untied import Diet, Tupe
from posfuse.runs.checks import checked
from posfuse.training.build import build_network
from posfuse.training.classifier import Classifier
from small_runs import composed
from variants import ENCODINGS, build, random_tensor

NAMES = [name for name, node in ENCODINGS.items() if node.get("attention")]


def extra(encoding, i, j, heads=1):
    """What is added to the scores of a query at i and a key at j, one number for each head."""
    q = torch.zeros(1, heads, 1, encoding.d_head)
    return encoding.extra(q, torch.tensor([i]), torch.tensor([j])).flatten().tolist()


def set_values(module, **values):
    for name, value in values.items():
        getattr(module, name).data = torch.tensor(value)


def weights(encoding, q, k):
    every = torch.arange(q.shape[2])
    return encoding.weights(q, k, None, every, every)


# Sandwich


def test_sandwich_by_hand():
    # Two heads: H / (8h) is 1/4 and 1/8. cos(1) - 1 = -0.45970.
    assert extra(Sandwich(4, 2, 5, d_bar=2), 0, 1) == pytest.approx([-0.11492, -0.05746], abs=1e-5)
    # cos(2) + cos(2 / 100) - 2 = -1.41635, with either of the two first.
    for i, j in ((1, 3), (3, 1)):
        assert extra(Sandwich(4, 2, 5, d_bar=4), i, j)[0] == pytest.approx(-0.35409, abs=1e-5)


def test_sandwich_is_symmetric_zero_at_the_query_and_shares_alibis_path():
    encoding = Sandwich(8, 2, 64)
    bias = encoding.bias(torch.arange(64))
    assert torch.equal(bias, bias.transpose(-2, -1))
    assert not bias.diagonal(0, -2, -1).any()
    assert (bias[:, 0].diff()[:, :8] < 0).all()  # falls near the query
    assert not list(encoding.parameters())
    assert not encoding.learned
    torch.testing.assert_close(bias[0], 2 * bias[1])


# KERPLE


def test_the_power_kernel_contains_alibi():
    slopes = Alibi(8, 4, 9).slopes
    power = Kerple(8, 4, 9, kernel="power")
    set_values(power, raw_r1=slopes.log().tolist(), raw_r2=[0.0] * 4)  # r2 = 1
    every = torch.arange(9)
    torch.testing.assert_close(power.extra(slopes, every, every), Alibi(8, 4, 9).bias(every))


def test_kerples_parameters_start_within_the_authors_ranges():
    torch.manual_seed(0)
    for kernel, ends in (("logarithmic", (2, 1)), ("power", (1, 2))):
        found = Kerple(4000, 2000, 9, kernel)
        for r, end in zip((found.r1(), found.r2()), ends, strict=True):
            assert r.min() > 0.004 * end
            assert r.max() < end
            assert r.mean().item() == pytest.approx(end / 2, abs=0.05)


def test_kerple_has_a_gradient_at_distance_0():
    for kernel in ("logarithmic", "power"):
        encoding = Kerple(2, 1, 9, kernel)
        every = torch.arange(3)
        encoding.extra(torch.zeros(1, 1, 3, 2), every, every).sum().backward()
        assert all(p.grad.isfinite().all() and p.grad.any() for p in encoding.parameters())


# FIRE


def fire_by_hand(threshold):
    encoding = Fire(2, 1, 9, hidden=2)
    # c = 1; f(x) = 2 relu(x) + 3 relu(-x)
    set_values(encoding, log_c=0.0, log_threshold=math.log(threshold))
    set_values(encoding, weight_in=[1.0, -1.0], bias_in=[0.0, 0.0], weight_out=[[2.0, 3.0]])
    return encoding


def test_fire_by_hand():
    # x = log(3) / log(5) = 0.68261: distance 2, and the later of the two has position 3 + 1.
    assert extra(fire_by_hand(1.0), 3, 1) == pytest.approx([2 * 0.68261], abs=1e-4)
    assert extra(fire_by_hand(1.0), 1, 3) == pytest.approx([3 * 0.68261], abs=1e-4)
    # The threshold 9 is above 4: log(3) / log(10) = 0.47712.
    assert extra(fire_by_hand(9.0), 3, 1) == pytest.approx([2 * 0.47712], abs=1e-4)
    assert extra(fire_by_hand(9.0), 0, 0) == [0]


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


def test_fire_depends_on_the_two_positions_alone_and_stays_in_its_interval():
    encoding = Fire(4, 2, 5000)
    seen = []
    encoding.mlp = lambda x: seen.append(x) or x[None]
    few, many = torch.arange(5), torch.arange(4000)
    encoding.extra(torch.zeros(1), few, few)
    encoding.extra(torch.zeros(1), many, many)
    torch.testing.assert_close(seen[1][:5, :5], seen[0])
    assert seen[1].abs().max() < 1
    torch.testing.assert_close(seen[1], -seen[1].T)  # the sign is the direction
    assert (seen[1][-1].diff() < 0).all()  # falls from the farthest key to the query


def test_fire_has_a_set_of_parameters_for_each_layer_unless_they_are_shared():
    assert Fire(4, 2, 5).per_layer
    assert not Fire(4, 2, 5, shared=True).per_layer


# TUPE and DIET


def test_without_its_vectors_diet_is_plain_attention_and_tupe_softer_by_the_root_of_2():
    q, k = random_tensor(2, 2, 2, 7, 4)
    plain = weights(AttentionEncoding(8, 2, 1), q, k)
    diet, tupe = Diet(8, 2, 9).double(), Tupe(8, 2, 9).double()
    diet.query_vectors.data.zero_()
    tupe.vectors.data.zero_()
    torch.testing.assert_close(weights(diet, q, k), plain)
    torch.testing.assert_close(weights(tupe, 2**0.5 * q, k), plain)


def test_diet_starts_near_plain_attention_and_tupe_at_the_scale_of_content():
    torch.manual_seed(0)
    diet, tupe = Diet(64, 4, 200), Tupe(64, 4, 200)
    a, b = diet.features(torch.arange(200), "query"), diet.features(torch.arange(200), "key")
    assert (a @ b.transpose(-2, -1) / 4).std() < 0.01
    a, b = tupe.features(torch.arange(200), "query"), tupe.features(torch.arange(200), "key")
    assert 0.5 < (a @ b.transpose(-2, -1) / 32**0.5).std() < 1


def test_all_layers_share_absolute_scores():
    assert not Diet(4, 2, 5).per_layer
    assert not Tupe(4, 2, 5).per_layer


# PoPE


def test_pope_by_hand():
    q = torch.zeros(1, 1, 2, 1, dtype=torch.float64)  # softplus(0) = log 2
    encoding = Pope(1, 1, 2).double()

    def score(delta):
        encoding.delta.data.fill_(delta)
        every = torch.arange(2)
        turned = [encoding.turn(q, every, role)[0, 0] for role in ("query", "key")]
        return (turned[0] @ turned[1].T)[0, 1].item()  # of a query at 0 and a key at 1

    square = math.log(2) ** 2
    assert score(-1.0) == pytest.approx(square, abs=1e-6)  # cos(1 - 1)
    assert score(0.0) == pytest.approx(square * math.cos(1), abs=1e-6)
    assert score(0.5) == pytest.approx(square * math.cos(1), abs=1e-6)  # bounded
    assert score(-9.0) == pytest.approx(square * math.cos(1), abs=1e-6)  # -2 pi


def test_pope_depends_on_the_offset_and_is_largest_at_the_query():
    encoding = Pope(16, 2, 40, delta="none").double()
    every = torch.arange(40)
    q, k = random_tensor(2, 1, 2, 1, 8).expand(-1, -1, -1, 40, -1)
    q, k = encoding.turn(q, every, "query"), encoding.turn(k, every, "key")
    scores = q @ k.transpose(-2, -1)
    for offset in range(-10, 11):
        diagonal = scores.diagonal(offset, -2, -1)
        torch.testing.assert_close(
            diagonal, diagonal[..., :1].expand_as(diagonal), rtol=0, atol=1e-5
        )
    assert torch.equal(scores[0].argmax(-1), every.expand(2, -1))
    assert q.shape[-1] == 16


def test_popes_phases_have_a_frequency_for_every_feature():
    cos, sin = Pope(4, 1, 5).angles
    angles = torch.atan2(sin, cos)
    expected = [1, 10000**-0.25, 10000**-0.5, 10000**-0.75]
    assert angles[1].tolist() == pytest.approx(expected, rel=1e-3)


def test_the_starts_of_popes_delta():
    torch.manual_seed(0)
    assert not Pope(8, 2, 5).delta.any()
    uniform = Pope(4000, 2, 5, delta="uniform").delta
    assert uniform.max() < 0
    assert uniform.min() > -2 * math.pi
    assert uniform.mean().item() == pytest.approx(-math.pi, abs=0.15)
    assert Pope(8, 2, 5, delta="none").delta is None
    assert Pope(8, 2, 5).per_layer


def test_training_keeps_popes_delta_in_its_bounds():
    overrides = ["encoding=pope", "model.d_model=8", "model.n_heads=2", "model.n_layers=2"]
    cfg = checked(composed(*overrides))
    module = Classifier(build_network(cfg, 9, 2), cfg.optim, 2, 0)
    deltas = [position.delta for position in module.model.encoder.positions]
    for delta in deltas:
        delta.data.fill_(0.3)
    module.keep_bounds()
    assert len(deltas) == 2
    assert all(not delta.any() for delta in deltas)


def test_popes_delta_learns_again_after_a_step_beyond_its_bound():
    torch.manual_seed(0)
    wanted, encoding = Pope(8, 2, 20), Pope(8, 2, 20)
    wanted.delta.data.fill_(-1.0)
    encoding.delta.data.fill_(0.1)
    every = torch.arange(20)
    optimiser = torch.optim.SGD(encoding.parameters(), lr=0.05)
    for _ in range(400):
        encoding.keep_bounds()
        assert encoding.delta.max() <= 0
        q, k = torch.randn(2, 8, 2, 20, 4).unbind()
        scores = [
            e.turn(q, every, "query") @ e.turn(k, every, "key").transpose(-2, -1)
            for e in (encoding, wanted)
        ]
        loss = (scores[0] - scores[1].detach()).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert encoding.delta.max() < -0.8


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


# All


class Largest(TorchDispatchMode):
    """Records the numbers of the largest tensor that an operation returns."""

    def __init__(self):
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        sizes = [x.untyped_storage().nbytes() // x.element_size() for x in tree_leaves(out)
                 if isinstance(x, torch.Tensor)]  # fmt: skip
        self.numel = max([self.numel, *sizes])
        return out


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
    with Largest() as largest:
        y = encoding(*at, None, every, bias, 0.1)
        y.sum().backward()
    features = 2 * documents * heads * length * 8  # of a q or k with twice the features
    assert largest.numel <= max(2 * most, 2 * features, 0 if bias is None else bias.numel())
    assert largest.numel < documents * heads * length**2 / 2
