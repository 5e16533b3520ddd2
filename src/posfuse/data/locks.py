"""Locks between processes: one works, the others wait."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

WAIT = 1.0  # seconds between two calls of `poll`
log = logging.getLogger(__name__)


@contextmanager
def lock(path: Path, poll: Callable[[], None]) -> Iterator[None]:
    """Hold the lock of a file during the block.

    While another process holds it, `poll` is called every second; an exception that it raises ends
    the wait. Raises OSError if the file cannot be made.
    """
    file_lock, is_waiting = FileLock(path, timeout=WAIT), False
    while not file_lock.is_locked:
        try:
            file_lock.acquire()
        except Timeout:
            if not is_waiting:
                log.info("waiting for another process that holds %s", path)
            is_waiting = True
            poll()
    try:
        yield
    finally:
        file_lock.release()
