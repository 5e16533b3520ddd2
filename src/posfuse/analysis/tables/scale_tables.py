"""The token scale as tables: every operator at every scale, and each at its own best one."""

import pandas as pd

from posfuse.analysis.statistics.comparisons import Criteria
from posfuse.analysis.statistics.scales import SCALE, Scales
from posfuse.analysis.tables.paired_tables import conclusion
from posfuse.analysis.tables.table import (
    Table,
    if_many,
    interval,
    joined,
    number,
    p_value,
    with_spread,
)

MARK = "*"  # an operator's own best scale


def scale_tables(scales: Scales, criteria: Criteria) -> list[Table]:
    """Both tables, without those that have no row."""
    tables = [best_table(scales.best, criteria), by_scale_table(scales.cells)]
    return [table for table in tables if table.rows]


def best_table(best: pd.DataFrame, criteria: Criteria) -> Table:
    """Does an operator beat the baseline at the baseline's own best scale?"""
    several = if_many(best, "encoding")  # a single one goes into the title: the table is wide
    keys = ["data", *several, *if_many(best, "variant"), "fusion"]
    encoding = "" if several or best.empty else f", encoding {best['encoding'].iloc[0]}"
    base = criteria.baseline
    rows = [
        [
            *(row[key] for key in keys),
            row["scale"],
            row["baseline_scale"],
            str(row["n"]),
            number(row["paper_mean"], "{:+.2f}"),
            interval(row["paper_low"], row["paper_high"]),
            number(row["mean"], "{:+.2f}"),
            interval(row["low"], row["high"]),
            p_value(row["p_holm"]),
            p_value(row["p_equivalence_holm"]),
            conclusion(row, criteria),
        ]
        for row in best.to_dict("records")
    ]
    return Table(
        "best_scale",
        f"At each operator's own best scale{encoding}",
        f"Difference to {base} in points of test accuracy, paired by seed, with its 95 % t "
        "interval: with both at the paper's scale, sqrt_d, and with each at the "
        f"{SCALE} where its own mean validation accuracy is highest. n, the p-values (Holm's "
        "adjustment over this table) and the conclusion are of the latter. Where more scales are "
        "near an operator's best, chance favours it: docs/statistics.md says how much. "
        "gate_constant and add_scaled learn one number that weighs position against content: what "
        "they gain is scale alone.",
        [*keys, "scale", f"{base}'s", "n", "at sqrt_d", "95 % t", "at best", "95 % t", "p Holm",
         "p equiv.", "conclusion"],
        rows,
        best.assign(seeds=best["seeds"].map(joined), deltas=best["deltas"].map(joined)),
    )  # fmt: skip


def by_scale_table(cells: pd.DataFrame) -> Table:
    """A row for each scale, a column for each operator."""
    if cells.empty:
        return Table("by_scale", "", "", [], [], cells)
    keys = ["data", "encoding", *if_many(cells, "variant")]
    fusions = cells["fusion"].unique().tolist()
    rows = []
    for _, group in cells.groupby(["data", "encoding", "variant"], sort=False):
        by_scale = group.sort_values("number", kind="stable").groupby("scale", sort=False)
        for scale, at_scale in by_scale:
            of = {cell["fusion"]: cell for cell in at_scale.to_dict("records")}
            texts = [
                f"{with_spread(of[f]['mean'], of[f]['std'], 2)} ({of[f]['n']})"
                f"{MARK if of[f]['best'] else ''}"
                if f in of
                else ""
                for f in fusions
            ]
            rows.append([*(at_scale[key].iloc[0] for key in keys), str(scale), *texts])
    return Table(
        "by_scale",
        "By token scale",
        "Test accuracy in %: mean ± standard deviation over seeds, number of seeds in brackets. "
        f"{MARK} the scale with the operator's highest validation accuracy. Embeddings are "
        f"multiplied by {SCALE} before they are fused; the paper's is sqrt_d, where a learned one "
        "starts.",
        [*keys, "scale", *fusions],
        rows,
        cells,
    )
