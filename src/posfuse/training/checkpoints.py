"""A run's checkpoints: files that are whole or refused, and a run's state inside an epoch."""

import io
import signal
import time
import zipfile
import zlib
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import lightning as L
import torch
from lightning.fabric.plugins import CheckpointIO
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.trainer.states import TrainerFn

from posfuse.errors import InputError
from posfuse.process.signals import Preempted, note, told
from posfuse.runs.hydra_errors import one_line
from posfuse.runs.records import replacing

AGREED = 10  # steps between two agreements of a run's processes, each of which waits for all


class WholeFiles(CheckpointIO):
    """Checkpoints as files that are renamed into place beside it: Lightning's own come from the
    system's temporary folder, most often of another disk, and a kill cuts the copy short."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None
    ) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        buffer = io.BytesIO()  # torch.save itself words a full disk as a fault of its own
        torch.save(checkpoint, buffer)
        with replacing(Path(path)) as part:
            part.write_bytes(buffer.getbuffer())

    def load_checkpoint(
        self, path: Any, map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        return read_checkpoint(Path(path))

    def remove_checkpoint(self, path: Any) -> None:
        Path(path).unlink(missing_ok=True)


def read_checkpoint(path: Path) -> dict[str, Any]:
    """A checkpoint, on the CPU; raises InputError unless every byte is as it was written."""
    try:
        with zipfile.ZipFile(path) as whole:  # torch does not look at its files' checksums
            damaged = whole.testzip()
        if damaged is None:
            found: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
            return found
        reason = f"{damaged} is damaged"
    except OSError as error:
        reason = error.strerror or str(error)
    except (zipfile.BadZipFile, zlib.error, RuntimeError, UnpicklingError, EOFError, LookupError,
            ValueError, TypeError, AttributeError) as error:  # fmt: skip
        reason = f"damaged: {one_line(error)}"
    raise InputError(f"{path}: cannot be read ({reason}); remove {path.parent} to run again")


class Checkpoints(Callback):
    """Writes `path` when `seconds` have passed since the last one, or the process was told to end.

    Not after an epoch's last step: its validation belongs to it, and the trainer's own checkpoint
    comes behind that.
    """

    def __init__(self, path: Path, seconds: float, fingerprint: str) -> None:
        self.path, self.seconds, self.fingerprint = path, seconds, fingerprint
        self.kept = time.monotonic()

    def state_dict(self) -> dict[str, Any]:
        return {"fingerprint": self.fingerprint}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if state_dict["fingerprint"] != self.fingerprint:
            raise InputError(
                f"{self.path}: the state of another configuration's run (or its data has changed); "
                "give sweep_id=NAME for a folder of its own, or remove that file to start anew"
            )

    def on_train_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        signal.signal(signal.SIGTERM, note)  # in each of its loops Lightning puts its own

    on_validation_start = on_test_start = on_train_start

    def on_train_epoch_start(self, trainer: L.Trainer, module: Any) -> None:
        self.kept = time.monotonic()
        self.end_if_told(trainer)

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        if trainer.fit_loop.epoch_loop.batch_progress.is_last_batch:
            return
        due = bool(told) or time.monotonic() - self.kept >= self.seconds
        if trainer.world_size > 1:  # the processes of a run write one checkpoint, at one step
            due = trainer.global_step % AGREED == 0 and trainer.strategy.broadcast(due)
        if due:
            trainer.save_checkpoint(self.path)
            self.kept = time.monotonic()
            self.end_if_told(trainer)

    def on_train_end(self, trainer: L.Trainer, module: Any) -> None:
        self.end_if_told(trainer)

    def on_validation_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        if trainer.state.fn != TrainerFn.FITTING:
            self.end_if_told(trainer)

    def on_test_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        self.end_if_told(trainer)

    def end_if_told(self, trainer: L.Trainer) -> None:
        if told and trainer.is_global_zero:  # the others end with the first
            raise Preempted(f"told to end by {told[0]}, kept at step {trainer.global_step}")
