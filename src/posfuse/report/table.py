"""A table of the report: its cells as text and the numbers behind them."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd

from posfuse.evidence.metric import Metric, decimals

Row = dict[Any, Any]

# A column's heading, the function that writes a cell, and the columns of the frame that are its
# arguments. A cell is empty if its first argument is NaN.
Column = tuple[str, Callable[..., str], *tuple[str, ...]]


@dataclass(frozen=True)
class Table:
    """The cells of a table as text, and the numbers of its CSV file."""

    name: str  # of its files, without suffix
    title: str
    caption: str
    columns: list[str]
    rows: list[list[str]]
    numbers: pd.DataFrame  # the contents of the CSV file
    marks: str = ""  # the meaning of marks in cells, for a terminal, which shows no caption

    @cached_property
    def numeric(self) -> list[bool]:
        """For each column, True if it contains numbers, which are aligned to the right."""
        return [is_numeric([row[i] for row in self.rows]) for i in range(len(self.columns))]


def table_of(
    frame: pd.DataFrame,
    columns: Sequence[Column],
    keys: Sequence[str] = (),
    **texts: str,
) -> Table:
    """A table with one row for each row of the frame.

    `keys` are the first columns, unchanged from the frame; by default the columns that name a
    comparison. `texts` are name, title, caption and marks.
    """
    if not keys:
        named = [axis for axis in ("data", "encoding", "fusion") if axis in frame]
        keys = [*named, *if_many(frame, "variant")]
    shown: list[Column] = [*((key, str, key) for key in keys), *columns]
    rows = [[_cell(row, *column) for column in shown] for row in frame.to_dict("records")]
    numbers = frame.map(lambda cell: _join(cell) if isinstance(cell, list) else cell)
    headings = [heading for heading, *_ in shown]
    return Table(columns=headings, rows=rows, numbers=numbers, **texts)


def _cell(row: Row, heading: str, write: Callable[..., str], first: str, *more: str) -> str:
    is_nan = isinstance(row[first], float) and np.isnan(row[first])
    return "" if is_nan else write(row[first], *(row[name] for name in more))


def narrow(table: Table) -> Table:
    """The table without columns that are empty, or that have one text in several rows; the caption
    gives this text. The verdicts always remain, because a reader looks for them, and so does the
    first column if only numbers would remain."""
    if not table.rows:
        return table
    columns = list(zip(*table.rows, strict=True))
    headings = [*enumerate(table.columns)]
    few = [len(set(texts)) == 1 and (len(texts) > 1 or not texts[0]) for texts in columns]
    is_named = not all(few[i] or table.numeric[i] for i, _ in headings)
    stays = [name == "verdict" or (not i and not is_named) for i, name in headings]
    left = [i for i, _ in headings if stays[i] or not few[i]]
    same = [(name, columns[i][0]) for i, name in headings if few[i] and not stays[i]]
    texts = [f"{name} {text}" for name, text in same if text]
    caption = f"All rows: {', '.join(texts)}. {table.caption}" if texts else table.caption
    rows = [[row[i] for i in left] for row in table.rows]
    return replace(table, caption=caption, columns=[table.columns[i] for i in left], rows=rows)


def if_many(frame: pd.DataFrame, axis: str) -> list[str]:
    """The axis, if the frame has several values of it."""
    return [axis] if frame[axis].nunique() > 1 else []


def by_fusion(
    cells: pd.DataFrame, fusions: Sequence[str], write: Callable[[Row], str]
) -> list[str]:
    """The text of each fusion's cell; empty if the fusion has no cell."""
    rows = {row["fusion"]: row for row in cells.to_dict("records")}
    return [write(rows[fusion]) if fusion in rows else "" for fusion in fusions]


def is_numeric(cells: list[str]) -> bool:
    """True if every cell that is not empty starts with a number."""
    filled = [cell for cell in cells if cell]
    number = r"[+<-]?\d[\d.,]*(e[+-]\d+)?(\s*[±(†‡]| to |$)|not feasible$"
    return bool(filled) and all(re.match(number, cell) for cell in filled)


# The text of numbers.


def with_spread(mean: float, std: float, digits: int = 2, sign: str = "") -> str:
    text = decimals(mean, digits, sign)
    return text if np.isnan(std) else f"{text} ± {decimals(std, digits)}"


def over_seeds(mean: float, std: float, n: float, digits: int = 2) -> str:
    """Mean ± standard deviation, and the number of seeds, if it is known, in brackets; empty if the
    mean is NaN, like the texts below."""
    brackets = "" if np.isnan(n) else f" ({n:.0f})"
    return "" if np.isnan(mean) else f"{with_spread(mean, std, digits)}{brackets}"


def interval(low: float, high: float, digits: int = 2, sign: str = "+") -> str:
    both = f"{decimals(low, digits, sign)} to {decimals(high, digits, sign)}"
    return "" if np.isnan(low) else both


def t_interval(metric: Metric, of: str = "") -> Column:
    """The column of Student's interval; `of` are the first letters of its columns in the frame."""
    return "95 % t", partial(interval, digits=metric.digits), f"{of}low", f"{of}high"


def count(value: float) -> str:
    return "" if np.isnan(value) else f"{value:,.0f}"


def seeds(value: float) -> str:
    """The needed seeds as text; infinity means that no number of seeds is enough."""
    return "not feasible" if np.isinf(value) else count(value)


def p_value(value: float) -> str:
    if np.isnan(value):
        return ""
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def _join(values: Sequence[Any]) -> str:
    return " ".join(f"{v:.6g}" if isinstance(v, float) else str(v) for v in values)
