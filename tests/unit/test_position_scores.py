"""KERPLE, FIRE, TUPE, DIET and PoPE: initial values, gradients and bounds; memory of all encodings.
test_attention_encoding.py compares every score with a second implementation."""

import math
import weakref
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from posfuse.config import OptimConfig
from posfuse.model import kernels
from posfuse.model.biases import Fire, Kerple
from posfuse.model.encoder import Encoder
from posfuse.model.language_model import LanguageModel
from posfuse.model.network import Backbone, PositionClassifier, initialize
from posfuse.model.polar import Pope
from posfuse.model.untied import Diet, Tupe
from posfuse.training.classifier import Classifier
from variants import INSIDE, check_equal, make_attention, make_fusion, make_network, make_table


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
    x = torch.linspace(-1, 1, 99, dtype=torch.float64).view(9, 11).requires_grad_()
    hidden = (x[..., None] * encoding.weight_in + encoding.bias_in).relu()
    plain = (hidden @ encoding.weight_out.T).permute(2, 0, 1)
    weights = encoding.weight_in, encoding.bias_in, encoding.weight_out
    check_equal(encoding.mlp(x), plain, [x, *weights])


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


def test_training_keeps_the_bounds_of_any_module(monkeypatch):
    network = make_network("add_scaled")
    network.fusion.keep_bounds = lambda: network.fusion.alpha.data.clamp_(max=0)
    trainer = SimpleNamespace(accumulate_grad_batches=1, num_training_batches=1)
    monkeypatch.setattr(Classifier, "trainer", trainer)
    Classifier(network, OptimConfig(), 3, seed=0).on_train_batch_start(None, 0)
    assert network.fusion.alpha == 0


class Peak(TorchDispatchMode):
    """Counts the bytes of the tensors that operations return: the most `held` at once, and
    the most numbers in one, `numel`. What a kernel holds inside is not seen."""

    def __init__(self):
        super().__init__()
        self.now = self.held = self.numel = 0
        self.known = weakref.WeakSet()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for x in tree_leaves(out):
            if isinstance(x, torch.Tensor) and (storage := x.untyped_storage()) not in self.known:
                n = storage.nbytes()
                self.known.add(storage)
                self.now += n
                self.numel = max(self.numel, n // x.element_size())
                weakref.finalize(storage, self.free, n)
        self.held = max(self.held, self.now)
        return out

    def free(self, n):
        self.now -= n


@pytest.mark.parametrize("name", ["none", *INSIDE])
def test_training_never_holds_all_scores(name, monkeypatch):
    """Only a bias without parameters has (H, L, L) numbers; no tensor has (B, H, L, L). A causal
    model takes the classifier's memory, the dropped output with the indices of dropped numbers (8
    bytes each), the logits, their logarithms and their gradient."""
    most, length, words = 2**11, 128, 20
    monkeypatch.setitem(kernels.SCORES, "cpu", most)
    ids, held = torch.randint(words, (4, length)), []
    for causal in (False, True):
        encoder = Encoder(8, 2, 1, 16, position=make_attention(name, length), causal=causal)
        backbone = Backbone(make_fusion("add", 8), make_table(name, 8, length), encoder)
        kind = LanguageModel if causal else PositionClassifier
        model = kind(backbone, words, *([] if causal else [5]))
        initialize(model, 0)
        with Peak() as found:
            logits = model.train()(ids, torch.full((4,), length))
            targets = ids if causal else ids[:, 0] % 5
            F.cross_entropy(logits.flatten(0, -2), targets.flatten()).backward()
        qkv, is_fixed = 3 * 8 * ids.numel(), name in ("alibi", "sandwich")
        output = 8 * ids.numel()
        assert found.numel <= max(2 * most, qkv, 2 * length**2 if is_fixed else 0)
        held.append(found.held)
    assert held[1] <= held[0] + 4 * (output + 3 * logits.numel()) + 8 * 0.15 * output
