"""The reader of users' CSV files: texts, and results of other studies. A .tsv file differs only in
its separator, a tab.

Every field remains a text. `datasets` and pandas guess types (a label 01 becomes 1), and their
errors name no line.
"""

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from posfuse.errors import InputError

LONGEST = 2**31 - 1  # characters of a field; the default of csv is 131,072


@contextmanager
def utf8(path: Path) -> Iterator[TextIO]:
    """The open file. Raises InputError, also during reading, for a line that is not UTF-8."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield file
    except UnicodeDecodeError as error:
        with path.open("rb") as raw:
            lines = enumerate(raw, 1)
            bad = next(n for n, line in lines if line.decode(errors="ignore").encode() != line)
        raise InputError(f"{path}: line {bad} is not UTF-8; save the file as UTF-8") from error


def rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The header and the rows, each with the number of its first line in the file. Blank lines are
    left out, but not a line with the empty text "".

    Raises InputError, which names the line, for another separator, for a misplaced quotation
    mark, and for a row with more or fewer fields than the header.
    """
    csv.field_size_limit(LONGEST)
    line, header = 1, 0
    separator, name = ("\t", "tab") if path.suffix.lower() == ".tsv" else (",", "comma")
    with utf8(path) as file:
        first = next((line for line in file if line.strip()), "")
        if separator not in first and any(other in first for other in ",;\t|"):
            fix = f"separate the columns by {name}s"
            if name == "comma":
                fix += ", as in text,label" + ", or name the file .tsv" * ("\t" in first)
            raise InputError(f"{path}: the header has no {name}; {fix}")
        file.seek(0)
        reader = csv.reader(file, strict=True, delimiter=separator)
        try:
            for fields in reader:
                if len(fields) > 1 or fields == [""] or "".join(fields).strip():  # [""]: quoted
                    header = header or len(fields)
                    if len(fields) != header:
                        raise InputError(
                            f"{path}: line {line} and the header differ in their number of fields "
                            f"({len(fields)} and {header}); put a text with {name}s or line ends "
                            "in quotes, or add the missing field"
                        )
                    yield line, fields
                line = reader.line_num + 1
        except csv.Error as error:
            raise InputError(
                f"{path}: line {line} has a misplaced quotation mark ({error}); put the text in "
                "quotes and double the quotation marks inside it"
            ) from error
