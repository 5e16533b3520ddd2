"""Reading the columns of a corpus in parts, so that a corpus may be larger than memory.

Text files have readers of their own. `datasets` and pandas guess types (a label 01 becomes 1) and
name no row in their errors.
"""

import csv
import json
import re
import reprlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import pandas as pd
import pyarrow.parquet as pq

from posfuse.errors import InputError, lacks_memory

ROWS = 500  # documents in a part
# Read Parquet in pieces of this many bytes; by default the whole column is read ahead.
PARQUET: dict[str, Any] = {"buffer_size": 1 << 20, "pre_buffer": False}
FIELD = 2**31 - 1  # most characters of a CSV field; the default of csv is 131,072
ONE_OBJECT = "write each document as one object on one line"
INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")  # as str() writes integers that fit into int64


@dataclass(frozen=True)
class Source:
    """A split of a corpus; each call of `read` returns one column in parts, from the start."""

    name: str  # names the source in messages
    columns: list[str]
    read: Callable[[str], Iterator[pd.Series]]
    has_types: bool = True  # False: the file has only text, and `read` recognises integers


def in_memory(frame: pd.DataFrame) -> Source:
    """A data frame; its attrs["source"] is the name."""
    return Source(frame.attrs["source"], [*frame.columns], lambda column: iter([frame[column]]))


def in_hub_form(part: Any, name: str) -> Source:
    """A split of the library `datasets`, memory-mapped from disk."""

    def read(column: str) -> Iterator[pd.Series]:
        for table in part.select_columns([column]).with_format("arrow").iter(ROWS):
            yield table.column(0).to_pandas()

    return Source(name, part.column_names, read)


def in_file(path: Path) -> Source:
    """A .parquet, .csv or .jsonl file; raises InputError, also while reading, for a damaged one."""
    columns, column_of = READERS[path.suffix]

    def read(column: str) -> Iterator[pd.Series]:
        with _readable(path):
            yield from column_of(path, column)

    with _readable(path):
        return Source(str(path), columns(path), read, has_types=path.suffix != ".csv")


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # readers raise many types; all mean that the file is not readable
        raise_lack_of_memory(error)
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{path}: not readable ({reason}); write the file again") from error


def raise_lack_of_memory(error: BaseException) -> None:
    """Raise the first of this error and its causes that means that memory ran out."""
    cause: BaseException | None = error
    while cause is not None:  # `datasets` wraps the errors of its readers
        if lacks_memory(cause):
            raise cause
        cause = cause.__cause__


def _parquet_columns(path: Path) -> list[str]:
    return list(pq.ParquetFile(path).schema_arrow.names)


def _parquet(path: Path, column: str) -> Iterator[pd.Series]:
    for batch in pq.ParquetFile(path, **PARQUET).iter_batches(ROWS, columns=[column]):
        values = batch.column(0)
        values.validate(full=True)  # finds broken UTF-8 here, where the file is known
        yield values.to_pandas()


@contextmanager
def _utf8(path: Path) -> Iterator[TextIO]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield file
    except UnicodeDecodeError as error:
        with path.open("rb") as raw:
            line = next(number for number, line in enumerate(raw, 1) if not _is_utf8(line))
        raise InputError(f"{path}: line {line} is not UTF-8; save the file as UTF-8") from error


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _csv_rows(path: Path) -> Iterator[list[str]]:
    """The header, then the rows; raises InputError for a row with more or fewer fields."""
    csv.field_size_limit(FIELD)
    with _utf8(path) as file:
        reader = csv.reader(file, strict=True)
        row, header, line = -1, 0, 1
        try:
            for fields in reader:
                if len(fields) > 1 or "".join(fields).strip():  # not a blank line
                    header = header or len(fields)
                    if len(fields) != header:
                        cure = (
                            "put a text that contains commas in quotes"
                            if len(fields) > header
                            else "add the missing field, or put a text of several lines in quotes"
                        )
                        raise InputError(
                            f"{path}: row {row} (line {line}) has {len(fields)} field"
                            f"{'s' * (len(fields) > 1)}, but the header has {header}; {cure}"
                        )
                    yield fields
                    row += 1
                line = reader.line_num + 1
        except csv.Error as error:
            raise InputError(
                f"{path}: row {row} (line {line}) has a misplaced quotation mark "
                f"({error}); put the text in quotes and double the quotation marks inside it"
            ) from error


def _csv_columns(path: Path) -> list[str]:
    with _utf8(path) as file:
        header = next((line for line in file if line.strip()), "")
    if "," not in header and any(separator in header for separator in ";\t|"):
        raise InputError(
            f"{path}: the header has no comma; separate the columns by commas, as in text,label"
        )
    return next(_csv_rows(path), [])


def _csv(path: Path, column: str) -> Iterator[pd.Series]:
    rows = _csv_rows(path)
    place = next(rows).index(column)
    values = (fields[place] or None for fields in rows)
    if column == "label":  # in one part: its type depends on all values
        yield _labels([*values])
        return
    while part := [*islice(values, ROWS)]:
        yield pd.Series(part, dtype=object)


def _labels(values: list[str | None]) -> pd.Series:
    """Integers if every label is one as str() writes it, else strings: 01 and 1 are two classes."""
    if all(value is not None and INTEGER.fullmatch(value) for value in values):
        return pd.Series([int(value) for value in values if value is not None], dtype="int64")
    return pd.Series(values, dtype=object)


def _jsonl_rows(path: Path) -> Iterator[dict[str, Any]]:
    with _utf8(path) as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                yield _json_object(line.rstrip())
            except ValueError as error:
                raise InputError(f"{path}: line {number} {error}") from error


def _json_object(line: str) -> dict[str, Any]:
    """The object in a line; raises ValueError with the problem and its fix."""
    if line.lstrip().startswith("["):
        raise ValueError(f"is not a JSON object (a JSON array starts here); {ONE_OBJECT}")
    try:
        row = json.loads(line, object_pairs_hook=_with_each_key_once, parse_int=_integer)
    except json.JSONDecodeError as error:
        reason = f"{error.msg.removesuffix(' at')} at column {error.colno}"
        raise ValueError(f"is not a JSON object ({reason}); {ONE_OBJECT}") from error
    if not isinstance(row, dict):
        raise ValueError(f"is not a JSON object (it is {reprlib.repr(row)}); {ONE_OBJECT}")
    if "\\ud" in line.lower():  # may be half of a surrogate pair, which cannot be encoded
        try:
            json.dumps(row, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            half = error.object[error.start]
            raise ValueError(
                f"has {half!a}, which is half of a character; remove it or write the whole "
                "character"
            ) from error
    return row


def _integer(digits: str) -> int:
    try:
        return int(digits)
    except ValueError as error:  # Python limits the digits of an integer
        raise ValueError(
            f"has an integer of more than {sys.get_int_max_str_digits()} digits; write it as a "
            "string"
        ) from error


def _with_each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"has the key {reprlib.repr(twice)} twice; remove one of the two")
    return row


def _jsonl_columns(path: Path) -> list[str]:
    return [*{name: None for row in islice(_jsonl_rows(path), ROWS) for name in row}]


def _jsonl(path: Path, column: str) -> Iterator[pd.Series]:
    rows = _jsonl_rows(path)
    while part := [row.get(column) for row in islice(rows, ROWS)]:
        yield pd.Series(part, dtype=object)


READERS: dict[
    str, tuple[Callable[[Path], list[str]], Callable[[Path, str], Iterator[pd.Series]]]
] = {
    ".parquet": (_parquet_columns, _parquet),
    ".csv": (_csv_columns, _csv),
    ".jsonl": (_jsonl_columns, _jsonl),
}
