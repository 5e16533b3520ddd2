"""Validation results during training."""

from functools import partial

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from posfuse.evidence.metric import ACCURACY, Metric
from posfuse.evidence.saved import learning_curves
from posfuse.report.figures import plot, style
from posfuse.report.sections.section import TRAINING, Drawing, Section
from posfuse.report.sweep import Sweep


def section(sweep: Sweep) -> Section:
    by_epoch, problems = learning_curves(sweep.runs, sweep.metric)
    caption = (
        f"Validation {sweep.metric.title} by epoch. The line is the mean over seeds, the band "
        "reaches from the lowest seed to the highest."
    )
    drawing = Drawing("learning_curves", partial(curves, by_epoch, sweep.metric), caption)
    return Section(TRAINING, drawings=[drawing] * bool(len(by_epoch)), problems=problems)


@style.styled
def curves(rows: pd.DataFrame, metric: Metric = ACCURACY) -> Figure:
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
        if part["epoch"].nunique() == 1:
            axis.set_xlim(part["epoch"].iloc[0] - 1, part["epoch"].iloc[0] + 1)
        axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axis.set_xlabel("epoch")
        axis.set_ylabel(f"validation {metric.axis}")
    return figure
