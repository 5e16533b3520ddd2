"""Unbalanced classes: the weights of the loss, and macro F1 that selects the best checkpoint."""

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from sklearn.metrics import f1_score
from sklearn.utils.class_weight import compute_class_weight

from posfuse.runs import records
from posfuse.train import train
from posfuse.training.build import build_data, build_module
from posfuse.training.classifier import balanced_weights
from small_corpora import labelled, write_splits
from small_runs import small_config

LABELS = np.array([0] * 30 + [1] * 8 + [3] * 2)  # no document of class 2


def test_weights_are_those_of_scikit_learn():
    expected = compute_class_weight("balanced", classes=np.array([0, 1, 3]), y=LABELS)
    weights = balanced_weights(LABELS, 4)
    assert weights[[0, 1, 3]].tolist() == pytest.approx(expected.tolist())
    assert weights[2] == 0
    assert weights[LABELS].mean().item() == pytest.approx(1)


@pytest.fixture(scope="module")
def unbalanced(tmp_path_factory):
    """Texts whose words are noise, 5 of 6 documents of one class."""
    draw, frames = np.random.default_rng(0), {}
    for split, size in {"train": 60, "validation": 24, "test": 24}.items():
        texts = [" ".join(f"w{word}" for word in draw.integers(9, size=6)) for _ in range(size)]
        frames[split] = labelled(texts, np.resize([0, 0, 1, 0, 0, 0], size))
    return write_splits(tmp_path_factory.mktemp("unbalanced"), **frames)


def test_the_loss_is_weighted(unbalanced, tmp_path, monkeypatch):
    """The first loss of a run against cross-entropy with scikit-learn's weights."""
    cfg = small_config(unbalanced, "task.class_weights=balanced", "model.dropout=0")
    data = build_data(cfg)
    module, losses = build_module(cfg, data), []
    expected = compute_class_weight("balanced", classes=np.array([0, 1]), y=[0] * 50 + [1] * 10)
    batch = data.documents["train"][next(iter(data.train_dataloader().sampler))]
    logits = module.model(batch.ids, batch.lengths)
    weights = torch.tensor(expected, dtype=torch.float32)[batch.labels]
    each = F.cross_entropy(logits, batch.labels, reduction="none")
    original = type(module).step_loss

    def spied(self, loss, *arguments):
        losses.append(loss.item())
        return original(self, loss, *arguments)

    monkeypatch.setattr(type(module), "step_loss", spied)
    train(cfg, tmp_path)
    assert losses[0] == pytest.approx((weights * each).mean().item(), rel=1e-5)


def test_macro_f1_chooses_the_best_evaluation(unbalanced, tmp_path):
    options = ["task.class_weights=balanced", "trainer.monitor=macro_f1", "optim.lr=0.03"]
    record = train(small_config(unbalanced, *options), tmp_path)
    history = pd.read_csv(tmp_path / records.HISTORY)
    assert record["best_evaluation"] == int(history["val_macro_f1"].idxmax()) + 1
    predictions = pd.read_parquet(tmp_path / records.PREDICTIONS)
    f1 = f1_score(predictions["label"], predictions["predicted"], average="macro")
    assert record["test"]["macro_f1"] == pytest.approx(f1)
