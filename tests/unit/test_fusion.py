"""Each operator against its equation in plain Python, and properties of all operators."""

import math
from itertools import product

import pytest
import torch

from literal_scores import dot, gelu
from posfuse.model.controls import AddMatched
from posfuse.model.fusion import MLP, GateCNN, Gated, GateFeature, GateMLP
from posfuse.model.network import initialize
from variants import OPERATORS, make_fusion, make_network, make_table, random_tensor, randomized

GATED = [name for name in OPERATORS if isinstance(make_fusion(name, 8), Gated)]
HALF_STARTS = [name for name in GATED if not name.endswith("_linear_start")]

# The equations in plain Python: E and P are lists of rows, w maps a parameter's name to lists,
# i is the position and f the feature.


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


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


def linear_gate(w, row, E_i, P_i):
    """Eq. 3."""
    return sigmoid(joined(w, row, E_i, P_i) + w["bias"][row])


def gate_cnn_gate(weight, P, i):
    """Eq. 5, summed over the channels; rows beyond the ends are zero."""
    K = (len(weight[0][0]) - 1) // 2
    near = [k for k in range(-K, K + 1) if 0 <= i + k < len(P)]
    return sigmoid(sum(w[k + K] * P[i + k][c] for c, w in enumerate(weight[0]) for k in near))


BY_HAND = {
    "none": lambda w, E, P, i, f: E[i][f],
    "add": lambda w, E, P, i, f: E[i][f] + P[i][f],
    "add_scaled": lambda w, E, P, i, f: E[i][f] + w["alpha"] * P[i][f],
    "mul": lambda w, E, P, i, f: E[i][f] * P[i][f],
    "concat": lambda w, E, P, i, f: joined(w, f, E[i], P[i]),
    "linear": lambda w, E, P, i, f: dot(w["weight_token"][f], E[i]) + P[i][f],
    "add_matched": lambda w, E, P, i, f: E[i][f] / rms(E[i]) + P[i][f] / rms(P[i]),
    "gate_constant": lambda w, E, P, i, f: mix(sigmoid(w["bias"][0]), E[i][f], P[i][f]),
    "gate_scalar": lambda w, E, P, i, f: mix(linear_gate(w, 0, E[i], P[i]), E[i][f], P[i][f]),
    "gate_feature": lambda w, E, P, i, f: mix(linear_gate(w, f, E[i], P[i]), E[i][f], P[i][f]),
    "gate_cnn": lambda w, E, P, i, f: mix(gate_cnn_gate(w["weight"], P, i), E[i][f], P[i][f]),
    "gate_mlp": lambda w, E, P, i, f: mix(sigmoid(mlp(w, f, E[i], P[i])), E[i][f], P[i][f]),
    "mlp": lambda w, E, P, i, f: mlp(w, f, E[i], P[i]),
    "mlp with relu": lambda w, E, P, i, f: mlp(w, f, E[i], P[i], lambda x: max(0.0, x)),
}


@pytest.mark.parametrize("name", [*OPERATORS, "mlp with relu"])
def test_operator_follows_its_equation(name):
    equation, base = BY_HAND[name.removesuffix("_linear_start")], name.removesuffix(" with relu")
    options = {"activation": "relu"} if "relu" in name else {}
    sizes = [{}]
    sizes += [{"hidden": 1}, {"hidden": 5}] if "mlp" in name else []
    sizes += [{"half_width": n} for n in (0, 1, 2)] if "cnn" in name else []
    for size, (n_tokens, n_rows) in product(sizes, ((1, 1), (4, 6), (7, 7))):
        operator = randomized(make_fusion(base, 3, **size, **options).double())
        tokens, table = random_tensor(n_tokens, 3, seed=1), random_tensor(n_rows, 3, seed=2)
        w = {key: parameter.tolist() for key, parameter in operator.named_parameters()}
        E, P = tokens.tolist(), table.tolist()
        by_hand = [[equation(w, E, P, i, f) for f in range(3)] for i in range(n_tokens)]
        expected = torch.tensor(by_hand, dtype=torch.float64)
        torch.testing.assert_close(operator(tokens, table), expected, rtol=0, atol=1e-12)


def test_linear_starts_with_the_token_half_of_concat():
    for shared_stream in (False, True):
        linear, concat = (make_network(name, "learned") for name in ("linear", "concat"))
        for network in (linear, concat):
            initialize(network, 5, shared_stream)
        assert torch.equal(linear.fusion.weight_token, concat.fusion.weight_token)


def test_add_matched_leaves_zeros_at_zero():
    tokens = random_tensor(2, 4)
    tokens[1] = 0  # <pad>
    fused = AddMatched(4)(tokens.requires_grad_(), torch.zeros(2, 4, dtype=torch.float64))
    assert fused[0].square().mean().item() == pytest.approx(1, abs=1e-9)
    assert not fused[1].any()
    fused.sum().backward()
    assert tokens.grad.isfinite().all()


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


def test_layers_start_as_linear_ones_where_asked():
    """From U(-b, b) with b = 1 / sqrt(inputs)."""
    torch.manual_seed(0)
    for operator, inputs in (
        (GateFeature(64, start="linear"), 128),
        (GateCNN(64, half_width=3, start="linear"), 7),
        (GateMLP(64, hidden=100, start="linear").mlp, 128),
        (MLP(64, hidden=100, biases="linear").mlp, 128),
    ):
        for name, parameter in operator.named_parameters():
            bound = (100 if "_out" in name else inputs) ** -0.5
            assert 0.95 * bound < parameter.abs().max() <= bound, name
            assert parameter.std().item() == pytest.approx(bound / 3**0.5, rel=0.2), name
    mlp = MLP(64).mlp
    assert not mlp.bias.any()
    assert not mlp.bias_out.any()


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
