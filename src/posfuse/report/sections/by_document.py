"""Differences over documents, and by the length of documents."""

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from posfuse.evidence.collect import CELL
from posfuse.evidence.metric import ACCURACY
from posfuse.report import table
from posfuse.report.figures import plot, style
from posfuse.report.sections.differences import N, to_baseline
from posfuse.report.sections.section import PAIRED, Section, drawing
from posfuse.report.sweep import Sweep
from posfuse.report.table import Column, Table, interval, p_value, t_interval, table_of
from posfuse.statistics.comparisons import Criteria
from posfuse.statistics.lengths import interactions, trends

MOST_HEATMAPS = 12


def section(sweep: Sweep) -> Section:
    criteria, comparisons = sweep.criteria, sweep.comparisons
    documents, problems = sweep.documents
    labels = dict(zip(sweep.runs["data"], sweep.runs["label_names"], strict=True))
    return Section(
        PAIRED,
        drawings=[
            *drawing(gain_by_length, comparisons, documents.bins, criteria, caption="The gain by "
                     "document length, across corpora and inside each corpus."),
            *drawing(confusions, documents.confusions, labels, criteria.baseline,
                     caption=f"Confusion matrix minus that of {criteria.baseline} in points, mean "
                     "over seeds. Each row is a true class; values are points of the class's "
                     "test documents."),
        ],
        tables=[
            interactions_table(interactions(comparisons, sweep.metric), criteria),
            bins_table(documents.bins, trends(documents.bins), criteria.baseline),
            documents_table(documents.statistics, criteria),
        ],
        problems=problems,
    )  # fmt: skip


def documents_table(documents: pd.DataFrame, criteria: Criteria) -> Table:
    """The intervals of the hierarchical bootstrap over seeds and documents, and McNemar's test of
    each seed."""
    metric, at_90 = criteria.metric, ("documents_low_90", "documents_high_90")
    ends = partial(interval, digits=metric.digits)
    of_seeds: list[Column] = []
    tested, groups = "", "which are resampled together"
    if "p_mcnemar" in documents:
        of_seeds = [("p McNemar by seed", _p_by_seed, "document_seeds", "p_mcnemar")]
        tested = (
            " McNemar's exact test compares the two models of one seed on these documents; it is "
            "not about other seeds."
        )
        groups += " and have one sign in McNemar's test"
    return table_of(
        documents,
        [
            ("n", lambda seeds: str(len(seeds)), "document_seeds"),
            ("documents", _in_groups, "n_documents", "n_groups"),
            ("difference", metric.signed, "documents_mean"),
            ("95 % seeds and documents", ends, "documents_low", "documents_high"),
            ("90 %", ends, *at_90),
            ("equivalent", partial(_inside, criteria.margin), *at_90),
            *of_seeds,
        ],
        name="documents",
        title="Differences over seeds and documents",
        caption=f"{to_baseline(criteria)} with the intervals of a hierarchical "
        "bootstrap that resamples seeds and test documents, so they are about other seeds and "
        "documents like these. equivalent: whether the 90 % interval lies within "
        f"±{criteria.within}, not adjusted for the number of comparisons. The equivalence of the "
        f"table of tests is about these test documents only.{tested} In brackets: groups "
        f"of documents that begin with the same article, {groups}.",
    )


def _in_groups(documents: int, groups: int) -> str:
    return f"{documents:,}" + (f" ({groups:,})" if groups < documents else "")


def _inside(margin: float, low: float, high: float) -> str:
    return "yes" if -margin < low and high < margin else "no"


def _p_by_seed(seeds: Sequence[int], p_values: Sequence[float]) -> str:
    return "  ".join(f"{seed}: {p_value(p)}" for seed, p in zip(seeds, p_values, strict=True))


def bins_table(bins: pd.DataFrame, trends: pd.DataFrame, baseline: str) -> Table:
    slopes = trends[[*CELL, "mean", "p_t"]].rename(columns={"mean": "slope"})
    return table_of(
        bins.drop(columns="gains", errors="ignore").merge(slopes, "left", CELL),
        [
            ("tokens", "{} to {}".format, "shortest", "longest"),
            ("documents", table.count, "n_documents"),
            N,
            ("difference", ACCURACY.signed, "mean"),
            t_interval(ACCURACY),
            ("trend", _trend, "slope", "p_t"),
        ],
        name="gain_by_length",
        title="Gain by document length inside each corpus",
        caption=f"Difference from {baseline} in points of test accuracy among the documents of "
        "each length bin: mean over n seeds with its 95 % t interval. The bins are quartiles of "
        "the number of tokens that the model reads. Trend: mean slope over seeds in points per "
        "doubling of length, and its two-sided p.",
    )


def _trend(slope: float, p: float) -> str:
    return f"{slope:+.2f}, p {p_value(p) or 'none'}"


def interactions_table(interactions: pd.DataFrame, criteria: Criteria) -> Table:
    metric = criteria.metric
    return table_of(
        interactions,
        [
            ("one task", str, "task"),
            ("corpora", str, "corpora"),
            N,
            ("slope", metric.signed, "mean"),
            t_interval(metric),
            ("p t", p_value, "p_t"),
            ("p sign flip", p_value, "p_sign_flip"),
            ("p fit", p_value, "p_fit"),
        ],
        name="interaction",
        title="Does the gain grow with length, across corpora?",
        caption=f"Slope of the difference from {criteria.baseline} over the mean length of the "
        f"corpora, in {metric.unit} per doubling of length{metric.better}. Least squares gives one "
        "slope for each seed that all corpora have; the table shows the mean of these n slopes, "
        "its 95 % t interval, and the two-sided p of a t-test and of sign flips. p fit: lack of "
        "fit, a t-test of the seeds' mean curvature, from three lengths; if it is small, the gain "
        "does not follow a straight line and its slope means little. one task: the task's name "
        "if the corpora differ only in length; empty if they also differ otherwise.",
    )


@style.styled
def gain_by_length(comparisons: pd.DataFrame, bins: pd.DataFrame, criteria: Criteria) -> Figure:
    """Gain over the baseline against document length: over corpora, then inside each corpus.

    Each encoding x variant starts a row of panels. A corpus with one bin has no panel. A single
    corpus has no panel over corpora, unless no corpus has a panel.
    """
    panels: list[tuple[list[str], pd.DataFrame]] = []  # title; rows, x their length in tokens
    groups = []
    for key, rows in comparisons.groupby(plot.PANEL[1:], sort=False):
        name = [str(part) for part in key]
        inside = bins if bins.empty else bins[(bins[plot.PANEL[1:]] == list(key)).all(axis=1)]
        corpora = [part for _, part in inside.groupby("data", sort=False)]
        corpora = [part for part in corpora if part["mean_length"].nunique() > 1]
        over = rows["data"].nunique() > 1 or not corpora
        if over:
            panels.append((["all corpora", *name], rows.assign(x=rows["length"])))
        for part in corpora:
            panels.append(([part["data"].iloc[0], *name], part.assign(x=part["mean_length"])))
        groups.append(over + len(corpora))
    frames = [frame.to_dict("records") for _, frame in panels]
    views = [plot.view_of(rows) for rows in frames]
    caption = (
        f"{to_baseline(criteria)}, by mean document length: over "
        "corpora, and over quarters of a corpus's test documents; mean with its 95 % t interval"
    )
    caption += plot.cut_note(frames, views)
    figure, axes = style.grid(groups, [title for title, _ in panels], caption, (3.0, 2.5))
    for (title, frame), (axis,), view in zip(panels, axes, views, strict=True):
        _against_length(axis, frame, view, criteria.metric.digits)
        axis.set_ylabel(f"difference, {criteria.metric.unit}")
        if title[0] == "all corpora":
            plot.corpus_ticks(axis, frame.groupby("data", sort=False)["x"].first().to_dict())
        else:
            plot.length_ticks(axis)
    return figure


def _against_length(axis: Axes, frame: pd.DataFrame, view: plot.View, digits: int) -> None:
    """Draw a line for each operator; the column `x` is a length in tokens."""
    middle = float(np.sqrt(frame["x"].min() * frame["x"].max()))
    octaves = max(float(np.log2(frame["x"].max() / frame["x"].min())), 0.5)
    axis.axhline(0, color=style.QUIET, linewidth=0.8, zorder=0)
    operators = list(frame["fusion"].unique())
    for k, fusion in enumerate(operators):
        one = style.look(fusion)
        # Intervals at one length would hide each other, so they are side by side.
        shift = 0.06 * octaves * (k / max(len(operators) - 1, 1) - 0.5)
        rows = frame[frame["fusion"] == fusion].sort_values("x").to_dict("records")
        x, y = [row["x"] * 2**shift for row in rows], [row["mean"] for row in rows]
        axis.plot(x, y, color=one.color, linestyle=one.dash)
        for at, row in zip(x, rows, strict=True):
            plot.whisker(axis, at, row, view, color=one.color)
            bin_ = f", {row['shortest']} to {row['longest']} tokens" if "shortest" in row else ""
            text = f"{plot.label(row)}{bin_}: {plot.numbers(row, digits)}"
            plot.dot(axis, at, row["mean"], fusion, 5, text)
        style.LineName(axis, (x[-1], y[-1]), fusion)
    axis.set_xscale("log", base=2)
    axis.set_xlim(middle * 2 ** (-0.58 * octaves), middle * 2 ** (0.58 * octaves))
    axis.set_ylim(view)


@style.styled
def confusions(
    confusions: Mapping[tuple[str, ...], NDArray[np.float64]],
    label_names: Mapping[str, Sequence[str]],
    baseline: str,
) -> Figure:
    """Confusion matrices (C, C) minus the baseline's in points, by CELL. Rows are true classes."""
    # If not all comparisons are drawn, each corpus still has some.
    corpora = pd.Series([key[0] for key in confusions])
    turn = corpora.groupby(corpora).cumcount()  # of a comparison among those of its corpus
    chosen = sorted(turn.sort_values(kind="stable").index[:MOST_HEATMAPS])
    shown = {key: confusions[key] for i, key in enumerate(confusions) if i in chosen}
    classes = max(len(matrix) for matrix in shown.values())
    caption = (
        f"confusion matrix minus that of {baseline}, points of the true class's documents, mean "
        "over seeds; rows: true class, columns: predicted; orange: more than "
        f"{baseline}, purple{' or a dash' if classes > plot.MOST_CLASSES else ''}: less"
    )
    if len(confusions) > len(shown):
        caption += f"; {len(shown)} of {len(confusions)} comparisons"
    side = float(np.clip(0.32 * classes, 1.6, 3.0))
    size, most = (side + 1.1, side + 1.2), int(12 / (side + 1.1))
    titles = [[data, f"{encoding} {fusion}", variant] for data, encoding, fusion, variant in shown]
    figure, axes = style.grid([1] * len(shown), titles, caption, size, most)
    for ((data, *_), matrix), (axis,) in zip(shown.items(), axes, strict=True):
        # One colour scale per corpus, so that its operators can be compared.
        like = [np.abs(m).ravel() for k, m in shown.items() if k[0] == data]
        largest = np.nanmax(np.concatenate([[0.0], *like]))
        plot.heatmap(axis, matrix, float(largest) or 1.0, label_names.get(data, []))
    return figure
