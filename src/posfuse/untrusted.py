"""Readers of untrusted files, such as a colleague's sweep.

Each accepts only the kind of file that posfuse writes: a regular file of bounded size with plain
values and finite numbers. All raise OSError, or ValueError with the reason. The caller names the
file and the fix.
"""

import json
import math
import re
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from pyarrow import ArrowException, types

if TYPE_CHECKING:  # importing pandas takes half a second, and help does not need it
    import pandas as pd

MEBIBYTE = 2**20
LARGEST_JSON, LARGEST_YAML, LARGEST_CSV = 8 * MEBIBYTE, MEBIBYTE, 64 * MEBIBYTE
LARGEST_PLAN = 16 * MEBIBYTE  # a study's plan.yaml has the scores of all trials of all repeats
LARGEST_PARQUET = 4096 * MEBIBYTE
MOST_ROWS = 2**24  # of a Parquet file; a few bytes can contain far more rows
LARGEST_TEXTS = 64 * MEBIBYTE  # of a column of a Parquet file, not compressed
LONGEST_TEXT = 64  # bytes of a text in a Parquet file; posfuse writes names of measurements
DEEPEST = 32  # levels of nested lists and tables
LONG_NUMBER = re.compile(r"[-+.:_0-9]{100,}")  # YAML reads 1:00:00 in base 60, for minutes
NOT_PLAIN = "has an alias (*name) or very deep nesting; write the values there instead"
TEXTS = (pa.string(), pa.large_string())
KINDS = {  # `read_parquet` opens columns of texts as dictionaries
    "a whole number": types.is_integer,
    "a number": lambda kind: types.is_floating(kind) or types.is_integer(kind),
    "a text": lambda kind: types.is_dictionary(kind) and kind.value_type in TEXTS,
}


def read_bytes(path: Path, most: int) -> bytes:
    """The bytes of a regular file, at most `most`."""
    check_file(path, most)
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:  # of a link to a file of /proc, whose size is 0 there
        raise ValueError(f"larger than {most} bytes")
    return content


def check_file(path: Path, most: int) -> None:
    """Raise OSError if there is no file, and ValueError if it is too large or not a regular
    file."""
    state = path.stat()
    if not stat.S_ISREG(state.st_mode) and not stat.S_ISDIR(state.st_mode):
        raise ValueError("not a regular file")  # reading a pipe would wait forever
    if state.st_size > most:
        raise ValueError(f"larger than {most} bytes")


def read_json(path: Path, has_bytes: bool = False) -> Any:
    """The content of a JSON file. With `has_bytes` it may contain lone surrogates, by which Python
    writes bytes that are not text in the locale."""
    text = read_bytes(path, LARGEST_JSON).decode()
    try:
        content = json.loads(
            text, parse_constant=_finite, parse_float=_finite, parse_int=_whole_number
        )
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    level = [content]
    for _ in range(DEEPEST):
        level = [value for part in level for value in _values(part)]
    if level:
        raise ValueError("nested too deeply")
    check_surrogates(text, content, "surrogateescape" if has_bytes else "strict")
    return content


def check_surrogates(text: str, content: Any, errors: str = "strict") -> None:
    """Raise UnicodeEncodeError if the content of a JSON text has half of a surrogate pair, which
    cannot be encoded. `errors` is the handler of str.encode."""
    if "\\ud" in text.lower():
        json.dumps(content, ensure_ascii=False).encode(errors=errors)


def _values(part: Any) -> list[Any]:
    if isinstance(part, dict):
        return list(part.values())
    return part if isinstance(part, list) else []


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text[:20]} is not a finite number")
    return value


def _whole_number(text: str) -> int:
    if len(text) > 20:
        raise ValueError(f"{text[:20]}... is too large")
    return int(text)


def read_yaml(path: Path, is_interpolated: bool = False, most: int = LARGEST_YAML) -> str:
    """The text of a YAML file. Raises ValueError for aliases, and for ${...} unless
    `is_interpolated`. The caller must not resolve them, because they could expand beyond memory or
    name a secret, as ${oc.env:NAME}. Raises YAMLError too."""
    text = read_bytes(path, most).decode()
    check_yaml(text, is_interpolated)
    return text


def check_yaml(text: str, is_interpolated: bool = False) -> None:
    """Raise ValueError or YAMLError for YAML that could expand beyond memory."""
    depth = 0
    fast = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # refuses lone surrogates, as in a path
    loader = yaml.SafeLoader if "\\ud" in text.lower() else fast
    for event in yaml.parse(text, Loader=loader):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if isinstance(event, yaml.AliasEvent) or depth > DEEPEST:
            raise ValueError(NOT_PLAIN)
        if isinstance(event, yaml.ScalarEvent):
            if "${" in event.value and not is_interpolated:
                raise ValueError("has ${...}; write the value there instead")
            is_text = event.implicit[1]  # in quotes and without a type such as !!int
            if LONG_NUMBER.fullmatch(event.value) and not is_text:
                raise ValueError(f"{event.value[:20]}... is too large")


def read_parquet(path: Path, columns: Mapping[str, str]) -> "pd.DataFrame":
    """These columns of a Parquet file, each of a kind of KINDS."""
    check_file(path, LARGEST_PARQUET)
    texts = [name for name, kind in columns.items() if kind == "a text"]
    try:
        with path.open("rb") as content, pq.ParquetFile(content, read_dictionary=texts) as file:
            if file.metadata.num_rows > MOST_ROWS:
                raise ValueError(f"more than {MOST_ROWS} rows")
            names = file.schema_arrow.names
            for name, kind in columns.items():
                if name not in names:
                    raise ValueError(f"has no {name}")
                is_kind = KINDS[kind](file.schema_arrow.field(name).type)
                if file.metadata.num_rows and not is_kind:  # columns without rows have no type
                    raise ValueError(f"{name} is not {kind}")
            _check_sizes(file.metadata, texts)
            table = file.read([*columns], use_threads=False).select([*columns])
        for name in texts:
            table = _with_texts(table, name)
        frame: pd.DataFrame = table.to_pandas(ignore_metadata=True)
    except ArrowException as error:
        raise ValueError(str(error).splitlines()[0]) from error
    return frame


def _check_sizes(metadata: pq.FileMetaData, texts: Sequence[str]) -> None:
    """Raise ValueError if a column of texts would fill more than LARGEST_TEXTS."""
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    columns = [group.column(i) for group in groups for i in range(metadata.num_columns)]
    for name in texts:
        sizes = (c.total_uncompressed_size for c in columns if c.path_in_schema == name)
        if sum(sizes) > LARGEST_TEXTS:
            raise ValueError(f"{name} has more than {LARGEST_TEXTS} bytes")


def _with_texts(table: pa.Table, name: str) -> pa.Table:
    """The table with a dictionary-encoded column of texts written out. One long text of a small
    file could otherwise fill the memory, once per row."""
    import pyarrow.compute as pc  # takes 50 ms, and most commands read no tables

    column = table[name]
    if not types.is_dictionary(column.type):  # a column without rows
        return table
    for chunk in column.chunks:
        longest = pc.max(pc.binary_length(chunk.dictionary)).as_py()
        if (longest or 0) > LONGEST_TEXT:
            raise ValueError(f"{name} has a text of more than {LONGEST_TEXT} bytes")
    index = table.column_names.index(name)
    return table.set_column(index, name, column.cast(pa.large_string()))
