"""posfuse sync DIR: upload a sweep's finished runs to W&B and check that the server has them.

Runs are built from their records, not from W&B's logs. A run that the server has already is
skipped. A partly uploaded run is completed, unless its rows are those of another training.
"""

import math
import shlex
import sys
import tempfile
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np

from posfuse.errors import InputError
from posfuse.runs import identity, records
from posfuse.runs.folders import results_in, started_in, without_runs
from posfuse.runs.multirun import sweep_around
from posfuse.runs.usable import usable
from posfuse.tracking import projection, server
from posfuse.tracking.projection import STEP, Finished

PAUSES = (0, 1, 3, 6)  # seconds before each check, because the server shows an upload with a delay
NEW_IDS = "upload the sweep under new ids with a new suffix, such as --suffix=2"
LOSS = "val/loss"  # of every evaluation
OTHER_TRAINING = "the server has the curves of another training of this run"


def read(sweep: Path, suffix: str) -> tuple[list[Finished], list[str]]:
    """The sweep's finished runs, and a line for each record or cell that is left out (`usable`)."""
    return usable(sweep, lambda path, _: Finished.read(path.parent, suffix))


def sync(runs: list[Finished], files: Path) -> list[str]:
    """Upload the parts that the server lacks. Returns a line for each run that is still
    incomplete."""
    waiting = lacking(runs)
    failures = {  # the line of a run, by its id
        run.id: f"{run.folder}: {reason}; {NEW_IDS}"
        for run, reason in waiting
        if reason == OTHER_TRAINING
    }
    unsent = [run for run, _ in waiting if run.id not in failures]
    for n, run in enumerate(unsent, 1):
        print(f"uploading {n} of {len(unsent)}: {run.folder}", file=sys.stderr)
        try:
            send(run, files)
        except InputError as error:  # names a file of the run
            failures[run.id] = str(error)
        except Exception as error:  # noqa: BLE001 - W&B's types are partly private
            reason = f"W&B: {server.text_of(error)}"
            failures[run.id] = f"{run.folder}: {reason}; retry, or {NEW_IDS}"
            server.end_process()
    for pause in PAUSES if unsent else ():
        time.sleep(pause)
        waiting = lacking([run for run, _ in waiting])
        if all(run.id in failures for run, _ in waiting):
            break
    return [
        failures.get(run.id, f"{run.folder}: {reason}; retry, or {NEW_IDS}")
        for run, reason in waiting
    ]


def send(run: Finished, files: Path) -> None:
    """Upload one run. W&B's own files of the upload are written to `files`."""
    opened = server.start(
        run.record, run.logger, run.folder, run.id, server.AFTERWARDS, dir=files, mode="online"
    )
    code = 1
    try:
        server.complete(opened, run, opened.starting_step)
        code = 0
    finally:  # `with` would print the traceback of an error that is reported in one line
        opened.finish(exit_code=code)


def lacking(runs: list[Finished]) -> list[tuple[Finished, str]]:
    """The runs that the server lacks, each with the missing part."""
    held = on_server(runs)
    reasons = [(run, difference(run, held.get(run.id))) for run in runs]
    return [(run, reason) for run, reason in reasons if reason]


def on_server(runs: list[Finished]) -> dict[str, Any]:
    """The server's runs with the ids of these runs, by id."""
    api = server.connect()  # a new connection each time, because it caches answers
    ids: dict[tuple[str, str], list[str]] = {}
    for run in runs:
        ids.setdefault(server.place_of(run.logger, api), []).append(run.id)
    held: dict[str, Any] = {}
    for place, own in ids.items():
        if server.project_url(api, *place) is not None:
            held |= server.runs_of(api, *place, own)
    return held


def projects_of(runs: list[Finished]) -> list[str]:
    """The web pages of the runs' projects."""
    api = server.connect()
    places = sorted({server.place_of(run.logger, api) for run in runs})
    return [page for place in places if (page := server.project_url(api, *place))]


def difference(run: Finished, there: Any) -> str:
    """The part of a run that the server lacks; empty if the run is complete."""
    if there is None:
        return f"not on the server under the id {run.id}"
    if not has_same_curve(run, there):
        return OTHER_TRAINING
    if there.lastHistoryStep != run.last_step:
        return f"the server's last step is {there.lastHistoryStep}, not {run.last_step}"
    for name, here, theirs in (
        ("config", projection.config(run.record), there.config),
        ("summary", run.summary, there.summary_metrics),
    ):
        held = identity.flatten(theirs)
        if wrong := [key for key, value in here.items() if not is_equal(value, held.get(key))]:
            return f"the {name} on the server differs ({', '.join(wrong[:5])})"
    artifacts = {each.name.split(":")[0] for each in there.logged_artifacts()}
    for kind in run.logger.artifacts:
        if f"{kind}-{run.id}" not in artifacts:
            return f"the server has no artifact {kind}-{run.id}"
    return ""


def is_equal(ours: Any, theirs: Any) -> bool:
    """True if W&B holds our value. It leaves a NaN out of a summary, or holds it as text."""
    return bool(ours == theirs or (ours != ours and str(theirs).lower() in ("none", "nan")))


def has_same_curve(run: Finished, there: Any) -> bool:
    """False if a validation loss on the server differs from that of the run. A run that is trained
    again has the same id, and W&B cannot change rows."""
    ours = {row[STEP]: row.get(LOSS, math.nan) for row in run.rows}
    theirs = {row["_step"]: float(row[LOSS]) for row in there.history(keys=[LOSS], pandas=False)}
    expected = [ours.get(step, math.nan) for step in theirs]
    return np.allclose([*theirs.values()], expected, equal_nan=True)


def main(arguments: Namespace) -> list[str]:
    """Upload a sweep. Returns a line for each run that the server lacks. Raises InputError if no
    run is finished or W&B refuses a call."""
    sweep = arguments.folder
    server.prepare(sweep)
    runs, problems = read(sweep, arguments.suffix)
    if not (runs or problems):
        raise InputError(without_runs(sweep))
    (sweep / ".wandb").mkdir(exist_ok=True)
    with server.errors_in_one_line(), tempfile.TemporaryDirectory(dir=sweep / ".wandb") as files:
        unsent = sync(runs, Path(files))
        held, total = len(runs) - len(unsent), len(results_in(sweep))
        pages = projects_of(runs) if held else []
    print(f"{server.address()} holds {held} of {total} runs")
    started = started_in(sweep)
    if unfinished := [folder for folder in started if not (folder / records.RESULT).exists()]:
        print(f"skipped {len(unfinished)} unfinished runs, the first in {unfinished[0]}")
    for page in pages:
        print(f"results: {page}")
    sweeps = {sweep_around(run.folder) or run.record["sweep_id"] for run in runs}
    if not problems + unsent and len(sweeps) == 1:  # posfuse dashboard refuses several
        own = [f"--suffix={arguments.suffix}"] if arguments.suffix else []
        print(f"next: {shlex.join(['posfuse', 'dashboard', *own, str(sweep)])}")
    return problems + unsent
