"""The attention half of the encodings: each against its published formula and its plain twin."""

from itertools import product

import pytest
import torch

from literal_scores import literal_bucket, literal_score
from posfuse.errors import InputError
from posfuse.model import kernels
from posfuse.model.attention_encoding import AttentionEncoding, Rotary, alibi_slopes, t5_buckets
from posfuse.runs.checks import checked
from posfuse.training.build import build_parts
from small_runs import composed
from variants import (
    ENCODINGS,
    INSIDE,
    build,
    check_equal,
    drawn_masks,
    make_network,
    random_tensor,
    randomized,
)

D_MODEL, N_HEADS, MAX_LEN = 16, 2, 40
# An encoding with options, by a name that begins with its own.
OPTIONS = {
    "relative": {"clip": 4},
    "kerple power": {"kernel": "power"},
    "fire shared": {"shared": True},
    "diet rank 3": {"rank": 3},
    "pope none": {"delta": "none"},
    "pope uniform": {"delta": "uniform"},
    "rope_long": {"base": 500.0, "interpolation": 4.0, "ntk_factor": 3.0},
}
KINDS = list(dict.fromkeys([*INSIDE, *OPTIONS]))
LEARNED = [name for name in INSIDE if name not in ("rope", "rope_partial", "alibi", "sandwich")]


def make(name: str, **options) -> AttentionEncoding:
    node = ENCODINGS["rope" if name == "rope_long" else name.split()[0]].attention
    options = {"max_len": MAX_LEN, **OPTIONS.get(name, {}), **options}
    return randomized(build(node, d_model=D_MODEL, n_heads=N_HEADS, **options).double())


def qkv(length=9, batch=3, seed=0):
    return random_tensor(3, batch, N_HEADS, length, D_MODEL // N_HEADS, seed=seed).unbind()


def run(encoding, q, k, v, mask=None, positions=None, p=0.0):
    positions = torch.arange(q.shape[-2]) if positions is None else positions
    return encoding(q, k, v, mask, positions, encoding.bias(positions), p)


@pytest.mark.parametrize("name", KINDS)
@torch.no_grad()
def test_scores_follow_the_papers_formula_one_by_one(name):
    q, k, v = qkv(length=21, batch=1)
    encoding, scores = make(name), torch.zeros(1, N_HEADS, 21, 21, dtype=torch.float64)
    for positions in (torch.arange(21), torch.arange(21) * 39 // 20):
        places = [*enumerate(positions.tolist())]
        for h, (m, i), (n, j) in product(range(N_HEADS), places, places):
            scores[0, h, m, n] = literal_score(name, encoding, q[0, h, m], k[0, h, n], h, i, j)
        found = run(encoding, q, k, v, positions=positions)
        # The angles and slopes have single precision.
        torch.testing.assert_close(found, scores.softmax(-1) @ v, rtol=1e-5, atol=1e-6)


def test_alibi_slopes_are_the_published_ones():
    assert alibi_slopes(8) == [2**-h for h in range(1, 9)]
    assert alibi_slopes(1) == [2**-8]
    assert alibi_slopes(6) == [1 / 4, 1 / 16, 1 / 64, 1 / 256, 2**-1, 2**-3]
    assert len(alibi_slopes(12)) == 12


def test_t5_buckets_are_the_published_ones():
    offsets = torch.arange(-300, 301)
    expected = [literal_bucket(int(offset)) for offset in offsets]
    assert t5_buckets(offsets, 32, 128).tolist() == expected


def test_the_base_follows_from_the_features_that_rotate():
    half = Rotary(8, 1, 5, partial=0.5, ntk_factor=5)
    assert torch.equal(half.angles, Rotary(4, 1, 5, ntk_factor=5).angles)
    # A single pair has frequency 1 with any base.
    assert torch.equal(Rotary(2, 1, 5, ntk_factor=5).angles, Rotary(2, 1, 5).angles)


def test_all_layers_share_t5s_bias_and_each_has_its_own_relative_keys():
    t5, relative = make_network(encoding="t5"), make_network(encoding="relative")
    assert len(t5.encoder.positions) == 1
    first, second = relative.encoder.positions
    assert not torch.equal(first.relative_keys, second.relative_keys)


@pytest.mark.parametrize("name", [None, *KINDS])
def test_it_equals_its_plain_twin_with_the_masks_drawn(name, monkeypatch):
    """`forward`, with blocks of any size, and its gradients against `weights` and autograd."""
    encoding = make(name) if name else AttentionEncoding(D_MODEL, N_HEADS, MAX_LEN)
    for length, p, scores in product((1, 9), (0.0, 0.5), (10**6, 2 * 81, 27, 0)):
        monkeypatch.setitem(kernels.SCORES, "cpu", scores * N_HEADS)
        at = [x.requires_grad_() for x in qkv(length)]
        mask = (torch.arange(length) < torch.tensor([[length], [4], [1]]))[:, None, None]
        every = torch.arange(length)
        torch.manual_seed(5)
        y = run(encoding, *at, mask, 3 * every, p)
        torch.manual_seed(5)
        masks = drawn_masks(at[0].shape, p)
        weights = encoding.weights(*at[:2], mask, 3 * every, every)
        check_equal(y, weights * masks @ at[2], [*at, *encoding.parameters()])
        some = every.flip(0)[::2]
        of_some = encoding.weights(*at[:2], mask, 3 * every, some)
        torch.testing.assert_close(of_some, weights[:, :, some])


@pytest.mark.parametrize("name", LEARNED)
def test_mixed_precision_gives_nearly_the_same_gradients(name, monkeypatch):
    """With many keys too, whose gradients add up in one parameter."""
    monkeypatch.setitem(kernels.SCORES, "cpu", 64 * 1000 * N_HEADS)
    found = []
    for dtype in (torch.float32, torch.bfloat16):
        encoding = make(name, max_len=1000).float()
        torch.manual_seed(0)
        encoding.reset_parameters()  # usual values: large scores would be rounded more
        at = [(x + i // 2).to(dtype).requires_grad_() for i, x in enumerate(qkv(1000, batch=1))]
        inputs = [*at, *encoding.parameters()]
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
            y = run(encoding, *at)
        gradients = torch.autograd.grad((y * random_tensor(*y.shape, seed=7)).sum(), inputs)
        assert [g.dtype for g in gradients] == [x.dtype for x in inputs]
        found.append([y, *gradients])
    # The products of pope's magnitudes have a large mean, the MLP of fire adds up cancelling terms.
    most = 0.04 if name in ("fire", "pope") else 0.02
    for wide, half in zip(*found, strict=True):
        assert (wide - half).norm() < most * wide.norm()


@pytest.mark.parametrize("name", LEARNED)
def test_frozen_parameters_get_no_gradient(name):
    encoding, at = make(name), [x.requires_grad_() for x in qkv()]
    expected = torch.autograd.grad(run(encoding, *at).square().sum(), at)
    encoding.requires_grad_(False)
    run(encoding, *at).square().sum().backward()
    assert all(parameter.grad is None for parameter in encoding.parameters())
    for x, of_x in zip(at, expected, strict=True):
        torch.testing.assert_close(x.grad, of_x, rtol=0, atol=1e-12)


BAD = {
    "odd head": (["encoding=rope", "model.d_model=6", "model.n_heads=2"], "a head has 3 features"),
    "few buckets": (["encoding=t5", "encoding.attention.n_buckets=6"], "n_buckets is 6"),
    "short reach": (["encoding=t5", "encoding.attention.max_distance=8"], "max_distance is 8"),
    "no clip": (["encoding=relative", "encoding.attention.clip=0"], "clip is 0"),
    "half a pair": (["encoding=rope_partial", "encoding.attention.partial=0.3"], "partial is 0.3"),
    "no base": (["encoding=rope", "+encoding.attention.base=0"], "base is 0"),
    "backwards": (["encoding=rope", "+encoding.attention.interpolation=-1"], "interpolation is -1"),
    "no kernel": (["encoding=kerple", "encoding.attention.kernel=exp"], "kernel is 'exp'"),
    "odd sum": (["encoding=sandwich", "encoding.attention.d_bar=7"], "d_bar is 7"),
    "no hidden": (["encoding=fire", "encoding.attention.hidden=0"], "hidden is 0"),
    "no rank": (["encoding=diet", "encoding.attention.rank=0"], "rank is 0"),
    "no start": (["encoding=pope", "encoding.attention.delta=one"], "delta is 'one'"),
    "no gamma": (["encoding=fourier", "encoding.table.gamma=0"], "gamma is 0"),
    "odd features": (["encoding=fourier", "+encoding.table.features=3"], "features is 3"),
    "unknown option": (["encoding=alibi", "+encoding.attention.clip=2"], "encoding.attention.clip"),
}


@pytest.mark.parametrize("name", BAD)
def test_impossible_options_are_refused_before_data_is_loaded(name):
    overrides, message = BAD[name]
    with pytest.raises(InputError, match=message):
        build_parts(checked(composed(*overrides)))
