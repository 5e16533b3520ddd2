"""Results by test length, and the comparison of the areas beyond the trained length."""

from functools import partial

import pandas as pd

from posfuse.analysis.evidence.collect import CELL
from posfuse.analysis.statistics.comparisons import Criteria
from posfuse.analysis.statistics.lengths import length_cells
from posfuse.analysis.tables import table
from posfuse.analysis.tables.paired_tables import gains_of, short_table
from posfuse.analysis.tables.table import Column, Table, table_of


def length_tables(
    by_test_length: pd.DataFrame,
    sliding: pd.DataFrame,
    comparisons: pd.DataFrame,
    criteria: Criteria,
) -> list[Table]:
    """The tables; none without test lengths.

    `by_test_length` is the frame of that name in statistics/lengths.py, and `sliding` that of
    windows that overlap; `comparisons` is that of `compare` for the areas.
    """
    if by_test_length.empty:
        return []
    metric, digits = criteria.metric, criteria.metric.digits
    area = (
        f"mean {metric.title} over the logarithm of the length, over the test lengths above "
        "data.max_len"
    )
    cells = length_cells(by_test_length)
    windows = "" if sliding.empty else " The windows of a text do not overlap."
    shown = table_of(
        cells,
        [
            *_means(cells, digits),
            ("beyond", partial(table.over_seeds, digits=digits), "mean", "std", "n"),
        ],
        name="lengths",
        title=f"{metric.heading} by test length",
        caption=f"Test {metric.level}, mean over seeds, by the length of the test documents in "
        "tokens. At data.max_len it is that of the ordinary test split, if there is no test of "
        f"this length. beyond: the {area}: mean ± standard deviation over seeds, number of "
        f"seeds in brackets.{windows}",
    )
    tables = [shown]
    if not sliding.empty:
        cells = length_cells(sliding)
        overlapping = table_of(
            cells,
            _means(cells, digits),
            name="sliding",
            title=f"{metric.heading} by the length of overlapping windows",
            caption=f"Test {metric.level}, mean over seeds, by the length of the windows in "
            "tokens. Each window begins half a window after the one before. After the first one "
            "only the targets of its second half count, so these see half a window or more.",
        )
        tables.append(overlapping)
    if comparisons.empty:
        return tables
    compared = short_table(
        comparisons,
        criteria,
        name="beyond",
        title=f"Paired differences to {criteria.baseline} beyond the trained length",
        caption=f"{gains_of(criteria, area)}.",
    )
    return [*tables, compared]


def _means(cells: pd.DataFrame, digits: int) -> list[Column]:
    """A column for each test length."""
    lengths = [str(name) for name in cells if name not in (*CELL, "n", "mean", "std")]
    return [(name, partial(table.unsigned, digits=digits), name) for name in lengths]
