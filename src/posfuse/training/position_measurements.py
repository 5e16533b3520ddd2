"""How a trained model uses position: attention by distance, a probe of position, and patching.

Measured once, on a few test documents, by the first process of the run. It draws nothing from the
random streams of training and changes no other number. The number of documents keeps the cost
below 3 % of a run's training.
"""

from collections.abc import Iterable
from typing import Any

import lightning as L
import numpy as np
import torch
from lightning.pytorch.callbacks import Callback

from posfuse.data.batching import Batch
from posfuse.data.datamodule import TextDataModule
from posfuse.model.network import PositionClassifier
from posfuse.runs.measurements import Measurement
from posfuse.training.attention_by_distance import attention_rows
from posfuse.training.diagnostics import evaluating, sample
from posfuse.training.patching import patch_rows
from posfuse.training.probe import probe_rows

SHARE = 0.004  # of the documents that training reads
DOCUMENTS = (16, 256)  # at least and at most


@torch.no_grad()
def measure(model: PositionClassifier, batches: Iterable[Batch]) -> list[Measurement]:
    """All measurements of a model in eval mode on these documents, which `diagnostics.sample` gives
    for a split."""
    batches = list(batches)
    return [
        *attention_rows(model, batches),
        *probe_rows(model, batches),
        *patch_rows(model, batches),
    ]


class PositionMeasurements(Callback):
    """Measures the trained model at the end of the test on the test split."""

    def __init__(self, data: TextDataModule) -> None:
        self.data = data
        self.measurements: list[Measurement] = []
        self.documents = 0

    def on_test_epoch_end(self, trainer: L.Trainer, module: Any) -> None:
        if self.data.tested != "test" or not trainer.is_global_zero:
            return
        if not isinstance(module.model, PositionClassifier):
            return  # the measurements are those of a classifier
        in_step = self.data.cfg.batch_size * trainer.world_size * trainer.accumulate_grad_batches
        read = trainer.global_step * in_step
        n = min(int(np.clip(SHARE * read, *DOCUMENTS)), len(self.data.documents["test"]))
        with evaluating(trainer, module.model):
            self.measurements = measure(module.model, sample(self.data, "test", n, module.device))
        self.documents = n
