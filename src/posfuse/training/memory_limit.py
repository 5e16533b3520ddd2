"""When memory runs out: which batch size to try instead."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback

from posfuse.config import DataConfig
from posfuse.errors import OutOfMemory, lacks_memory


class MemoryLimit(Callback):
    """Sets `advice` when memory runs out in a step; None otherwise."""

    def __init__(self, data: DataConfig, batch_key: str = "data.batch_size") -> None:
        self.data, self.batch_key = data, batch_key
        self.advice: str | None = None

    def on_exception(self, trainer: L.Trainer, module: Any, exception: BaseException) -> None:
        if not lacks_memory(exception):
            return
        key, size = "data.eval_batch_size", self.data.eval_batch_size
        if trainer.training:
            key, size = self.batch_key, self.data.batch_size
        fix = f"try {key}={size // 2}" if size > 1 else "lower data.max_len or the model's size"
        self.advice = f"out of memory at step {trainer.global_step} with {key}={size}; {fix}"

    @contextmanager
    def explain(self) -> Iterator[None]:
        """Raise OutOfMemory with the advice if memory runs out in the block."""
        try:
            yield
        except (RuntimeError, MemoryError) as error:
            if self.advice is None:
                raise
            raise OutOfMemory(self.advice) from error
