"""Variance components of results that are nested: runs within repeats of tuning."""

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats


def components(values: ArrayLike) -> dict[str, float]:
    """The components of values (groups, values of a group), by the one-way analysis of variance
    with random effects. The interval is exact for normal values (Searle, Casella & McCulloch 1992,
    section 3.6).

    Keys: between and within, the standard deviations of the groups' true means (0 if the estimate
    is negative) and of the values in a group; share, low and high, the fraction of a value's
    variance that lies between groups, with its 95 % interval. NaN where they cannot be computed.
    """
    unknown = dict.fromkeys(("between", "within", "share", "low", "high"), np.nan)
    y = np.asarray(values, dtype=float)
    groups, n = y.shape
    if groups < 2 or n < 2:
        return unknown
    of_means = n * float(y.mean(axis=1).var(ddof=1))
    of_values = float(y.var(axis=1, ddof=1).mean())
    between = max(of_means - of_values, 0.0) / n
    spreads = {"between": between**0.5, "within": of_values**0.5}
    if of_values == 0:
        return unknown | spreads
    ratio, df = of_means / of_values, (groups - 1, groups * (n - 1))
    ends = (ratio / stats.f.ppf(p, *df) - 1 for p in (0.975, 0.025))
    low, high = (max(end, 0.0) / (max(end, 0.0) + n) for end in ends)
    return spreads | {"share": between / (between + of_values), "low": low, "high": high}
