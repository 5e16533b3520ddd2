"""The figure of accuracy over the token scale."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from posfuse.analysis.figures import parts, style, svg


@style.styled("one token scale only")
def scale(cells: pd.DataFrame) -> Figure:
    """The rows of `Scales.cells`, a panel for each data x encoding x variant."""
    panels = parts.panels_of(cells)
    caption = (
        "test accuracy in % by token scale; line: mean over seeds; band: its 95 % t interval "
        "(± one standard deviation with 2 seeds); ring: the operator's best scale by validation "
        "accuracy; dotted: the paper's scale"
    )
    figure, axes = style.grid(parts.group_sizes(panels), panels, caption, (5.2, 3.4), most=2)
    for rows, (axis,) in zip(panels.values(), axes, strict=True):
        _over_scale(axis, rows)
    return figure


def _over_scale(axis: Axes, rows: list[parts.Row]) -> None:
    """Draw a line for each operator; learned scales are side by side, right of all numbers."""
    axis.set_xscale("log", base=2)
    operators = list(dict.fromkeys(row["fusion"] for row in rows))
    numbers = {row["number"]: row["scale"] for row in rows if not np.isnan(row["number"])}
    places = dict(sorted(numbers.items()))
    edge = max(places, default=1.0)
    for k, fusion in enumerate(operators):
        one = style.look(fusion)
        learned_at = 2 * edge * 2 ** (0.9 * k / max(len(operators) - 1, 1))
        own = [row for row in rows if row["fusion"] == fusion]
        known = [row for row in own if not np.isnan(row["number"])]
        x, ends = [row["number"] for row in known], np.array([_band(row) for row in known])
        lows, highs = ends.reshape(-1, 2).T
        axis.fill_between(x, lows, highs, color=one.color, alpha=0.1, linewidth=0)
        axis.plot(x, [row["mean"] for row in known], color=one.color, linestyle=one.dash)
        for row in own:
            at = learned_at if np.isnan(row["number"]) else row["number"]
            if np.isnan(row["number"]):
                axis.plot([at, at], _band(row), color=one.color, linewidth=0.8)
            if row["best"]:
                axis.plot(at, row["mean"], "o", mfc="none", mec=one.color, markersize=10)
            low, high = _band(row)
            band = "" if np.isnan(row["std"]) else f" [{low:.2f}, {high:.2f}]"
            point = parts.dot(axis, at, row["mean"], fusion, 5)
            name = parts.joined(row, ("data", "encoding", "variant", "fusion"))
            svg.mark(point, f"{name}, scale {row['scale']}: {row['mean']:.2f} %{band} n={row['n']}")
            last = (at, row["mean"])
        style.LineName(axis, last, fusion)
    for number in {row["number"] for row in rows if row["sqrt_d"]}:
        axis.axvline(number, color=style.QUIET, linewidth=0.9, linestyle=":", zorder=0)
    ticks = {number: text.replace(" = ", "\n") for number, text in places.items()}
    if any(np.isnan(row["number"]) for row in rows):
        ticks[2 * edge * 2**0.45] = "learned"
    axis.set_xticks(list(ticks), list(ticks.values()), fontsize=style.SMALL)
    axis.xaxis.set_minor_locator(NullLocator())
    axis.set_xlabel("token scale")
    axis.set_ylabel("test accuracy, %")


def _band(row: parts.Row) -> tuple[float, float]:
    """The 95 % t interval, or ± one standard deviation with 2 seeds; between 0 and 100."""
    low, high = row["low"], row["high"]
    if row["n"] < 3 or np.isnan(low):
        spread = np.nan_to_num(row["std"])
        low, high = row["mean"] - spread, row["mean"] + spread
    return float(max(low, 0.0)), float(min(high, 100.0))
