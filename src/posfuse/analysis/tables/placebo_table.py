"""The gains with position beside those without."""

from functools import partial

import pandas as pd

from posfuse.analysis.statistics.comparisons import Criteria, family_size
from posfuse.analysis.tables import table
from posfuse.analysis.tables.paired_tables import (
    P_EQUIVALENCE,
    P_HOLM,
    T_INTERVAL,
    N,
    conclusion,
    outside_family,
)
from posfuse.analysis.tables.table import Table, signed, table_of


def placebo_tables(placebos: pd.DataFrame, criteria: Criteria) -> list[Table]:
    """The table, if any placebo was run."""
    return [placebo_table(placebos, criteria)] if len(placebos) else []


def placebo_table(placebos: pd.DataFrame, criteria: Criteria) -> Table:
    """What position adds to each gain."""
    return table_of(
        placebos,
        [
            N,
            ("gain", signed, "gain"),
            ("without", signed, "placebo_gain"),
            ("position adds", table.signed_with_spread, "mean", "std"),
            T_INTERVAL,
            P_HOLM,
            P_EQUIVALENCE,
            ("conclusion", partial(conclusion, criteria=criteria)),
        ],
        name="placebo",
        title=f"How much of the gain over {criteria.baseline} comes from position",
        caption=f"gain: fused minus {criteria.baseline} in points of test accuracy with position. "
        "without: the same with a table of zeros (encoding=none), where each operator keeps its "
        "parameters. position adds: the first minus the second, paired by seed over the n seeds "
        "that all four cells have: mean ± standard deviation and 95 % t interval. p-values: "
        f"t-tests of what position adds, Holm-adjusted over the {family_size(placebos)} rows of "
        f"this table's family. Equivalent: position adds no more than ±{criteria.margin:g} points "
        f"on these test documents. {outside_family(placebos, criteria)}".rstrip(),
    )
