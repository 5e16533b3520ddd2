"""The report's figures, from plain frames; the rows' own order is the order shown.

Differences are in points, accuracies in percent. NaN is not drawn; without rows a figure says so.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from posfuse.analysis.figures.figure_parts import (
    MOST_CLASSES,
    PANEL,
    View,
    corpus_ticks,
    cut_note,
    dot,
    group_sizes,
    heatmap,
    joined,
    length_ticks,
    name_operators,
    numbers,
    panel_title,
    panels_of,
    shared_views,
    view_of,
    whisker,
)
from posfuse.analysis.figures.figure_style import (
    CAPTION,
    QUIET,
    SMALL,
    LineName,
    grid,
    look,
    mark,
    nothing,
    short,
    styled,
    wrapped,
)
from posfuse.analysis.statistics.comparisons import Criteria

MOST_HEATMAPS = 12


@styled
def deltas(comparisons: pd.DataFrame, baseline: str) -> Figure:
    """Every seed's difference to the baseline, a panel for each data x encoding x variant."""
    if comparisons.empty:
        return nothing()
    panels = panels_of(comparisons)
    views = shared_views([view_of(r, True) for r in panels.values()], [key[0] for key in panels])
    caption = (
        f"difference to {baseline}, points of test accuracy; a mark is a seed, the bar beside "
        "the seeds their mean, the thin line its 95 % t interval"
    )
    caption += cut_note(panels.values(), views)
    widest = max(len(rows) for rows in panels.values())
    figure, axes = grid(group_sizes(panels), caption, (min(3.4, 1.6 + 0.4 * widest), 2.6))
    for (key, rows), (axis,), view in zip(panels.items(), axes, views, strict=True):
        axis.axhline(0, color=QUIET, linewidth=0.8, zorder=0)
        for x, row in enumerate(rows):
            n = len(row["deltas"])
            shifts = np.linspace(-0.36, 0.06, n) if n > 1 else [-0.15]
            for shift, seed, delta in zip(shifts, row["seeds"], row["deltas"], strict=True):
                point = dot(axis, x + shift, delta, row["fusion"], 5 if n <= 5 else 4)
                mark(point, f"{joined(row)} seed={seed}: {delta:+.2f} points")
            whisker(axis, x + 0.27, row, view)
            if n == 1:
                continue  # a mean of one is the mark again
            (bar,) = axis.plot([x + 0.15, x + 0.39], [row["mean"]] * 2, color="black", linewidth=2)
            mark(bar, f"{joined(row)}: mean {numbers(row)}")
        axis.set_ylim(view)
        panel_title(axis, key)
        name_operators(axis, [row["fusion"] for row in rows])
    return figure


@styled
def accuracy_latency(cells: pd.DataFrame) -> Figure:
    """Accuracy above latency by fusion, a panel for each data x encoding x variant."""
    if cells.empty:
        return nothing("no runs")
    panels = panels_of(cells)
    caption = (
        "test accuracy in %, and latency in ms a document, by fusion; a mark is the mean over "
        "seeds, its line ± one standard deviation"
    )
    widest = max(len(rows) for rows in panels.values())
    size = (min(3.4, 1.7 + 0.35 * widest), 3.4)
    figure, axes = grid(group_sizes(panels), caption, size, ratios=(1.3, 1))
    for (key, rows), (upper, lower) in zip(panels.items(), axes, strict=True):
        for axis, value, unit in ((upper, "", "%"), (lower, "latency_", "ms a document")):
            for x, row in enumerate(rows):
                mean, std = row[f"{value}mean"], row[f"{value}std"]
                if np.isnan(mean):
                    continue
                spread = ""
                if not np.isnan(std):
                    axis.plot([x, x], [mean - std, mean + std], color=look(row["fusion"]).color)
                    spread = f" ± {std:.3g}"
                point = dot(axis, x, mean, row["fusion"], 6)
                mark(point, f"{joined(row)}: {mean:.4g}{spread} {unit}, n={row['n']}")
            axis.margins(y=0.12)
        upper.set_ylabel("accuracy, %")
        lower.set_ylabel("ms a document")
        if lower.lines:
            lower.set_ylim(0, 1.08 * lower.get_ylim()[1])
        else:
            lower.text((len(rows) - 1) / 2, 0.5, "not recorded", ha="center", color=QUIET)
            lower.set_yticks([])
            lower.set_ylim(0, 1)
        panel_title(upper, key)
        name_operators(lower, [row["fusion"] for row in rows])
        upper.set_xticks(range(len(rows)), [""] * len(rows))
        upper.set_xlim(lower.get_xlim())
    return figure


@styled
def forest(comparisons: pd.DataFrame, criteria: Criteria) -> Figure:
    """A row a comparison, mean with interval and numbers; a block for each corpus."""
    if comparisons.empty:
        return nothing()
    by_data = comparisons.groupby("data", sort=False)
    blocks = {data: part.to_dict("records") for data, part in by_data}
    views = shared_views([view_of(rows) for rows in blocks.values()], [0] * len(blocks))
    caption = (
        f"difference to {criteria.baseline}, points of test accuracy; mean with its 95 % t "
        f"interval; shaded: within ± {criteria.margin:g}"
    )
    caption += "; each block has its own scale" if len(set(views)) > 1 else ""
    caption = wrapped([caption + cut_note(blocks.values(), views)], 7.8, CAPTION)
    sizes = [len(rows) for rows in blocks.values()]
    height = 0.19 * sum(sizes) + 0.7 * len(sizes) + 0.2 * (caption.count("\n") + 1)
    figure = Figure((8, height), layout="constrained")
    figure.suptitle(caption, x=0.01, ha="left", fontsize=CAPTION)
    places = figure.add_gridspec(len(blocks), 1, height_ratios=[n + 0.6 for n in sizes])
    for i, ((data, rows), view) in enumerate(zip(blocks.items(), views, strict=True)):
        axis = figure.add_subplot(places[i])
        axis.axvspan(-criteria.margin, criteria.margin, color="0.88", linewidth=0)
        axis.axvline(0, color=QUIET, linewidth=0.8)
        for y, row in enumerate(rows):
            whisker(axis, y, row, view, upright=False)
            point = dot(axis, row["mean"], y, row["fusion"], 6)
            mark(point, f"{joined(row)}: {numbers(row)}")
            axis.text(
                1.02, y, numbers(row), transform=axis.get_yaxis_transform(), va="center",
                family="monospace", fontsize=SMALL,
            )  # fmt: skip
        labels = [short(joined(row, ("encoding", "fusion", "variant")), 52) for row in rows]
        axis.set_yticks(range(len(rows)), labels)
        axis.set_ylim(len(rows) - 0.4, -0.6)
        axis.set_xlim(view)
        axis.spines["left"].set_visible(False)
        axis.tick_params(axis="y", length=0)
        axis.set_title(short(str(data), 60), loc="left", fontweight="bold")
    return figure


@styled
def gain_by_length(comparisons: pd.DataFrame, bins: pd.DataFrame, baseline: str) -> Figure:
    """Gain over the baseline against document length: over corpora, then inside each corpus.

    A row (or more) for each encoding x variant. A corpus with one bin has no panel, and a single
    corpus no panel over corpora unless it is all there is.
    """
    if comparisons.empty:
        return nothing()
    panels: list[tuple[list[str], pd.DataFrame]] = []  # title; rows, x their length in tokens
    groups = []
    for key, rows in comparisons.groupby(PANEL[1:], sort=False):
        name = [str(part) for part in key]
        inside = bins if bins.empty else bins[(bins[PANEL[1:]] == list(key)).all(axis=1)]
        parts = [part for _, part in inside.groupby("data", sort=False)]
        parts = [part for part in parts if part["mean_length"].nunique() > 1]
        over = rows["data"].nunique() > 1 or not parts
        if over:
            panels.append((["all corpora", *name], rows.assign(x=rows["length"])))
        for part in parts:
            panels.append(([part["data"].iloc[0], *name], part.assign(x=part["mean_length"])))
        groups.append(over + len(parts))
    frames = [frame.to_dict("records") for _, frame in panels]
    views = [view_of(rows) for rows in frames]
    caption = (
        f"difference to {baseline}, points of test accuracy, by mean document length: over "
        "corpora, and over quarters of a corpus's test documents; mean with its 95 % t interval"
    )
    figure, axes = grid(groups, caption + cut_note(frames, views), (3.0, 2.5))
    for (title, frame), (axis,), view in zip(panels, axes, views, strict=True):
        _against_length(axis, frame, view)
        if title[0] == "all corpora":
            corpus_ticks(axis, frame.groupby("data", sort=False)["x"].first().to_dict())
        else:
            length_ticks(axis)
        panel_title(axis, title)
    return figure


def _against_length(axis: Axes, frame: pd.DataFrame, view: View) -> None:
    """A line for each operator; the rows' column `x` is a length."""
    middle = float(np.sqrt(frame["x"].min() * frame["x"].max()))
    octaves = max(float(np.log2(frame["x"].max() / frame["x"].min())), 0.5)
    axis.axhline(0, color=QUIET, linewidth=0.8, zorder=0)
    operators = list(frame["fusion"].unique())
    for k, fusion in enumerate(operators):
        one = look(fusion)
        # Side by side, as intervals at one length would hide each other.
        shift = 0.06 * octaves * (k / max(len(operators) - 1, 1) - 0.5)
        rows = frame[frame["fusion"] == fusion].sort_values("x").to_dict("records")
        x, y = [row["x"] * 2**shift for row in rows], [row["mean"] for row in rows]
        axis.plot(x, y, color=one.color, linestyle=one.dash)
        for at, row in zip(x, rows, strict=True):
            whisker(axis, at, row, view, color=one.color)
            point = dot(axis, at, row["mean"], fusion, 5)
            bin_ = f", {row['shortest']} to {row['longest']} tokens" if "shortest" in row else ""
            mark(point, f"{joined(row)}{bin_}: {numbers(row)}")
        LineName(axis, (x[-1], y[-1]), fusion)
    axis.set_xscale("log", base=2)
    axis.set_xlim(middle * 2 ** (-0.58 * octaves), middle * 2 ** (0.58 * octaves))
    axis.set_ylim(view)


@styled
def learning_curves(curves: pd.DataFrame) -> Figure:
    """Validation accuracy by epoch; columns CELL, seed, epoch, val_accuracy (percent)."""
    curves = curves if curves.empty else curves.dropna(subset=["val_accuracy"])
    if curves.empty:
        return nothing("no learning curves")
    panels = dict(list(curves.groupby(PANEL, sort=False)))
    caption = (
        "validation accuracy by epoch; line: mean over the seeds still training, band: their "
        "lowest to their highest"
    )
    figure, axes = grid(group_sizes(panels), caption, (3.0, 2.3))
    for (key, part), (axis,) in zip(panels.items(), axes, strict=True):
        for fusion, runs in part.groupby("fusion", sort=False):
            one = look(str(fusion))
            by_epoch = runs.groupby("epoch")["val_accuracy"].agg(["mean", "min", "max"])
            x, mean = by_epoch.index.to_numpy(), by_epoch["mean"].to_numpy()
            axis.fill_between(
                x, by_epoch["min"], by_epoch["max"], color=one.color, alpha=0.13, linewidth=0
            )
            (line,) = axis.plot(
                x, mean, color=one.color, linestyle=one.dash, marker=one.marker,
                markevery=max(1, len(x) // 8), markersize=3.5,
            )  # fmt: skip
            best, n = int(np.argmax(mean)), runs["seed"].nunique()
            name = joined({**dict(zip(PANEL, key, strict=True)), "fusion": fusion})
            mark(line, f"{name}: best mean {mean[best]:.2f} % at epoch {x[best]}, n={n}")
            LineName(axis, (x[-1], mean[-1]), str(fusion))
        if part["epoch"].nunique() == 1:
            axis.set_xlim(part["epoch"].iloc[0] - 1, part["epoch"].iloc[0] + 1)
        axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axis.set_xlabel("epoch")
        axis.set_ylabel("validation accuracy, %")
        panel_title(axis, key)
    return figure


@styled
def confusions(
    confusions: Mapping[tuple[str, ...], NDArray[np.float64]],
    label_names: Mapping[str, Sequence[str]],
    baseline: str,
) -> Figure:
    """Confusion matrices (C, C) minus the baseline's, by CELL; rows the true class, in points."""
    shown = dict(list(confusions.items())[:MOST_HEATMAPS])
    if not shown:
        return nothing()
    classes = max(len(matrix) for matrix in shown.values())
    caption = (
        f"confusion matrix minus that of {baseline}, points of the true class's documents, mean "
        "over seeds; rows: true class, columns: predicted; orange: more than "
        f"{baseline}, purple{' or a dash' if classes > MOST_CLASSES else ''}: less"
    )
    if len(confusions) > len(shown):
        caption += f"; {len(shown)} of {len(confusions)} comparisons"
    side = float(np.clip(0.32 * classes, 1.6, 3.0))
    size, most = (side + 1.1, side + 1.2), int(12 / (side + 1.1))
    figure, axes = grid([1] * len(shown), caption, size, most)
    for (key, matrix), (axis,) in zip(shown.items(), axes, strict=True):
        data, encoding, fusion, variant = key
        # One scale a corpus, so that its operators can be compared.
        like = [np.abs(m).ravel() for k, m in shown.items() if k[0] == data]
        largest = np.nanmax(np.concatenate([[0.0], *like]))
        heatmap(axis, matrix, float(largest) or 1.0, label_names.get(data, []))
        panel_title(axis, [data, f"{encoding} {fusion}", variant])
    return figure
