"""Failures of runs: recorded in their folders, and listed when the sweep ends."""

import logging
import math
import os
import shlex
import sys
import time
import traceback
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobReturn, JobStatus
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf

from posfuse.config import check_folder
from posfuse.errors import (
    NO_MEMORY,
    AlreadyRunning,
    ConfigError,
    InputError,
    TrainingError,
    lacks_memory,
)
from posfuse.process import signals
from posfuse.runs import records
from posfuse.runs.hydra_errors import one_line
from posfuse.sweeps.watch import report

detail = logging.getLogger("posfuse.detail")
detail.addHandler(logging.NullHandler())  # outside a run it must not print to stderr


class RunFailed(Exception):
    """A run failed, and its failure.json cannot be written."""


class Ending(Callback):
    """Ends a sweep with status 1 if a run failed, by an exception if it was interrupted."""

    def __init__(self, folder: str) -> None:
        """`folder` is the sweep's. It is an argument because Hydra stops at an error in it now,
        and only logs errors in the methods below."""

    def __getstate__(self) -> dict[str, Any]:
        """Empty: workers get a copy, and the state belongs to this process alone."""
        return {}

    def on_run_start(self, config: DictConfig, **kwargs: Any) -> None:
        refuse_empty("hydra.run.dir", config)

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        refuse_empty("hydra.sweep.dir", config)
        refuse_empty("hydra.sweep.subdir", config)
        self.before = records.failures_in(Path(config.hydra.sweep.dir))

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        below = records.failures_in(Path(config.hydra.sweep.dir))
        # Their ids, and no clock, show which failures are new.
        found = [failure for run, failure in below if (run, failure) not in self.before]
        if failed := [failure for failure in found if failure["kind"] != records.INTERRUPTED]:
            ended_by = signals.received() or ""
            if ended_by and config.sweep.fail_fast:
                ended_by = "sweep.fail_fast"
            sys.exit(summary(failed, ended_by))
        if found:
            raise signals.Interrupted(f"{len(found)} run(s) were interrupted")


def refuse_empty(key: str, config: DictConfig) -> None:
    """Exit with one line if `key` is empty: files would go to the working directory. Hydra would
    only log an exception."""
    _, section, name = key.split(".")
    unresolved: Any = OmegaConf.to_container(config.hydra[section])  # HydraConfig is not set yet
    try:
        check_folder(key, unresolved[name])
    except InputError as error:
        sys.exit(f"error: {error}")


def kind_of(error: Exception) -> str:
    """The kind of a failure in failure.json."""
    kinds = AlreadyRunning | ConfigError | TrainingError
    return error.kind if isinstance(error, kinds) else TrainingError.kind


def message_of(error: Exception, folder: Path) -> str:
    """The error in one line; the traceback of an unexpected one goes to train.log."""
    if isinstance(error, InputError | TrainingError):
        return str(error)
    if lacks_memory(error):
        return NO_MEMORY
    if isinstance(error, OSError):
        place = error.filename or folder
        return f"{place}: {error.strerror or error}; fix this and retry; finished runs are skipped"
    detail.error("%s", "".join(traceback.format_exception(error)))
    return f"{type(error).__name__}: {one_line(error)}; see the traceback in {folder}/train.log"


def record_failure(
    message: str, folder: Path, overrides: list[str], kind: str, sweep: Path | None = None
) -> None:
    """Write failure.json, and report it to the sweep if the run belongs to one.

    `kind` is "config" for a refused config, "interrupted", or that of the error. Raises RunFailed
    if the file cannot be written.
    """
    detail.error("%s: %s", kind, message)
    failure = {
        "id": uuid.uuid4().hex, "kind": kind, "message": message, "overrides": overrides,
        "time": time.time(),
    }  # fmt: skip
    try:
        records.write_json(folder / records.FAILURE, failure)
        if sweep is not None and kind not in (records.INTERRUPTED, AlreadyRunning.kind):
            report(sweep, {**failure, "run": os.path.relpath(folder, sweep)})
    except OSError as error:
        raise RunFailed(message) from error


def summary(failures: list[records.Record], ended_by: str = "") -> str | int:
    """Each run that failed, with its command; 1 if only configs were refused, since each of these
    was printed at once."""
    runs = [f for f in failures if f["kind"] != "config"]
    if not runs:
        return 1
    others = f"{ended_by} stopped the others" if ended_by else "the others are done"
    lines = [f"error: {len(runs)} run(s) failed; {others}. Retry each with:"]
    for failure in runs:
        lines.append(f"  posfuse-train {shlex.join(failure['overrides'])}")
        lines.append(f"    {failure['message']}")
    return "\n".join(lines)


def lost(launcher: Any, overrides: Sequence[str], message: str) -> JobReturn:
    """Record the failure of a run whose process ended without recording one, and return NaN for
    it. `launcher.before` are the failures from before the sweep."""
    cfg = launcher.hydra_context.config_loader.load_sweep_config(launcher.config, list(overrides))
    HydraConfig.instance().set_config(cfg)  # the resolvers of its folder read it
    sweep = Path(cfg.hydra.sweep.dir)
    folder = sweep / cfg.hydra.sweep.subdir
    new = [
        run for run, failure in records.failures_in(sweep) if (run, failure) not in launcher.before
    ]
    if folder not in new and not (folder / records.RESULT).exists():
        folder.mkdir(parents=True, exist_ok=True)
        record_failure(message, folder, list(overrides), "failed", sweep)
    return JobReturn(status=JobStatus.COMPLETED, _return_value=math.nan)
