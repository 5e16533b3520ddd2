"""The gains after pretraining beside those from scratch."""

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


def pretraining_tables(survival: pd.DataFrame, criteria: Criteria) -> list[Table]:
    """The table, if operators were trained with and without pretraining."""
    return [pretraining_table(survival, criteria)] if len(survival) else []


def pretraining_table(survival: pd.DataFrame, criteria: Criteria) -> Table:
    """What pretraining changes about each gain."""
    metric = criteria.metric
    signs = partial(signed, digits=metric.digits)
    return table_of(
        survival,
        [
            N,
            ("pretrained", signs, "gain"),
            ("from scratch", signs, "scratch_gain"),
            difference(metric),
            t_interval(metric),
            P_HOLM,
            P_EQUIVALENCE,
            ("conclusion", partial(conclusion, criteria=criteria)),
        ],
        name="pretraining",
        title=f"Does the gain over {criteria.baseline} survive pretraining?",
        caption=f"pretrained: fused minus {criteria.baseline} in {metric.points}{metric.better} "
        "after masked pretraining. from scratch: the same without it. difference: the first minus "
        "the second, paired by seed over the n seeds that all four cells have: mean ± standard "
        "deviation and 95 % t interval. p-values: t-tests of this difference, Holm-adjusted over "
        f"the {family_size(survival)} rows of this table's family. Equivalent: pretraining changes "
        f"the gain by no more than ±{criteria.within} on these test documents. "
        f"{outside_family(survival, criteria)}".rstrip(),
    )
