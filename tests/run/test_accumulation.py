"""Several batches per step and a learning-rate schedule, against a plain loop of torch."""

import copy

import pandas as pd
import pytest
import torch
import torch.nn.functional as F

from posfuse.model.network import PositionClassifier
from posfuse.runs import records
from posfuse.train import train
from posfuse.training.build import build_data, build_module
from posfuse.training.checkpoints import read_checkpoint
from posfuse.training.optimizer import optimizer, rate_factor
from processes import assert_same_files
from small_runs import before_calls, interrupted, small_config

EPOCHS, BATCHES, IN_STEP = 2, 4, 3  # 60 documents in batches of 16: steps of 3 batches and of 1
OPTIONS = [
    f"trainer.max_epochs={EPOCHS}", f"trainer.accumulate={IN_STEP}", "optim.schedule=cosine",
    "optim.warmup=1", "optim.weight_decay=0.1", "optim.weight_decay_of=matrices",
]  # fmt: skip


def test_a_step_is_the_mean_of_its_batches(corpus, tmp_path):
    cfg = small_config(corpus, *OPTIONS, "model.dropout=0")
    train(cfg, tmp_path)
    data = build_data(cfg)
    module = build_module(cfg, data)
    updates, step = optimizer(module.model, module.parameters(), cfg.optim), 0
    sampler, states = data.train_dataloader().sampler, {}
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        batches = [data.documents["train"][members] for members in sampler]
        assert len(batches) == BATCHES
        for first in range(0, BATCHES, IN_STEP):
            own = batches[first : first + IN_STEP]
            for group in updates.param_groups:
                group["lr"] = cfg.optim.lr * rate_factor(step, cfg.optim, steps=4)
            updates.zero_grad()
            losses = [F.cross_entropy(module.model(b.ids, b.lengths), b.labels) for b in own]
            torch.stack(losses).mean().backward()
            torch.nn.utils.clip_grad_norm_(module.parameters(), cfg.trainer.clip_norm)
            updates.step()
            step += 1
            states[step] = copy.deepcopy(module.state_dict())
    assert step == 4
    best = read_checkpoint(tmp_path / records.BEST)
    for name, value in states[best["global_step"]].items():  # at the end of an epoch
        if not name.endswith("qkv_bias"):  # the gradients of the keys' biases are rounding errors
            torch.testing.assert_close(best["state_dict"][name], value, msg=name)


def test_an_interrupted_step_is_finished_and_the_resumed_run_is_the_same(corpus, tmp_path):
    cfg = small_config(corpus, *OPTIONS, "trainer.accumulate=2", "logger.every_steps=1")
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    for folder in (whole, resumed):
        folder.mkdir()
    train(cfg, whole)
    assert interrupted(cfg, resumed, 2).endswith("saved at step 3")
    train(cfg, resumed)
    assert_same_files(whole, resumed)
    steps = [pd.read_csv(folder / records.STEPS) for folder in (whole, resumed)]
    pd.testing.assert_frame_equal(*steps)
    assert steps[0]["step"].tolist() == [1, 2, 3, 4]  # 2 in each epoch
    rates = [cfg.optim.lr * rate_factor(step, cfg.optim, steps=4) for step in range(4)]
    assert steps[0]["lr"].tolist() == pytest.approx(rates)
    losses = steps[0]["train_loss"].to_numpy().reshape(EPOCHS, 2)
    for own, mean in zip(losses, pd.read_csv(whole / records.HISTORY)["train_loss"], strict=True):
        either = [own @ [32 / 60, 28 / 60], own @ [28 / 60, 32 / 60]]  # documents of its steps
        assert mean in (pytest.approx(either[0]), pytest.approx(either[1]))


def test_the_batches_of_a_step_have_their_own_dropout(corpus, tmp_path, monkeypatch):
    seeds = set()

    def note(self, *batch):
        if self.training:
            seeds.add(torch.initial_seed())

    before_calls(monkeypatch, PositionClassifier, "forward", note)
    train(small_config(corpus, *OPTIONS, "trainer.max_epochs=1"), tmp_path)
    assert len(seeds) == BATCHES
