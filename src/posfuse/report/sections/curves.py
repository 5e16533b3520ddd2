"""Validation results during training."""

from functools import partial

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from posfuse.evidence.collect import learning_curves
from posfuse.evidence.metric import ACCURACY, Metric
from posfuse.report.figures import parts, style
from posfuse.report.sections.section import TRAINING, Drawing, Section
from posfuse.report.sweep import Sweep


def section(sweep: Sweep) -> Section:
    found, problems = learning_curves(sweep.runs, sweep.metric)
    caption = (
        f"Validation {sweep.metric.title} by epoch. The line is the mean over seeds, the band "
    )
    caption += "reaches from the lowest seed to the highest."
    drawing = Drawing("learning_curves", partial(curves, found, sweep.metric), caption)
    return Section(TRAINING, drawings=[drawing] * bool(len(found)), problems=problems)


@style.styled("no learning curves")
def curves(rows: pd.DataFrame, metric: Metric = ACCURACY) -> Figure:
    """The validation result by epoch; columns CELL, seed, epoch, value."""
    panels = dict(list(rows.groupby(parts.PANEL, sort=False)))
    caption = (
        f"validation {metric.title} by epoch; line: mean over the seeds that still train; band: "
        "from their lowest to their highest"
    )
    figure, axes = style.grid(parts.group_sizes(panels), panels, caption, (3.0, 2.3))
    for (key, part), (axis,) in zip(panels.items(), axes, strict=True):
        for fusion, runs in part.groupby("fusion", sort=False):
            by_epoch = runs.groupby("epoch")["value"].agg(["mean", "min", "max"])
            x, mean = by_epoch.index.to_numpy(), by_epoch["mean"].to_numpy()
            best = int(np.argmin(mean) if metric.lower_is_better else np.argmax(mean))
            n = runs["seed"].nunique()
            name = parts.joined({**dict(zip(parts.PANEL, key, strict=True)), "fusion": fusion})
            text = f"{metric.number(mean[best])}{metric.percent} at epoch {x[best]}"
            band = by_epoch["min"], by_epoch["max"]
            text = f"{name}: best mean {text}, n={n}"
            parts.band_line(axis, str(fusion), x, mean, band, text, every=max(1, len(x) // 8))
        if part["epoch"].nunique() == 1:
            axis.set_xlim(part["epoch"].iloc[0] - 1, part["epoch"].iloc[0] + 1)
        axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axis.set_xlabel("epoch")
        axis.set_ylabel(f"validation {metric.axis}")
    return figure
