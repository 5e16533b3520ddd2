"""Accuracy by test length, and the comparison of the areas beyond the trained length."""

from functools import partial

import pandas as pd

from posfuse.analysis.evidence.collect import CELL
from posfuse.analysis.statistics.comparisons import Criteria
from posfuse.analysis.statistics.lengths import length_cells
from posfuse.analysis.tables import table
from posfuse.analysis.tables.paired_tables import gains_of, short_table
from posfuse.analysis.tables.table import Column, Table, table_of


def length_tables(
    by_test_length: pd.DataFrame, comparisons: pd.DataFrame, criteria: Criteria
) -> list[Table]:
    """Both tables; none without test lengths.

    `by_test_length` is the frame of that name in statistics/lengths.py; `comparisons` is that of
    `compare` for the areas.
    """
    if by_test_length.empty:
        return []
    metric, digits = criteria.metric, criteria.metric.digits
    area = (
        f"mean {metric.title} over the logarithm of the length, over the test lengths above "
        "data.max_len"
    )
    cells = length_cells(by_test_length)
    lengths = [str(name) for name in cells if name not in (*CELL, "n", "mean", "std")]
    means: list[Column] = [(name, partial(table.unsigned, digits=digits), name) for name in lengths]
    shown = table_of(
        cells,
        [*means, ("beyond", partial(table.over_seeds, digits=digits), "mean", "std", "n")],
        name="lengths",
        title=f"{metric.heading} by test length",
        caption=f"Test {metric.level}, mean over seeds, by the length of the test documents in "
        "tokens. At data.max_len it is that of the ordinary test split, if there is no test of "
        f"this length. beyond: the {area}: mean ± standard deviation over seeds, number of "
        "seeds in brackets.",
    )
    if comparisons.empty:
        return [shown]
    compared = short_table(
        comparisons,
        criteria,
        name="beyond",
        title=f"Paired differences to {criteria.baseline} beyond the trained length",
        caption=f"{gains_of(criteria, area)}.",
    )
    return [shown, compared]
