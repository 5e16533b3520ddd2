"""Variance components of results that are nested: runs within repeats of tuning."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats


@dataclass(frozen=True)
class Components:
    """Standard deviations in the unit of the values; NaN where they cannot be computed."""

    between: float  # of the true means of groups; 0 if the estimate is negative
    within: float  # of values in a group
    share: float  # the fraction of a value's variance between groups
    low: float  # of the share's 95 % interval
    high: float


def components(values: ArrayLike) -> Components:
    """The components of values (groups, values of a group), by the one-way analysis of variance
    with random effects. The interval is exact for normal values (Searle, Casella & McCulloch 1992,
    section 3.6)."""
    y = np.asarray(values, dtype=float)
    groups, n = y.shape
    if groups < 2 or n < 2:
        return Components(*[np.nan] * 5)
    of_means = n * float(y.mean(axis=1).var(ddof=1))
    of_values = float(y.var(axis=1, ddof=1).mean())
    between = max(of_means - of_values, 0.0) / n
    if of_values == 0:
        return Components(between**0.5, 0.0, np.nan, np.nan, np.nan)
    ratio, df = of_means / of_values, (groups - 1, groups * (n - 1))
    ends = (ratio / stats.f.ppf(p, *df) - 1 for p in (0.975, 0.025))
    low, high = (max(end, 0.0) / (max(end, 0.0) + n) for end in ends)
    share = between / (between + of_values)
    return Components(between**0.5, of_values**0.5, share, low, high)
