"""The difference over all seeds that ran, for a hypothesis that was decided with fewer of them.

The look that decides early is one with a large difference, so its estimate is too large on average.
Seeds that ran later for other hypotheses correct it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from posfuse.evidence.metric import Metric
from posfuse.report.table import Column, Row, interval
from posfuse.statistics.paired import t_interval


@dataclass(frozen=True)
class AllSeeds:
    n: int
    mean: float
    low: float  # of the 95 % interval
    high: float


def over_all_seeds(sample: Sequence[float], decided: int) -> AllSeeds | None:
    """None if the look that decided, with `decided` seeds, had the whole sample."""
    if len(sample) <= decided:
        return None
    return AllSeeds(len(sample), float(np.mean(sample)), *t_interval(sample))


def sentence(found: AllSeeds | None, metric: Metric, sign: int = 0) -> str:
    """Begins with a space; empty for None. With a sign, 1 or -1, the difference is in this
    direction and has no plus."""
    if found is None:
        return ""
    values = [found.mean, *sorted((sign or 1) * x for x in (found.low, found.high))]
    values[0] *= sign or 1
    mean, low, high = (f"{x:{'' if sign else '+'}.{metric.digits - 1}f}" for x in values)
    return f" All {found.n} seeds: {mean} (95 % interval {low} to {high})."


def column(
    found: Sequence[AllSeeds | None], rows: Sequence[Row], metric: Metric
) -> tuple[list[Column], str]:
    """A column for a table, and the end of its caption; both empty if all are None.

    Adds the column's numbers to the rows.
    """
    if not any(found):
        return [], ""
    names = ("all_n", "all_mean", "all_low", "all_high")
    for row, own in zip(rows, found, strict=True):
        row |= dict(zip(names, vars(own).values() if own else [np.nan] * 4, strict=True))

    def cell(n: float, mean: float, low: float, high: float) -> str:
        shown = f"{metric.signed(mean)} ({interval(low, high, digits=metric.digits)}), {n:.0f}"
        return "" if np.isnan(n) else shown

    caption = (
        " The difference of a look that decides early is too large on average. All seeds: the "
        "difference over all seeds that ran, with its 95 % interval and their number."
    )
    return [("all seeds", cell, *names)], caption
