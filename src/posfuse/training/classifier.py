"""Trains and tests a classifier: its loss, its metrics, and its predictions on a test split.

Shapes: B documents, C classes.
"""

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score

from posfuse.config import OptimConfig
from posfuse.data.batching import Batch, Documents
from posfuse.model.network import PositionClassifier
from posfuse.training.module import TrainingModule


class MacroF1(MulticlassF1Score):
    """Counts each class alone, (B, C) numbers. With deterministic algorithms torchmetrics counts
    pairs of classes, (B, C^2) numbers: 8 GB for 2,000 classes and 256 documents."""

    tp: Tensor  # (C,), as fp and fn
    fp: Tensor
    fn: Tensor

    def update(self, preds: Tensor, target: Tensor) -> None:
        """preds: logits (B, C); target (B,)."""
        classes = torch.arange(preds.shape[-1], device=preds.device)
        predicted, true = preds.argmax(-1, keepdim=True) == classes, target[:, None] == classes
        self.tp += (predicted & true).sum(0)
        self.fp += (predicted & ~true).sum(0)
        self.fn += (~predicted & true).sum(0)


class Classifier(TrainingModule):
    """Trains a PositionClassifier with cross-entropy; accuracy is micro, F1 is macro.

    With `balanced` the loss of a training document is weighted by its class, as with
    class_weight="balanced" in scikit-learn. Losses of validation and test have no weights.
    """

    model: PositionClassifier
    weights: Tensor  # (C,), of the classes in the training loss

    def __init__(
        self,
        model: PositionClassifier,
        optim: OptimConfig,
        n_classes: int,
        seed: int,
        balanced: bool = False,
    ) -> None:
        super().__init__(model, optim, seed)
        self.balanced, self.n_classes = balanced, n_classes
        self.register_buffer("weights", torch.ones(n_classes), persistent=False)
        metrics = MetricCollection(
            {
                # The corpus reader has checked the labels; a check here would wait for the GPU.
                "accuracy": MulticlassAccuracy(n_classes, average="micro", validate_args=False),
                "macro_f1": MacroF1(n_classes, average="macro", validate_args=False),
            }
        )
        self.val_metrics = metrics.clone(prefix="val/")
        self.test_metrics = metrics.clone(prefix="test/")

    def setup(self, stage: str) -> None:
        if self.balanced and stage == "fit":
            labels = self.trainer.datamodule.documents["train"].split.labels  # type: ignore[attr-defined]
            self.weights.copy_(balanced_weights(labels, self.n_classes))

    def training_step(self, batch: Batch, batch_number: int) -> Tensor:
        positions = self.positions_of_step(batch)
        logits, n = self.model(batch.ids, batch.lengths, positions), len(batch.labels)
        if self.balanced:
            # Not divided by the batch's sum of weights, so a document counts the same in any batch.
            loss = F.cross_entropy(logits, batch.labels, self.weights, reduction="sum") / n
        else:
            loss = F.cross_entropy(logits, batch.labels)
        return self.step_loss(loss, batch, n)

    def validation_step(self, batch: Batch, batch_number: int) -> None:
        logits = self.model(batch.ids, batch.lengths).float()
        self.val_metrics.update(logits, batch.labels)
        loss = F.cross_entropy(logits, batch.labels)
        self.log_mean("val/loss", loss, len(batch.labels))
        self.log_dict(self.val_metrics)  # of the whole split

    def test_step(self, batch: Batch, batch_number: int) -> None:
        logits = self.timed_logits(batch)
        log_probabilities = logits.log_softmax(-1)
        self.test_metrics.update(logits, batch.labels)
        loss = F.nll_loss(log_probabilities, batch.labels)
        self.log_mean("test/loss", loss, len(batch.labels))
        self.log_dict(self.test_metrics)
        self.predictions.append(
            {
                "index": batch.index.cpu(),
                "label": batch.labels.cpu(),
                "predicted": log_probabilities.argmax(-1).cpu(),
                "log_p": log_probabilities.cpu(),
            }
        )

    def results(
        self, metrics: dict[str, float], documents: Documents
    ) -> tuple[dict[str, float], pd.DataFrame]:
        table = self.prediction_table(documents)
        # In double precision, so that equal gains are ties in a rank test.
        right = int((table["predicted"] == table["label"]).sum())
        return {**metrics, "accuracy": right / len(table)}, table


def balanced_weights(labels: np.ndarray, n_classes: int) -> Tensor:
    """Weights (C,) so that each class has the same sum over the labels (documents,), and the mean
    over the documents is 1. A class without documents has the weight 0."""
    counts = np.bincount(labels, minlength=n_classes)
    present = counts > 0
    shares = np.where(present, len(labels) / (present.sum() * np.maximum(counts, 1)), 0.0)
    return torch.from_numpy(shares).float()
