"""The gains with position beside those without."""

from functools import partial

import pandas as pd

from posfuse.analysis.statistics.comparisons import Criteria, family_size
from posfuse.analysis.tables.paired_tables import (
    P_EQUIVALENCE,
    P_HOLM,
    N,
    conclusion,
    difference,
    outside_family,
    t_interval,
)
from posfuse.analysis.tables.table import Table, signed, table_of


def placebo_tables(placebos: pd.DataFrame, criteria: Criteria, tuned: str = "") -> list[Table]:
    """The table, if any placebo was run."""
    return [placebo_table(placebos, criteria, tuned)] if len(placebos) else []


def placebo_table(placebos: pd.DataFrame, criteria: Criteria, tuned: str = "") -> Table:
    """What position adds to each gain. `tuned`: the keys of which each cell has its own best
    values, in words; empty if all cells have the same values."""
    metric = criteria.metric
    signs = partial(signed, digits=metric.digits)
    at_best = ""
    if tuned:
        at_best = f"Operator and baseline, each with and without position, have the {tuned} with "
        at_best += f"their own {metric.best} mean validation {metric.title}. "
    return table_of(
        placebos,
        [
            N,
            ("gain", signs, "gain"),
            ("without", signs, "placebo_gain"),
            difference(metric, "position adds"),
            t_interval(metric),
            P_HOLM,
            P_EQUIVALENCE,
            ("conclusion", partial(conclusion, criteria=criteria)),
        ],
        name="placebo_best" if tuned else "placebo",
        title=f"How much of the gain over {criteria.baseline} comes from position"
        f"{', at own best values' if tuned else ''}",
        caption=f"{at_best}gain: fused minus {criteria.baseline} in "
        f"{metric.points}{metric.better} with position. without: the same with a table of zeros "
        "(encoding=none), where each operator keeps its parameters. position adds: the "
        "first minus the second, paired by seed over the n seeds that all four cells have: mean ± "
        "standard deviation and 95 % t interval. p-values: t-tests of what position adds, "
        f"Holm-adjusted over the {family_size(placebos)} rows of this table's family. "
        "Equivalent: position adds no more "
        f"than ±{criteria.within} on these test documents. "
        f"{outside_family(placebos, criteria)}".rstrip(),
    )
