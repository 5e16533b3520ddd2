"""Per-seed results of any study, from a CSV file whose columns the user names."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from posfuse.errors import InputError

UNITS = ("fraction", "percent", "raw")


@dataclass(frozen=True)
class Columns:
    """What the columns of a foreign table mean."""

    seed: str = "seed"
    compare: str = "method"  # what is compared
    value: str = "accuracy"
    by: Sequence[str] = ()  # each combination of these columns is compared on its own
    where: dict[str, str] = field(default_factory=dict)  # only rows with these values
    unit: str | None = None  # of `value`; None: fraction or percent, as the numbers say


def read_foreign(path: Path, columns: Columns) -> pd.DataFrame:
    """group, name, seed and value of each row of a CSV file, in the order of the file.

    Values are in points (percent), or as they are with unit="raw". Raises InputError, which names
    the file, the column and the row (the first row below the header is row 2, as in an editor).
    """
    table = _read(path)
    needed = [columns.seed, columns.compare, columns.value, *columns.by, *columns.where]
    for column in needed:
        if column not in table:
            has = ", ".join(map(str, table))
            raise InputError(f"{path}: no column {column!r}; it has {has}; name yours as an option")
        if list(table).count(column) > 1:
            raise InputError(f"{path}: the header has {column!r} twice; rename one of the columns")
    for column, wanted in columns.where.items():
        kept = table[table[column] == wanted]
        if kept.empty:
            known = ", ".join(sorted(table[column].unique())[:8])
            raise InputError(f"{path}: no row has {column}={wanted}; use one of {known}")
        table = kept
    for column in (columns.seed, columns.compare):
        if (empty := table[column].str.strip() == "").any():
            raise InputError(
                f"{path}: row {_line(empty)}: {column} is empty; fill it in, or remove the row"
            )
    group = table[list(columns.by)].agg(" ".join, axis=1) if columns.by else path.stem
    frame = pd.DataFrame(
        {
            "group": group,
            "name": table[columns.compare],
            "seed": table[columns.seed],
            "value": _values(path, table[columns.value], columns),
        }
    )
    keys = ["group", "name", "seed"]
    if (twice := frame.duplicated(keys)).any():
        row = frame[twice].iloc[0]
        raise InputError(
            f"{path}: row {_line(twice)}: seed {row['seed']} of {row['name']} is given twice for "
            f"{row['group']}; separate the rows with --by or --where"
        )
    return frame


def _read(path: Path) -> pd.DataFrame:
    """The fields as texts; the index is the line of the file where a row begins. Rows without any
    text are left out."""
    lines, rows, end = [], [], 0
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            for fields in reader:
                if any(field.strip() for field in fields):
                    lines.append(end + 1)
                    rows.append(fields)
                end = reader.line_num
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise InputError(f"{path}: cannot be read as CSV ({reason}); give a CSV file") from error
    if not rows:
        raise InputError(f"{path}: cannot be read as CSV (it is empty); give a CSV file")
    header = rows[0]
    for line, fields in zip(lines, rows, strict=True):
        if len(fields) != len(header):
            raise InputError(
                f"{path}: row {line} has {len(fields)} fields, but the header has {len(header)} "
                f"({', '.join(header)}); make them equal"
            )
    if len(rows) == 1:
        raise InputError(f"{path}: it has a header and no rows; give one row per run")
    return pd.DataFrame(rows[1:], lines[1:], header)


def _line(marked: "pd.Series[bool]") -> int:
    """The line of the file of the first marked row."""
    return int(marked.index[marked][0])


def _values(path: Path, texts: "pd.Series[str]", columns: Columns) -> "pd.Series[float]":
    values = pd.to_numeric(texts, errors="coerce").astype(float)
    if (wrong := ~values.between(-np.inf, np.inf, inclusive="neither")).any():
        row = _line(wrong)
        raise InputError(
            f"{path}: row {row}: {columns.value} is {texts[row]!r}; give a number, or remove "
            "the row"
        )
    if columns.unit == "raw":
        return values
    fractions, percents = values.between(0, 1, inclusive="neither"), values > 1
    if columns.unit is None and fractions.any() and percents.any():
        one, other = _line(fractions), _line(percents)
        raise InputError(
            f"{path}: {columns.value} mixes fractions ({texts[one]} in row {one}) and percent "
            f"({texts[other]} in row {other}); convert one of them, or say --unit percent"
        )
    percent = columns.unit == "percent" or (columns.unit is None and bool(percents.any()))
    values = values if percent else 100 * values
    if (outside := ~values.between(0, 100)).any():
        row = _line(outside)
        raise InputError(
            f"{path}: row {row}: {columns.value} {texts[row]} is no accuracy; for other "
            "measures use --unit raw"
        )
    return values
