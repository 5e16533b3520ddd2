"""Training a language model: its loss, its metrics, and its results on a test split.

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
from posfuse.process.distributed import gathered
from posfuse.training.module import TrainingModule


class NextToken(TrainingModule):
    """Trains a LanguageModel with the cross-entropy of the targets, in nats.

    Accuracy is the share of the targets that have the highest logit, given all tokens before them.
    Of texts as bytes, bits_per_byte is the loss in bits. Of answers, exact_match is the share of
    strings whose targets are all right; greedy decoding finds the same, since a first wrong token
    makes both wrong.
    """

    def __init__(
        self, model: LanguageModel, optim: OptimConfig, seed: int, reads_bytes: bool
    ) -> None:
        super().__init__(model, optim, seed)
        self.reads_bytes = reads_bytes

    def training_step(self, batch: Batch, batch_number: int) -> Tensor:
        positions = self.positions_of_step(batch)
        logits = self.model(batch.ids, batch.lengths, positions)
        loss = F.cross_entropy(logits.flatten(0, 1), batch.labels.flatten(), ignore_index=IGNORED)
        return self.counted(loss, batch, int((batch.labels != IGNORED).sum()))

    def validation_step(self, batch: Batch, batch_number: int) -> None:
        found = scores(self.model(batch.ids, batch.lengths).float(), batch)
        n = int(found["targets"].sum())
        loss = found["loss"].sum() / n
        self.log_mean("val/loss", loss, n)
        self.log_mean("val/accuracy", found["right"].sum() / n, n)
        if self.reads_bytes:
            self.log_mean("val/bits_per_byte", loss / math.log(2), n)
        else:
            exact = (found["right"] == found["targets"]).double().mean()
            self.log_mean("val/exact_match", exact, len(batch.index))

    def test_step(self, batch: Batch, batch_number: int) -> None:
        found = scores(self.timed_logits(batch), batch)
        self.predictions.append(
            {"index": batch.index.cpu()} | {k: v.cpu() for k, v in found.items()}
        )

    def tested(
        self, metrics: dict[str, float], documents: Documents
    ) -> tuple[dict[str, float], pd.DataFrame]:
        every = gathered(self.predictions)
        parts = {k: np.concatenate([batch[k] for batch in every]) for k in every[0]}
        frame = pd.DataFrame(parts).sort_values("index", ignore_index=True)
        frame.insert(1, "length", documents.whole_lengths[frame["index"]])
        frame.insert(2, "group", documents.groups[frame["index"]])
        loss = float(frame["loss"].sum() / frame["targets"].sum())
        found = {"loss": loss, "accuracy": float(frame["right"].sum() / frame["targets"].sum())}
        if self.reads_bytes:
            return found | {"bits_per_byte": loss / math.log(2)}, frame
        return found | {"exact_match": float((frame["right"] == frame["targets"]).mean())}, frame


def scores(logits: Tensor, batch: Batch) -> dict[str, Tensor]:
    """By window or string, (B,): its number of `targets`, how many of them are `right`, and the sum
    of their losses in nats, `loss`."""
    each = F.cross_entropy(
        logits.flatten(0, 1), batch.labels.flatten(), ignore_index=IGNORED, reduction="none"
    ).view_as(batch.labels)
    is_target = batch.labels != IGNORED
    right = (logits.argmax(-1) == batch.labels) & is_target
    return {"targets": is_target.sum(1), "right": right.sum(1), "loss": each.double().sum(1)}
