"""Learning-rate schedules against torch's own, parameter groups, and batches of a step."""

import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR

from posfuse.config import OptimConfig
from posfuse.data.batching import LengthBatches
from posfuse.data.datamodule import TextDataModule
from posfuse.data.evaluations import Evaluations
from posfuse.errors import InputError
from posfuse.model.network import learned_scalars
from posfuse.training.optimizer import optimizer, rate_factor, schedule
from variants import make_network

STEPS, LR = 50, 1e-3


def rates(scheduler):
    """The learning rate of each step."""
    updates, seen = scheduler.optimizer, []
    for _ in range(STEPS):
        seen.append(updates.param_groups[0]["lr"])
        updates.step()
        scheduler.step()
    return seen


def sgd():
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=LR)


@pytest.mark.parametrize("warmup", [0, 1, 7])
@pytest.mark.parametrize("kind", ["constant", "linear", "cosine"])
def test_rates_are_those_of_torchs_schedulers(kind, warmup):
    end = 0.0 if kind == "constant" else 0.1
    optim = OptimConfig(lr=LR, schedule=kind, warmup=warmup, end_factor=end)
    updates, left = sgd(), STEPS - warmup
    after = {
        "constant": lambda: LinearLR(updates, 1.0, 1.0, left),
        "linear": lambda: LinearLR(updates, 1.0, end, left),
        "cosine": lambda: CosineAnnealingLR(updates, left, eta_min=end * LR),
    }[kind]
    expected = after()
    if warmup:
        rise = LinearLR(updates, 1 / (warmup + 1), 1.0, warmup)
        expected = SequentialLR(updates, [rise, expected], [warmup])
    assert rates(schedule(sgd(), optim, STEPS)) == pytest.approx(rates(expected))
    after_the_last = 1.0 if kind == "constant" else end
    assert rate_factor(60, optim, STEPS) == pytest.approx(after_the_last)


def test_a_warm_up_needs_fewer_steps_than_the_run():
    with pytest.raises(InputError, match=r"optim.warmup: must be below 50, .* \(got 50\)"):
        schedule(sgd(), OptimConfig(warmup=50), STEPS)


@pytest.mark.parametrize("factor", [1.0, 30.0])
def test_matrices_alone_decay(factor):
    """One step without gradients moves a parameter by its weight decay alone."""
    network = make_network("gate_scalar", token_scale="learned")
    before = copy.deepcopy(network)
    optim = OptimConfig(lr=0.1, weight_decay=0.5, weight_decay_of="matrices")
    optim.scalar_lr_factor = factor
    updates = optimizer(network, network.parameters(), optim)
    for parameter in network.parameters():
        parameter.grad = torch.zeros_like(parameter)
    updates.step()
    assert sum(len(g["params"]) for g in updates.param_groups) == len([*network.parameters()])
    scalars = {id(p) for p in learned_scalars(network)}
    for (name, old), new in zip(before.named_parameters(), network.parameters(), strict=True):
        rate = 0.1 * factor if id(new) in scalars else 0.1
        kept = 1 - rate * 0.5 if new.dim() >= 2 else 1.0
        torch.testing.assert_close(new.data, kept * old.data, msg=name)


def test_a_part_of_an_epoch_ends_a_step():
    """11 batches in 2 parts are 5 and 6; steps of 4 batches: 4 + 1 and 4 + 2."""
    sampler = LengthBatches(np.ones(22), 2, 50, 0, evaluations=Evaluations(2))
    data = SimpleNamespace(evaluations=Evaluations(2), _sampler=lambda: sampler)
    assert TextDataModule.steps_of_epoch(data, 4) == 4
    assert TextDataModule.steps_of_epoch(data, 1) == 11
