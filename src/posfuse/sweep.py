"""What becomes of runs that fail: recorded in their folders, named when the sweep ends."""

import json
import logging
import shlex
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from posfuse import records
from posfuse.config import one_line
from posfuse.errors import InputError

detail = logging.getLogger("posfuse.detail")


class RunFailed(Exception):
    """A run failed and its folder cannot take the note of it."""


class NameFailures(Callback):
    """Ends a sweep with status 1 if a run of it failed, and says how to run just that again."""

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        self.started = time.time()

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        paths = sorted(Path(config.hydra.sweep.dir).rglob(records.FAILURE))
        failures = [json.loads(path.read_text()) for path in paths]
        if failed := [failure for failure in failures if failure["time"] >= self.started]:
            sys.exit(summary(failed))


def message_of(error: Exception, folder: Path) -> str:
    """What went wrong, in one line; the traceback of a surprise goes to train.log."""
    if isinstance(error, InputError):
        return str(error)
    if isinstance(error, OSError):
        place = error.filename or folder
        return (
            f"{place}: {error.strerror or error}; mend that and run again: finished runs are kept"
        )
    detail.error("%s", "".join(traceback.format_exception(error)))
    return f"{type(error).__name__}: {one_line(error)}; see the traceback in {folder}/train.log"


def record_failure(message: str, folder: Path, overrides: list[str], in_config: bool) -> None:
    """Write failure.json; raises RunFailed where that cannot be written."""
    detail.error("failed: %s", message)
    failure = {"message": message, "overrides": overrides, "in_config": in_config}
    try:
        records.write_json(folder / records.FAILURE, {**failure, "time": time.time()})
    except OSError as error:
        raise RunFailed(message) from error


def summary(failures: list[records.Record]) -> str:
    """Each mistake in the config once, then each run that failed, with the command for it."""
    mistakes = dict.fromkeys(f["message"] for f in failures if f["in_config"])
    lines = [f"error: {message}" for message in mistakes]
    runs = [f for f in failures if not f["in_config"]]
    if runs:
        lines.append(f"error: {len(runs)} run(s) failed; the others are done. Run each again with:")
    for failure in runs:
        lines.append(f"  posfuse-train {shlex.join(failure['overrides'])}")
        lines.append(f"    {failure['message']}")
    return "\n".join(lines)
