"""Learned scalars: which parameters they are, and their own learning rate."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from posfuse.config import OptimConfig
from posfuse.model.fusion import GateMLP
from posfuse.model.network import learned_scalars
from posfuse.training.classifier import Classifier
from variants import ENCODINGS, OPERATORS, batch_of, make_attention, make_fusion, make_network

BATCH = batch_of([3, 4, 5, 6], [9, 8, 7, 2])
SCALARS = {
    "add_scaled": {"alpha"},
    "gate_constant": {"bias"},
    "gate_scalar": {"bias"},
    "gate_feature": {"bias"},
    "gate_mlp": {"mlp.bias_out"},
}


def names_of(module):
    found = {id(p) for p in learned_scalars(module)}
    return {name for name, p in module.named_parameters() if id(p) in found}


def test_the_scalars_of_every_operator_and_encoding():
    for name in OPERATORS:
        expected = SCALARS.get(name.removesuffix("_linear_start"), set())
        assert names_of(make_fusion(name, 4)) == expected, name
    scaled = make_network("gate_scalar", token_scale="learned")
    assert names_of(scaled) == {"fusion.bias", "token_scale.log_scale"}
    inside = {"kerple": {"raw_r1", "raw_r2"}, "fire": {"log_c", "log_threshold"}}
    for name in ENCODINGS:
        attention = make_attention(name) or nn.Identity()
        assert names_of(attention) == inside.get(name, set()), name


def stepped(fusion, **optim):
    """The change of each parameter in one step of the optimiser, and the learning rates."""
    network = make_network(fusion, "learned", token_scale="learned")
    before = {name: p.detach().clone() for name, p in network.named_parameters()}
    optimizer = Classifier(network, OptimConfig(**optim), 3, seed=0).configure_optimizers()
    torch.manual_seed(0)
    F.cross_entropy(network(BATCH.ids, BATCH.lengths), BATCH.labels).backward()
    optimizer.step()
    moved = {name: p.detach() - before[name] for name, p in network.named_parameters()}
    return moved, [group["lr"] for group in optimizer.param_groups]


@pytest.mark.parametrize("kind", ["adam", "adamw"])
def test_the_first_step_moves_a_scalar_by_the_factor(kind):
    """Adam's first step has the size of the learning rate, whatever the gradient is."""
    for name in ("add_scaled", "gate_constant", "gate_feature", "gate_mlp"):
        plain, _ = stepped(name, name=kind, lr=1e-3)
        faster, rates = stepped(name, name=kind, lr=1e-3, scalar_lr_factor=50.0)
        scalars = {f"fusion.{key}" for key in SCALARS[name]} | {"token_scale.log_scale"}
        assert rates == [1e-3, 0.05]
        for key, moved in plain.items():
            if key in scalars:
                torch.testing.assert_close(faster[key], 50 * moved, rtol=1e-3, atol=1e-6)
                assert moved.abs().max().item() == pytest.approx(1e-3, rel=0.01)
            else:
                assert torch.equal(faster[key], moved), (name, key)


def test_without_a_factor_or_scalars_one_group_has_all_parameters():
    scaled = make_network("gate_scalar", token_scale="learned")
    for network, factor in ((scaled, 1.0), (make_network("concat"), 9.0)):
        optim = OptimConfig(scalar_lr_factor=factor)
        (group,) = Classifier(network, optim, 3, seed=0).configure_optimizers().param_groups
        assert [*map(id, group["params"])] == [*map(id, network.parameters())]


def test_a_scalar_that_two_modules_name_counts_once():
    gate = GateMLP(4)
    gate.mlp.scalars = ("bias_out",)
    assert len(learned_scalars(gate)) == 1
