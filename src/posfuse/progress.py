"""How a run shows that it goes on: a bar where a person watches, else a line an epoch."""

import logging
import sys
import time

import lightning as L
from lightning.pytorch.callbacks import Callback, RichProgressBar

terminal = logging.getLogger("posfuse.progress")
detail = logging.getLogger("posfuse.detail")  # goes to train.log only


class EpochLines(Callback):
    """One log line an epoch."""

    def __init__(self, lines: logging.Logger) -> None:
        self.lines = lines
        self.started = 0.0

    def on_train_epoch_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        self.started = time.perf_counter()

    def on_train_epoch_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        metrics = trainer.callback_metrics
        self.lines.info(
            "epoch %d/%s: train loss %.4f, validation loss %.4f, accuracy %.4f, %.1f s",
            trainer.current_epoch + 1, trainer.max_epochs, metrics["train/loss"],
            metrics["val/loss"], metrics["val/accuracy"], time.perf_counter() - self.started,
        )  # fmt: skip


def progress_callbacks(progress: str) -> list[Callback]:
    """Callbacks for trainer.progress = auto, bar, lines or none."""
    if progress == "auto":
        progress = "bar" if sys.stdout.isatty() else "lines"
    if progress == "bar":
        return [RichProgressBar(), EpochLines(detail)]
    return [EpochLines(terminal if progress == "lines" else detail)]
