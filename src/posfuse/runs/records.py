"""A run's record: result.json, predictions.parquet, history.csv, and whether a run is done.

Every file is written beside its place and renamed into it, result.json last, so a folder with one
holds a finished run. SHA256SUMS has the digest of each, as sha256sum writes and checks them.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from filelock import FileLock, Timeout
from omegaconf import Container, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from posfuse.config import NEUTRAL_KEYS, Config, one_line
from posfuse.data.corpora import files_digest, folder_files
from posfuse.errors import AtWork, InputError

SCHEMA = 2  # of result.json's keys
NUMERICS = 10  # raise it when the same config and seed no longer give the same numbers
RESULT, PREDICTIONS, HISTORY = "result.json", "predictions.parquet", "history.csv"
DIAGNOSTICS = "diagnostics.parquet"
FAILURE = "failure.json"
SUMS = "SHA256SUMS"
BEST, LAST = "checkpoints/best.ckpt", "checkpoints/last.ckpt"
WAIT = 1.0  # seconds for a run's lock: posfuse-status takes it for a moment to see if it is free

Record = dict[str, Any]


@dataclass(frozen=True)
class Diagnostic:
    """A row of diagnostics.parquet, the mean of `name` over `n` tokens, queries or documents.

    `by` is what low to high, inclusive, count: "position" (from 0), "frequency" (occurrences of
    the word in what training reads), "layer" (from 1), "offset" (of the positions), or "" for all
    of them. Entropies are in bits, accuracies shares.
    """

    epoch: int  # from 1
    name: str
    by: str
    low: int
    high: int
    n: int
    value: float


def settings(cfg: Config) -> dict[str, Any]:
    """The config without what cannot change a number, flat: {"model.d_model": 64, ...}."""
    flat = flatten(asdict(cfg))
    for key in list(flat):
        if any(key == k or key.startswith(f"{k}.") for k in NEUTRAL_KEYS):
            del flat[key]
    if cfg.trainer.devices == 1:
        del flat["trainer.devices"]  # records from before there was the key stay valid
    if cfg.data.path is not None:
        # What the files hold counts, not where they lie.
        flat["data.path"] = files_digest(folder_files(cfg.data.path))
        flat = {k: v for k, v in flat.items() if not k.startswith("data.corpus")}
    return flat


def fingerprint(cfg: Config) -> str:
    """16 hex digits of everything that can change a number of the run, and of nothing else."""
    text = json.dumps([NUMERICS, settings(cfg)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def flatten(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested dicts as one, keys joined with dots."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def identity(cfg: Config, folder: Path) -> Record:
    """Which run this is: the record's first keys, and its settings.

    `variant` is what the folder's name says beyond data, encoding, fusion and seed.
    """
    cell = {"data": cfg.data.name, "encoding": cfg.encoding.name, "fusion": cfg.fusion["name"]}
    parts = folder.parts[:-1]
    return {
        "schema": SCHEMA,
        "fingerprint": fingerprint(cfg),
        "sweep_id": cfg.sweep_id,
        **cell,
        "seed": cfg.seed,
        "variant": "" if parts[-3:] == tuple(cell.values()) else parts[-1],
        "settings": settings(cfg),
    }


def finished(folder: Path, cfg: Config) -> Record | None:
    """The record in `folder` if it is this config's; None if the run is still to be done.

    Raises InputError where another configuration's result lies there: nothing is overwritten.
    """
    path = folder / RESULT
    if not path.exists():
        return None
    record = read_result(path)
    if record["fingerprint"] == fingerprint(cfg):
        return record if is_complete(folder) else None
    mine, theirs = settings(cfg), record["settings"]
    keys = sorted(k for k in mine.keys() | theirs.keys() if mine.get(k) != theirs.get(k))
    if "data.path" in keys and "data.path" in mine and "data.path" in theirs:
        raise InputError(
            f"{path}: holds the result of other texts that are also named {cfg.data.name!r}; give "
            "these data.name=NAME, or remove that file to run again"
        )
    changed = ", ".join(f"{k} {theirs.get(k)} -> {mine.get(k)}" for k in keys[:3]) or "numerics"
    raise InputError(
        f"{path}: holds another configuration's result ({changed}); give sweep_id=NAME for a "
        "folder of its own, or remove that file to run again"
    )


def read_result(path: Path) -> Record:
    """A result.json of this schema; raises InputError otherwise."""
    try:
        if path.exists() and not is_whole(path):
            raise InputError(f"{path}: differs from its digest in {SUMS}; remove it to run again")
        record = json.loads(path.read_text())
        schema = record["schema"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(
            f"{path}: not a readable record ({error}); remove it to run again"
        ) from error
    if schema != SCHEMA:
        raise InputError(
            f"{path}: schema {schema}, this version reads {SCHEMA}; remove it to run again"
        )
    if "fingerprint" not in record:
        raise InputError(f"{path}: not a readable record (no fingerprint); remove it to run again")
    result: Record = record
    return result


def read_failure(path: Path) -> Record:
    """A failure.json: its id, time, kind, message and overrides."""
    try:
        found = json.loads(path.read_text())
        parts = {"id": str, "time": float, "kind": str, "message": str, "overrides": list}
        if not all(isinstance(found[key], kind) for key, kind in parts.items()):
            raise ValueError
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        message = f"it failed, and {path.name} is damaged"
        return {"id": "", "time": 0.0, "kind": "failed", "message": message, "overrides": []}
    return {**found, "message": " ".join(found["message"].split())}


def failures_in(folder: Path) -> list[tuple[Path, Record]]:
    """The folders of runs below this one that ended otherwise than done, and their failures."""
    paths = sorted(folder.rglob(FAILURE))
    found = [(path.parent, read_failure(path)) for path in paths]
    # One that was at work elsewhere may be done by now.
    return [(run, f) for run, f in found if f["kind"] != AtWork.kind or not (run / RESULT).exists()]


def read_config(folder: Path) -> Config:
    """The config.yaml of a run, its relative paths found again from wherever one is.

    Raises InputError where there is none that fits the schema.
    """
    path = folder / "config.yaml"
    try:
        cfg = config_of(OmegaConf.load(path))
    except (OSError, UnicodeDecodeError, YAMLError) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise InputError(
            f"{path}: cannot be read ({reason}); give a finished run's folder"
        ) from error
    except (OmegaConfBaseException, ValueError) as error:
        raise InputError(
            f"{path}: does not fit this version ({one_line(error)}); run it again"
        ) from error
    cfg.cache_dir = _found_above(folder, cfg.cache_dir)
    if cfg.data.path is not None:
        cfg.data.path = _found_above(folder, cfg.data.path)
    return cfg


def config_of(content: Container) -> Config:
    """A config from what YAML holds; raises OmegaConfBaseException or ValueError where that does
    not fit."""
    cfg = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(Config), content))
    assert isinstance(cfg, Config)
    return cfg


def _found_above(folder: Path, path: str) -> str:
    """A path relative to where the run was started, which is some folder above the run's own."""
    above = (parent / path for parent in folder.resolve().parents)
    return str(next((p for p in above if p.exists()), path))


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A place beside `path` to write to; what is whole there takes its name, else it goes."""
    part = path.with_name(f"{path.name}.part")
    try:
        yield part
        with part.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def write_history(folder: Path, rows: list[dict[str, float]]) -> None:
    """history.csv: epoch (from 1), step (training steps done), train_loss, val_loss, ..."""
    with replacing(folder / HISTORY) as part:
        pd.DataFrame(rows).to_csv(part, index=False)


def write_diagnostics(folder: Path, rows: Sequence[Diagnostic]) -> None:
    """diagnostics.parquet: the columns of `Diagnostic`."""
    with replacing(folder / DIAGNOSTICS) as part:
        columns = [f.name for f in fields(Diagnostic)]
        pd.DataFrame(rows, columns=columns).to_parquet(part, index=False)


def write_predictions(folder: Path, batches: list[dict[str, Any]], lengths: np.ndarray) -> None:
    """predictions.parquet: index, length, label, predicted, log_p_0..C-1, a row a test document.

    `lengths` are the tokens of all test documents, before any cut, (documents,).
    """
    index = np.concatenate([b["index"] for b in batches])
    order = np.argsort(index)
    columns = {
        "index": index,
        "length": lengths[index],
        **{k: np.concatenate([b[k] for b in batches]) for k in ("label", "predicted")},
    }
    log_p = np.concatenate([b["log_probabilities"] for b in batches])
    columns |= {f"log_p_{c}": log_p[:, c] for c in range(log_p.shape[1])}
    with replacing(folder / PREDICTIONS) as part:
        pd.DataFrame({k: v[order] for k, v in columns.items()}).to_parquet(part, index=False)


def write_result(folder: Path, record: Record) -> None:
    """Close a run whose other files are written: their digests, then the record."""
    with replacing(folder / RESULT) as part:
        part.write_text(as_json(record))
        found = {RESULT: _digest(part)}
        for name in (PREDICTIONS, HISTORY, DIAGNOSTICS, BEST):
            found[name] = _digest(folder / name)
        with replacing(folder / SUMS) as sums:
            sums.write_text("".join(f"{digest}  {name}\n" for name, digest in found.items()))


def is_whole(path: Path) -> bool:
    """Whether a file of a finished run is there, and as it was written if SHA256SUMS tells."""
    folder = path.parent.parent if path.parent.name == Path(BEST).parent.name else path.parent
    name = path.relative_to(folder).as_posix()
    try:
        lines = (folder / SUMS).read_bytes().decode(errors="replace").splitlines()
        return path.exists() and any(line == f"{_digest(path)}  {name}" for line in lines)
    except FileNotFoundError:
        return path.exists()


def is_complete(folder: Path) -> bool:
    """Whether the files of a finished run are there as they were written; its weights are left
    out, since nothing reads them but who loads them."""
    names = (PREDICTIONS, HISTORY, DIAGNOSTICS) if (folder / SUMS).exists() else (PREDICTIONS,)
    return all(is_whole(folder / name) for name in names)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def as_json(content: Record) -> str:
    return json.dumps(content, indent=1, allow_nan=False)


def write_json(path: Path, content: Record) -> None:
    """Write atomically: a reader finds the old file or the new one, never a part."""
    with replacing(path) as part:
        part.write_text(as_json(content))


@contextmanager
def sole_use(folder: Path) -> Iterator[None]:
    """Hold the run's folder; raises AtWork while another process does.

    The lock is the kernel's: it ends with the process, however that ends.
    """
    lock = FileLock(folder / ".lock", timeout=WAIT)
    try:
        lock.acquire()
    except Timeout as error:
        raise AtWork(
            f"{folder}: another process is at work on this run; wait for it, or give sweep_id=NAME"
        ) from error
    try:
        yield
    finally:
        lock.release()
