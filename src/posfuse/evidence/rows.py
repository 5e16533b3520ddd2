"""Checks a record and makes it a row of the table of runs."""

import json
import re
import reprlib
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from posfuse.config import SeedsConfig
from posfuse.errors import InputError
from posfuse.evidence.metric import METRICS
from posfuse.runs.folders import VARIANT_LETTERS
from posfuse.runs.identity import flatten
from posfuse.runs.measurements import CLASSES, OTHER, WINDOWS
from posfuse.runs.records import Record

BY_LENGTH = re.compile(r"(lengths|sliding)\.([1-9][0-9]{0,8})\.(\w+)")  # an int64 holds it


def row_of(path: Path, record: Record) -> dict[str, Any]:
    """The record in this file as a row. Raises InputError if a key that the report needs is missing
    or wrong."""
    row = {"label_names": [], **flatten(record), "folder": str(path.parent)}
    expected = dict(EXPECTED)
    if not any(metric.column in row for metric in METRICS.values()):
        raise InputError(
            f"{path}: has none of the metrics {', '.join(METRICS)}, so the report cannot compare "
            "the run; it is left out. CONTRIBUTING.md says how to add a metric"
        )
    for key in sorted(row):  # so that of several wrong values always the same one is named
        split, _, name = key.rpartition(".")
        is_metric = name in SCORES and (split == "test" or BY_LENGTH.fullmatch(key))
        if is_metric:
            expected[key] = SCORES[name]
            if split != "test":
                expected["settings.data.max_len"] = A_SIZE
        elif name == "documents" and BY_LENGTH.fullmatch(key):
            expected[key] = A_SIZE
        elif key in OF_SETTINGS and row[key] is not None:
            expected[key] = OF_SETTINGS[key]
    for key, (kind, is_valid) in expected.items():
        if not is_valid(row.get(key)):
            wrong = f"{key} is {reprlib.repr(row.get(key))}, not {kind}"
            raise InputError(
                f"{path}: {wrong}; the run is left out, remove this file to run it again"
            )
    row |= dict.fromkeys((key for key in OPTIONAL if row.get(key) is None), np.nan)
    settings = {k: v for k, v in record["settings"].items() if k != "seed"}
    row["configuration"] = json.dumps(settings, sort_keys=True)
    return row


def is_number(value: Any) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and abs(value) < 1e300  # an int may be too large for a float
    )


MEASURED = ("a number", lambda v: v is None or is_number(v))
OPTIONAL = (
    "latency_ms", "parameters", "fusion_parameters", "documents.test", "best_evaluation",
    "evaluations",
)  # fmt: skip
A_SHARE = ("a number from 0 to 1", lambda v: is_number(v) and 0 <= v <= 1)
AN_AMOUNT = ("a number of at least 0", lambda v: is_number(v) and v >= 0)
ABOVE_0 = ("a number above 0", lambda v: is_number(v) and v > 0)
A_SIZE = ("a whole number above 0", lambda v: type(v) is int and 0 < v < 2**63)
A_SEED = ("a whole number", lambda v: type(v) is int and abs(v) < 2**63)
# Settings that the report computes with and that a record may lack.
OF_SETTINGS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    **dict.fromkeys((f"settings.{k}" for k in ("data.max_len", "data.limit", "model.d_model")),
                    A_SIZE),
    "settings.model.token_scale": ("a number above 0, sqrt_d or learned", lambda v:
                                   v in ("sqrt_d", "learned") or ABOVE_0[1](v)),
    **{f"settings.seeds.{f.name}": A_SEED for f in fields(SeedsConfig)},
}  # fmt: skip
SCORES = {  # of a test split
    name: A_SHARE if metric.is_share else AN_AMOUNT for name, metric in METRICS.items()
}
# The required entries of a record, by flattened key.
EXPECTED: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "variant": ("the name of a run's folder", lambda v: isinstance(v, str)
                and re.fullmatch(f"[{VARIANT_LETTERS}]*", v) is not None),
    "seed": A_SEED,
    "task.metric": ("a text", lambda v: isinstance(v, str)),
    "task.predictions": ("classes, windows or other", lambda v: v in (CLASSES, WINDOWS, OTHER)),
    "mean_tokens.train": ABOVE_0,
    **dict.fromkeys(OPTIONAL, MEASURED),
    "documents.test": ("a whole number above 0", lambda v: v is None or (type(v) is int and v > 0)),
    **dict.fromkeys(("code", "plan"), ("a text", lambda v: v is None or isinstance(v, str))),
    "label_names": ("a list of texts", lambda v: isinstance(v, list)
                    and all(isinstance(name, str) for name in v)),
}  # fmt: skip
