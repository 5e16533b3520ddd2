"""The LightningModule: loss, metrics, optimiser, and predictions on the test split.

Shapes: B documents, C classes.
"""

import time
from typing import Any

import lightning as L
import torch
import torch.nn.functional as F
from lightning.pytorch.trainer.states import TrainerFn
from torch import Tensor
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score

from posfuse.config import OptimConfig
from posfuse.data.batching import Batch
from posfuse.errors import Diverged
from posfuse.model.network import PositionClassifier, learned_scalars, seed_from
from posfuse.process.distributed import gathered, summed, world_size

CHECK_EVERY = 50  # steps between two checks that the loss is finite
NEVER = 2**62  # a step that no run reaches


class Classifier(L.LightningModule):
    """Trains a PositionClassifier with cross-entropy; accuracy is micro, F1 is macro."""

    def __init__(
        self, model: PositionClassifier, optim: OptimConfig, n_classes: int, seed: int
    ) -> None:
        super().__init__()
        self.model, self.optim, self.seed = model, optim, seed  # of dropout and positions
        metrics = MetricCollection(
            {
                # The corpus reader has checked the labels; a check here would wait for the GPU.
                "accuracy": MulticlassAccuracy(n_classes, average="micro", validate_args=False),
                "macro_f1": MulticlassF1Score(n_classes, average="macro", validate_args=False),
            }
        )
        self.val_metrics = metrics.clone(prefix="val/")
        self.test_metrics = metrics.clone(prefix="test/")
        self.loss_sum: Tensor | float = 0.0  # over the training documents of this epoch
        self.documents = 0  # training documents of this epoch
        self.diverged: Tensor | int = NEVER  # the first step whose loss was not finite
        self.predictions: list[dict[str, Tensor]] = []  # one dict for each batch of the last test
        self.seen = {"documents": 0, "tokens": 0}  # by this process in training
        self.latency_ms = 0.0  # mean forward pass of a document in the last test

    def training_step(self, batch: Batch, batch_number: int) -> Tensor:
        # Dropout masks and random positions depend on (seed, step) alone, so all operators and
        # encodings with one seed, and a resumed run, get the same. Each process of a run draws its
        # own.
        at = [self.global_step, self.global_rank] if self.global_rank else [self.global_step]
        torch.manual_seed(seed_from(self.seed, "dropout", *at))
        drawn = self.model.sampler.drawn(batch.ids.shape[1], seed_from(self.seed, "positions", *at))
        loss = F.cross_entropy(self.model(batch.ids, batch.lengths, drawn), batch.labels)
        self.seen["documents"] += len(batch.labels)
        self.seen["tokens"] += batch.n_tokens
        self.loss_sum = self.loss_sum + loss.detach() * len(batch.labels)
        self.documents += len(batch.labels)
        # Stays on the device and is read now and then: reading it at each step would wait for it.
        finite = loss.detach().isfinite()
        self.diverged = torch.where(finite, NEVER, self.global_step).minimum(
            torch.as_tensor(self.diverged, device=loss.device)
        )
        if (self.global_step + 1) % CHECK_EVERY == 0:
            self.fail_if_diverged()
        if (processes := world_size()) > 1:
            # DDP averages the processes' gradients; weight them so that documents count equally.
            n = len(batch.labels)
            loss = loss * (n * processes / summed(loss.new_tensor(n)))
        return loss

    def epoch_loss(self) -> tuple[float, int]:
        """The sum of the losses of this epoch's documents so far, and their number, over all
        processes of the run."""
        losses, documents = zip(*gathered([(float(self.loss_sum), self.documents)]), strict=True)
        return sum(losses), sum(documents)

    def seen_by_all(self) -> dict[str, int]:
        """`seen`, summed over all processes of the run."""
        every = gathered([self.seen])
        return {name: sum(seen[name] for seen in every) for name in self.seen}

    def fail_if_diverged(self) -> None:
        """Raise Diverged with the first step whose loss was not finite."""
        step = min(gathered([int(self.diverged)]))
        if step < NEVER:
            raise self.divergence(step)

    def divergence(self, step: int) -> Diverged:
        """The error for a loss that is not finite at a step."""
        return Diverged(
            f"diverged at step {step}: the loss is not finite; lower optim.lr={self.optim.lr}"
        )

    def on_train_epoch_start(self) -> None:
        self.loss_sum, self.documents = 0.0, 0

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.fail_if_diverged()
        checkpoint["epoch_loss"], checkpoint["seen"] = self.epoch_loss(), self.seen_by_all()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        if self.global_rank == 0:  # they are sums over all processes
            self.loss_sum, self.documents = checkpoint["epoch_loss"]
            self.seen = dict(checkpoint["seen"])

    def on_validation_epoch_start(self) -> None:
        self.fail_if_diverged()

    def validation_step(self, batch: Batch, batch_number: int) -> None:
        logits = self.model(batch.ids, batch.lengths).float()
        self.val_metrics.update(logits, batch.labels)
        loss = F.cross_entropy(logits, batch.labels)
        self._log_mean("val/loss", loss, len(batch.labels))

    def _log_mean(self, name: str, value: Tensor, n: int) -> None:
        """Log the mean over the documents of all processes, of which this batch has n."""
        # Lightning averages the processes' numbers of documents and rounds the average down.
        self.log(name, value, batch_size=n * world_size(), sync_dist=True)

    def on_validation_epoch_end(self) -> None:
        self.log_dict(self.val_metrics.compute())
        self.val_metrics.reset()
        if self.trainer.state.fn == TrainerFn.FITTING:  # otherwise there is no training loss
            loss_sum, documents = self.epoch_loss()
            self.log("train/loss", loss_sum / documents)

    def on_test_epoch_start(self) -> None:
        self.predictions = []
        self.latency_ms = 0.0

    def test_step(self, batch: Batch, batch_number: int) -> None:
        _wait_for(self.device)
        start = time.perf_counter()
        logits = self.model(batch.ids, batch.lengths).float()
        _wait_for(self.device)
        self.latency_ms += 1000 * (time.perf_counter() - start)
        log_probabilities = logits.log_softmax(-1)
        self.test_metrics.update(logits, batch.labels)
        loss = F.nll_loss(log_probabilities, batch.labels)
        self._log_mean("test/loss", loss, len(batch.labels))
        self.predictions.append(
            {
                "index": batch.index.cpu(),
                "label": batch.labels.cpu(),
                "predicted": log_probabilities.argmax(-1).cpu(),
                "log_probabilities": log_probabilities.cpu(),
            }
        )

    def on_test_epoch_end(self) -> None:
        self.latency_ms /= sum(len(batch["index"]) for batch in self.predictions)
        self.log_dict(self.test_metrics.compute())
        self.test_metrics.reset()

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip by norm. Lightning refuses to clip with a fused optimiser in mixed precision, which
        unscales the gradients later; bfloat16 has no scale."""
        if gradient_clip_val:
            torch.nn.utils.clip_grad_norm_(self.parameters(), gradient_clip_val)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """All parameters in one group; with optim.scalar_lr_factor the learned scalars in a second
        one, which has its own learning rate."""
        factor = self.optim.scalar_lr_factor
        scalars = [] if factor == 1 else learned_scalars(self.model)
        of_scalars = {id(parameter) for parameter in scalars}
        groups: list[dict[str, Any]] = [
            {"params": [p for p in self.parameters() if id(p) not in of_scalars]}
        ]
        if scalars:
            groups.append({"params": scalars, "lr": factor * self.optim.lr})
        return groups

    def configure_optimizers(self) -> torch.optim.Optimizer:
        kind: Any = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam}[self.optim.name]
        optimizer: torch.optim.Optimizer = kind(
            self.parameter_groups(),
            lr=self.optim.lr,
            weight_decay=self.optim.weight_decay,
            fused=True,
        )
        return optimizer


def _wait_for(device: torch.device) -> None:
    """Wait for the queued work of a GPU, so that the next reading of the clock is right."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
