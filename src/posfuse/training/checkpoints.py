"""A run's checkpoints. An incomplete file is refused. Checkpoints may also be saved within an
epoch."""

import io
import time
import zipfile
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.fabric.plugins import TorchCheckpointIO
from lightning.pytorch.callbacks import Callback, EarlyStopping, ModelCheckpoint

from posfuse.errors import InputError, input_errors
from posfuse.process import signals
from posfuse.runs.records import replacing

AGREE_EVERY = 10  # steps after which the processes of a run decide together whether to save


class WholeFiles(TorchCheckpointIO):
    """Writes a checkpoint with another name in the same folder and renames it. Lightning copies it
    from the system's temporary folder, so a killed process can leave an incomplete file.

    Reads only a state that `Checkpoints` saved for this owner. Lightning would load the weights
    before a callback could compare it.
    """

    def __init__(self, owner: dict[str, str]) -> None:
        self.owner = owner

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None
    ) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        buffer = io.BytesIO()  # torch.save does not report a full disk as an OSError
        torch.save(checkpoint, buffer)
        with replacing(Path(path)) as part:
            part.write_bytes(buffer.getbuffer())

    def load_checkpoint(
        self, path: Any, map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        checkpoint = read_checkpoint(Path(path))
        saved = checkpoint["callbacks"][Checkpoints.__qualname__]
        if self.owner | saved != self.owner:  # earlier versions saved no `code`
            raise InputError(
                f"{path}: belongs to another configuration, or its data or your code has changed; "
                "give sweep_id=NAME for a new folder, or remove that file to start again"
            )
        return checkpoint


def read_checkpoint(path: Path) -> dict[str, Any]:
    """A checkpoint, on the CPU. Raises InputError if any byte of the file has changed."""
    with input_errors(f"{path}: cannot be read", f"remove {path.parent} to run again"):
        with zipfile.ZipFile(path) as archive:  # torch does not compare checksums
            if damaged := archive.testzip():
                raise ValueError(f"{damaged} is damaged")
        return torch.load(path, map_location="cpu", weights_only=True)


class Checkpoints(Callback):
    """Saves the run to `path` every `seconds` and after a signal, and polls for signals. `owner` is
    that of the run (runs/identity.py).

    It saves between two steps, not between two batches of a step. It does not save after an epoch's
    last step, because the trainer saves after validation.
    """

    def __init__(self, path: Path, seconds: float, owner: dict[str, str]) -> None:
        self.path, self.seconds, self.owner = path, seconds, owner
        self.saved = time.monotonic()

    def state_dict(self) -> dict[str, Any]:
        return self.owner

    def on_train_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        signals.install()  # Lightning installs another handler in each of its loops

    on_validation_start = on_test_start = on_train_start

    def on_train_epoch_start(self, trainer: L.Trainer, module: Any) -> None:
        self.saved = time.monotonic()
        self.check(trainer)

    def on_train_batch_end(
        self, trainer: L.Trainer, module: Any, outputs: Any, batch: Any, batch_number: int
    ) -> None:
        is_last = trainer.fit_loop.epoch_loop.batch_progress.is_last_batch
        if is_last or (batch_number + 1) % trainer.accumulate_grad_batches:
            return
        due = signals.interruption() is not None or time.monotonic() - self.saved >= self.seconds
        if trainer.world_size > 1:  # the processes of a run save together, at the same step
            due = trainer.global_step % AGREE_EVERY == 0 and trainer.strategy.broadcast(due)
        if due:
            trainer.save_checkpoint(self.path)
            self.saved = time.monotonic()
            self.check(trainer)

    def on_train_end(self, trainer: L.Trainer, module: Any) -> None:
        self.check(trainer)

    def on_test_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        self.check(trainer)

    def check(self, trainer: L.Trainer) -> None:
        """Raise Interrupted if a signal was received."""
        if trainer.is_global_zero:  # the others end with rank 0
            signals.check(f"; saved at step {trainer.global_step}")


class ResumableEarlyStopping(EarlyStopping):
    """EarlyStopping that also stops a run that is resumed between its stop and its test."""

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self.wait_count >= self.patience:
            trainer.should_stop = True


class MovableCheckpoint(ModelCheckpoint):
    """ModelCheckpoint that keeps its best epoch if the sweep's folder was moved."""

    def __init__(self, path: Path, **options: Any) -> None:
        super().__init__(path.parent, path.stem, enable_version_counter=False, **options)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict({**state_dict, "dirpath": self.dirpath})
