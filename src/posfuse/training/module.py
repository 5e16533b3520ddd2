"""The LightningModule that every task extends: random streams, loss of an epoch, optimiser."""

import time
from typing import Any

import lightning as L
import numpy as np
import pandas as pd
import torch
from torch import Tensor

from posfuse.config import OptimConfig
from posfuse.data.batching import Batch, Documents
from posfuse.errors import Diverged
from posfuse.model.network import FusionTransformer, seed_from
from posfuse.process.distributed import items_of_all, sum_of_all, world_size
from posfuse.runs.measurements import Measurement
from posfuse.training.optimizer import optimizer, schedule

CHECK_EVERY = 50  # steps between two checks that the loss is finite
NEVER = 2**62  # a step that no run reaches


class TrainingModule(L.LightningModule):
    """Trains a model. A task adds its losses, its metrics, and in a test its `predictions`."""

    lr_key, batch_key = "optim.lr", "data.batch_size"  # keys that messages name

    def __init__(self, model: FusionTransformer, optim: OptimConfig, seed: int) -> None:
        super().__init__()
        self.model, self.optim, self.seed = model, optim, seed  # of dropout and positions
        self.loss_sum: Tensor | float = 0.0  # over the training documents of this epoch
        self.documents = 0  # training documents of this epoch; of a language model targets
        self.diverged: Tensor | int = NEVER  # the first step whose loss was not finite
        self.seen = {"documents": 0, "tokens": 0}  # by this process in training
        self.part = 0  # the number of the batch in its step, from 0
        self.weight = 1.0  # of the batch's loss in its step
        self.bounded: list[Any] = [m for m in model.modules() if hasattr(m, "keep_bounds")]
        self.predictions: list[dict[str, Tensor]] = []  # one dict for each batch of the last test
        self.latency_ms = 0.0  # mean forward pass of a document in the last test

    def positions_of_step(self, batch: Batch) -> Tensor | int:
        """Seed dropout for this step, and draw its positions.

        Masks and positions depend only on (seed, step), so all operators and encodings with one
        seed, and a resumed run, have the same. Each process and each batch of a step has other
        draws. On a GPU, encodings with a learned bias inside attention have other masks than the
        others, because their attention does not draw from torch's generator.
        """
        at: list[Any] = [self.global_step]
        at += [self.global_rank] if self.global_rank else []
        at += [f"batch {self.part}"] if self.part else []
        seed = seed_from(self.seed, "dropout", *at)
        if self.device.type == "cpu":
            # torch.manual_seed would also format the stack for each kind of device, 0.8 ms.
            torch.default_generator.manual_seed(seed)
        else:
            torch.manual_seed(seed)
        drawn = seed_from(self.seed, "positions", *at)
        return self.model.sampler.in_training(batch.ids.shape[1], drawn)

    def step_loss(self, loss: Tensor, batch: Batch, n: int) -> Tensor:
        """Record the mean loss () of n documents or targets, and return the loss to
        differentiate, ()."""
        self.seen["documents"] += len(batch.index)
        self.seen["tokens"] += batch.n_tokens
        self.loss_sum = self.loss_sum + loss.detach() * n
        self.documents += n
        # The loss stays on the device. Reading it at each step would wait for the GPU.
        finite = loss.detach().isfinite()
        self.diverged = torch.where(finite, NEVER, self.global_step).minimum(
            torch.as_tensor(self.diverged, device=loss.device)
        )
        if (self.global_step + 1) % CHECK_EVERY == 0:
            self.check_loss()
        if (processes := world_size()) > 1:
            # DDP averages the processes' gradients; weight them so that documents count equally.
            loss = loss * (n * processes / sum_of_all(loss.new_tensor(n)))
        return loss if self.weight == 1 else loss * self.weight

    def epoch_loss(self) -> tuple[float, int]:
        """The sum of the losses of this epoch's documents so far, and their number, over all
        processes of the run."""
        losses, documents = zip(
            *items_of_all([(float(self.loss_sum), self.documents)]), strict=True
        )
        return sum(losses), sum(documents)

    def seen_by_all(self) -> dict[str, int]:
        """`seen`, summed over all processes of the run."""
        every = items_of_all([self.seen])
        return {name: sum(seen[name] for seen in every) for name in self.seen}

    def check_loss(self) -> None:
        """Raise Diverged with the first step whose loss was not finite."""
        step = min(items_of_all([int(self.diverged)]))
        if step < NEVER:
            raise self.divergence(step)

    def divergence(self, step: int) -> Diverged:
        """The error for a loss that is not finite at a step."""
        return Diverged(
            f"diverged at step {step}: the loss is not finite; lower {self.lr_key}={self.optim.lr}"
        )

    def on_train_batch_start(self, batch: Batch, batch_number: int) -> None:
        """Compute the batch's number in its step and its weight, and keep the bounds."""
        in_step, batches = self.trainer.accumulate_grad_batches, self.trainer.num_training_batches
        self.part = batch_number % in_step
        # Lightning divides each loss by in_step. The last step of an epoch may have fewer batches.
        self.weight = in_step / min(in_step, batches - (batch_number - self.part))
        self.keep_bounds()

    def keep_bounds(self) -> None:
        """Move parameters back into their bounds after a step."""
        for module in self.bounded:
            module.keep_bounds()

    def on_train_epoch_start(self) -> None:
        self.loss_sum, self.documents = 0.0, 0

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.check_loss()
        checkpoint["epoch_loss"], checkpoint["seen"] = self.epoch_loss(), self.seen_by_all()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        if self.global_rank == 0:  # they are sums over all processes
            self.loss_sum, self.documents = checkpoint["epoch_loss"]
            self.seen = dict(checkpoint["seen"])

    def on_validation_epoch_start(self) -> None:
        self.check_loss()

    def on_validation_epoch_end(self) -> None:
        loss_sum, documents = self.epoch_loss()
        self.log("train/loss", loss_sum / documents)

    def log_mean(self, name: str, value: Tensor, n: int) -> None:
        """Log a mean over the documents of all processes. This batch has n of them."""
        # Lightning averages the number of documents over processes and rounds down.
        self.log(name, value, batch_size=n * world_size(), sync_dist=True)

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip by norm. Lightning refuses to clip with a fused optimiser in mixed precision,
        because float16 gradients are still scaled. bfloat16 has no scale."""
        if gradient_clip_val:
            torch.nn.utils.clip_grad_norm_(self.parameters(), gradient_clip_val)

    def configure_optimizers(self) -> Any:
        """The optimiser and, unless the learning rate is constant, its schedule."""
        updates = optimizer(self.model, self.parameters(), self.optim)
        if self.optim.schedule == "constant" and not self.optim.warmup:
            return updates
        trainer: Any = self.trainer
        epochs = int(trainer.datamodule.evaluations.epochs(trainer.max_epochs))
        steps = epochs * trainer.datamodule.steps_of_epoch(trainer.accumulate_grad_batches)
        rates = schedule(updates, self.optim, steps)  # without early stopping
        return {"optimizer": updates, "lr_scheduler": {"scheduler": rates, "interval": "step"}}

    def on_test_epoch_start(self) -> None:
        self.predictions = []
        self.latency_ms = 0.0

    def timed_logits(self, batch: Batch) -> Tensor:
        """The logits of a batch in float32, in the shape of the model's output. Adds their time to
        `latency_ms`."""
        wait_for(self.device)
        start = time.perf_counter()
        logits: Tensor = self.model(batch.ids, batch.lengths).float()
        wait_for(self.device)
        self.latency_ms += 1000 * (time.perf_counter() - start)
        return logits

    def prediction_table(self, documents: Documents) -> pd.DataFrame:
        """The `predictions` of all processes of the run, a row for each document in the order of
        the split: index, row (in the file), length (before the cut), group (equal for documents
        that share a part), and the others. Values (B, C) become C columns, name_0 and so on."""
        batches = items_of_all(self.predictions)
        columns: dict[str, Any] = {}
        for name in batches[0]:
            values = np.concatenate([batch[name] for batch in batches])
            if values.ndim == 1:
                columns[name] = values
            else:
                columns |= {f"{name}_{c}": column for c, column in enumerate(values.T)}
        table = pd.DataFrame(columns).sort_values("index", ignore_index=True)
        table.insert(1, "row", documents.rows[table["index"]])
        table.insert(2, "length", documents.whole_lengths[table["index"]])
        table.insert(3, "group", documents.groups[table["index"]])
        return table

    def on_test_epoch_end(self) -> None:
        self.latency_ms /= sum(len(batch["index"]) for batch in self.predictions)

    def measurements(self) -> list[Measurement]:
        """Further measurements of the last test, over all processes of the run."""
        return []

    def results(
        self, metrics: dict[str, float], documents: Documents
    ) -> tuple[dict[str, float], pd.DataFrame]:
        """The metrics of the last test, and its `prediction_table`. `metrics` are those that were
        logged."""
        return metrics, self.prediction_table(documents)


def wait_for(device: torch.device) -> None:
    """Wait for the queued work of a GPU, so that the next clock reading is right."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
