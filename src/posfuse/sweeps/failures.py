"""Records failures of runs in their folders, and lists them when the sweep ends."""

import logging
import os
import shlex
import sys
import time
import traceback
import uuid
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from hydra.core.utils import JobReturn
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from posfuse.config import Config
from posfuse.errors import (
    NO_MEMORY,
    AlreadyRunning,
    Diverged,
    InputError,
    TrainingError,
    lacks_memory,
    own_line,
    visible,
)
from posfuse.process import signals
from posfuse.process.arguments import file_options, shell_line
from posfuse.runs import records
from posfuse.runs.hydra_errors import one_line
from posfuse.runs.identity import own_code
from posfuse.runs.multirun import multirun_of
from posfuse.sweeps.choices import check_chosen_protocol

FAIL_FAST = "sweep.fail_fast"
detail = logging.getLogger("posfuse.detail")
detail.addHandler(logging.NullHandler())  # outside a run, do not print to stderr
_reported: set[str] = set()  # the reasons that `report` has printed in this sweep


class Ending(Callback):
    """Ends a sweep with status 1 if a run failed, and raises Interrupted if one was interrupted.
    Otherwise it prints the folder of the results. Ends a run with an unknown protocol."""

    def __init__(self, folder: str, is_of_study: bool = False) -> None:
        """`folder` is the sweep's folder. Hydra resolves it here, so an error in it ends the
        command. Errors of the methods below are only logged. A study shows the results of its
        sweeps itself."""
        self.is_of_study = is_of_study

    def __getstate__(self) -> dict[str, Any]:
        """Empty, because worker processes get a copy and do not need the state."""
        return {}

    def on_run_start(self, config: DictConfig, **kwargs: Any) -> None:
        try:
            check_chosen_protocol(config)
        except InputError as error:  # Hydra would only log it
            sys.exit(f"error: {error}")
        except OmegaConfBaseException:
            pass  # the run refuses a wrong ${...} in one line; Hydra would warn here

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        self.before = records.failures_in(Path(config.hydra.sweep.dir))
        _reported.clear()

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **kwargs: Any) -> None:
        """Release the run's configs, because the configs of 10,000 runs take 3 GB."""
        job_return.cfg = job_return.hydra_cfg = None

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        sweep = Path(config.hydra.sweep.dir)
        # Other commands may run in this folder. `config` has this command's runs; multirun.yaml may
        # have those of another one.
        own = {sweep / folder for folder in multirun_of(config).folders}
        below = [(run, failure) for run, failure in records.failures_in(sweep) if run in own]
        # In a study a run that diverged counts as guessing and is not retried.
        counts_diverged = self.is_of_study and not OmegaConf.select(config, FAIL_FAST)
        # New failures have new ids. Times are not reliable, because a clock may jump.
        new = [
            (os.path.relpath(run, sweep), failure)
            for run, failure in below
            if (run, failure) not in self.before
            and not (counts_diverged and failure["kind"] == Diverged.kind)
        ]
        if any(failure["kind"] != records.INTERRUPTED for _, failure in new):
            given = list(config.hydra.overrides.hydra)
            failed = {run for run, failure in below if failure["kind"] != records.INTERRUPTED}
            is_cut = any(run not in failed and not (run / records.RESULT).exists() for run in own)
            sys.exit(summary(new, len(own), given, signals.interruption() if is_cut else None))
        if new:
            raise signals.Interrupted(f"{len(new)} of {len(own)} runs were interrupted")
        folder = config.hydra.sweep.dir
        if not self.is_of_study:
            say(f"results: {folder}; next: {shlex.join(['posfuse', 'report', folder])}")


def message_of(error: BaseException, folder: Path) -> str:
    """The error in one line. That of an unexpected error has the line of the user's own code that
    caused it, if there is one, and its traceback goes to train.log."""
    if isinstance(error, InputError | TrainingError):
        return str(error)
    if lacks_memory(error):
        return NO_MEMORY
    if isinstance(error, OSError):
        place = error.filename or folder
        return f"{place}: {error.strerror or error}; fix this and retry; finished runs are skipped"
    detail.error("%s", "".join(traceback.format_exception(error)))
    place = f" ({line})" if (line := own_line(error)) else ""
    log = folder / "train.log"
    return f"{type(error).__name__}: {one_line(error)}{place}; see the traceback in {log}"


def record_failure(
    message: str, folder: Path, overrides: list[str], kind: str, cfg: Config | None = None
) -> None:
    """Write failure.json. `kind` is "config" for a refused config, "interrupted", or the error's
    kind. A run with this config that diverged is identified as in a record, because a study counts
    it. Raises InputError with the message if the file cannot be written."""
    detail.error("%s: %s", kind, message)
    failure: records.Record = {
        "id": uuid.uuid4().hex, "kind": kind, "message": message, "overrides": overrides,
        "time": time.time(),
    }  # fmt: skip
    if cfg and kind == Diverged.kind:
        with suppress(InputError, OSError):  # its texts may have been removed in the meantime
            failure["run"] = records.identity(cfg, folder) | own_code(cfg)
    try:
        records.write_json(folder / records.FAILURE, failure)
    except OSError as error:
        raise InputError(message) from error


def report(folder: Path, sweep: Path, fail_fast: bool) -> None:
    """Print the failure of a run that has just ended, if it failed. A reason is printed once in a
    sweep; `summary` names all its runs. With `fail_fast` interrupt the other runs. Call this in the
    process of the sweep."""
    failure = records.read_failure(folder)
    if failure is None or failure["kind"] in (records.INTERRUPTED, AlreadyRunning.kind):
        return
    run = os.path.relpath(folder, sweep)
    start = "error" if failure["kind"] == "config" else f"failed: {run}"
    if (reason := reason_of(run, failure)) not in _reported:
        _reported.add(reason)
        print(visible(f"{start}: {failure['message']}"), file=sys.stderr, flush=True)
    if fail_fast:
        signals.request(FAIL_FAST)


def reason_of(run: str, failure: records.Record) -> str:
    """The message without the run's own folder, so that runs which fail for one reason have equal
    ones."""
    return str(failure["message"]).replace(run, "")


def say(line: str) -> None:
    """Print a line of a sweep on stdout by a log handler, which accepts a stdout without a reader.
    Hydra's loggers print only lines of runs."""
    logging.StreamHandler(sys.stdout).handle(logging.makeLogRecord({"msg": line}))


def summary(
    failures: list[tuple[str, records.Record]],
    n_runs: int,
    own: list[str],
    ended_by: str | None = None,
) -> str | int:
    """The commands of the failed runs, those that failed for one reason together, with its message;
    1 if no run failed but configs were refused, because these failures have been printed already.
    `failures` are pairs of a run's folder in the sweep's and its failure, `n_runs` is the number of
    runs of the command, and `own` is as in `retry`."""
    without_result = {"config": "refused", records.INTERRUPTED: "interrupted"}
    runs = [(run, failure) for run, failure in failures if failure["kind"] not in without_result]
    if not runs:
        return 1
    kinds = Counter(failure["kind"] for _, failure in failures)
    others = "; the others are done" if len(failures) < n_runs else ""
    if ended_by:
        others = f"; {ended_by} stopped the others"
        del kinds[records.INTERRUPTED]  # they are among the others
    counts = [f"{len(runs)} of {n_runs} run{'s' * (n_runs > 1)} failed"]
    counts += [f"{kinds[kind]} {word}" for kind, word in without_result.items() if kinds[kind]]
    again = "Run the same command again, or retry each with:"
    lines = [f"error: {', '.join(counts)}{others}. {again}"]
    by_reason: dict[str, list[records.Record]] = {}
    for run, failure in runs:
        by_reason.setdefault(reason_of(run, failure), []).append(failure)
    for alike in by_reason.values():
        lines += [f"  {retry(failure['overrides'], own)}" for failure in alike]
        lines.append(f"    {alike[0]['message']}")
    return "\n".join(lines)


def retry(overrides: list[str], own: list[str]) -> str:
    """The command that repeats one run of this process's sweep.

    It reads the same config files and modules as the sweep. `own` are the sweep's overrides of
    Hydra's keys.
    """
    options = file_options(sys.argv[1:], own)
    if any(o.startswith(("experiment=", "--config-n", "-cn")) for o in [*overrides, *options]):
        options.append("hydra.mode=RUN")  # that file may list a sweep
    return shell_line(["posfuse", "train", *overrides, *options], bool(options))
