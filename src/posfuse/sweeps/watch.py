"""Shows the failures of a sweep's runs while the sweep runs.

Runs may be on other machines, so each failure is a file in the sweep's folder, and a thread of the
process that runs the sweep looks for new files.
"""

import json
import signal
import sys
import threading
from pathlib import Path

from posfuse.runs.records import Record, write_json

FAILURES = ".failures"  # in the sweep's folder
SECONDS = 0.5  # between two looks


def report(sweep: Path, failure: Record) -> None:
    """Show a failure in the process that runs the sweep."""
    (sweep / FAILURES).mkdir(exist_ok=True)
    write_json(sweep / FAILURES / f"{failure['id']}.json", failure)


class Watch(threading.Thread):
    """Prints each new failure in one line on stderr; with `fail_fast` the first one interrupts the
    sweep. It watches inside a `with`."""

    def __init__(self, sweep: Path, fail_fast: bool) -> None:
        super().__init__(daemon=True)
        self.folder, self.fail_fast = sweep / FAILURES, fail_fast
        self.seen = set(self.folder.glob("*.json"))
        self.printed: set[str] = set()
        self.over = threading.Event()
        self.has_ended_sweep = False

    def run(self) -> None:
        while not self.over.wait(SECONDS):
            self.look()
            if self.printed and self.fail_fast and not self.has_ended_sweep:
                self.has_ended_sweep = True
                # To the main thread, which waits for the runs, so that it interrupts system calls.
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)

    def look(self) -> None:
        """Print what has failed since the last look. Runs with the same mistake in the config give
        the same line, which is printed once."""
        new = set(self.folder.glob("*.json")) - self.seen
        self.seen |= new
        failures = [json.loads(path.read_text()) for path in new]
        for failure in sorted(failures, key=lambda failure: failure["time"]):
            line = f"failed: {failure['run']}: {failure['message']}"
            if failure["kind"] == "config":
                line = f"error: {failure['message']}"
            if line not in self.printed:
                print(line, file=sys.stderr, flush=True)
            self.printed.add(line)

    def __enter__(self) -> None:
        self.start()

    def __exit__(self, *error: object) -> None:
        self.over.set()
        self.join()
        self.look()
