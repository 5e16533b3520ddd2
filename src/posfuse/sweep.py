"""What becomes of runs that fail: recorded in their folders, named at the sweep's end."""

import json
import logging
import shlex
import time
import traceback
from pathlib import Path

from posfuse import records
from posfuse.config import one_line
from posfuse.errors import InputError

log = logging.getLogger(__name__)
detail = logging.getLogger("posfuse.detail")


class RunFailed(Exception):
    """A run of a sweep failed. Arguments: the message, the run's folder."""


def record_failure(error: Exception, folder: Path, overrides: list[str]) -> RunFailed:
    """Write failure.json, log one line, and return what a sweep is to raise."""
    if isinstance(error, InputError):
        message = str(error)
    elif isinstance(error, OSError):
        message = (f"{error.filename or folder}: {error.strerror or error}; "
                   "mend that and run again: finished runs are kept")  # fmt: skip
    else:
        message = f"{type(error).__name__}: {one_line(error)} (traceback in {folder}/train.log)"
        detail.error("%s", "".join(traceback.format_exception(error)))
    content = {"message": message, "overrides": overrides, "time": time.time()}
    try:
        records.write_json(folder / records.FAILURE, content)
    except OSError as writing:
        log.error("%s: cannot note the failure (%s)", folder, writing)
    detail.error("failed: %s", message)
    return RunFailed(message, str(folder))


def summary(error: RunFailed, since: float) -> str:
    """All failures recorded since the sweep began, each with the command that runs it again."""
    message, folder = error.args
    root = next((p for p in Path(folder).parents if (p / "multirun.yaml").exists()), Path(folder))
    failures = []
    for path in sorted(root.rglob(records.FAILURE)):
        failure = json.loads(path.read_text())
        if failure["time"] >= since:
            failures.append(failure)
    if not failures:  # nothing could be written, a full disk for one
        return f"error: {message}"
    lines = [f"error: {len(failures)} run(s) failed; the others are done. Run each again with:"]
    for failure in failures:
        lines.append(f"  posfuse-train {shlex.join(failure['overrides'])}")
        lines.append(f"    {failure['message']}")
    return "\n".join(lines)
