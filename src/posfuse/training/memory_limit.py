"""Suggests a smaller batch size when memory runs out."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from posfuse.config import DataConfig
from posfuse.errors import OutOfMemory, lacks_memory


@contextmanager
def explaining(module: Any, data: DataConfig) -> Iterator[None]:
    """Raise OutOfMemory, which names the batch size to try, if memory runs out in the block that
    trains or tests this module."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not lacks_memory(error):
            raise
        key, size = "data.eval_batch_size", data.eval_batch_size
        if module.training:  # Lightning leaves the mode as it was when the error came
            key, size = module.batch_key, data.batch_size
        fix = f"try {key}={size // 2}" if size > 1 else "lower data.max_len or the model's size"
        raise OutOfMemory(
            f"out of memory at step {module.global_step} with {key}={size}; {fix}"
        ) from error
