"""A run's progress, as a bar in a terminal, else as a line an epoch; and the time that it takes."""

import logging
import sys
import time
from collections.abc import Callable

import lightning as L
from lightning.pytorch.callbacks import Callback, RichProgressBar

terminal = logging.getLogger("posfuse.training.progress")
detail = logging.getLogger("posfuse.detail")  # goes to train.log only


class EpochLines(Callback):
    """One log line an epoch. The seconds of an epoch that was resumed are the sum over processes:
    checkpoints keep those spent so far."""

    def __init__(self, lines: logging.Logger, clock: Callable[[], float] = time.perf_counter):
        self.lines, self.clock = lines, clock
        self.spent, self.started = 0.0, clock()  # before `started`; since then the clock counts

    def seconds(self) -> float:
        """Spent on this epoch so far."""
        return self.spent + self.clock() - self.started

    def on_train_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        self.started = self.clock()  # a resumed epoch has no on_train_epoch_start

    def on_train_epoch_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        self.spent, self.started = 0.0, self.clock()

    def on_train_epoch_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        metrics = trainer.callback_metrics
        self.lines.info(
            "epoch %d/%s: train loss %.4f, validation loss %.4f, accuracy %.4f, %.1f s",
            trainer.current_epoch + 1, trainer.max_epochs, metrics["train/loss"],
            metrics["val/loss"], metrics["val/accuracy"], self.seconds(),
        )  # fmt: skip

    def state_dict(self) -> dict[str, float]:
        return {"seconds": self.seconds()}

    def load_state_dict(self, state_dict: dict[str, float]) -> None:
        self.spent = state_dict["seconds"]


class Stopwatch(Callback):
    """Seconds of a run's setup, fit and test. Checkpoints keep them, so a resumed run's are the sum
    over its processes; what a process did after its last checkpoint is done again and not counted.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock, self.part, self.started = clock, "setup", clock()
        self.spent = {"setup": 0.0, "fit": 0.0, "test": 0.0}

    def begin(self, part: str) -> None:
        """End the part in progress and begin this one."""
        self.spent, self.part, self.started = self.seconds(), part, self.clock()

    def seconds(self) -> dict[str, float]:
        """By part, the one in progress included."""
        now = self.spent[self.part] + self.clock() - self.started
        return {**self.spent, self.part: now}

    def state_dict(self) -> dict[str, float]:
        return self.seconds()

    def load_state_dict(self, state_dict: dict[str, float]) -> None:
        self.spent = {part: own + state_dict[part] for part, own in self.spent.items()}


def progress_callbacks(progress: str) -> list[Callback]:
    """Callbacks for trainer.progress = auto, bar, lines or none."""
    if progress == "auto":
        progress = "bar" if sys.stdout.isatty() else "lines"
    if progress == "bar":
        return [RichProgressBar(), EpochLines(detail)]
    return [EpochLines(terminal if progress == "lines" else detail)]
