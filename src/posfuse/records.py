"""A run's record: result.json, predictions.parquet, history.csv, and whether a run is done.

result.json is written last and atomically, so a folder with a whole one holds a finished run.
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
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from posfuse.config import NEUTRAL_KEYS, Config, one_line
from posfuse.data.corpora import files_digest, folder_files
from posfuse.errors import InputError

SCHEMA = 2  # of result.json's keys
NUMERICS = 6  # raise it when the same config and seed no longer give the same numbers
RESULT, PREDICTIONS, HISTORY = "result.json", "predictions.parquet", "history.csv"
DIAGNOSTICS = "diagnostics.parquet"
FAILURE = "failure.json"

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
        return record if (folder / PREDICTIONS).exists() else None
    mine, theirs = settings(cfg), record["settings"]
    keys = sorted(k for k in mine.keys() | theirs.keys() if mine.get(k) != theirs.get(k))
    changed = ", ".join(f"{k} {theirs.get(k)} -> {mine.get(k)}" for k in keys[:3]) or "numerics"
    raise InputError(
        f"{path}: holds another configuration's result ({changed}); give sweep_id=NAME for a "
        "folder of its own, or remove that file to run again"
    )


def read_result(path: Path) -> Record:
    """A result.json of this schema; raises InputError otherwise."""
    try:
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
    result: Record = record
    return result


def read_config(folder: Path) -> Config:
    """The config.yaml of a run, its relative paths found again from wherever one is.

    Raises InputError where there is none that fits the schema.
    """
    path = folder / "config.yaml"
    try:
        cfg = OmegaConf.to_object(
            OmegaConf.merge(OmegaConf.structured(Config), OmegaConf.load(path))
        )
    except (OSError, UnicodeDecodeError, YAMLError) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise InputError(
            f"{path}: cannot be read ({reason}); give a finished run's folder"
        ) from error
    except (OmegaConfBaseException, ValueError) as error:
        raise InputError(
            f"{path}: does not fit this version ({one_line(error)}); run it again"
        ) from error
    assert isinstance(cfg, Config)
    cfg.cache_dir = _found_above(folder, cfg.cache_dir)
    if cfg.data.path is not None:
        cfg.data.path = _found_above(folder, cfg.data.path)
    return cfg


def _found_above(folder: Path, path: str) -> str:
    """A path relative to where the run was started, which is some folder above the run's own."""
    above = (parent / path for parent in folder.resolve().parents)
    return str(next((p for p in above if p.exists()), path))


def write_history(folder: Path, rows: list[dict[str, float]]) -> None:
    """history.csv: epoch (from 1), train_loss, val_loss, val_accuracy, val_macro_f1."""
    part = folder / f"{HISTORY}.part"
    pd.DataFrame(rows).to_csv(part, index=False)
    os.replace(part, folder / HISTORY)


def write_diagnostics(folder: Path, rows: Sequence[Diagnostic]) -> None:
    """diagnostics.parquet: the columns of `Diagnostic`."""
    part = folder / f"{DIAGNOSTICS}.part"
    pd.DataFrame(rows, columns=[f.name for f in fields(Diagnostic)]).to_parquet(part, index=False)
    os.replace(part, folder / DIAGNOSTICS)


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
    part = folder / f"{PREDICTIONS}.part"
    pd.DataFrame({k: v[order] for k, v in columns.items()}).to_parquet(part, index=False)
    os.replace(part, folder / PREDICTIONS)


def write_json(path: Path, content: Record) -> None:
    """Write atomically: a reader finds the old file or the new one, never a part."""
    part = path.with_name(f"{path.name}.part")
    with part.open("w") as file:
        json.dump(content, file, indent=1, allow_nan=False)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)


@contextmanager
def sole_use(folder: Path) -> Iterator[None]:
    """Hold the run's folder; raises InputError while another process does.

    The lock is the kernel's: it ends with the process, however that ends.
    """
    lock = FileLock(folder / ".lock", timeout=0)
    try:
        lock.acquire()
    except Timeout as error:
        raise InputError(
            f"{folder}: another process is at work on this run; wait for it, or give sweep_id=NAME"
        ) from error
    try:
        yield
    finally:
        lock.release()
