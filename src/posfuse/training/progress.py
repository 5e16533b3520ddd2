"""A run's progress, as a bar or as one line per evaluation, and its time."""

import logging
import sys
import time
from pathlib import Path
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback, RichProgressBar
from rich.progress import BarColumn, ProgressColumn, Task, TimeRemainingColumn
from rich.text import Text

from posfuse.process import signals
from posfuse.runs import records

terminal = logging.getLogger("posfuse.training.progress")
detail = logging.getLogger("posfuse.detail")  # goes to train.log only


def results(trainer: L.Trainer) -> dict[str, float]:
    """The results of the last evaluation by their names. The last one is the metric that selects
    the best checkpoint, or accuracy if the loss selects it."""
    keys = {"train loss": "train/loss", "validation loss": "val/loss", "accuracy": "val/accuracy"}
    best: Any = trainer.checkpoint_callback
    if best.monitor not in keys.values():
        keys[best.monitor.removeprefix("val/").replace("_", " ")] = best.monitor
    metrics = trainer.callback_metrics
    return {name: float(metrics[key]) for name, key in keys.items() if key in metrics}


class EpochLines(Callback):
    """One log line per evaluation, and progress.json in the run's folder for posfuse status.

    With several evaluations per epoch, the epochs done are a fraction.
    """

    def __init__(self, lines: logging.Logger, folder: Path, stopwatch: "Stopwatch") -> None:
        self.lines, self.folder, self.stopwatch = lines, folder, stopwatch

    def on_train_epoch_end(self, trainer: Any, module: L.LightningModule) -> None:
        seconds = self.stopwatch.seconds()["fit"] - self.stopwatch.evaluated
        evaluations = trainer.datamodule.evaluations
        epoch = evaluations.epochs(trainer.current_epoch + 1)
        epochs = int(evaluations.epochs(trainer.max_epochs))
        values = ", ".join(f"{name} {value:.4f}" for name, value in results(trainer).items())
        self.lines.info("epoch %s/%d: %s, %.1f s", epoch, epochs, values, seconds)
        if trainer.is_global_zero:
            progress = {"epoch": epoch, "epochs": epochs}
            progress["epoch_seconds"] = seconds * evaluations.per_epoch
            records.write_json(self.folder / records.PROGRESS, progress)


class Epoch(ProgressColumn):
    """The text of the bar's counter: the epoch in training, from 1, or another count."""

    def __init__(self, trainer: Any) -> None:
        super().__init__()
        self.trainer = trainer

    def render(self, task: Task) -> Text:
        trainer = self.trainer
        if trainer.state.fn != "fit":
            return Text(task.description)
        epochs, turns = trainer.datamodule.evaluations.epochs, trainer.max_epochs
        now = min(trainer.current_epoch + 1, turns)  # after the last epoch it is one more
        return Text(f"epoch {epochs(now):g}/{epochs(turns):g}")


class Bar(RichProgressBar):
    """A bar per epoch with the results of the last evaluation, in 80 columns."""

    def configure_columns(self, trainer: L.Trainer) -> list[Any]:
        batches = super().configure_columns(trainer)[2]
        left = TimeRemainingColumn(compact=True)
        return [Epoch(trainer), BarColumn(15), batches, left]

    def get_metrics(self, trainer: L.Trainer, module: L.LightningModule) -> dict[str, Any]:
        shown = results(trainer)
        loss = {"loss": shown.pop("train loss")} if "train loss" in shown else {}
        return loss | dict([*shown.items()][-1:])


class Stopwatch(Callback):
    """Seconds of a run's setup, fit and test. Checkpoints save them. So in a resumed run they are
    the sum over its processes, without the work that was lost after the last checkpoint.
    """

    def __init__(self) -> None:
        self.part, self.started = "setup", time.perf_counter()
        self.spent = {"setup": 0.0, "fit": 0.0, "test": 0.0}
        self.evaluated = 0.0  # the seconds of fit at the last evaluation

    def begin(self, part: str) -> None:
        """End the current part and begin this one."""
        self.spent, self.part, self.started = self.seconds(), part, time.perf_counter()

    def seconds(self) -> dict[str, float]:
        """Seconds of each part, including the current part."""
        now = self.spent[self.part] + time.perf_counter() - self.started
        return {**self.spent, self.part: now}

    def on_train_epoch_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        self.evaluated = self.seconds()["fit"]

    def state_dict(self) -> dict[str, float]:
        return {**self.seconds(), "evaluated": self.evaluated}

    def load_state_dict(self, state_dict: dict[str, float]) -> None:
        self.spent = {part: own + state_dict[part] for part, own in self.spent.items()}
        self.evaluated = state_dict.get("evaluated", self.spent["fit"])  # earlier versions: none


def progress_callbacks(progress: str, folder: Path, stopwatch: Stopwatch) -> list[Callback]:
    """Callbacks for trainer.progress = auto, bar, lines or none; `folder` is the run's."""
    if progress == "auto" and signals.is_worker() and signals.launcher != "slurm":
        progress = "none"  # the runs share a terminal; a job of SLURM has its own file
    elif progress == "auto":
        progress = "bar" if sys.stdout.isatty() else "lines"
    lines = EpochLines(terminal if progress == "lines" else detail, folder, stopwatch)
    return [Bar(), lines] if progress == "bar" else [lines]
