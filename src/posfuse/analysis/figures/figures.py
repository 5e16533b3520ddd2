"""The figures of the report, drawn from plain frames in the order of their rows.

Differences and values are in the unit of the metric. NaN is not drawn. A figure without
rows is a text.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from posfuse.analysis.evidence.metric import ACCURACY, Metric
from posfuse.analysis.figures import parts, style, svg
from posfuse.analysis.statistics.comparisons import Criteria

MOST_HEATMAPS = 12


def _difference(criteria: Criteria) -> str:
    metric = criteria.metric
    return f"difference to {criteria.baseline}, {metric.points}{metric.better}"


@style.styled("nothing to compare")
def deltas(comparisons: pd.DataFrame, criteria: Criteria) -> Figure:
    """Every seed's difference to the baseline, a panel for each data x encoding x variant."""
    panels = parts.panels_of(comparisons)
    views = parts.shared_views(
        [parts.view_of(r, True) for r in panels.values()], [key[0] for key in panels]
    )
    metric = criteria.metric
    caption = (
        f"{_difference(criteria)}; mark: one seed; bar: mean over "
        "seeds; thin line: its 95 % t interval"
    )
    caption += parts.cut_note(panels.values(), views)
    widest = max(len(rows) for rows in panels.values())
    figure, axes = style.grid(
        parts.group_sizes(panels), panels, caption, (min(3.4, 1.6 + 0.4 * widest), 2.6)
    )
    for rows, (axis,), view in zip(panels.values(), axes, views, strict=True):
        axis.axhline(0, color=style.QUIET, linewidth=0.8, zorder=0)
        for x, row in enumerate(rows):
            n = len(row["deltas"])
            shifts = np.linspace(-0.36, 0.06, n) if n > 1 else [-0.15]
            for shift, seed, delta in zip(shifts, row["seeds"], row["deltas"], strict=True):
                point = parts.dot(axis, x + shift, delta, row["fusion"], 5 if n <= 5 else 4)
                svg.mark(
                    point, f"{parts.joined(row)} seed={seed}: {metric.signed(delta)} {metric.unit}"
                )
            parts.whisker(axis, x + 0.27, row, view)
            if n == 1:
                continue  # the mean of one seed is the mark
            (bar,) = axis.plot([x + 0.15, x + 0.39], [row["mean"]] * 2, color="black", linewidth=2)
            svg.mark(bar, f"{parts.joined(row)}: mean {parts.numbers(row, metric.digits)}")
        axis.set_ylim(view)
        parts.name_operators(axis, [row["fusion"] for row in rows])
    return figure


@style.styled("no runs")
def accuracy_latency(cells: pd.DataFrame, metric: Metric = ACCURACY) -> Figure:
    """The metric above latency by fusion, a panel for each data x encoding x variant."""
    panels = parts.panels_of(cells)
    caption = (
        f"test {metric.level} and latency in ms per document by fusion; mark: mean over seeds; "
        "line: ± one standard deviation"
    )
    widest = max(len(rows) for rows in panels.values())
    size = (min(3.4, 1.7 + 0.35 * widest), 3.4)
    figure, axes = style.grid(parts.group_sizes(panels), panels, caption, size, ratios=(1.3, 1))
    for rows, (upper, lower) in zip(panels.values(), axes, strict=True):
        for axis, value, unit in (
            (upper, "", metric.percent.strip()),
            (lower, "latency_", "ms per document"),
        ):
            for x, row in enumerate(rows):
                mean, std = row[f"{value}mean"], row[f"{value}std"]
                if np.isnan(mean):
                    continue
                spread = ""
                if not np.isnan(std):
                    axis.plot(
                        [x, x], [mean - std, mean + std], color=style.look(row["fusion"]).color
                    )
                    spread = f" ± {std:.3g}"
                point = parts.dot(axis, x, mean, row["fusion"], 6)
                svg.mark(point, f"{parts.joined(row)}: {mean:.4g}{spread} {unit}, n={row['n']}")
            axis.margins(y=0.12)
        upper.set_ylabel(metric.axis)
        lower.set_ylabel("ms per document")
        if lower.lines:
            lower.set_ylim(0, 1.08 * lower.get_ylim()[1])
        else:
            lower.text((len(rows) - 1) / 2, 0.5, "not recorded", ha="center", color=style.QUIET)
            lower.set_yticks([])
            lower.set_ylim(0, 1)
        parts.name_operators(lower, [row["fusion"] for row in rows])
        upper.set_xticks(range(len(rows)), [""] * len(rows))
        upper.set_xlim(lower.get_xlim())
    return figure


@style.styled("nothing to compare")
def forest(comparisons: pd.DataFrame, criteria: Criteria) -> Figure:
    """One row for each comparison with mean, interval and numbers; one block for each corpus."""
    by_data = comparisons.groupby("data", sort=False)
    blocks = {data: part.to_dict("records") for data, part in by_data}
    views = parts.shared_views([parts.view_of(rows) for rows in blocks.values()], [0] * len(blocks))
    digits = criteria.metric.digits
    caption = (
        f"{_difference(criteria)}; mean with its 95 % t "
        f"interval; shaded: within ± {criteria.margin:g}"
    )
    caption += "; each block has its own scale" if len(set(views)) > 1 else ""
    caption = style.wrapped([caption + parts.cut_note(blocks.values(), views)], 7.8, style.CAPTION)
    sizes = [len(rows) for rows in blocks.values()]
    height = 0.19 * sum(sizes) + 0.7 * len(sizes) + 0.2 * (caption.count("\n") + 1)
    figure = Figure((8, height), layout="constrained")
    figure.suptitle(caption, x=0.01, ha="left", fontsize=style.CAPTION)
    places = figure.add_gridspec(len(blocks), 1, height_ratios=[n + 0.6 for n in sizes])
    for i, ((data, rows), view) in enumerate(zip(blocks.items(), views, strict=True)):
        axis = figure.add_subplot(places[i])
        axis.axvspan(-criteria.margin, criteria.margin, color="0.88", linewidth=0)
        axis.axvline(0, color=style.QUIET, linewidth=0.8)
        for y, row in enumerate(rows):
            parts.whisker(axis, y, row, view, upright=False)
            point = parts.dot(axis, row["mean"], y, row["fusion"], 6)
            svg.mark(point, f"{parts.joined(row)}: {parts.numbers(row, digits)}")
            axis.text(
                1.02, y, parts.numbers(row, digits), transform=axis.get_yaxis_transform(),
                va="center", family="monospace", fontsize=style.SMALL,
            )  # fmt: skip
        labels = [
            style.short(parts.joined(row, ("encoding", "fusion", "variant")), 52) for row in rows
        ]
        axis.set_yticks(range(len(rows)), labels)
        axis.set_ylim(len(rows) - 0.4, -0.6)
        axis.set_xlim(view)
        axis.spines["left"].set_visible(False)
        axis.tick_params(axis="y", length=0)
        axis.set_title(style.short(str(data), 60), loc="left", fontweight="bold")
    return figure


@style.styled("nothing to compare")
def gain_by_length(comparisons: pd.DataFrame, bins: pd.DataFrame, criteria: Criteria) -> Figure:
    """Gain over the baseline against document length: over corpora, then inside each corpus.

    Each encoding x variant starts a row of panels. A corpus with one bin has no panel. A single
    corpus has no panel over corpora, unless no corpus has a panel.
    """
    panels: list[tuple[list[str], pd.DataFrame]] = []  # title; rows, x their length in tokens
    groups = []
    for key, rows in comparisons.groupby(parts.PANEL[1:], sort=False):
        name = [str(part) for part in key]
        inside = bins if bins.empty else bins[(bins[parts.PANEL[1:]] == list(key)).all(axis=1)]
        corpora = [part for _, part in inside.groupby("data", sort=False)]
        corpora = [part for part in corpora if part["mean_length"].nunique() > 1]
        over = rows["data"].nunique() > 1 or not corpora
        if over:
            panels.append((["all corpora", *name], rows.assign(x=rows["length"])))
        for part in corpora:
            panels.append(([part["data"].iloc[0], *name], part.assign(x=part["mean_length"])))
        groups.append(over + len(corpora))
    frames = [frame.to_dict("records") for _, frame in panels]
    views = [parts.view_of(rows) for rows in frames]
    caption = (
        f"{_difference(criteria)}, by mean document length: over "
        "corpora, and over quarters of a corpus's test documents; mean with its 95 % t interval"
    )
    caption += parts.cut_note(frames, views)
    figure, axes = style.grid(groups, [title for title, _ in panels], caption, (3.0, 2.5))
    for (title, frame), (axis,), view in zip(panels, axes, views, strict=True):
        _against_length(axis, frame, view, criteria.metric.digits)
        if title[0] == "all corpora":
            parts.corpus_ticks(axis, frame.groupby("data", sort=False)["x"].first().to_dict())
        else:
            parts.length_ticks(axis)
    return figure


def _against_length(axis: Axes, frame: pd.DataFrame, view: parts.View, digits: int) -> None:
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
            parts.whisker(axis, at, row, view, color=one.color)
            point = parts.dot(axis, at, row["mean"], fusion, 5)
            bin_ = f", {row['shortest']} to {row['longest']} tokens" if "shortest" in row else ""
            svg.mark(point, f"{parts.joined(row)}{bin_}: {parts.numbers(row, digits)}")
        style.LineName(axis, (x[-1], y[-1]), fusion)
    axis.set_xscale("log", base=2)
    axis.set_xlim(middle * 2 ** (-0.58 * octaves), middle * 2 ** (0.58 * octaves))
    axis.set_ylim(view)


@style.styled("no learning curves")
def learning_curves(curves: pd.DataFrame, metric: Metric = ACCURACY) -> Figure:
    """The validation result by epoch; columns CELL, seed, epoch, value."""
    panels = dict(list(curves.groupby(parts.PANEL, sort=False)))
    caption = (
        f"validation {metric.title} by epoch; line: mean over the seeds that still train; band: "
        "from their lowest to their highest"
    )
    figure, axes = style.grid(parts.group_sizes(panels), panels, caption, (3.0, 2.3))
    for (key, part), (axis,) in zip(panels.items(), axes, strict=True):
        for fusion, runs in part.groupby("fusion", sort=False):
            one = style.look(str(fusion))
            by_epoch = runs.groupby("epoch")["value"].agg(["mean", "min", "max"])
            x, mean = by_epoch.index.to_numpy(), by_epoch["mean"].to_numpy()
            axis.fill_between(
                x, by_epoch["min"], by_epoch["max"], color=one.color, alpha=0.13, linewidth=0
            )
            (line,) = axis.plot(
                x, mean, color=one.color, linestyle=one.dash, marker=one.marker,
                markevery=max(1, len(x) // 8), markersize=3.5,
            )  # fmt: skip
            best = int(np.argmin(mean) if metric.lower_is_better else np.argmax(mean))
            n = runs["seed"].nunique()
            name = parts.joined({**dict(zip(parts.PANEL, key, strict=True)), "fusion": fusion})
            text = f"{metric.number(mean[best])}{metric.percent} at epoch {x[best]}"
            svg.mark(line, f"{name}: best mean {text}, n={n}")
            style.LineName(axis, (x[-1], mean[-1]), str(fusion))
        if part["epoch"].nunique() == 1:
            axis.set_xlim(part["epoch"].iloc[0] - 1, part["epoch"].iloc[0] + 1)
        axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axis.set_xlabel("epoch")
        axis.set_ylabel(f"validation {metric.axis}")
    return figure


@style.styled("nothing to compare")
def confusions(
    confusions: Mapping[tuple[str, ...], NDArray[np.float64]],
    label_names: Mapping[str, Sequence[str]],
    baseline: str,
) -> Figure:
    """Confusion matrices (C, C) minus the baseline's in points, by CELL; rows are true classes."""
    # If not all comparisons are drawn, every corpus has some.
    corpora = pd.Series([key[0] for key in confusions])
    turn = corpora.groupby(corpora).cumcount()  # of a comparison among those of its corpus
    chosen = sorted(turn.sort_values(kind="stable").index[:MOST_HEATMAPS])
    shown = {key: confusions[key] for i, key in enumerate(confusions) if i in chosen}
    classes = max(len(matrix) for matrix in shown.values())
    caption = (
        f"confusion matrix minus that of {baseline}, points of the true class's documents, mean "
        "over seeds; rows: true class, columns: predicted; orange: more than "
        f"{baseline}, purple{' or a dash' if classes > parts.MOST_CLASSES else ''}: less"
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
        parts.heatmap(axis, matrix, float(largest) or 1.0, label_names.get(data, []))
    return figure
