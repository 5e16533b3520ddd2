"""Accuracy by test length, and the comparison of the areas beyond the trained length."""

import pandas as pd

from posfuse.analysis.evidence.collect import CELL
from posfuse.analysis.statistics.comparisons import Criteria
from posfuse.analysis.statistics.lengths import length_cells
from posfuse.analysis.tables import table
from posfuse.analysis.tables.paired_tables import short_table
from posfuse.analysis.tables.table import Column, Table, table_of

AREA = (
    "beyond: the mean accuracy over the logarithm of the length, over the test lengths above "
    "data.max_len"
)


def length_tables(
    by_test_length: pd.DataFrame, comparisons: pd.DataFrame, criteria: Criteria
) -> list[Table]:
    """Both tables; none without test lengths.

    `by_test_length` is the frame of that name in statistics/lengths.py; `comparisons` is that of
    `compare` for the areas.
    """
    if by_test_length.empty:
        return []
    cells = length_cells(by_test_length)
    lengths = [str(name) for name in cells if name not in (*CELL, "n", "mean", "std")]
    means: list[Column] = [(name, table.unsigned, name) for name in lengths]
    shown = table_of(
        cells,
        [*means, ("beyond", table.over_seeds, "mean", "std", "n")],
        name="lengths",
        title="Accuracy by test length",
        caption="Test accuracy in %, mean over seeds, by the length of the test documents in "
        "tokens. At data.max_len it is that of the ordinary test split, if there is no test of "
        f"this length. {AREA}: mean ± standard deviation over seeds, number of seeds in brackets.",
    )
    if comparisons.empty:
        return [shown]
    compared = short_table(
        comparisons,
        criteria,
        name="beyond",
        title=f"Paired differences to {criteria.baseline} beyond the trained length",
        caption=f"Fused minus {criteria.baseline} in points of {AREA.removeprefix('beyond: ')}.",
    )
    return [shown, compared]
