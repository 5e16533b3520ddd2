"""Training that fails: the message gives the step and the setting to change."""

import pytest
import torch

from posfuse.errors import ConfigError, Diverged, OutOfMemory
from posfuse.model.network import PositionClassifier
from posfuse.runs import records
from posfuse.train import train
from posfuse.training.classifier import Classifier
from small_runs import before_calls, small_config


def test_a_loss_that_is_not_finite_ends_the_run_with_its_step(corpus, tmp_path):
    with pytest.raises(Diverged, match=r"diverged at step \d+: .* lower optim.lr=1e\+30"):
        train(small_config(corpus, "optim.lr=1e30"), tmp_path)
    assert not (tmp_path / records.RESULT).exists()


def test_weights_that_are_not_finite_after_the_last_step_are_a_divergence(
    corpus, tmp_path, monkeypatch
):
    def overflow(self):
        torch.nn.init.constant_(next(self.parameters()), torch.nan)

    before_calls(monkeypatch, Classifier, "on_validation_epoch_start", overflow)
    with pytest.raises(Diverged, match="diverged at step 4: the loss is not finite"):
        train(small_config(corpus, "trainer.max_epochs=1"), tmp_path)
    assert not (tmp_path / records.RESULT).exists()


def test_out_of_memory_names_the_batch_size_to_try(corpus, tmp_path, monkeypatch):
    for in_training, size, message in (
        (True, 16, "at step 0 with data.batch_size=16; try data.batch_size=8"),
        (True, 1, "at step 0 with data.batch_size=1; lower data.max_len or the model's size"),
        (False, 16, r"=256; try data\.eval_batch_size=128"),
    ):

        def full(self, *batch, fails=in_training):
            if self.training == fails:
                raise torch.OutOfMemoryError("no room")

        with monkeypatch.context() as patched:
            before_calls(patched, PositionClassifier, "forward", full)
            with pytest.raises(OutOfMemory, match=message):
                train(small_config(corpus, f"data.batch_size={size}"), tmp_path / str(size))
    train(small_config(corpus), tmp_path / "16")


def test_an_operator_whose_values_cannot_be_used_is_refused(corpus, tmp_path, own_module):
    code = "from posfuse.model.fusion import Add\nclass Own(Add):\n    "
    code += "def merge(self, token, position):\n        return token[0].double()"
    own_module("own_double", code)
    with pytest.raises(
        ConfigError, match=r"^fusion=add: Own.merge returns values of torch.float64"
    ):
        train(small_config(corpus, "fusion._target_=own_double.Own"), tmp_path)
