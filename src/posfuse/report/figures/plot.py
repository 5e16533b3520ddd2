"""Parts of several figures: panels, lines, marks, intervals and ticks."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from posfuse.evidence.collect import CELL
from posfuse.evidence.metric import decimals
from posfuse.report.figures import svg
from posfuse.report.figures.style import QUIET, SMALL, LineName, grid, look, operator_name, short
from posfuse.report.table import Row

PANEL = ["data", "encoding", "variant"]
MOST_CLASSES = 12  # with more, a heatmap's cells are too small for numbers
View = tuple[float, float]  # an axis's limits


def panel_figure(
    frame: pd.DataFrame, caption: str, size: tuple[float, float], **layout: Any
) -> tuple[Figure, list[tuple[pd.DataFrame, list[Axes]]]]:
    """A figure with a panel for each data x encoding x variant, and the rows and the axes of each
    panel. `layout` are arguments of `style.grid`."""
    panels = dict(list(frame.groupby(PANEL, sort=False)))
    of_corpora = list(Counter(key[0] for key in panels).values())
    figure, axes = grid(of_corpora, panels, caption, size, **layout)
    return figure, list(zip(panels.values(), axes, strict=True))


def label(row: Row, names: Iterable[str] = CELL[:-1]) -> str:
    """The name of a mark. It leaves out the variant, because each variant has its own panel with a
    title."""
    return " ".join(str(row[name]) for name in names if row[name])


def numbers(row: Row, digits: int = 2) -> str:
    mean, low, high = row["mean"], decimals(row["low"], digits), decimals(row["high"], digits)
    ends = f" [{low}, {high}]"
    return f"{decimals(mean, digits, '+z')}{'' if np.isnan(row['low']) else ends} n={row['n']}"


def name_operators(axes: Sequence[Axes], fusions: Sequence[str]) -> None:
    """Write the operators' names along the x axis of the lowest panel, slanted if they would
    touch."""
    names = [operator_name(fusion) for fusion in fusions]
    for axis in axes:
        axis.set_xticks(range(len(names)), [""] * len(names))
        axis.set_xlim(-0.6, len(names) - 0.4)
    figure, place = axis.figure, axis.get_subplotspec()
    assert isinstance(figure, Figure)
    assert place is not None
    panel_width = figure.get_figwidth() / place.get_gridspec().ncols
    room = 72 * (panel_width - 0.7) / (len(names) + 0.2)
    slant: Any = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"}
    touches = max(map(len, names)) * 0.62 * SMALL > room
    axis.set_xticks(range(len(names)), names, **(slant if touches else {}))


def lines(
    axis: Axes,
    rows: pd.DataFrame,
    x: str,
    text_of: Callable[["pd.Series[float]"], str],
    ends_of: Callable[["pd.Series[float]"], tuple[float, float]] = lambda a: (a.min(), a.max()),
    is_named: bool = True,
) -> None:
    """Draw the mean over seeds of the column `value` over the column `x`, a line for each operator.

    The band is between the two `ends_of` the values at each place, by default the lowest and the
    highest seed. `text_of` makes the hover text from the means by place. With `is_named` the line
    has the operator's name at its end.
    """
    for fusion, runs in rows.groupby("fusion", sort=False):
        values = runs.groupby(x)["value"]
        mean, low_high = values.mean(), [ends_of(own) for _, own in values]
        one, places = look(str(fusion)), mean.index.tolist()
        axis.fill_between(places, *np.transpose(low_high), color=one.color, alpha=0.13, linewidth=0)
        if len(places) == 1:
            axis.plot([places[0]] * 2, low_high[0], color=one.color, alpha=0.3)
        name = label(runs.iloc[0].to_dict())
        text = f"{name}: {text_of(mean)}, n={runs['seed'].nunique()}"
        line(axis, places, mean.tolist(), str(fusion), text, is_named)


def line(
    axis: Axes, x: Sequence[float], y: Sequence[float], fusion: str, text: str,
    is_named: bool = True,
) -> None:  # fmt: skip
    """An operator's line with its hover text and about eight marks; with `is_named` the operator's
    name is at its end."""
    one = look(fusion)
    (drawn,) = axis.plot(
        x, y, color=one.color, linestyle=one.dash, marker=one.marker,
        markevery=max(1, len(x) // 8), markersize=3.5,
    )  # fmt: skip
    svg.mark(drawn, text)
    if is_named:
        LineName(axis, (x[-1], y[-1]), fusion)


def dot(axis: Axes, x: float, y: float, fusion: str, size: float, text: str) -> Line2D:
    one = look(fusion)
    (point,) = axis.plot(
        [x], [y], marker=one.marker, color=one.color, linestyle="", markersize=size,
        markeredgecolor="white", markeredgewidth=0.3,
    )  # fmt: skip
    svg.mark(point, text)
    return point


def view_of(rows: Sequence[Row], with_seeds: bool = False) -> View:
    """Limits that include zero, the means, the seeds (if `with_seeds`) and the intervals.

    Very wide intervals are cut. With two seeds an interval is 13 times as wide as their distance.
    """
    of_rows: list[Any] = [row.get("deltas", row.get("gains", [row["mean"]])) for row in rows]
    seeds = [delta for own in of_rows for delta in own]
    points = [0.0, *(row["mean"] for row in rows), *(seeds if with_seeds else [])]
    low, high = min(points), max(points)
    ends = np.array([[row["low"], row["high"]] for row in rows], dtype=float)
    ends = ends[~np.isnan(ends).any(1)]
    if len(ends):
        span = float(np.ptp([0.0, *seeds]))
        wide = max(low - ends.min(), ends.max() - high) > 2.5 * span
        reach = span if wide else np.inf
        low = min(low, max(ends.min(), low - reach))
        high = max(high, min(ends.max(), high + reach))
    margin = 0.06 * ((high - low) or 1.0)
    return float(low - margin), float(high + margin)


def shared_views(blocks: Iterable[Sequence[Row]], with_seeds: bool = False) -> list[View]:
    """One view for all blocks, unless a block would use less than a quarter of it."""
    views = [view_of(rows, with_seeds) for rows in blocks]
    whole = min(low for low, _ in views), max(high for _, high in views)
    narrowest = min(high - low for low, high in views)
    return [whole] * len(views) if narrowest >= (whole[1] - whole[0]) / 4 else views


def cut_note(panels: Iterable[Iterable[Row]], views: Iterable[View]) -> str:
    """The end of the caption if an interval leaves its panel."""
    for rows, (low, high) in zip(panels, views, strict=True):
        if any(row["low"] < low or row["high"] > high for row in rows):
            return "; an arrow: the interval is longer"
    return ""


def whisker(
    axis: Axes, at: float, row: Row, view: View, upright: bool = True, color: str = "0.2"
) -> None:
    """Draw the row's interval as a thin line, with an arrow at an end that the view cuts."""
    if np.isnan(row["low"]):
        return
    ends = [float(np.clip(row[end], *view)) for end in ("low", "high")]
    across, along = [at, at], ends
    axis.plot(*((across, along) if upright else (along, across)), color=color, lw=0.8, zorder=1)
    markers = "v^" if upright else "<>"
    for end, whole, marker in zip(ends, (row["low"], row["high"]), markers, strict=True):
        if end != whole:
            x, y = (at, end) if upright else (end, at)
            axis.plot(x, y, marker, color=color, markersize=3.5, clip_on=False)


def length_ticks(axis: Axes) -> None:
    """Round numbers of tokens; on a short axis also between the powers of 2."""
    low, high = axis.get_xlim()
    powers = 2.0 ** np.arange(np.floor(np.log2(low)), np.ceil(np.log2(high)) + 1)
    for steps in ([1.0], [1.0, 1.5], [1.0, 1.25, 1.5, 1.75]):
        ticks = np.sort(np.outer(powers, steps).ravel())
        ticks = ticks[(ticks >= low) & (ticks <= high)]
        if len(ticks) > 1:
            break
    ticks = ticks[::2] if len(ticks) > 6 else ticks
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.minorticks_off()
    axis.set_xlabel("tokens")


def corpus_ticks(axis: Axes, lengths: Mapping[Any, float]) -> None:
    """Write each corpus and its mean length on a line below the axis.

    The shortest corpus is at the bottom, so no line from a tick to its text crosses a text.
    """
    axis.set_xticks(sorted(set(lengths.values())), [])
    axis.minorticks_off()
    line = {"arrowstyle": "-", "linewidth": 0.5, "color": QUIET, "shrinkA": 0, "shrinkB": 0}
    for k, data in enumerate(sorted(lengths, key=lambda data: -lengths[data])):
        axis.annotate(
            f"{short(str(data), 20)}, {lengths[data]:.0f} tokens", (lengths[data], 0),
            (2, -9 - 1.25 * SMALL * k), xycoords=axis.get_xaxis_transform(),
            textcoords="offset points", va="center", fontsize=SMALL, annotation_clip=False,
            arrowprops={**line, "relpos": (0, 0.5)},
        )  # fmt: skip


def heatmap(axis: Axes, matrix: NDArray[np.float64], largest: float, names: Sequence[str]) -> None:
    """Draw a matrix (C, C) with colours from -largest to +largest; NaN stays grey."""
    n = len(matrix)
    axis.set_facecolor("0.92")  # the colour of NaN: classes without documents
    image = axis.imshow(
        matrix, cmap="PuOr_r", norm=Normalize(-largest, largest), interpolation="nearest"
    )
    labels = [short(str(names[i]), 14) if i < len(names) else str(i) for i in range(n)]
    # More than 30 names would touch, so only some classes have their number.
    every = range(n) if n <= 30 else range(0, n, n // 10)
    shown = [labels[i] if n <= 30 else str(i) for i in every]
    axis.set_xticks(every, shown, rotation=45, ha="right", rotation_mode="anchor")
    axis.set_yticks(every, shown)
    axis.tick_params(length=0, labelsize=SMALL if n <= MOST_CLASSES else 6)
    axis.spines[:].set_visible(False)
    if n > MOST_CLASSES:
        assert isinstance(axis.figure, Figure)
        bar = axis.figure.colorbar(image, ax=axis, shrink=0.7)
        bar.ax.tick_params(labelsize=6)
        # In grey print both ends of the colours look the same, so mark the negative end.
        rows, columns = np.nonzero(np.nan_to_num(matrix) < -largest / 10)
        axis.plot(columns, rows, "_", color="black", markersize=90 / n, markeredgewidth=0.6)
        return
    backgrounds = image.to_rgba(matrix)
    for (row, column), value in np.ndenumerate(matrix):
        if not np.isnan(value):
            text = f"{value:+.{0 if largest >= 10 else 1}f}"
            axis.text(
                column, row, text if float(text) else "0", ha="center", va="center",
                fontsize=7 if n <= 8 else 5.5,
                color=text_color(backgrounds[row, column]),
            )  # fmt: skip


def text_color(background: NDArray[np.float64]) -> str:
    """Black or white: the one with the higher contrast to a background (R, G, B, A) from 0 to 1.

    By the relative luminance of WCAG 2.2; both contrasts are equal at a luminance of 0.179.
    """
    rgb = background[:3]
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return "black" if linear @ (0.2126, 0.7152, 0.0722) > 0.179 else "white"
