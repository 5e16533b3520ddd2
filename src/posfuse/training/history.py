"""A run's learning curve, one row per evaluation. A checkpoint holds all of it."""

from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback

from posfuse.training.evaluations import Evaluations

FIRST = ("train/loss", "val/loss", "val/accuracy")  # of the columns that a task has


class History(Callback):
    """Collects `rows`: {"epoch": from 1, "step": training steps done, "train_loss": ..., ...}.

    The training loss is the mean over the documents since the last evaluation.
    """

    def __init__(self, evaluations: int = 1) -> None:
        self.evaluations = Evaluations(evaluations)
        self.rows: list[dict[str, float]] = []

    def on_train_epoch_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        metrics = trainer.callback_metrics
        names = dict.fromkeys((*(name for name in FIRST if name in metrics), *metrics))
        row = {name.replace("/", "_", 1): float(metrics[name]) for name in names}
        epoch = self.evaluations.epoch(trainer.current_epoch)
        done = {"epoch": epoch, "step": trainer.global_step}
        self.rows.append({**done, **row})

    def validation(self, evaluation: int) -> dict[str, float]:
        """The validation metrics of an evaluation, from 0: {"loss": ..., "accuracy": ...}."""
        row = self.rows[evaluation]
        return {k.removeprefix("val_"): v for k, v in row.items() if k.startswith("val_")}

    def state_dict(self) -> dict[str, Any]:
        return {"rows": self.rows}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.rows = list(state_dict["rows"])
