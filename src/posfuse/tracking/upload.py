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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from posfuse.config import LoggerConfig
from posfuse.errors import InputError
from posfuse.runs import configs, identity, records
from posfuse.runs.folders import results_in, started_in
from posfuse.runs.usable import usable
from posfuse.tracking import projection, server
from posfuse.tracking.finished import Finished, artifact_name, complete
from posfuse.tracking.places import prepare
from posfuse.tracking.projection import STEP

PAGE = 50  # runs per request
PAUSES = (0, 1, 3, 6)  # seconds before each check, because the server shows an upload with a delay
NEW_IDS = "upload the sweep under new ids with a new suffix, such as --suffix=2"
LOSS = "val/loss"  # of every evaluation
OTHER_TRAINING = "the server has the curves of another training of this run"


@dataclass(frozen=True)
class Upload:
    """A finished run, its id in W&B, and the logger's settings in its config.yaml."""

    run: Finished
    id: str
    logger: LoggerConfig


def read(sweep: Path, suffix: str) -> tuple[list[Upload], list[str]]:
    """The sweep's finished runs, and a line for each record or cell that is left out (`usable`)."""

    def upload(path: Path, record: records.Record) -> Upload:
        run, logger = Finished.read(path.parent, record), configs.read_config(path.parent).logger
        return Upload(run, projection.run_id(record, suffix), logger)

    return usable(sweep, upload)


def sync(uploads: list[Upload], files: Path) -> list[str]:
    """Upload the parts that the server lacks. Returns a line for each run that is still
    incomplete."""
    waiting = lacking(uploads)
    failures = {  # the line of a run, by its id
        upload.id: f"{upload.run.folder}: {reason}; {NEW_IDS}"
        for upload, reason in waiting
        if reason == OTHER_TRAINING
    }
    unsent = [upload for upload, _ in waiting if upload.id not in failures]
    for n, upload in enumerate(unsent, 1):
        print(f"uploading {n} of {len(unsent)}: {upload.run.folder}", file=sys.stderr)
        try:
            send(upload, files)
        except InputError as error:  # names a file of the run
            failures[upload.id] = str(error)
        except Exception as error:  # noqa: BLE001 - W&B's types are partly private
            reason = f"W&B: {server.text_of(error)}"
            failures[upload.id] = f"{upload.run.folder}: {reason}; retry, or {NEW_IDS}"
            projection.end_process()
    for pause in PAUSES if unsent else ():
        time.sleep(pause)
        waiting = lacking([upload for upload, _ in waiting])
        if all(upload.id in failures for upload, _ in waiting):
            break
    return [
        failures.get(upload.id, f"{upload.run.folder}: {reason}; retry, or {NEW_IDS}")
        for upload, reason in waiting
    ]


def send(upload: Upload, files: Path) -> None:
    """Upload one run. W&B's own files of the upload are written to `files`."""
    with projection.start(
        upload.run.record, upload.logger, upload.run.folder, upload.id, projection.AFTERWARDS,
        dir=files, mode="online",
    ) as run:  # fmt: skip
        complete(run, upload.run, run.starting_step, upload.logger.artifacts)


def lacking(uploads: list[Upload]) -> list[tuple[Upload, str]]:
    """The runs that the server lacks, each with the missing part."""
    held = on_server(uploads)
    reasons = [(upload, difference(upload, held.get(upload.id))) for upload in uploads]
    return [(upload, reason) for upload, reason in reasons if reason]


def on_server(uploads: list[Upload]) -> dict[str, Any]:
    api = server.connect()  # a new connection each time, because it caches answers
    places = {upload.id: server.place_of(upload.logger, api) for upload in uploads}
    held: dict[str, Any] = {}
    for entity, project in set(places.values()):
        if server.project_url(api, entity, project) is None:
            continue
        ids = [own for own, place in places.items() if place == (entity, project)]
        for at in range(0, len(ids), PAGE):
            wanted = {"name": {"$in": ids[at : at + PAGE]}}
            runs = api.runs(f"{entity}/{project}", wanted, per_page=PAGE)
            held |= {run.id: run for run in runs}
    return held


def projects_of(uploads: list[Upload]) -> list[str]:
    api = server.connect()
    places = sorted({server.place_of(upload.logger, api) for upload in uploads})
    return [page for place in places if (page := server.project_url(api, *place))]


def difference(upload: Upload, there: Any) -> str:
    """The part of a run that the server lacks; empty if the run is complete."""
    if there is None:
        return f"not on the server under the id {upload.id}"
    if not has_same_curve(upload.run, there):
        return OTHER_TRAINING
    if there.lastHistoryStep != upload.run.last_step:
        return f"the server's last step is {there.lastHistoryStep}, not {upload.run.last_step}"
    for name, here, theirs in (
        ("config", projection.config(upload.run.record), there.config),
        ("summary", upload.run.summary, there.summary_metrics),
    ):
        held = identity.flatten(theirs)
        if wrong := [key for key, value in here.items() if not is_equal(value, held.get(key))]:
            return f"the {name} on the server differs ({', '.join(wrong[:5])})"
    wanted = [artifact_name(kind, upload.id) for kind in upload.logger.artifacts]
    artifacts = {each.name.split(":")[0] for each in there.logged_artifacts()}
    if lacking := [name for name in wanted if name not in artifacts]:
        return f"the server has no artifact {lacking[0]}"
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
    """Upload a sweep. Returns a line for each run that the server lacks."""
    sweep = arguments.folder
    prepare(sweep)
    uploads, problems = read(sweep, arguments.suffix)
    if not (uploads or problems):
        raise InputError(f"{sweep}: no finished runs; run posfuse train -m first")
    (sweep / ".wandb").mkdir(exist_ok=True)
    with server.errors_in_one_line(), tempfile.TemporaryDirectory(dir=sweep / ".wandb") as files:
        unsent = sync(uploads, Path(files))
        held, total = len(uploads) - len(unsent), len(results_in(sweep))
        pages = projects_of(uploads) if held else []
    print(f"{server.address()} holds {held} of {total} runs")
    started = started_in(sweep)
    if unfinished := [folder for folder in started if not (folder / records.RESULT).exists()]:
        print(f"skipped {len(unfinished)} unfinished runs, the first in {unfinished[0]}")
    for page in pages:
        print(f"results: {page}")
    if not problems + unsent:
        own = [f"--suffix={arguments.suffix}"] if arguments.suffix else []
        print(f"next: {shlex.join(['posfuse', 'dashboard', *own, str(sweep)])}")
    return problems + unsent
