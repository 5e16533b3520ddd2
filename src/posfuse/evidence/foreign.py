"""Per-seed results of any study, from a CSV file whose columns the user names."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from posfuse.data.csv_files import rows
from posfuse.data.names import canonical, check_distinct, check_printable
from posfuse.errors import InputError, input_errors

if TYPE_CHECKING:  # importing pandas takes half a second, and help does not need it
    import pandas as pd

UNITS = ("fraction", "percent", "raw")
LARGEST = 1e100  # of a raw value, because squares of larger ones overflow
SHOWN = 8  # names in an error message


@dataclass(frozen=True)
class Columns:
    """The meaning of the columns of a foreign table."""

    seed: str = "seed"
    compare: str = "method"  # the compared methods
    value: str = "accuracy"
    by: Sequence[str] = ()  # each combination of these columns is compared separately
    where: dict[str, str] = field(default_factory=dict)  # only rows with these values
    unit: str | None = None  # of `value`; None: percent if a number is above 1, else fraction
    units: Sequence[str] = ()  # the seed, or some of `by`: the unit of a comparison over all groups


def read_foreign(path: Path, columns: Columns) -> "pd.DataFrame":
    """group, name, seed and value of each row of a CSV file, in the order of the file.

    With `columns.units` there is also a column unit. The name of a group or unit of one column is
    the column's value; in the name of several columns a value with a blank is in quotes. Values are
    in points (percent), or unchanged with unit="raw". White space around names is ignored. Raises
    InputError, which names the file, the column and the row (the first row below the header is row
    2, as in an editor).
    """
    table = _read(path)
    headings = list(map(str, table))
    check_distinct(headings, f"{path}: the header")
    heading_of = {canonical(heading): heading for heading in headings}

    def column(name: str) -> str:
        heading = heading_of.get(canonical(name))
        if heading is None:
            has = first_names(headings)
            raise InputError(
                f"{path}: no column {name!r} among {has}; name it by --seed, --compare, --value, "
                "--by or --where"
            )
        if headings.count(heading) > 1:
            raise InputError(f"{path}: the header has {heading!r} twice; rename one of the columns")
        return heading

    seed, compare, value = map(column, (columns.seed, columns.compare, columns.value))
    by = list(dict.fromkeys(map(column, columns.by)))
    units = list(dict.fromkeys(map(column, columns.units)))
    where = {column(name): wanted for name, wanted in columns.where.items()}
    every = table[value]
    for name in dict.fromkeys([seed, compare, *by, *where]):
        table[name] = table[name].map({text: " ".join(text.split()) for text in set(table[name])})
    for name, wanted in where.items():
        kept = table[table[name].map(canonical) == canonical(wanted)]
        if kept.empty:
            known = first_names(sorted(table[name].unique()))
            raise InputError(f"{path}: no row has {name}={wanted}; use one of {known}")
        table = kept
    for name in dict.fromkeys([seed, compare, *by]):
        texts = table[name].unique()
        if (empty := table[name].isin([text for text in texts if not canonical(text)])).any():
            raise InputError(
                f"{path}: row {_line(empty)}: {name} is empty; fill it in, or remove the row"
            )
        check_printable(texts, f"{path}: {name}")
        check_distinct(texts, f"{path}: {name}")
    import pandas as pd

    frame = pd.DataFrame(
        {
            "group": _labels(table[by]) if by else path.stem,
            "name": table[compare],
            "seed": table[seed],
            "value": _values(path, table[value], every, columns),
        }
    )
    if units:
        frame["unit"] = _labels(table[units])
    keys = ["group", "name", "seed"]
    if (twice := frame.duplicated(keys)).any():
        row = frame[twice].iloc[0]
        raise InputError(
            f"{path}: row {_line(twice)}: seed {row['seed']} of {row['name']} is given twice for "
            f"{row['group']}; separate the rows with --by or --where"
        )
    return frame


def first_names(names: Iterable[str]) -> str:
    """The names, or the first of them and the number of further names."""
    first = list(names)
    more = f" and {len(first) - SHOWN:,} more" if len(first) > SHOWN else ""
    return ", ".join(first[:SHOWN]) + more


def _labels(columns: "pd.DataFrame") -> list[str]:
    """A text for each row, which differs for rows that differ."""
    if columns.shape[1] == 1:
        return list(columns.iloc[:, 0])
    texts = {}
    for text in set().union(*(columns[name] for name in columns)):
        is_plain = not re.search(r'[\s"]', text)
        texts[text] = text if is_plain else json.dumps(text, ensure_ascii=False)
    parts = (columns[name].map(texts) for name in columns)
    return [" ".join(row) for row in zip(*parts, strict=True)]


def _read(path: Path) -> "pd.DataFrame":
    """The fields as texts. The index is the line of the file where a row begins. Rows without any
    text are left out."""
    with input_errors(f"{path}: cannot be read", "give a CSV file"):
        numbered = [(line, row) for line, row in rows(path) if any(field.strip() for field in row)]
    if len(numbered) < 2:
        what = "has a header and no rows" if numbered else "is empty"
        raise InputError(f"{path}: {what}; give a header and one row per run")
    lines, texts = zip(*numbered, strict=True)
    import pandas as pd

    return pd.DataFrame(texts[1:], lines[1:], [" ".join(field.split()) for field in texts[0]])


def _line(marked: "pd.Series[bool]") -> int:
    """The line of the file of the first marked row."""
    return int(marked.index[marked][0])


def _values(
    path: Path, texts: "pd.Series[str]", every: "pd.Series[str]", columns: Columns
) -> "pd.Series[float]":
    """The values of the used rows, of which `texts` are the fields. `every` has those of all rows,
    also of rows that `columns.where` leaves out."""
    import pandas as pd

    values = pd.to_numeric(texts, errors="coerce").astype(float)
    if (wrong := ~values.between(-LARGEST, LARGEST)).any():
        row = _line(wrong)
        cure = f"give a number up to {LARGEST:g}, or remove the row"
        raise InputError(f"{path}: row {row}: {columns.value} is {texts[row]!r}; {cure}")
    if columns.unit == "raw":
        return values
    fractions, percents = values.between(0, 1, inclusive="neither"), values > 1
    if columns.unit is None and fractions.any() and percents.any():
        one, other = _line(fractions), _line(percents)
        raise InputError(
            f"{path}: {columns.value} mixes fractions ({texts[one]} in row {one}) and percent "
            f"({texts[other]} in row {other}); convert one of them, or give --unit percent"
        )
    percent = columns.unit == "percent" or (columns.unit is None and bool(percents.any()))
    others = pd.to_numeric(every, errors="coerce") > 1
    if columns.unit is None and not percent and others.any():
        row = _line(others)
        raise InputError(
            f"{path}: {columns.value} is at most 1 in the rows of --where and {every[row]} in row "
            f"{row}, so its unit is not clear; give --unit percent or --unit fraction"
        )
    values = values if percent else 100 * values
    if (outside := ~values.between(0, 100)).any():
        row = _line(outside)
        raise InputError(
            f"{path}: row {row}: {columns.value} {texts[row]} is not an accuracy; for other "
            "measures use --unit raw"
        )
    return values
