"""Validation results during training, and how models use position: attention by distance, the
probe of position, patching, loss by place.

A line or a bar is the mean over seeds, and a band reaches from the lowest seed to the highest. The
`rows` come from `learning_curves` and `mechanism` in evidence/saved.py.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from posfuse.evidence import saved
from posfuse.evidence.metric import ACCURACY, Metric
from posfuse.report.figures import plot, style, svg
from posfuse.report.sections.section import TRAINING, Section, drawing
from posfuse.report.sweep import Sweep
from posfuse.runs.measurements import LOSS_BY_POSITION, WHOLE

LEAST_RATIO = 1 / 32  # the lower end of the axis
LEAST_R2 = -0.1  # the end of an axis
MOST_TICKS = 8  # of distances


def section(sweep: Sweep) -> Section:
    metric = sweep.metric
    by_epoch, problems = saved.learning_curves(sweep.runs, metric)
    measured, damaged = saved.mechanism(sweep.runs)
    names = measured["name"].astype(str)
    losses, patched, probed, attention = (
        measured[names.str.startswith(start)]
        for start in (LOSS_BY_POSITION, "patch_", "probe_", "attention_")
    )
    drawings = [
        *drawing(learning_curves, by_epoch, metric,
                 caption=f"Validation {metric.title} by epoch. The line is the mean over seeds, "
                 "the band reaches from the lowest seed to the highest."),
        *drawing(loss_by_position, losses, caption="The loss of a language model by the target's "
                 "place, which is the effect of a longer context."),
        *drawing(patching, patched, caption="Whether predictions follow the order of the "
                 "fused input or the order inside attention."),
        *drawing(probe_by_layer, probed, caption="How well a linear probe predicts a token's "
                 "place from each layer."),
        *drawing(attention_by_distance, attention, caption="Attention weight by "
                 "distance, relative to uniform attention."),
    ]  # fmt: skip
    return Section(TRAINING, drawings=drawings, problems=[*problems, *damaged])


@style.styled
def learning_curves(rows: pd.DataFrame, metric: Metric = ACCURACY) -> Figure:
    """The validation result by epoch; columns CELL, seed, epoch, value."""

    def best(mean: "pd.Series[float]") -> str:
        i = int(mean.argmin() if metric.lower_is_better else mean.argmax())
        best_mean = f"{metric.number(mean.iloc[i])}{metric.percent}"
        return f"best mean {best_mean} at epoch {mean.index[i]}"

    caption = (
        f"validation {metric.title} by epoch; line: mean over the seeds that still train; band: "
        "from their lowest to their highest"
    )
    figure, panels = plot.panel_figure(rows, caption, (3.0, 2.3))
    for part, (axis,) in panels:
        plot.lines(axis, part, "epoch", best)
        axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axis.set_xlabel("epoch")
        axis.set_ylabel(f"validation {metric.axis}")
    return figure


@style.styled
def loss_by_position(rows: pd.DataFrame) -> Figure:
    """A language model's loss in bits per target against the target's place in the window."""

    def by_place(mean: "pd.Series[float]") -> str:
        return f"{', '.join(f'{n}: {value:.3f}' for n, value in mean.items())} bits"

    bits = rows.assign(value=rows["value"] / np.log(2), place=rows["high"] + 1)
    caption = (
        "test loss in bits per target by the target's place in the window; a mark is the mean over "
        "its place and the places since the previous mark; line: mean over seeds; band: from the "
        "lowest seed to the highest"
    )
    figure, panels = plot.panel_figure(bits, caption, (3.0, 2.3))
    for part, (axis,) in panels:
        plot.lines(axis, part, "place", by_place)
        axis.set_xscale("log", base=2)
        axis.minorticks_off()
        axis.xaxis.set_major_formatter(lambda place, _: f"{place:g}")
        axis.set_xlabel("place in the window, tokens")
        axis.set_ylabel("loss, bits per target")
    return figure


@style.styled
def attention_by_distance(rows: pd.DataFrame) -> Figure:
    """Attention relative to uniform attention against distance, a panel for each layer."""
    ratios = rows[rows["name"] == "attention_ratio"]
    nearest = ratios[["low", "high"]].abs().min(axis=1)
    # Places 0, 1, 2 and so on for the distances 0, 1, 2, 4, ...
    steps = np.log2(nearest.clip(lower=1)) + (nearest > 0)
    ratios = ratios.assign(x=np.sign(ratios["low"] + ratios["high"]) * steps)
    first = _first(rows).assign(x=ratios["x"].min() - 3)
    both = pd.concat([ratios, first])
    panels = dict(list(both.groupby([*plot.PANEL, "layer"], sort=False)))
    caption = (
        "attention to keys at a distance from the query, divided by that of uniform attention "
        "(dotted: 1); mean over heads, queries, test documents and seeds; band: from the lowest "
        "seed to the highest; each step is twice as far as the one before; first: the document's "
        "first token"
    )
    titles = [[*key[:-1], f"layer {key[-1]}"] for key in panels]
    sizes = both.groupby(plot.PANEL, sort=False)["layer"].nunique()
    figure, axes = style.grid(list(sizes), titles, caption, (3.3, 2.4))
    for part, (axis,) in zip(panels.values(), axes, strict=True):
        axis.axhline(1, color=style.QUIET, linewidth=0.8, linestyle=":", zorder=0)
        is_first = part["name"] == "attention_first"
        plot.lines(axis, part[~is_first], "x", partial(_times, "highest"))
        plot.lines(axis, part[is_first], "x", partial(_times, "the first token"), is_named=False)
        _distance_axis(axis, sorted(part["x"].unique()))
    return figure


def _times(what: str, mean: "pd.Series[float]") -> str:
    return f"{what} {mean.max():.2f} times uniform"


def _first(rows: pd.DataFrame) -> pd.DataFrame:
    """The attention to the first token, relative to uniform attention."""
    first = rows[rows["name"] == "attention_first"]
    run = [*plot.PANEL, "fusion", "seed"]
    uniform = rows[rows["name"] == "attention_uniform"][[*run, "value"]]
    both = first.merge(uniform, on=run, suffixes=("", "_uniform"))
    return both.assign(value=both["value"] / both["value_uniform"])


def _distance_axis(axis: Axes, places: Sequence[float]) -> None:
    first, *steps = places
    labels = {first: "first"}
    every = 1 + len(steps) // MOST_TICKS
    labels |= {x: f"{np.sign(x) * 2 ** (abs(x) - 1):.0f}" if x else "0" for x in steps
               if round(x) % every == 0}  # fmt: skip
    axis.set_xticks(list(labels), list(labels.values()), fontsize=style.SMALL - 1.5)
    axis.set_xlim(first - 0.6, places[-1] + 0.4)
    axis.set_yscale("log", base=2)
    low, high = axis.get_ylim()
    axis.set_ylim(max(min(low, 0.45), LEAST_RATIO / 1.1), max(high, 2.2))
    axis.minorticks_off()
    axis.yaxis.set_major_formatter(
        lambda ratio, _: f"{ratio:g}" if ratio >= 1 else f"1/{1 / ratio:g}"
    )
    axis.set_xlabel("index of the key minus that of the query")
    axis.set_ylabel("times uniform attention")


@style.styled
def probe_by_layer(rows: pd.DataFrame) -> Figure:
    """The probe's R^2 (above) and its fraction within 2 tokens (below) by layer."""
    caption = (
        "a linear probe of a token's place in its document, on test documents that it was not "
        "fitted to; layer 0: the fused input; line: mean over seeds; band: from the lowest seed to "
        "the highest; dotted: always predicting the mean place"
    )
    lowest = rows.loc[rows["name"] == "probe_r2", "value"].min()
    caption += f"; R² below {LEAST_R2} is not shown" * bool(lowest < LEAST_R2)
    figure, panels = plot.panel_figure(rows, caption, (3.0, 3.6), ratios=(1, 1))
    shown = ("probe_r2", "R²", 1), ("probe_within_2", "within 2 tokens, %", 100)
    for part, pair in panels:
        for axis, (name, label, unit) in zip(pair, shown, strict=True):
            own = part[part["name"] == name]
            own = own.assign(value=unit * own["value"])
            is_baseline = own["layer"] == WHOLE
            baseline = own.loc[is_baseline, "value"].mean()
            axis.axhline(baseline, color=style.QUIET, linewidth=0.8, linestyle=":", zorder=0)
            plot.lines(axis, own[~is_baseline], "layer", partial(_by_layer, label))
            axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))
            axis.set_ylim(LEAST_R2 if unit == 1 else -3, 1.05 * unit)
            axis.set_ylabel(label)
        pair[1].set_xlabel("layer")
    return figure


def _by_layer(label: str, mean: "pd.Series[float]") -> str:
    return f"{label} {', '.join(f'layer {n} {value:.3g}' for n, value in mean.items())}"


@style.styled
def patching(rows: pd.DataFrame) -> Figure:
    """The order that predictions follow if only the input or only attention has another order."""
    run = [*plot.PANEL, "fusion", "seed"]
    table = rows.pivot(index=run, columns="name", values="value").reset_index()
    table = rows[run].drop_duplicates().merge(table, on=run)  # in the order of the rows
    caption = (
        "test documents whose prediction changes if their tokens are in random order, in %; above: "
        "the new order only in the fused input; below: only inside attention; full bars: the "
        "prediction follows the new order; light: it is a third class; empty: it does not change; "
        "mean over seeds"
    )
    widest = table.groupby(plot.PANEL)["fusion"].nunique().max()
    size = (min(3.4, 1.7 + 0.35 * widest), 3.6)
    figure, panels = plot.panel_figure(table, caption, size, ratios=(1, 1))
    for part, pair in panels:
        fusions = list(part["fusion"].unique())
        for axis, patch in zip(pair, ("input", "attention"), strict=True):
            for x, fusion in enumerate(fusions):
                runs = part[part["fusion"] == fusion]
                _bar(axis, x, runs, patch, plot.label(runs.iloc[0].to_dict()))
            axis.set_ylim(0, 103)
            axis.set_ylabel(f"{patch} moved, %")
        plot.name_operators(pair, fusions)
    return figure


def _bar(axis: Axes, x: float, runs: pd.DataFrame, patch: str, name: str) -> None:
    """The fractions of one operator's documents on top of each other. A run whose predictions do
    not depend on order counts as 0."""
    moved = 100 * runs["patch_reordered_changed"]
    columns = (f"patch_{patch}_{kind}" for kind in ("followed", "stayed"))
    shares = (runs.get(column, moved * np.nan).fillna(0.0) for column in columns)
    followed, stayed = (float((moved * share).mean()) for share in shares)
    other = max(0.0, float(moved.mean()) - followed - stayed)
    color = style.look(str(runs["fusion"].iloc[0])).color
    bottom = 0.0
    for kind, height, fill in (("follows", followed, 1.0), ("third class", other, 0.3),
                               ("stays", stayed, 0.0)):  # fmt: skip
        (bar,) = axis.bar(x, height, 0.6, bottom, facecolor=(color, fill), edgecolor=color, lw=0.8)
        svg.mark(bar, f"{name}, {patch} moved: {kind} {height:.1f} % of documents, n={len(runs)}")
        bottom += height
