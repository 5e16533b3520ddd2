"""The optimiser of a run: its parameter groups and its learning rate at each step."""

import math
from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

from posfuse.config import OptimConfig
from posfuse.errors import InputError
from posfuse.model.network import learned_scalars

KINDS: dict[str, Any] = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam}


def optimizer(model: nn.Module, parameters: Iterable[Any], optim: OptimConfig) -> Any:
    """The optimiser of a module's parameters; `model` names its learned scalars.

    Learned scalars have the learning rate optim.scalar_lr_factor * optim.lr. With
    optim.weight_decay_of=matrices only parameters of two or more dimensions decay.
    """
    factor = optim.scalar_lr_factor
    scalars = {id(p) for p in learned_scalars(model)} if factor != 1 else set()
    groups: dict[tuple[bool, bool], list[Any]] = {}
    for parameter in parameters:
        is_free = optim.weight_decay_of == "matrices" and parameter.dim() < 2
        groups.setdefault((id(parameter) in scalars, is_free), []).append(parameter)
    options = [
        {
            "params": own,
            "lr": factor * optim.lr if is_scalar else optim.lr,
            "weight_decay": 0.0 if is_free else optim.weight_decay,
        }
        for (is_scalar, is_free), own in sorted(groups.items())
    ]
    return KINDS[optim.name](options, fused=True)


def schedule(updates: torch.optim.Optimizer, optim: OptimConfig, steps: int) -> LambdaLR:
    """The learning rates of a training of `steps` steps. Raises InputError as `check_warmup`."""
    check_warmup(optim, steps)
    return LambdaLR(updates, partial(rate_factor, optim=optim, steps=steps))


def check_warmup(optim: OptimConfig, steps: int) -> None:
    """Raise InputError if the warm-up takes all steps of the training."""
    if optim.warmup >= steps:
        raise InputError(
            f"optim.warmup: must be below {steps}, the number of training steps (got "
            f"{optim.warmup}); lower it, or raise trainer.max_epochs"
        )


def rate_factor(step: int, optim: OptimConfig, steps: int) -> float:
    """The learning rate of a step, counted from 0, as a fraction of optim.lr.

    It rises linearly from 1 / (warmup + 1) during optim.warmup steps. Then it is constant, or falls
    linearly or as half a cosine to optim.end_factor, which the step after the last one would have.
    """
    if step < optim.warmup:
        return (step + 1) / (optim.warmup + 1)
    done = min((step - optim.warmup) / (steps - optim.warmup), 1.0)
    left = {
        "constant": 1.0,
        "linear": 1 - done,
        "cosine": (1 + math.cos(math.pi * done)) / 2,
    }[optim.schedule]
    return optim.end_factor + (1 - optim.end_factor) * left
