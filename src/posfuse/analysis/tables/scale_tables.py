"""Tables of the token scale: every operator at every scale, and each at its best scale."""

from functools import partial

import pandas as pd

from posfuse.analysis.statistics.comparisons import Criteria, in_families
from posfuse.analysis.statistics.scales import SCALE, Scales
from posfuse.analysis.tables.paired_tables import (
    P_EQUIVALENCE,
    P_HOLM,
    T_INTERVAL,
    N,
    conclusion,
    outside_family,
)
from posfuse.analysis.tables.table import (
    Row,
    Table,
    by_fusion,
    if_many,
    interval,
    over_seeds,
    signed,
    table_of,
)

MARK = "*"  # an operator's own best scale


def scale_tables(scales: Scales, criteria: Criteria) -> list[Table]:
    """The tables that have rows."""
    best = [best_table(in_families(scales.best, criteria), criteria)] if len(scales.best) else []
    return [*best, by_scale_table(scales.cells)] if len(scales.cells) else best


def best_table(best: pd.DataFrame, criteria: Criteria) -> Table:
    """Does an operator beat the baseline at the baseline's own best scale?"""
    several = if_many(best, "encoding")  # a single one is in the title: the table is wide
    encoding = "" if several else f", encoding {best['encoding'].iloc[0]}"
    base = criteria.baseline
    return table_of(
        best,
        [
            (f"{base}'s", str, "baseline_scale"),
            N,
            ("at sqrt_d", signed, "paper_mean"),
            ("95 % t", interval, "paper_low", "paper_high"),
            ("at best", signed, "mean"),
            T_INTERVAL,
            P_HOLM,
            P_EQUIVALENCE,
            ("conclusion", partial(conclusion, criteria=criteria)),
        ],
        ["data", *several, *if_many(best, "variant"), "fusion", "scale"],
        name="best_scale",
        title=f"At each operator's own best scale{encoding}",
        caption=f"Difference to {base} in points of test accuracy, paired by seed, with its 95 % t "
        "interval. at sqrt_d: both operators at the paper's scale. at best: each operator at the "
        f"{SCALE} with its highest mean validation accuracy. n, the p-values (Holm-adjusted over "
        "this table) and the conclusion belong to the difference at best. The choice of a scale "
        "favours an operator that has more scales near its best one; docs/statistics.md gives the "
        "size of this bias. gate_constant and add_scaled learn one number that weighs position "
        "against content, so their gain is a gain of scale only. "
        f"{outside_family(best, criteria)}".rstrip(),
    )


def by_scale_table(cells: pd.DataFrame) -> Table:
    """A row for each scale, a column for each operator."""
    keys = ["data", "encoding", *if_many(cells, "variant"), "scale"]
    fusions = cells["fusion"].unique().tolist()
    rows = []
    for _, group in cells.groupby(["data", "encoding", "variant"], sort=False):
        by_scale = group.sort_values("number", kind="stable").groupby("scale", sort=False)
        for _, at_scale in by_scale:
            labels = [at_scale[key].iloc[0] for key in keys]
            rows.append([*labels, *by_fusion(at_scale, fusions, _accuracy)])
    return Table(
        "by_scale",
        "By token scale",
        "Test accuracy in %: mean ± standard deviation over seeds, number of seeds in brackets. "
        f"{MARK} the scale with the operator's highest validation accuracy. Embeddings are "
        f"multiplied by {SCALE} before fusion. A learned scale starts at the paper's, sqrt_d.",
        [*keys, *fusions],
        rows,
        cells,
    )


def _accuracy(cell: Row) -> str:
    return over_seeds(cell["mean"], cell["std"], cell["n"]) + (MARK if cell["best"] else "")
