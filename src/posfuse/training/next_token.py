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
from posfuse.runs.measurements import LOSS_BY_POSITION, WHOLE, Measurement
from posfuse.training.diagnostics import bins
from posfuse.training.module import TestedModule


class NextToken(TestedModule):
    """Trains a LanguageModel with the cross-entropy of the targets, in nats.

    Accuracy is the share of the targets that have the highest logit, given all tokens before them.
    Of texts as bytes, bits_per_byte is the loss in bits. Of answers, exact_match is the share of
    the strings with targets whose targets are all right; greedy decoding finds the same, since a
    first wrong token makes both wrong. greedy_accuracy is the share of the targets that greedy
    decoding finds, which reads its own tokens where accuracy reads the right ones.
    """

    model: LanguageModel

    def __init__(
        self, model: LanguageModel, optim: OptimConfig, seed: int, is_text: bool, is_bytes: bool
    ) -> None:
        super().__init__(model, optim, seed)
        self.is_text, self.is_bytes = is_text, is_bytes
        # For each batch of the last test: the sum of the losses at each place, and their number.
        self.by_position: list[tuple[Tensor, Tensor]] = []

    def training_step(self, batch: Batch, batch_number: int) -> Tensor:
        positions = self.positions_of_step(batch)
        logits = self.model(batch.ids, batch.lengths, positions)
        loss = F.cross_entropy(logits.flatten(0, 1), batch.labels.flatten(), ignore_index=IGNORED)
        return self.counted(loss, batch, int((batch.labels != IGNORED).sum()))

    def validation_step(self, batch: Batch, batch_number: int) -> None:
        logits = self.model(batch.ids, batch.lengths).float()
        found = self.scores(logits, token_losses(logits, batch), batch)
        n = int(found["targets"].sum())
        loss = found["loss"].sum() / n
        self.log_mean("val/loss", loss, n)
        self.log_mean("val/accuracy", found["right"].sum() / n, n)
        if self.is_bytes:
            self.log_mean("val/bits_per_byte", loss / math.log(2), n)
        if not self.is_text:
            asked = found["targets"] > 0
            exact = (found["right"] == found["targets"])[asked].double().mean()
            self.log_mean("val/exact_match", exact, int(asked.sum()))
            self.log_mean("val/greedy_accuracy", found["greedy_right"].sum() / n, n)

    def test_step(self, batch: Batch, batch_number: int) -> None:
        logits = self.timed_logits(batch)
        losses = token_losses(logits, batch)
        self.by_position.append((losses.sum(0).cpu(), (batch.labels != IGNORED).sum(0).cpu()))
        found = {"index": batch.index, **self.scores(logits, losses, batch)}
        self.predictions.append({name: values.cpu() for name, values in found.items()})

    def scores(self, logits: Tensor, losses: Tensor, batch: Batch) -> dict[str, Tensor]:
        """By window or string, (B,): its number of `targets`, how many of them are `right`, and the
        sum of their losses in nats, `loss`; of answers also how many greedy decoding finds,
        `greedy_right`. The logits (B, L, V) and losses (B, L) are those of the batch."""
        is_target = batch.labels != IGNORED
        right = (logits.argmax(-1) == batch.labels) & is_target
        found = {"targets": is_target.sum(1), "right": right.sum(1), "loss": losses.sum(1)}
        if not self.is_text:
            decoded = self.model.decode(batch.ids, is_target)
            found["greedy_right"] = ((decoded == batch.labels) & is_target).sum(1)
        return found

    def on_test_epoch_start(self) -> None:
        super().on_test_epoch_start()
        self.by_position = []

    def measurements(self) -> list[Measurement]:
        every = gathered(self.by_position)
        length = max(len(losses) for losses, _ in every)
        total, count = np.zeros(length), np.zeros(length, dtype=np.int64)
        for losses, targets in every:
            total[: len(losses)] += losses.numpy()
            count[: len(targets)] += targets.numpy()
        lows, highs = bins(np.arange(length), 2)
        rows = []
        for low in np.unique(lows):
            chosen = lows == low
            n, high = int(count[chosen].sum()), min(int(highs[chosen][0]), length - 1)
            if n:
                value = float(total[chosen].sum() / n)
                rows.append(Measurement(LOSS_BY_POSITION, WHOLE, n, value, int(low), high))
        return rows

    def tested(
        self, metrics: dict[str, float], documents: Documents
    ) -> tuple[dict[str, float], pd.DataFrame]:
        every = gathered(self.predictions)
        parts = {k: np.concatenate([batch[k] for batch in every]) for k in every[0]}
        frame = pd.DataFrame(parts).sort_values("index", ignore_index=True)
        frame.insert(1, "row", documents.rows[frame["index"]])
        frame.insert(2, "length", documents.whole_lengths[frame["index"]])
        frame.insert(3, "group", documents.groups[frame["index"]])
        by_target = frame.sum() / frame["targets"].sum()
        found = {"loss": float(by_target["loss"]), "accuracy": float(by_target["right"])}
        if self.is_bytes:
            found["bits_per_byte"] = found["loss"] / math.log(2)
        if self.is_text:
            return found, frame
        asked = frame[frame["targets"] > 0]
        found["exact_match"] = float((asked["right"] == asked["targets"]).mean())
        return found | {"greedy_accuracy": float(by_target["greedy_right"])}, frame


def token_losses(logits: Tensor, batch: Batch) -> Tensor:
    """The loss of each token's target in nats, 0 if it has none: (B, L)."""
    losses = F.cross_entropy(
        logits.flatten(0, 1), batch.labels.flatten(), ignore_index=IGNORED, reduction="none"
    ).view_as(batch.labels)
    return losses.double()
