"""What a sweep hears of its runs' failures while it goes on, wherever they are: each appends a
line to a file in the sweep's folder, which the process that was given the command reads."""

import fcntl
import json
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from posfuse.runs.records import Record

FAILURES = ".failures"  # in the sweep's folder
SECONDS = 0.5  # between two looks


def tell(sweep: Path, failure: Record) -> None:
    """Append a failure, whole even where several processes do so at once, or one was cut short."""
    with (sweep / FAILURES).open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # over a network it also brings the file's end up to date
        file.write(f"\n{json.dumps(failure)}\n")


class Watch(threading.Thread):
    """Says each failure in a line on stderr; with `fail_fast` the first one ends the sweep."""

    def __init__(self, sweep: Path, fail_fast: bool) -> None:
        super().__init__(daemon=True)
        self.path, self.fail_fast = sweep / FAILURES, fail_fast
        self.read = self.path.stat().st_size if self.path.exists() else 0  # bytes
        self.said: set[str] = set()
        self.over = threading.Event()
        self.has_ended_sweep = False

    def run(self) -> None:
        while not self.over.wait(SECONDS):
            self.look()
            if self.said and self.fail_fast and not self.has_ended_sweep:
                self.has_ended_sweep = True
                # To the thread that waits for the runs: it hears it even inside a system call.
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)

    def look(self) -> None:
        """Say what has failed since the last look; a mistake in the config once."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self.read)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        self.read += len(whole)
        for failure in _parsed(whole.splitlines()):
            line = f"failed: {failure['run']}: {failure['message']}"
            if failure["kind"] == "config":
                line = f"error: {failure['message']}"
            if line not in self.said:
                print(line, file=sys.stderr, flush=True)
            self.said.add(line)


def _parsed(lines: list[bytes]) -> Iterator[Record]:
    """What the lines hold, but for those that a full disk has cut short."""
    for line in lines:
        with suppress(ValueError):
            yield json.loads(line)


@contextmanager
def watching(sweep: Path, fail_fast: bool) -> Iterator[Watch]:
    """Watch for as long as the sweep goes on."""
    watch = Watch(sweep, fail_fast)
    watch.start()
    try:
        yield watch
    finally:
        watch.over.set()
        watch.join()
        watch.look()
