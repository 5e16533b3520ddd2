"""Reads the columns of a corpus in parts, so that a corpus may be larger than memory."""

import json
import reprlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq

from posfuse.data.csv_files import rows, utf8
from posfuse.errors import InputError, input_errors
from posfuse.untrusted import check_surrogates

if TYPE_CHECKING:  # importing pandas takes half a second, and help does not need it
    import pandas as pd

ROWS = 500  # documents in a part
# Read Parquet in pieces of this many bytes; by default the whole column is read ahead.
PARQUET: dict[str, Any] = {"buffer_size": 1 << 20, "pre_buffer": False}
LONGEST_LINE = 10_000  # characters; a longer line of a .txt file is cut into documents, at spaces
ENDS = (".parquet", ".csv", ".tsv", ".jsonl", ".txt")


@dataclass(frozen=True)
class Source:
    """A split of a corpus. Each call of `read` returns one column in parts, from the start."""

    name: str  # names the source in messages
    columns: list[str]
    read: "Callable[[str], Iterator[pd.Series]]"
    has_types: bool = True  # False: the file has only text
    is_one_text: bool = False  # True: the documents are lines of one text, without labels
    groups: np.ndarray | None = None  # as in `Split`; None: each document has its own


def frame_source(frame: "pd.DataFrame", name: str) -> Source:
    """A data frame with the columns of `corpora.Frames`."""
    groups = frame["group"].to_numpy(np.int64) if "group" in frame else None

    def read(column: str) -> "Iterator[pd.Series]":
        return (frame[column].iloc[i : i + ROWS] for i in range(0, len(frame), ROWS))

    return Source(name, [*frame.columns], read, groups=groups)


def hub_source(part: Any, name: str) -> Source:
    """A split of the library `datasets`, memory-mapped from disk."""

    def read(column: str) -> "Iterator[pd.Series]":
        with input_errors(f"{name}: not readable", "check the disk, or download the corpus again"):
            for table in part.select_columns([column]).with_format("arrow").iter(ROWS):
                yield table.column(0).to_pandas(integer_object_nulls=True)

    return Source(name, part.column_names, read)


def file_source(path: Path) -> Source:
    """A file with one of ENDS, which may have capitals. Raises InputError, also during reading, for
    a damaged file."""
    end = path.suffix.lower()
    columns, column_of = {
        ".parquet": (_parquet_columns, _parquet),
        ".csv": (_csv_columns, _csv),
        ".tsv": (_csv_columns, _csv),
        ".jsonl": (_jsonl_columns, _jsonl),
        ".txt": (lambda _: ["text"], lambda file, _: _series(_lines(file))),
    }[end]
    refusal = f"{path}: not readable", "write the file again"

    def read(column: str) -> "Iterator[pd.Series]":
        with input_errors(*refusal):
            yield from column_of(path, column)

    has_types, is_one_text = end not in (".csv", ".tsv"), end == ".txt"
    with input_errors(*refusal):
        return Source(str(path), columns(path), read, has_types, is_one_text)


def _parquet_columns(path: Path) -> list[str]:
    with path.open("rb") as file:  # in an ASCII locale pyarrow cannot open a path with é
        return list(pq.ParquetFile(file).schema_arrow.names)


def _parquet(path: Path, column: str) -> "Iterator[pd.Series]":
    with path.open("rb") as file:
        for batch in pq.ParquetFile(file, **PARQUET).iter_batches(ROWS, columns=[column]):
            values = batch.column(0)
            values.validate(full=True)  # raises for broken UTF-8 here, where the file is known
            yield values.to_pandas(integer_object_nulls=True)


def _csv_columns(path: Path) -> list[str]:
    return next((fields for _, fields in rows(path)), [])


def _csv(path: Path, column: str) -> "Iterator[pd.Series]":
    records = rows(path)
    place = next(records)[1].index(column)
    return _series(fields[place] or None for _, fields in records)


def _series(values: Iterator[Any]) -> "Iterator[pd.Series]":
    import pandas as pd

    while part := [*islice(values, ROWS)]:
        yield pd.Series(part, dtype=object)


def _lines(path: Path) -> Iterator[str]:
    """The lines, each with the blank lines after it. Joined, they are the text of the file."""
    with utf8(path) as file:
        text = rest = ""
        while line := rest + file.readline(LONGEST_LINE - len(rest)):
            rest = ""
            if len(line) == LONGEST_LINE and not line[-1].isspace() and " " in line:
                last = line.rindex(" ") + 1  # do not cut a word
                line, rest = line[:last], line[last:]
            if line.strip() and text.strip():
                yield text
                text = ""
            text += line
        if text:
            yield text


def _jsonl_rows(path: Path) -> Iterator[dict[str, Any]]:
    with utf8(path) as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                try:
                    yield _json_object(line.rstrip())
                except UnicodeEncodeError as error:
                    half = error.object[error.start]
                    raise InputError(
                        f"{path}: line {number} has {half!a}, which is half of a character; remove "
                        "it or write the whole character"
                    ) from error
                except ValueError as error:
                    raise InputError(
                        f"{path}: line {number} is not a JSON object ({error}); write each "
                        "document as one object on one line, with each key once"
                    ) from error


def _json_object(line: str) -> dict[str, Any]:
    """The object in a line. Raises ValueError with the problem."""
    try:
        row: dict[str, Any] = json.loads(line, object_pairs_hook=_with_each_key_once)
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg.removesuffix(' at')} at column {error.colno}") from error
    if not isinstance(row, dict):
        raise ValueError(f"it is {reprlib.repr(row)}")
    check_surrogates(line, row)
    return row


def _with_each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name, value in pairs:
        if name in row:
            raise ValueError(f"it has the key {reprlib.repr(name)} twice")
        row[name] = value
    return row


def _jsonl_columns(path: Path) -> list[str]:
    return [*{name: None for row in islice(_jsonl_rows(path), ROWS) for name in row}]


def _jsonl(path: Path, column: str) -> "Iterator[pd.Series]":
    return _series(row.get(column) for row in _jsonl_rows(path))
