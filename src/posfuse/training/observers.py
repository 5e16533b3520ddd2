"""Records of a run during training and test: its learning curve, and how its model uses position.
Checkpoints save them.

The numbers of documents keep the diagnostics below 3 % of a run's time, and the mechanism below
another 3 %.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import lightning as L
import numpy as np
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor

from posfuse.data.batching import Batch
from posfuse.data.datamodule import TextDataModule
from posfuse.data.evaluations import ONE_PER_EPOCH, Evaluations
from posfuse.model.network import PositionClassifier
from posfuse.runs.measurements import Diagnostic, Measurement
from posfuse.training.diagnostics import (
    attention_entropy,
    fusion_of_tokens,
    fusion_rows,
    mean_of,
    sample,
    worth_of_position,
)
from posfuse.training.mechanism import measure

FIRST = ("train/loss", "val/loss", "val/accuracy")  # the first columns, if the task has them
SHARE = 0.01  # of the documents that training reads
EPOCH_DOCUMENTS = (8, 64)  # at least and at most
TEST_DOCUMENTS = (32, 1000)
MECHANISM_SHARE = 0.004  # of the documents that training reads
MECHANISM_DOCUMENTS = (16, 256)
SAVED = ("rows", "steps", "counted", "started")  # of a History, in checkpoints
GRADIENT_STEPS = 4  # the gradient is measured at every fourth step


class History(Callback):
    """Collects `rows`: {"epoch": from 1, "step": training steps done, "train_loss": ..., ...}, one
    for each evaluation, and `steps`: {"step", "train_loss", "lr"}, one for each `every` steps.

    The training loss is the mean over the documents since the last evaluation or the last of
    `steps`; lr is that of the step. `on_row` is called after each new row. `started` is the time at
    which the run's first process began.
    """

    def __init__(
        self, evaluations: Evaluations = ONE_PER_EPOCH, every: int | None = None, started: str = ""
    ) -> None:
        self.evaluations, self.every, self.started = evaluations, every, started
        self.rows: list[dict[str, float]] = []
        self.steps: list[dict[str, float]] = []
        self.counted = (0.0, 0)  # of this epoch at the last of `steps`: loss and documents
        self.rate = 0.0  # learning rate of the last step; a schedule changes it after the step
        self.best = 0  # the evaluation, from 0, whose weights are tested
        self.on_row: Callable[[], None] = lambda: None

    def on_train_epoch_start(self, trainer: L.Trainer, module: Any) -> None:
        self.counted = (0.0, 0)

    def on_before_optimizer_step(self, trainer: L.Trainer, module: Any, optimizer: Any) -> None:
        self.rate = optimizer.param_groups[0]["lr"]

    def on_train_batch_end(self, trainer: L.Trainer, module: Any, *_: Any) -> None:
        step, last = trainer.global_step, self.steps[-1]["step"] if self.steps else 0
        if self.every is None or step % self.every or step <= last:
            return
        loss, documents = module.epoch_loss()
        mean = (loss - self.counted[0]) / (documents - self.counted[1])
        self.counted = loss, documents
        self.steps.append({"step": step, "train_loss": mean, "lr": self.rate})
        if not trainer.fit_loop.epoch_loop.batch_progress.is_last_batch:
            self.on_row()

    def on_train_epoch_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        metrics = trainer.callback_metrics
        names = dict.fromkeys((*(name for name in FIRST if name in metrics), *metrics))
        row = {name.replace("/", "_", 1): float(metrics[name]) for name in names}
        epoch = self.evaluations.epoch(trainer.current_epoch)
        self.rows.append({"epoch": epoch, "step": trainer.global_step, **row})
        self.on_row()

    def validation(self) -> dict[str, float]:
        """The validation metrics of the best evaluation: {"loss": ..., "accuracy": ...}."""
        row = self.rows[self.best]
        return {k.removeprefix("val_"): v for k, v in row.items() if k.startswith("val_")}

    def state_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in SAVED}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        vars(self).update({name: state_dict[name] for name in SAVED if name in state_dict})


class Diagnostics(Callback):
    """Collects `rows` after each epoch; checkpoints save them. In the test it measures the accuracy
    of a classifier without position (`worth`) and, if `mechanism` is set, how it uses position
    (`measurements`)."""

    def __init__(self, data: TextDataModule, mechanism: bool = False) -> None:
        self.data, self.evaluations, self.mechanism = data, data.evaluations, mechanism
        self.rows: list[Diagnostic] = []
        self.worth: dict[str, float] = {}
        self.measurements: list[Measurement] = []
        self.measured_documents = 0
        self.gradients: list[Tensor] = []  # at steps of this epoch, before clipping
        self.steps = 0  # of this epoch
        self.counts = data.documents["train"].counts(data.store.vocabulary_size)  # (V,)

    def on_before_optimizer_step(self, trainer: L.Trainer, module: Any, optimizer: Any) -> None:
        if self.steps % GRADIENT_STEPS == 0:
            parameters = module.model.fusion.parameters()
            if gradients := [p.grad for p in parameters if p.grad is not None]:
                self.gradients.append(torch.nn.utils.get_total_norm(gradients))
        self.steps += 1

    def on_train_epoch_end(self, trainer: L.Trainer, module: Any) -> None:
        if not self.evaluations.ends_epoch(trainer.current_epoch):
            return
        epoch = self.evaluations.epoch(trainer.current_epoch)
        model = module.model
        n = int(np.clip(SHARE * len(self.data.documents["train"]), *EPOCH_DOCUMENTS))
        tokens, entropies = [], []
        with evaluating(trainer, model):
            for batch in sample(self.data, "validation", n, module.device):
                columns = fusion_of_tokens(model, batch)
                tokens.append({name: x.double().cpu().numpy() for name, x in columns.items()})
                entropies.append(attention_entropy(model, batch))
        joined = {name: np.concatenate([t[name] for t in tokens]) for name in tokens[0]}
        joined |= {name: joined[name].astype(int) for name in ("position", "id")}
        self.rows += fusion_rows(epoch, joined, self.counts)
        for layer, values in enumerate(zip(*entropies, strict=True), 1):
            entropy = mean_of(torch.cat(values), epoch, "attention_entropy", "layer", layer)
            self.rows.append(entropy)
        if self.gradients:
            norms = torch.stack([norm.cpu() for norm in self.gradients])
            self.rows.append(mean_of(norms, epoch, "fusion_gradient_norm"))
        scale = torch.as_tensor(model.token_scale.value())
        self.rows.append(mean_of(scale, epoch, "token_scale"))
        self.gradients, self.steps = [], 0

    def on_test_epoch_end(self, trainer: L.Trainer, module: Any) -> None:
        if self.data.tested != "test" or not isinstance(module.model, PositionClassifier):
            return  # other tasks have other targets
        cfg, read = self.data.cfg, len(self.data.documents["train"])
        epochs = max(int(self.evaluations.epochs(trainer.current_epoch)), 1)
        in_step = cfg.batch_size * trainer.world_size * trainer.accumulate_grad_batches
        offset = min(max(cfg.max_len // 8, 1), cfg.max_len - 1)
        with evaluating(trainer, module.model):
            n, batches = self._chosen(SHARE * (read * epochs), TEST_DOCUMENTS, module.device)
            worth = worth_of_position(module.model, batches, cfg.max_len - offset, offset)
            self.worth = {"documents": n, "offset": offset, **worth}
            if self.mechanism and trainer.is_global_zero:
                wanted = MECHANISM_SHARE * (trainer.global_step * in_step)
                n, batches = self._chosen(wanted, MECHANISM_DOCUMENTS, module.device)
                self.measurements, self.measured_documents = measure(module.model, batches), n

    def _chosen(
        self, wanted: float, limits: tuple[int, int], device: torch.device
    ) -> tuple[int, Iterator[Batch]]:
        """The number of test documents for a measurement, and their batches."""
        n = min(int(np.clip(wanted, *limits)), len(self.data.documents["test"]))
        return n, sample(self.data, "test", n, device)

    def worth_rows(self, epoch: int) -> list[Diagnostic]:
        """`worth` as rows of the epoch whose weights were tested; no rows for a language model."""
        if not (worth := self.worth):
            return []
        n, offset = int(worth["documents"]), int(worth["offset"])
        return [
            Diagnostic(epoch, "accuracy", "", 0, 0, n, worth["accuracy"]),
            Diagnostic(epoch, "accuracy_shuffled", "", 0, 0, n, worth["shuffled"]),
            Diagnostic(epoch, "accuracy_unshifted", "offset", 0, 0, n, worth["unshifted"]),
            Diagnostic(epoch, "accuracy_shifted", "offset", offset, offset, n, worth["shifted"]),
        ]

    def state_dict(self) -> dict[str, Any]:
        rows = [vars(row) for row in self.rows]
        return {"rows": rows, "gradients": self.gradients, "steps": self.steps}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.rows = [Diagnostic(**row) for row in state_dict["rows"]]
        self.gradients, self.steps = list(state_dict["gradients"]), state_dict["steps"]


@contextmanager
def evaluating(trainer: L.Trainer, model: PositionClassifier) -> Iterator[None]:
    """A block without gradients and dropout, in the precision of the run."""
    training = model.training
    model.eval()
    try:
        with torch.no_grad(), trainer.precision_plugin.forward_context():
            yield
    finally:
        model.train(training)
