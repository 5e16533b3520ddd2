"""Each operator against its equation in plain Python, and properties of all operators."""

import math
import sys
from itertools import product
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from posfuse.errors import ConfigError
from posfuse.model.controls import AddMatched
from posfuse.model.fusion import MLP, Add, GateCNN, GateFeature, GateMLP
from posfuse.model.network import check_merge, initialize
from posfuse.runs.checks import checked
from posfuse.training.build import build_parts
from small_runs import composed
from variants import OPERATORS, make_fusion, make_network, make_table, random_tensor

HALF_STARTS = [n for n in OPERATORS if n.startswith("gate") and not n.endswith("_linear_start")]
every_operator = pytest.mark.parametrize("name", OPERATORS)


def with_values(operator, seed=0):
    """The operator in float64 with parameters from N(0, 1), so that no gate is near 0.5."""
    operator = operator.double()
    for i, parameter in enumerate(operator.parameters()):
        parameter.data = random_tensor(*parameter.shape, seed=1000 + 10 * seed + i)
    return operator


def fuse(name, tokens, table, positions=0):
    return with_values(make_fusion(name, tokens.shape[-1]))(tokens, table, positions)


# The equations in plain Python: E and P are lists of rows, w maps a parameter's name to lists,
# i is the position and f the feature.


def dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def gelu(x):
    return x * (1 + math.erf(x / math.sqrt(2))) / 2


def joined(w, f, E_i, P_i):
    """Row f of W times [E_i; P_i]."""
    return dot(w["weight_token"][f] + w["weight_position"][f], E_i + P_i)


def mlp(w, f, E_i, P_i, activation=gelu):
    first = {k.removeprefix("mlp."): v for k, v in w.items()}
    hidden = [activation(joined(first, h, E_i, P_i) + b) for h, b in enumerate(first["bias"])]
    return dot(first["weight_out"][f], hidden) + first["bias_out"][f]


def rms(row):
    return math.sqrt(sum(x * x for x in row) / len(row) + 1e-12)


def mix(g, E_if, P_if):
    """Eq. 4 and 6."""
    return g * E_if + (1 - g) * P_if


def gate_cnn_gate(weight, P, i):
    """Eq. 5, summed over the channels; rows beyond the ends are zero."""
    K = (len(weight[0][0]) - 1) // 2
    logit = 0.0
    for k in range(-K, K + 1):
        if 0 <= i + k < len(P):
            for c in range(len(P[0])):
                logit += weight[0][c][k + K] * P[i + k][c]
    return sigmoid(logit)


BY_HAND = {
    "none": lambda w, E, P, i, f: E[i][f],
    "add": lambda w, E, P, i, f: E[i][f] + P[i][f],
    "add_scaled": lambda w, E, P, i, f: E[i][f] + w["alpha"] * P[i][f],
    "mul": lambda w, E, P, i, f: E[i][f] * P[i][f],
    "concat": lambda w, E, P, i, f: joined(w, f, E[i], P[i]),
    "linear": lambda w, E, P, i, f: dot(w["weight_token"][f], E[i]) + P[i][f],
    "add_matched": lambda w, E, P, i, f: E[i][f] / rms(E[i]) + P[i][f] / rms(P[i]),
    "gate_constant": lambda w, E, P, i, f: mix(sigmoid(w["bias"][0]), E[i][f], P[i][f]),
    "gate_scalar": lambda w, E, P, i, f: mix(
        sigmoid(joined(w, 0, E[i], P[i]) + w["bias"][0]), E[i][f], P[i][f]
    ),
    "gate_feature": lambda w, E, P, i, f: mix(
        sigmoid(joined(w, f, E[i], P[i]) + w["bias"][f]), E[i][f], P[i][f]
    ),
    "gate_cnn": lambda w, E, P, i, f: mix(gate_cnn_gate(w["weight"], P, i), E[i][f], P[i][f]),
    "gate_mlp": lambda w, E, P, i, f: mix(sigmoid(mlp(w, f, E[i], P[i])), E[i][f], P[i][f]),
    "mlp": lambda w, E, P, i, f: mlp(w, f, E[i], P[i]),
    "mlp with relu": lambda w, E, P, i, f: mlp(w, f, E[i], P[i], lambda x: max(0.0, x)),
}
BY_HAND |= {
    f"{name}_linear_start": BY_HAND[name]
    for name in ("gate_scalar", "gate_feature", "gate_cnn", "gate_mlp")
}


def check_by_hand(name, operator, n_tokens, n_rows):
    tokens, table = random_tensor(n_tokens, 3, seed=1), random_tensor(n_rows, 3, seed=2)
    w = {key: parameter.tolist() for key, parameter in operator.named_parameters()}
    E, P = tokens.tolist(), table.tolist()
    expected = [[BY_HAND[name](w, E, P, i, f) for f in range(3)] for i in range(n_tokens)]
    torch.testing.assert_close(
        operator(tokens, table), torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("name", BY_HAND)
def test_operator_follows_its_equation(name):
    """gate_cnn has zeros beyond the ends of the table."""
    base, _, activation = name.partition(" with ")
    options = {"activation": activation} if activation else {}
    check_by_hand(name, with_values(make_fusion(base, 3, **options)), n_tokens=4, n_rows=6)
    sizes = [{"hidden": 1}, {"hidden": 5}] if "mlp" in name else []
    sizes += [{"half_width": n} for n in (0, 1, 2)] if "cnn" in name else []
    for size, n_rows in product(sizes, (1, 2, 7)):
        operator = with_values(make_fusion(base, 3, **size, **options))
        check_by_hand(name, operator, n_tokens=n_rows, n_rows=n_rows)


def test_linear_starts_with_the_token_half_of_concat():
    for shared_stream in (False, True):
        linear, concat = (make_network(name, "learned") for name in ("linear", "concat"))
        for network in (linear, concat):
            initialize(network, 5, shared_stream)
        assert torch.equal(linear.fusion.weight_token, concat.fusion.weight_token)


def test_add_matched_leaves_zeros_at_zero():
    tokens, table = random_tensor(2, 3, 4), random_tensor(3, 4, seed=1)
    tokens[1, 2] = 0  # <pad>
    tokens.requires_grad_()
    operator = AddMatched(4)
    by_hand = table[2] / table[2].square().mean().sqrt()
    torch.testing.assert_close(operator(tokens, table)[1, 2], by_hand, rtol=0, atol=1e-9)
    without = operator(tokens, torch.zeros(3, 4, dtype=torch.float64))
    unit = torch.ones(5, dtype=torch.float64)
    torch.testing.assert_close(without.square().mean(-1).flatten()[:5], unit, rtol=0, atol=1e-9)
    assert not without[1, 2].any()
    without.sum().backward()
    assert tokens.grad.isfinite().all()


def test_the_mlps_biases_start_at_zero_or_as_those_of_linear_layers():
    torch.manual_seed(0)
    zero, linear = (MLP(512, hidden=128, biases=biases).mlp for biases in ("zero", "linear"))
    assert not zero.bias.any()
    assert not zero.bias_out.any()
    likes = nn.Linear(1024, 128), nn.Linear(128, 512)
    for found, like in zip((linear.bias, linear.bias_out), likes, strict=True):
        bound = like.in_features**-0.5
        assert 0.9 * bound < found.abs().max() <= bound
        assert found.std().item() == pytest.approx(like.bias.std().item(), rel=0.2)


@pytest.mark.parametrize("name", HALF_STARTS)
def test_gates_start_at_one_half(name):
    for d_model, encoding in ((8, "none"), (64, "sinusoidal"), (256, "learned")):
        torch.manual_seed(d_model)
        table = make_table(encoding, d_model, 50)().double()
        tokens = math.sqrt(d_model) * random_tensor(20, 50, d_model)
        operator = make_fusion(name, d_model).double()
        away = (operator.gate(*operator.parts(tokens, table)) - 0.5).abs()
        # The gates are normal about 0.5: among 256,000 of them a few lie a little further out.
        assert away.quantile(0.99) < 0.01
        assert away.max() < 0.02


def test_gates_start_from_the_bounds_of_their_layers():
    torch.manual_seed(0)
    d = 64

    def check(fan_in, *parameters):
        for parameter in parameters:
            assert 0.9 < parameter.abs().max() * fan_in**0.5 <= 1

    linear = GateFeature(d, start="linear")
    check(nn.Linear(2 * d, d).in_features, linear.weight_token, linear.weight_position, linear.bias)
    cnn = GateCNN(d, half_width=3, start="linear")
    check(nn.Conv1d(d, d, 7, groups=d).weight[0].numel(), cnn.weight)
    mlp = GateMLP(d, hidden=100, start="linear").mlp
    check(2 * d, mlp.weight_token, mlp.weight_position, mlp.bias)
    check(100, mlp.weight_out, mlp.bias_out)


@every_operator
def test_packed_in_any_order_equals_padded_of_any_length(name):
    for seed, lengths in enumerate(([5, 9, 1, 7], [3, 3], [1])):
        tokens = random_tensor(len(lengths), max(lengths), 4, seed=seed)
        table = random_tensor(11, 4, seed=seed + 100)
        valid = [(b, i) for b, length in enumerate(lengths) for i in range(length)]
        order = torch.randperm(len(valid), generator=torch.Generator().manual_seed(seed))
        documents, positions = torch.tensor(valid)[order].T
        packed = fuse(name, tokens[documents, positions], table, positions)
        padded = fuse(name, tokens, table)
        assert padded.shape == tokens.shape
        torch.testing.assert_close(packed, padded[documents, positions], rtol=0, atol=1e-12)
        short = fuse(name, tokens[:, : min(lengths)], table)
        torch.testing.assert_close(short, padded[:, : min(lengths)], rtol=0, atol=1e-12)


@every_operator
def test_gradients_reach_every_weight_from_the_start(name):
    torch.manual_seed(0)
    operator = make_fusion(name, 6).double()
    tokens, table = random_tensor(3, 9, 6, seed=1).requires_grad_(), random_tensor(9, 6, seed=2)
    (operator(tokens, table) * random_tensor(3, 9, 6, seed=3)).sum().backward()
    assert (tokens.grad != 0).all()
    for key, parameter in operator.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.isfinite().all(), key
        assert (parameter.grad != 0).all(), key


def test_impossible_options_are_refused():
    for name, options in (
        ("gate_cnn", {"half_width": -1}),
        ("mlp", {"hidden": 0}),
        ("mlp", {"activation": "tanh"}),
        ("mlp", {"biases": "one"}),
        ("gate_mlp", {"start": "zero"}),
        ("gate_scalar", {"start": "one"}),
    ):
        with pytest.raises(ValueError, match=next(iter(options))):
            make_fusion(name, 4, **options)


# Operators of a user with a mistake in `merge`, and what the message says of it.
MISTAKES = {
    "Half": (lambda e, p: (e + p)[..., :3], "Half.merge returns torch.Size([2, 3, 3]) for tokens "
             "(2, 3, 64) and a table (3, 64); return a tensor of the tokens' shape, (..., d)"),
    "Joined": (lambda e, p: (e, p), "Joined.merge returns no tensor for tokens (2, 3, 64)"),
    "Summed": (lambda e, p: e.sum(1, keepdim=True), "Summed.merge returns torch.Size([2, 1, 64])"),
    "Wide": (lambda e, p: torch.cat((e, e), -1) @ torch.ones(64, 64), "Wide.merge fails for "
             "tokens (2, 3, 64) and a table (3, 64) (mat1 and mat2 shapes"),
}  # fmt: skip


def built(name, monkeypatch, merge):
    own = type(name, (Add,), {"merge": lambda self, token, position: merge(token[0], position[0])})
    monkeypatch.setitem(sys.modules, "my_operators", SimpleNamespace(**{name: own}))
    return build_parts(checked(composed(f"fusion._target_=my_operators.{name}")))[0]


@pytest.mark.parametrize("name", MISTAKES)
def test_an_operator_that_returns_another_shape_is_named(name, monkeypatch):
    merge, expected = MISTAKES[name]
    with pytest.raises(ConfigError) as caught:
        built(name, monkeypatch, merge)
    assert f"fusion=add: {expected}" in str(caught.value)
    assert "\n" not in str(caught.value)


class Dropped(Add):
    def __init__(self, d_model):
        super().__init__(d_model)
        self.dropout = nn.Dropout(0.5)

    def merge(self, token, position):
        return self.dropout(token[0] + position[0])


def test_the_check_of_an_operator_draws_no_random_numbers():
    fusion, before = Dropped(4), torch.get_rng_state()
    check_merge(fusion)
    assert torch.equal(before, torch.get_rng_state())
    assert fusion.training
