"""Results by test length, and the comparison of the areas beyond the trained length."""

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from posfuse.evidence.collect import CELL
from posfuse.evidence.metric import ACCURACY, Metric, classes_of
from posfuse.report import table
from posfuse.report.figures import plot, style
from posfuse.report.sections.differences import short_table, to_baseline
from posfuse.report.sections.section import PAIRED, Section, drawing
from posfuse.report.sweep import Sweep
from posfuse.report.table import Column, Table, table_of
from posfuse.statistics import paired as st
from posfuse.statistics.comparisons import Criteria
from posfuse.statistics.lengths import SLIDING, by_test_length, length_cells


def section(sweep: Sweep) -> Section | None:
    rows = by_test_length(sweep.runs, sweep.metric)
    if rows.empty:
        return None
    chance = chance_of(classes_of(sweep.runs), sweep.metric)
    sliding = by_test_length(sweep.runs, sweep.metric, SLIDING)
    caption = f"{sweep.metric.heading} by test length, inside and beyond the lengths of training."
    return Section(
        PAIRED,
        drawings=drawing(results_by_length, rows, chance, sweep.metric, caption=caption),
        tables=length_tables(rows, sliding, sweep.beyond[0], sweep.criteria),
        notes=[f"beyond the trained length: {note}" for note in sweep.beyond[1]],
    )


def chance_of(classes: "pd.Series[float]", metric: Metric) -> dict[str, float]:
    """The accuracy of guessing by corpus, where it is known; empty for other metrics."""
    known = metric.guesses(classes).dropna() if metric == ACCURACY else pd.Series(dtype=float)
    return {str(data): guess for data, guess in known.items()}


def length_tables(
    by_test_length: pd.DataFrame, sliding: pd.DataFrame, comparisons: pd.DataFrame,
    criteria: Criteria,
) -> list[Table]:  # fmt: skip
    """`by_test_length` is the frame of this name in statistics/lengths.py, and `sliding` is the
    frame for overlapping windows. `comparisons` is the frame of `compare` for the areas."""
    metric = criteria.metric
    area = (
        f"mean {metric.title} over the logarithm of the length, over the test lengths above "
        "data.max_len"
    )
    cells = length_cells(by_test_length)
    windows = "" if sliding.empty else " The windows of a text do not overlap."
    over_seeds = partial(table.over_seeds, digits=metric.digits)
    shown = table_of(
        cells,
        [*_means(cells, metric), ("beyond", over_seeds, "mean", "std", "n")],
        name="lengths",
        title=f"{metric.heading} by test length",
        caption=f"Test {metric.level}, mean over seeds, by the length of the test documents in "
        "tokens. If no test has the length data.max_len, its column shows the ordinary test "
        f"split. beyond: the {area}: mean ± standard deviation over seeds, number of "
        f"seeds in brackets.{windows}",
    )
    tables = [shown]
    if not sliding.empty:
        cells = length_cells(sliding)
        caption = (
            f"Test {metric.level}, mean over seeds, by the length of the windows in tokens. Each "
            "window begins half a window after the one before. After the first one only the "
            "targets of its second half count, so these see half a window or more."
        )
        title = f"{metric.heading} by the length of overlapping windows"
        means = _means(cells, metric)
        tables.append(table_of(cells, means, name="sliding", title=title, caption=caption))
    if not comparisons.empty:
        longer = short_table(comparisons, criteria)
        title = f"Paired differences from {criteria.baseline} beyond the trained length"
        caption = f"{to_baseline(criteria, area)}. {longer.caption}".rstrip()
        tables.append(replace(longer, name="beyond", title=title, caption=caption))
    return tables


def _means(cells: pd.DataFrame, metric: Metric) -> list[Column]:
    """A column for each test length."""
    lengths = [str(name) for name in cells if name not in (*CELL, "n", "mean", "std")]
    return [(name, metric.number, name) for name in lengths]


@style.styled
def results_by_length(
    rows: pd.DataFrame, chance: dict[str, float], metric: Metric = ACCURACY
) -> Figure:
    """The metric against test length in tokens, a panel for each data x encoding x variant.

    `rows` is the frame `by_test_length` of statistics/lengths.py. `chance` has the result of
    guessing by data, if known.
    """

    def by_length(mean: "pd.Series[float]") -> str:
        digits = metric.digits - 1
        return ", ".join(f"{n}: {mean[n]:.{digits}f}{metric.percent}" for n in mean.index)

    def interval(values: "pd.Series[float]") -> tuple[float, float]:
        # Equal accuracies and one seed have no interval, so no band.
        low, high = np.clip(st.t_interval(values), 0, 100 if metric.is_share else None)
        return low, high

    caption = (
        f"test {metric.level} against the length of the test documents in tokens; shaded: the "
        "lengths of training, where all lines have the same; line: mean over seeds; band: its 95 % "
        f"t interval{'; dotted: chance' if chance else ''}"
    )
    figure, panels = plot.panel_figure(rows, caption, (3.0, 2.3))
    for part, (axis,) in panels:
        plot.lines(axis, part, "test_length", by_length, interval)
        if (guess := chance.get(str(part["data"].iloc[0]))) is not None:
            axis.axhline(guess, color=style.QUIET, linewidth=0.8, linestyle=":", zorder=0)
        axis.set_ylabel(metric.axis)
        if metric.is_share:
            axis.set_ylim(0, 103)
        of_training = set(part["trained"])
        _length_axis(axis, sorted(part["test_length"].unique()))
        if len(of_training) == 1:
            axis.axvspan(axis.get_xlim()[0], *of_training, color="0.92", linewidth=0, zorder=-1)
    return figure


def _length_axis(axis: Axes, lengths: list[int]) -> None:
    """A logarithmic axis with a tick at each length."""
    axis.set_xscale("log", base=2)
    axis.set_xlim(lengths[0] / 1.25, lengths[-1] * 1.1)
    axis.set_xticks(lengths, [f"{length:g}" for length in lengths])
    axis.minorticks_off()
    axis.set_xlabel("test length, tokens")
