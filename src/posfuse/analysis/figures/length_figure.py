"""Results against test length, and the loss of a language model against position."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from posfuse.analysis.evidence.metric import ACCURACY, Metric
from posfuse.analysis.figures import parts, style, svg
from posfuse.analysis.statistics import paired as st


@style.styled("no run has data.test_lengths")
def results_by_length(
    rows: pd.DataFrame, chance: dict[str, float], metric: Metric = ACCURACY
) -> Figure:
    """The metric against test length in tokens, a panel for each data x encoding x variant.

    `rows` are those of `by_test_length` in statistics/lengths.py; `chance` has the result of
    guessing by data; it may lack some.
    """
    panels = dict(list(rows.groupby(parts.PANEL, sort=False)))
    caption = (
        f"test {metric.level} against the length of the test documents in tokens; shaded: the "
        "lengths of training; line: mean over seeds; band: its 95 % t interval"
        f"{'; dotted: chance' if chance else ''}"
    )
    figure, axes = style.grid(parts.group_sizes(panels), panels, caption, (3.0, 2.3))
    for (key, part), (axis,) in zip(panels.items(), axes, strict=True):
        for fusion, runs in part.groupby("fusion", sort=False):
            one = style.look(str(fusion))
            table = runs.pivot(index="seed", columns="test_length", values="value")
            x, mean = table.columns.to_numpy(), table.mean().to_numpy()
            # Equal accuracies and one seed have no interval, so no band.
            ends = [st.t_interval(table[n].dropna()) for n in x]
            low, high = np.clip(ends, 0, 100 if metric.is_share else None).T
            axis.fill_between(x, low, high, color=one.color, alpha=0.13, linewidth=0)
            (line,) = axis.plot(
                x, mean, color=one.color, linestyle=one.dash, marker=one.marker, markersize=3.5
            )
            name = parts.joined({**dict(zip(parts.PANEL, key, strict=True)), "fusion": fusion})
            texts = ", ".join(
                f"{n}: {value:.{metric.digits - 1}f}{metric.percent}"
                for n, value in zip(x, mean, strict=True)
            )
            svg.mark(line, f"{name}: {texts}, n={runs['seed'].nunique()}")
            style.LineName(axis, (x[-1], mean[-1]), str(fusion))
        if (guess := chance.get(str(part["data"].iloc[0]))) is not None:
            axis.axhline(guess, color=style.QUIET, linewidth=0.8, linestyle=":", zorder=0)
        axis.set_ylabel(metric.axis)
        if metric.is_share:
            axis.set_ylim(0, 103)
        _length_axis(axis, sorted(part["test_length"].unique()), part["trained"].iloc[0])
    return figure


@style.styled("no run has measured its loss by position")
def loss_by_position(rows: pd.DataFrame) -> Figure:
    """A language model's loss in bits per target against the target's place in the window, a panel
    for each data x encoding x variant.

    `rows` are those of `mechanism` in evidence/mechanism.py with the name LOSS_BY_POSITION. A mark
    stands for its place and all places after the mark before.
    """
    panels = dict(list(rows.groupby(parts.PANEL, sort=False)))
    caption = (
        "test loss in bits per target by the target's place in the window; a mark stands for its "
        "place and all places after the mark before; line: mean over seeds; band: from the lowest "
        "seed to the highest"
    )
    figure, axes = style.grid(parts.group_sizes(panels), panels, caption, (3.0, 2.3))
    for (key, part), (axis,) in zip(panels.items(), axes, strict=True):
        for fusion, runs in part.groupby("fusion", sort=False):
            one = style.look(str(fusion))
            bits = (runs["value"] / np.log(2)).groupby(runs["high"] + 1)
            by_place = bits.agg(["mean", "min", "max"])
            x, mean = by_place.index.to_numpy(), by_place["mean"].to_numpy()
            axis.fill_between(
                x, by_place["min"], by_place["max"], color=one.color, alpha=0.13, linewidth=0
            )
            (line,) = axis.plot(
                x, mean, color=one.color, linestyle=one.dash, marker=one.marker, markersize=3.5
            )
            name = parts.joined({**dict(zip(parts.PANEL, key, strict=True)), "fusion": fusion})
            texts = ", ".join(f"{n}: {value:.3f}" for n, value in zip(x, mean, strict=True))
            svg.mark(line, f"{name}: {texts} bits, n={runs['seed'].nunique()}")
            style.LineName(axis, (x[-1], mean[-1]), str(fusion))
        axis.set_xscale("log", base=2)
        axis.xaxis.set_minor_locator(NullLocator())
        axis.xaxis.set_major_formatter(lambda place, _: f"{place:g}")
        axis.set_xlabel("place in the window, tokens")
        axis.set_ylabel("loss, bits per target")
    return figure


def _length_axis(axis: Axes, lengths: list[int], trained: float) -> None:
    """A logarithmic axis with a tick at each length, and the trained range shaded."""
    axis.set_xscale("log", base=2)
    axis.set_xlim(lengths[0] / 1.25, lengths[-1] * 1.1)
    axis.axvspan(lengths[0] / 1.25, trained, color="0.92", linewidth=0, zorder=-1)
    axis.xaxis.set_major_locator(FixedLocator(lengths))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(lambda length, _: f"{length:g}")
    axis.set_xlabel("test length, tokens")
