"""A run's learning curve, one row per evaluation. A checkpoint holds all of it."""

from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback

from posfuse.training.evaluations import Evaluations

COLUMNS = (
    "train_loss", "val_loss", "val_accuracy",
    # Each of some tasks.
    "val_macro_f1", "val_bits_per_byte", "val_exact_match", "val_greedy_accuracy",
)  # fmt: skip


class History(Callback):
    """Collects `rows`: {"epoch": from 1, "step": training steps done, "train_loss": ..., ...}.

    The training loss is the mean over the documents since the last evaluation.
    """

    def __init__(self, evaluations: int = 1) -> None:
        self.evaluations = Evaluations(evaluations)
        self.rows: list[dict[str, float]] = []

    def on_train_epoch_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        metrics = trainer.callback_metrics
        own = {name: name.replace("_", "/", 1) for name in COLUMNS}  # those of the task
        row = {name: float(metrics[key]) for name, key in own.items() if key in metrics}
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
