"""The figures of the metric over the token scale, the learning rate and the tuning budget."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator

from posfuse.analysis.evidence.metric import ACCURACY, Metric
from posfuse.analysis.figures import parts, style, svg

LEARNED_SHIFT = 2**0.2  # a learned scale is drawn just right of the scale that it starts from


@style.styled("one token scale only")
def scale(cells: pd.DataFrame, metric: Metric = ACCURACY) -> Figure:
    """The rows of `OwnBest.along("scale")`, a panel for each data x encoding x variant."""
    hollow = "; hollow: learned, beside the scale where it starts" if cells["learned"].any() else ""
    figure = _figure(cells, metric, "scale", "token scale", f"{hollow}; dotted: the paper's scale")
    for axis, (_, panel) in zip(figure.axes, cells.groupby(parts.PANEL, sort=False), strict=True):
        for number in panel.loc[panel["sqrt_d"], "scale_number"].unique():
            axis.axvline(number, color=style.QUIET, linewidth=0.9, linestyle=":", zorder=0)
    return figure


@style.styled("one learning rate only")
def learning_rate(cells: pd.DataFrame, metric: Metric = ACCURACY) -> Figure:
    """The rows of `OwnBest.along("lr")`, a panel for each data x encoding x variant."""
    return _figure(cells, metric, "lr", "learning rate", "")


@style.styled("fewer than three trials of each operator")
def budget(by_budget: pd.DataFrame, metric: Metric = ACCURACY) -> Figure:
    """The rows of `budgets`, a panel for each data x encoding x variant."""
    panels = parts.panels_of(by_budget)
    caption = f"expected best validation {metric.level} of k trials, drawn without replacement"
    figure, axes = style.grid(parts.group_sizes(panels), panels, caption, (3.4, 2.4))
    for rows, (axis,) in zip(panels.values(), axes, strict=True):
        for row in rows:
            one = style.look(row["fusion"])
            x, y = range(1, row["trials"] + 1), row["expected"]
            (line,) = axis.plot(
                x, y, color=one.color, linestyle=one.dash, marker=one.marker,
                markevery=max(1, len(x) // 8), markersize=3.5,
            )  # fmt: skip
            label = parts.joined(row, ("data", "encoding", "variant", "fusion"))
            first, last = (f"{metric.number(end)}{metric.percent}" for end in (y[0], y[-1]))
            svg.mark(line, f"{label}: {first} after 1 trial, {last} after {len(x)}")
            style.LineName(axis, (x[-1], y[-1]), row["fusion"])
        axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axis.set_xlabel("trials")
        axis.set_ylabel(f"validation {metric.axis}")
    return figure


def _figure(cells: pd.DataFrame, metric: Metric, key: str, name: str, more: str) -> Figure:
    panels = parts.panels_of(cells)
    both = {f"{other}_number" for other in ("scale", "lr")} <= set(cells)
    at_best = f", each at the best value of the other tuned key by validation {metric.title}"
    caption = (
        f"test {metric.level} by {name}{at_best if both else ''}; line: mean over seeds; band: its "
        "95 % t interval (± one standard deviation with 2 seeds); ring: the operator's best "
        f"{name} by validation {metric.title}{more}"
    )
    figure, axes = style.grid(parts.group_sizes(panels), panels, caption, (5.2, 3.4), most=2)
    for rows, (axis,) in zip(panels.values(), axes, strict=True):
        _over(axis, rows, metric, key, name)
    return figure


def _over(axis: Axes, rows: list[parts.Row], metric: Metric, key: str, name: str) -> None:
    """Draw a line over the values of a key for each operator; a learned scale is a mark beside."""

    def is_hollow(row: parts.Row) -> bool:
        return key == "scale" and bool(row["learned"])

    axis.set_xscale("log", base=2)
    texts: dict[float, str] = {}
    for row in sorted(rows, key=is_hollow):
        number = row[f"{key}_number"]
        texts.setdefault(number, f"{number:.6g}" if is_hollow(row) else row[key])
    for fusion in dict.fromkeys(row["fusion"] for row in rows):
        one = style.look(fusion)
        own = [row for row in rows if row["fusion"] == fusion]
        line = [row for row in own if not is_hollow(row)]
        x, ends = (
            [row[f"{key}_number"] for row in line],
            np.array([_band(row, metric) for row in line]),
        )
        lows, highs = ends.reshape(-1, 2).T
        axis.fill_between(x, lows, highs, color=one.color, alpha=0.1, linewidth=0)
        axis.plot(x, [row["mean"] for row in line], color=one.color, linestyle=one.dash)
        for row in own:
            at = row[f"{key}_number"] * (LEARNED_SHIFT if is_hollow(row) else 1)
            low, high = _band(row, metric)
            if is_hollow(row):
                axis.plot([at, at], [low, high], color=one.color, linewidth=0.8)
            if row["best"]:
                axis.plot(at, row["mean"], "o", mfc="none", mec=one.color, markersize=10)
            band = f" [{metric.number(low)}, {metric.number(high)}]"
            band = "" if np.isnan(row["std"]) else band
            point = parts.dot(axis, at, row["mean"], fusion, 5)
            if is_hollow(row):
                point.set(markerfacecolor="white", markeredgecolor=one.color, markeredgewidth=0.9)
            label = parts.joined(row, ("data", "encoding", "variant", "fusion"))
            value = ", ".join(f"{k} {row[k]}" for k in ("scale", "lr") if k in row)
            mean = f"{metric.number(row['mean'])}{metric.percent}"
            svg.mark(point, f"{label}, {value}: {mean}{band} n={row['n']}")
            last = (at, row["mean"])
        style.LineName(axis, last, fusion)
    ticks = {number: texts[number].replace(" = ", "\n") for number in sorted(texts)}
    axis.set_xticks(list(ticks), list(ticks.values()), fontsize=style.SMALL)
    axis.xaxis.set_minor_locator(NullLocator())
    axis.set_xlabel(name)
    axis.set_ylabel(f"test {metric.axis}")


def _band(row: parts.Row, metric: Metric) -> tuple[float, float]:
    """The 95 % t interval, or ± one standard deviation with 2 seeds; shares are from 0 to 100."""
    low, high = row["low"], row["high"]
    if row["n"] < 3 or np.isnan(low):
        spread = np.nan_to_num(row["std"])
        low, high = row["mean"] - spread, row["mean"] + spread
    return float(max(low, 0.0)), float(min(high, 100.0 if metric.is_share else np.inf))
