"""The record of a run and the names of its files. `measurements` has its tables.

Every file is written with another name and then renamed. result.json is the last file, so a folder
with a result.json has a finished run.
"""

import json
import os
import reprlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from posfuse import seals, untrusted
from posfuse.config import Config
from posfuse.errors import AlreadyRunning, Conflict, InputError, input_errors, visible
from posfuse.limits import NAME
from posfuse.runs.folders import with_file
from posfuse.runs.identity import (
    HUB_ID,
    differing,
    fingerprint,
    has_own_corpus,
    own_code,
    own_files,
    settings,
)
from posfuse.seals import SUMS, check_whole, digest, is_whole

SCHEMA = 3  # of result.json's keys
RESULT, FAILURE, PROGRESS = "result.json", "failure.json", "progress.json"
PREDICTIONS, HISTORY, DIAGNOSTICS = "predictions.parquet", "history.csv", "diagnostics.parquet"
BY_LENGTH = "predictions_by_length.parquet"  # of a run with data.test_lengths
MECHANISM = "mechanism.parquet"  # of a run with trainer.mechanism; its rows are Measurements
STEPS = "steps.csv"  # of a run with at least logger.every_steps steps
IDENTIFYING = {"fingerprint": str, "settings": dict}  # keys of a run's identity
INTERRUPTED = "interrupted"  # the kind of failure by a signal
BEST, LAST = "checkpoints/best.ckpt", "checkpoints/last.ckpt"
ALWAYS, SOMETIMES = (PREDICTIONS, HISTORY, DIAGNOSTICS), (BY_LENGTH, MECHANISM, STEPS)
RUN_AGAIN = f"remove {RESULT} to run again"  # the fix for a damaged file of a run
WAIT = 1.0  # seconds to wait for a run's lock, because posfuse status holds it for a moment

Record = dict[str, Any]


def identity(cfg: Config, folder: Path) -> Record:
    """The keys of a record that identify the run, and its settings.

    `variant` is the part of the folder's name with the other overrides. `plan` is the digest of the
    study's plan of a test run.
    """
    cell = {"data": cfg.data.name, "encoding": cfg.encoding.name, "fusion": cfg.fusion["name"]}
    parts = folder.parts[:-1]
    return {
        "schema": SCHEMA,
        "fingerprint": fingerprint(cfg),
        "sweep_id": cfg.sweep_id,
        **({"plan": cfg.sweep.plan} if cfg.sweep.plan else {}),
        **cell,
        "seed": cfg.seed,
        "variant": "" if parts[-3:] == tuple(cell.values()) else parts[-1],
        "settings": settings(cfg),
    }


def finished_record(folder: Path, cfg: Config) -> Record | None:
    """The record in `folder` if it belongs to this config; None if the run is not finished.

    Raises Conflict if the folder has the result of another configuration, or of other code of the
    user's own classes.
    """
    path = folder / RESULT
    if not path.exists():
        return None
    record = read_result(path)
    if record["fingerprint"] == fingerprint(cfg):
        if not is_complete(folder):
            return None
        code = record.get("code")
        if code is None or code == own_code(cfg).get("code"):
            return record
        files = ", ".join(sorted(file.name for file in own_files(cfg)))
        texts = " or of earlier texts" * has_own_corpus(cfg)
        raise Conflict(
            f"{path}: has the result of earlier code{texts} of {files}; set sweep_id=NAME, or for "
            "an operator fusion.name=NAME, to use another folder, or remove this file to run again"
        )
    mine, theirs = settings(cfg), record["settings"]
    keys = differing(mine, theirs)
    changed = ", ".join(f"{k} {theirs.get(k)} -> {mine.get(k)}" for k in keys[:3]) or "numerics"
    held = f"another configuration's result ({changed}); set sweep_id=NAME to use another folder"
    if {"data.path", HUB_ID} & set(keys):
        held = (
            f"the result of other texts that are also named {cfg.data.name!r}; set data.name=NAME "
            "for these texts"
        )
    raise Conflict(f"{path}: has {held}, or remove this file to run again")


def read_result(path: Path) -> Record:
    """A record of this schema. Raises InputError for any other file."""
    cure = "remove it to run again"
    with input_errors(f"{path}: not a readable record", cure):
        check_whole(path)
        record: Record = untrusted.read_json(path)
        schema = record["schema"]
    if schema != SCHEMA:
        raise InputError(f"{path}: has schema {schema}, but this version reads {SCHEMA}; {cure}")
    for key, kind in IDENTIFYING.items():
        if not isinstance(record.setdefault(key, {}), kind):
            raise InputError(f"{path}: not a readable record (no {key}); {cure}")
    return record


def read_placed(path: Path) -> Record:
    """A record that also names its place in a sweep. Raises InputError for any other file."""
    record = read_result(path)
    for key in ("sweep_id", "data", "encoding", "fusion"):
        if not (isinstance(name := record.get(key), str) and NAME.fullmatch(name)):
            raise InputError(
                f"{path}: {key} is {reprlib.repr(name)}, not a name of letters, digits and _.-; "
                "the run is left out, remove this file to run it again"
            )
    for key, kind in (("variant", str), ("seed", int), ("task", dict)):
        if type(record.get(key)) is not kind:
            raise InputError(f"{path}: not a readable record (no {key}); {RUN_AGAIN}")
    return record


def read_failure(folder: Path) -> Record | None:
    """The failure.json of a run: its id, time, kind, message and overrides; None without it. If the
    run diverged, `run` is its identity."""
    try:
        failure = untrusted.read_json(folder / FAILURE, has_bytes=True)
        parts = {"id": str, "time": float, "kind": str, "message": str, "overrides": list}
        found = [isinstance(failure[key], kind) for key, kind in parts.items()]
        if run := failure.get("run"):
            found += [isinstance(run[key], kind) for key, kind in IDENTIFYING.items()]
        if not all(found):
            raise ValueError
    except FileNotFoundError:
        return None
    except (OSError, ValueError, LookupError, TypeError):
        message = f"the run failed, but {FAILURE} is damaged"
        return {"id": "", "time": 0.0, "kind": "failed", "message": message, "overrides": []}
    return {**failure, "message": visible(" ".join(failure["message"].split()))}


def failures_in(folder: Path) -> list[tuple[Path, Record]]:
    """The folders of failed and interrupted runs below this folder, with the failures."""
    runs = with_file(FAILURE, folder)
    failures = [(run, failure) for run in runs if (failure := read_failure(run))]
    # Another process may have finished the run in the meantime.
    kind = AlreadyRunning.kind
    return [(run, f) for run, f in failures if f["kind"] != kind or not (run / RESULT).exists()]


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`. On success it is renamed to `path`; after an error it is
    removed."""
    part = path.with_name(f"{path.name}.part")
    try:
        yield part
        with part.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def write_result(folder: Path, record: Record) -> None:
    """Finish a run: write the digests of its results, then the record."""
    with replacing(folder / RESULT) as part:
        write_json(part, record)
        others = [name for name in (*ALWAYS, BEST, *SOMETIMES) if (folder / name).exists()]
        digests = {RESULT: digest(part)} | {name: digest(folder / name) for name in others}
        with replacing(folder / SUMS) as sums:
            lines = [f"{sealed}  {name}\n" for name, sealed in digests.items()]
            sums.write_text("".join(lines), encoding="utf-8")


def is_complete(folder: Path) -> bool:
    """True if the files of a finished run are undamaged. The weights are checked on loading."""
    if not (folder / SUMS).exists():
        return is_whole(folder / PREDICTIONS)
    sums = seals.read_sums(folder)
    names = [*ALWAYS, *(name for name in SOMETIMES if name in sums)]
    return all(is_whole(folder / name) for name in names)


def now() -> str:
    """The time in UTC, such as 2026-11-25T17:00:00+00:00."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def write_json(path: Path, content: Record) -> None:
    """Write atomically: a reader gets the old file or the new one."""
    with replacing(path) as part:
        part.write_text(json.dumps(content, indent=1, allow_nan=False), encoding="utf-8")


def read_json(path: Path) -> Record:
    """A file of `write_json`; empty if it is damaged."""
    try:
        content = untrusted.read_json(path)
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


@contextmanager
def sole_use(folder: Path) -> Iterator[None]:
    """Lock the run's folder. Raises AlreadyRunning while another process holds the lock.

    The kernel releases the lock when the process ends, even if it is killed.
    """
    try:
        held = FileLock(folder / ".lock", timeout=WAIT).acquire()
    except Timeout as error:
        raise AlreadyRunning(
            f"{folder}: another process is running this run; wait for it or set sweep_id=NAME"
        ) from error
    with held:
        yield
