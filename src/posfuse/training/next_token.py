"""Trains and tests a language model: its loss, its metrics, and its results on a test split.

Shapes: B windows or strings, L tokens.
"""

import math

import numpy as np
import pandas as pd
import torch.nn.functional as F
from torch import Tensor

from posfuse.config import OptimConfig
from posfuse.data.batching import Batch, Documents
from posfuse.data.windows import IGNORED
from posfuse.model.language_model import LanguageModel
from posfuse.process.distributed import items_of_all
from posfuse.runs.measurements import LOSS_BY_POSITION, WHOLE, Measurement
from posfuse.training.diagnostics import bins
from posfuse.training.module import TrainingModule


class NextToken(TrainingModule):
    """Trains a LanguageModel with the cross-entropy of the targets, in nats.

    Accuracy is the fraction of targets with the highest logit, given all tokens before them. With
    `is_bytes`, bits_per_byte is the loss in bits.
    """

    model: LanguageModel

    def __init__(
        self, model: LanguageModel, optim: OptimConfig, seed: int, is_bytes: bool = False
    ) -> None:
        super().__init__(model, optim, seed)
        self.is_bytes = is_bytes
        # For each batch of the last test: the sum of the losses at each place, and their number.
        self.by_position: list[tuple[Tensor, Tensor]] = []

    def training_step(self, batch: Batch, batch_number: int) -> Tensor:
        positions = self.positions_of_step(batch)
        logits = self.model(batch.ids, batch.lengths, positions)
        loss = F.cross_entropy(logits.flatten(0, 1), batch.labels.flatten(), ignore_index=IGNORED)
        return self.step_loss(loss, batch, int((batch.labels != IGNORED).sum()))

    def validation_step(self, batch: Batch, batch_number: int) -> None:
        logits = self.model(batch.ids, batch.lengths).float()
        self.log_scores(self.scores(logits, token_losses(logits, batch), batch))

    def log_scores(self, scores: dict[str, Tensor]) -> int:
        """Log the validation metrics of a batch's `scores`. Returns its number of targets."""
        n = int(scores["targets"].sum())
        loss = scores["loss"].sum() / n
        self.log_mean("val/loss", loss, n)
        self.log_mean("val/accuracy", scores["right"].sum() / n, n)
        if self.is_bytes:
            self.log_mean("val/bits_per_byte", loss / math.log(2), n)
        return n

    def test_step(self, batch: Batch, batch_number: int) -> None:
        logits = self.timed_logits(batch)
        losses = token_losses(logits, batch)
        self.by_position.append((losses.sum(0).cpu(), (batch.labels != IGNORED).sum(0).cpu()))
        scores = {"index": batch.index, **self.scores(logits, losses, batch)}
        self.predictions.append({name: values.cpu() for name, values in scores.items()})

    def scores(self, logits: Tensor, losses: Tensor, batch: Batch) -> dict[str, Tensor]:
        """By window or string, (B,): the number of `targets`, the number of `right` ones, and
        `loss`, the sum of their losses in nats. The batch has the logits (B, L, V) and the losses
        (B, L)."""
        is_target = batch.labels != IGNORED
        right = (logits.argmax(-1) == batch.labels) & is_target
        return {"targets": is_target.sum(1), "right": right.sum(1), "loss": losses.sum(1)}

    def on_test_epoch_start(self) -> None:
        super().on_test_epoch_start()
        self.by_position = []

    def measurements(self) -> list[Measurement]:
        every = items_of_all(self.by_position)
        length = max(len(losses) for losses, _ in every)
        total, count = np.zeros(length), np.zeros(length, dtype=np.int64)
        for losses, targets in every:
            total[: len(losses)] += losses.numpy()
            count[: len(targets)] += targets.numpy()
        lows, highs = bins(np.arange(length), 2)
        by_place = []
        for low in np.unique(lows):
            chosen = lows == low
            n, high = int(count[chosen].sum()), min(int(highs[chosen][0]), length - 1)
            if n:
                value = float(total[chosen].sum() / n)
                by_place.append(Measurement(LOSS_BY_POSITION, WHOLE, n, value, int(low), high))
        return by_place

    def results(
        self, metrics: dict[str, float], documents: Documents
    ) -> tuple[dict[str, float], pd.DataFrame]:
        table = self.prediction_table(documents)  # of `scores`
        by_target = table.sum() / table["targets"].sum()
        metrics = {"loss": float(by_target["loss"]), "accuracy": float(by_target["right"])}
        if self.is_bytes:
            metrics["bits_per_byte"] = metrics["loss"] / math.log(2)
        return metrics, table


class NextAnswer(NextToken):
    """Trains a LanguageModel on questions with answers.

    exact_match is the fraction of strings (with targets) that have no wrong target. It is the same
    in greedy decoding, because both fail at the first wrong token. greedy_accuracy is the fraction
    of targets that greedy decoding gets right. Greedy decoding reads its own tokens; accuracy reads
    the right ones.
    """

    def scores(self, logits: Tensor, losses: Tensor, batch: Batch) -> dict[str, Tensor]:
        """The scores of NextToken, (B,), and `greedy_right`, the number of targets that greedy
        decoding gets right."""
        is_target = batch.labels != IGNORED
        decoded = self.model.decode(batch.ids, is_target)
        greedy_right = ((decoded == batch.labels) & is_target).sum(1)
        return {**super().scores(logits, losses, batch), "greedy_right": greedy_right}

    def log_scores(self, scores: dict[str, Tensor]) -> int:
        n, asked = super().log_scores(scores), scores["targets"] > 0
        exact = (scores["right"] == scores["targets"])[asked].double().mean()
        self.log_mean("val/exact_match", exact, int(asked.sum()))
        self.log_mean("val/greedy_accuracy", scores["greedy_right"].sum() / n, n)
        return n

    def results(
        self, metrics: dict[str, float], documents: Documents
    ) -> tuple[dict[str, float], pd.DataFrame]:
        metrics, table = super().results(metrics, documents)
        asked = table[table["targets"] > 0]
        metrics["exact_match"] = float((asked["right"] == asked["targets"]).mean())
        metrics["greedy_accuracy"] = float(table["greedy_right"].sum() / table["targets"].sum())
        return metrics, table


def token_losses(logits: Tensor, batch: Batch) -> Tensor:
    """The loss of each token's target in nats, 0 if it has none: (B, L)."""
    losses = F.cross_entropy(
        logits.flatten(0, 1), batch.labels.flatten(), ignore_index=IGNORED, reduction="none"
    ).view_as(batch.labels)
    return losses.double()
