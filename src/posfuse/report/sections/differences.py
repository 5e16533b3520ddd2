"""The differences from the baseline: tables, tests and figures."""

from functools import partial

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from rich.text import Text

from posfuse.evidence.metric import Metric
from posfuse.report import table
from posfuse.report.figures import plot, style, svg
from posfuse.report.sections.section import PAIRED, Section, Shown, drawing
from posfuse.report.sweep import Sweep
from posfuse.report.table import Column, Table, if_many, interval, p_value, t_interval, table_of
from posfuse.statistics import paired as st
from posfuse.statistics.comparisons import (
    EXPLORATORY,
    PLACEBO,
    PRIMARY,
    Criteria,
    family_size,
    strictest_level,
)
from posfuse.statistics.shares import GAMMA, outperforms

# Columns that several tables share.
N: Column = ("n", str, "n")


def difference(metric: Metric, heading: str = "difference") -> Column:
    return heading, partial(table.with_spread, digits=metric.digits, sign="+"), "mean", "std"


def _adjusted_p(role: str, adjusted: float, alone: float) -> str:
    """The adjusted p-value; outside the family the unadjusted one, marked as such."""
    if role == PRIMARY or np.isnan(alone):
        return p_value(adjusted)
    return f"{p_value(alone)} (unadj.)"


def _verdict(verdict: str, small: bool) -> str:
    return f"{verdict}, within margin" if small else verdict


VERDICT: Column = ("verdict", _verdict, "verdict", "small")


def verdict_columns(metric: Metric, heading: str = "difference") -> list[Column]:
    """The verdict, and the difference that it is about: n, interval, adjusted p-values."""
    return [
        VERDICT, N, difference(metric, heading), t_interval(metric),
        ("p Holm", _adjusted_p, "role", "p_holm", "p_t"),
        ("p equiv.", _adjusted_p, "role", "p_equivalence_holm", "p_equivalence"),
    ]  # fmt: skip


def section(sweep: Sweep) -> Section:
    comparisons, criteria = sweep.comparisons, sweep.criteria
    fusions, problems = sorted(set(sweep.runs["fusion"])), []
    if not sweep.has_baseline:
        known = ", ".join(fusions)
        problems.append(f"--baseline: no run has fusion={criteria.baseline}; use {known}")
    notes = [
        f"{name}: in the primary family, but without runs here"
        for name in criteria.primary
        if name not in fusions
    ]
    caption = (
        "Every comparison with the difference of each seed and the 95 % t interval; the band is "
        f"±{criteria.within}, within which a difference does not matter."
    )
    shown: list[Shown] = []
    if len(others := sweep.best.others(comparisons)):
        short = short_table(others, criteria)
        shown = [short, Text(f"{short.caption}\n")]
    return Section(
        PAIRED,
        drawings=drawing(forest, comparisons, criteria, caption=caption),
        tables=[differences_table(comparisons, criteria), tests_table(comparisons, criteria)],
        shown=shown,
        notes=[*sweep.compared[1], *notes],
        problems=problems,
    )


def differences_table(comparisons: pd.DataFrame, criteria: Criteria) -> Table:
    """How large each difference is, and how many seeds it needs."""
    metric = criteria.metric
    effect = metric.amount(criteria.effect)
    level = strictest_level(comparisons, criteria)
    return table_of(
        comparisons,
        [
            N,
            difference(metric),
            t_interval(metric),
            ("95 % BCa", partial(interval, digits=metric.digits), "bca_low", "bca_high"),
            ("d_z", "{:+.2f}".format, "d_z"),
            ("P(A > B)", "{:.2f}".format, "wins"),
            ("95 % exact", partial(interval, sign=""), "wins_low", "wins_high"),
            ("outperforms", outperforms, "wins_low", "wins_high"),
            ("seeds: observed", table.seeds, "seeds_observed"),
            (f"seeds: {effect}", table.seeds, "seeds_effect"),
            ("seeds: equivalence", table.seeds, "seeds_equivalence"),
        ],
        name="paired_differences",
        title=f"Paired differences from {criteria.baseline}",
        caption=f"{to_baseline(criteria)}, paired by seed: mean "
        "± standard deviation over n pairs. 95 % intervals: Student's t, and the bias-corrected "
        "accelerated bootstrap (BCa), which is too narrow with few seeds (it covers 83 % with 5). "
        "d_z: mean divided by standard deviation. P(A > B): the probability that the operator "
        f"beats {criteria.baseline} with the same seed (a tie counts half), with its exact "
        "interval. outperforms (Bouthillier et al. 2021): yes if that interval is above 0.5 and "
        f"reaches above {GAMMA:g}, loses if the reverse holds, little if it excludes 0.5 but does "
        "not reach that far, open if it contains 0.5. Seeds needed for 80 % power, two-sided, "
        f"at alpha = {level:.2g} ({criteria.alpha:g} divided by the size of the family, the "
        "strictest of Holm's levels) and for the upper 80 % confidence limit of the standard "
        f"deviation: to detect the observed difference, to detect {effect}, and to show "
        f"equivalence within ±{criteria.within} if the true difference is 0.",
    )


def tests_table(comparisons: pd.DataFrame, criteria: Criteria) -> Table:
    return table_of(
        comparisons,
        [
            VERDICT,
            N,
            ("p t", p_value, "p_t"),
            ("p Holm", p_value, "p_holm"),
            ("p Wilcoxon", p_value, "p_wilcoxon"),
            ("p sign flip", p_value, "p_sign_flip"),
            ("smallest", p_value, "smallest_p"),
            ("p equivalence", p_value, "p_equivalence"),
            ("equiv. Holm", p_value, "p_equivalence_holm"),
        ],
        name="paired_tests",
        title=f"Tests of the differences from {criteria.baseline}",
        caption="Two-sided p-values: paired t-test; its Holm adjustment over the "
        f"{family_size(comparisons)} comparisons of the family; Wilcoxon's signed-rank "
        "test; sign-flip permutation test; smallest: the lowest p that n seeds can reach in the "
        f"last two. {least_p(comparisons)} p equivalence: two one-sided t-tests of \"the "
        f"difference is within ±{criteria.within}\"; equiv. Holm: its Holm adjustment "
        "over the same comparisons. The verdict uses the adjusted p-values at alpha = "
        f"{criteria.alpha:g}: ahead, behind (either may be too small to matter), equivalent or "
        f"undecided. {outside_family(comparisons, criteria)}".rstrip(),
    )  # fmt: skip


def short_table(comparisons: pd.DataFrame, criteria: Criteria) -> Table:
    """The columns of the two tables that fit a terminal."""
    metric = criteria.metric
    notes = least_p(comparisons), outside_family(comparisons, criteria)
    return table_of(
        comparisons,
        verdict_columns(metric),
        name="comparison",
        title=f"Paired differences from {criteria.baseline}, {metric.points}{metric.better}",
        caption=" ".join(filter(None, notes)),
    )


def outside_family(comparisons: pd.DataFrame, criteria: Criteria) -> str:
    """What the verdicts exploratory and placebo mean, if any row has them."""
    texts = {
        EXPLORATORY: f"exploratory: not in the sweep's primary family "
        f"({', '.join(criteria.primary)}), so its p-values are not adjusted (unadj.) and decide "
        "nothing.",
        PLACEBO: "placebo: the fused table is zeros; the table of placebos compares it with the "
        "same operator with its table.",
    }
    roles = set(comparisons["role"])
    return " ".join(text for role, text in texts.items() if role in roles)


def least_p(comparisons: pd.DataFrame) -> str:
    """A sentence with the lowest p that the comparison with the fewest seeds can reach."""
    if comparisons.empty:
        return ""
    if (n := int(comparisons["n"].min())) < 2:
        return "One seed gives no test."
    least = st.smallest_p(n)
    return f"With {n} seeds no sign-flip or signed-rank test can give p < {least:.2g}."


def to_baseline(criteria: Criteria, what: str = "") -> str:
    """What a difference is, as the start of a caption; `what` is another number in the unit of the
    metric."""
    metric = criteria.metric
    points = f"{'points of ' * metric.is_share}{what}" if what else metric.points
    return f"Difference from {criteria.baseline} in {points}{metric.better}"


def forest(comparisons: pd.DataFrame, criteria: Criteria) -> Figure:
    """Every comparison as a row, with a mark for each seed if the differences of the seeds are
    known; a block for each corpus."""
    of_each = "seed" if "deltas" in comparisons else ""  # another study's table has none
    marks = "small mark: one seed; " * bool(of_each)
    caption = (
        f"{to_baseline(criteria)}; {marks}mean with its 95 % t interval; shaded: within ± "
        f"{criteria.margin:g}"
    )
    rows = comparisons.assign(margin=criteria.margin)
    return forest_of(rows, caption, criteria.metric, of_each)


@style.styled
def forest_of(comparisons: pd.DataFrame, caption: str, metric: Metric, of_each: str = "") -> Figure:
    """A row for each comparison with mean, interval, margin and numbers; a block for each value of
    the column data. With `of_each` ("seed") a row also has a mark for each of its deltas."""
    by_data = comparisons.groupby("data", sort=False)
    blocks = {data: part.to_dict("records") for data, part in by_data}
    views = plot.shared_views(blocks.values(), bool(of_each))
    has_scales = len(set(views)) > 1
    caption += "; each block has its own scale" * has_scales
    caption += plot.cut_note(blocks.values(), views)
    sizes = [len(rows) for rows in blocks.values()]
    height = 0.19 * sum(sizes) + (0.9 if has_scales else 0.7) * len(sizes)
    figure, (axes,) = style.grid([1], [[""]], caption, (8, height), ratios=[n + 0.6 for n in sizes])
    names = ("encoding", "fusion", *if_many(comparisons, "variant"))
    for axis, (data, rows), view in zip(axes, blocks.items(), views, strict=True):
        for y, row in enumerate(rows):
            ends = y - 0.5, y + 0.5
            axis.fill_betweenx(ends, -row["margin"], row["margin"], color="0.88", linewidth=0)
            if of_each:
                for unit, delta in zip(row["seeds"], row["deltas"], strict=True):
                    (point,) = axis.plot(delta, y + 0.37, "|", color="0.2", markersize=4)
                    name = f"{plot.label(row, ('data', *names))} {of_each}={unit}"
                    svg.mark(point, f"{name}: {metric.signed(delta)}")
            plot.whisker(axis, y, row, view, upright=False)
            numbers = plot.numbers(row, metric.digits)
            text = f"{plot.label(row, ('data', *names))}: {numbers}"
            plot.dot(axis, row["mean"], y, row["fusion"], 6, text)
            axis.text(
                1.02, y, numbers, transform=axis.get_yaxis_transform(), va="center",
                family="monospace", fontsize=style.SMALL,
            )  # fmt: skip
        axis.axvline(0, color=style.QUIET, linewidth=0.8, zorder=1)
        labels = [style.short(plot.label(row, names), 52) for row in rows]
        axis.set_yticks(range(len(rows)), labels)
        axis.set_ylim(len(rows) - 0.4, -0.6)
        axis.set_xlim(view)
        axis.spines["left"].set_visible(False)
        axis.tick_params(axis="y", length=0)
        axis.set_title(style.short(str(data), 60), loc="left", fontweight="bold")
        if has_scales or axis is axes[-1]:
            axis.set_xlabel(f"difference, {metric.unit}")
    return figure
