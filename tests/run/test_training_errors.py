"""Training that fails: the message gives the step and the setting to change."""

import pytest
import torch

from posfuse.errors import Diverged, OutOfMemory
from posfuse.model.network import PositionClassifier
from posfuse.runs import records
from posfuse.train import train
from posfuse.training import run as run_module
from posfuse.training.classifier import Classifier
from refusals import refusal
from small_runs import small_config


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("trainer.accelerator=gpu", "trainer.accelerator: this machine has no gpu"),
        ("trainer.devices=2", "trainer.devices: must be at most 1, the number of GPUs"),
    ],
)
def test_a_device_that_is_missing_is_refused_before_the_data_is_read(
    given, message, corpus, tmp_path, monkeypatch
):
    monkeypatch.setattr("torch.cuda.device_count", lambda: int("devices" in given))
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: False)
    monkeypatch.setattr(run_module, "build_data", None)  # would fail
    cfg = small_config(corpus, "trainer.accelerator=auto", given)
    assert refusal(train, cfg, tmp_path).startswith(message)


def test_a_loss_that_is_not_finite_ends_the_run_with_its_step(corpus, tmp_path):
    with pytest.raises(Diverged, match=r"diverged at step \d+: .* lower optim.lr=1e\+30"):
        train(small_config(corpus, "optim.lr=1e30"), tmp_path)
    assert not (tmp_path / records.RESULT).exists()


def test_weights_that_are_not_finite_after_the_last_step_are_a_divergence(
    corpus, tmp_path, monkeypatch
):
    original = Classifier.on_validation_epoch_start

    def broken(self):
        torch.nn.init.constant_(next(self.parameters()), torch.nan)
        original(self)

    monkeypatch.setattr(Classifier, "on_validation_epoch_start", broken)
    with pytest.raises(Diverged, match="diverged at step 4: the loss is not finite"):
        train(small_config(corpus, "trainer.max_epochs=1"), tmp_path)
    assert not (tmp_path / records.RESULT).exists()


def limit_batches(monkeypatch, fits, training):
    """Let the network run out of memory above `fits` documents."""
    original = PositionClassifier.forward

    def limited(self, ids, lengths, *more):
        if len(ids) > fits and self.training == training:
            raise torch.OutOfMemoryError("no room")
        return original(self, ids, lengths, *more)

    monkeypatch.setattr(PositionClassifier, "forward", limited)


def test_out_of_memory_names_the_batch_size_to_try(corpus, tmp_path, monkeypatch):
    for size, fix in ((16, "try data.batch_size=8"), (1, "lower data.max_len or the model's size")):
        cfg = small_config(corpus, f"data.batch_size={size}")
        with monkeypatch.context() as patched:
            limit_batches(patched, 0, training=True)
            with pytest.raises(OutOfMemory, match=f"at step 0 with data.batch_size={size}; {fix}"):
                train(cfg, tmp_path / str(size))
    train(small_config(corpus), tmp_path / "16")


def test_out_of_memory_in_evaluation_names_its_own_batch_size(corpus, tmp_path, monkeypatch):
    limit_batches(monkeypatch, 5, training=False)
    with pytest.raises(OutOfMemory, match=r"=256; try data\.eval_batch_size=128"):
        train(small_config(corpus), tmp_path)
