"""Documents where they lie, read a column and a part at a time: texts pass through and are never
held whole, so a corpus may be larger than memory.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq

from posfuse.errors import InputError

ROWS = 500  # documents of a part
# Parquet in pieces of so many bytes; by default its whole column is read ahead, and kept.
PARQUET: dict[str, Any] = {"buffer_size": 1 << 20, "pre_buffer": False}
CSV: dict[str, Any] = {
    # "NA" and "null" are words; only an empty field is missing.
    "dtype": {"text": str}, "keep_default_na": False, "na_values": [""],
}  # fmt: skip
JSONL: dict[str, Any] = {"lines": True, "dtype": False, "convert_dates": False}


@dataclass(frozen=True)
class Source:
    """A split as it is given; `read` gives one column in parts, from the start at each call."""

    name: str  # says in messages where from
    columns: list[str]
    read: Callable[[str], Iterator[pd.Series]]


def in_memory(frame: pd.DataFrame) -> Source:
    """A frame whose attrs["source"] says where from."""
    return Source(frame.attrs["source"], [*frame.columns], lambda column: iter([frame[column]]))


def in_hub_form(part: Any, name: str) -> Source:
    """A split as the library `datasets` has it: on disk, mapped into memory."""

    def read(column: str) -> Iterator[pd.Series]:
        for table in part.select_columns([column]).with_format("arrow").iter(ROWS):
            yield table.column(0).to_pandas()

    return Source(name, part.column_names, read)


def in_file(path: Path) -> Source:
    """A .parquet, .csv or .jsonl file; raises InputError, also while reading, if it is damaged."""
    columns, column_of = READERS[path.suffix]

    def read(column: str) -> Iterator[pd.Series]:
        with _readable(path):
            yield from column_of(path, column)

    with _readable(path):
        return Source(str(path), columns(path), read)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # each reader has exceptions of its own; all mean: not readable
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{path}: not readable ({reason}); write the file anew") from error


def _parquet_columns(path: Path) -> list[str]:
    return list(pq.ParquetFile(path).schema_arrow.names)


def _parquet(path: Path, column: str) -> Iterator[pd.Series]:
    for batch in pq.ParquetFile(path, **PARQUET).iter_batches(ROWS, columns=[column]):
        yield batch.column(0).to_pandas()


def _csv_columns(path: Path) -> list[str]:
    return [*pd.read_csv(path, nrows=0, **CSV).columns]


def _csv(path: Path, column: str) -> Iterator[pd.Series]:
    if column != "text":  # whole: its type follows from all of its values
        yield pd.read_csv(path, usecols=[column], **CSV)[column]
        return
    with pd.read_csv(path, usecols=[column], chunksize=ROWS, **CSV) as parts:
        yield from (part[column] for part in parts)


def _jsonl_columns(path: Path) -> list[str]:
    return [*pd.read_json(path, nrows=ROWS, **JSONL).columns]


def _jsonl(path: Path, column: str) -> Iterator[pd.Series]:
    with pd.read_json(path, chunksize=ROWS, **JSONL) as parts:
        yield from (part.reindex(columns=[column])[column] for part in parts)


READERS: dict[
    str, tuple[Callable[[Path], list[str]], Callable[[Path, str], Iterator[pd.Series]]]
] = {
    ".parquet": (_parquet_columns, _parquet),
    ".csv": (_csv_columns, _csv),
    ".jsonl": (_jsonl_columns, _jsonl),
}
