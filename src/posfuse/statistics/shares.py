"""Statistics of shares: of runs that solve a task, or of seeds in which an operator beats another.

Intervals are 95 % intervals unless `level` is given. Shares are fractions.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from posfuse.statistics.paired import NONE, Interval

GAMMA = 0.75  # the probability of outperforming that matters (Bouthillier et al. 2021)


def share_interval(successes: int, n: int, level: float = 0.95) -> Interval:
    """The exact interval of a share (Clopper and Pearson 1934); NaN if n is 0."""
    if not n:
        return NONE
    interval = stats.binomtest(successes, n).proportion_ci(level, method="exact")
    return float(interval.low), float(interval.high)


def outperforming(differences: ArrayLike, level: float = 0.95) -> tuple[float, float, float]:
    """P(A > B): the probability that a run of A beats a run of B with the same seed, and its
    interval (Bouthillier et al. 2021, section 4), from the differences A minus B, one per seed.

    A tie counts half. For the interval's lower end it counts as a loss, and for its upper end as a
    win. P(A > B) plus half of P(A = B) lies between P(A > B) and P(A >= B), and each end is exact
    for one of them. So the interval has at least its nominal coverage.
    """
    d = np.round(np.asarray(differences, dtype=float), 9)  # values equal up to rounding are ties
    wins, ties, n = int(np.sum(d > 0)), int(np.sum(d == 0)), len(d)
    low, high = share_interval(wins, n, level)[0], share_interval(wins + ties, n, level)[1]
    return (wins + ties / 2) / n if n else np.nan, low, high


def outperforms(low: float, high: float) -> str:
    """The answer whether A outperforms B, by the interval of P(A > B).

    "yes" if the interval is above 0.5 and reaches above GAMMA, "loses" if A and B are exchanged,
    "little" if it excludes 0.5 and does not reach that far, "open" if it contains 0.5.
    """
    if low > 0.5:
        return "yes" if high > GAMMA else "little"
    if high < 0.5:
        return "loses" if low < 1 - GAMMA else "little"
    return "open"


def paired_share_interval(one: ArrayLike, other: ArrayLike, level: float = 0.95) -> Interval:
    """The interval of the difference of two shares, one minus other, from n pairs of booleans, (n,)
    each: method 10 of Newcombe (1998, Statistics in Medicine 17, 2635-2650). NaN without pairs.

    It combines the Wilson intervals of the two shares, with the correlation of the pairs.
    """
    a, b = np.asarray(one, dtype=bool), np.asarray(other, dtype=bool)
    n = len(a)
    if not n:
        return NONE
    p, q = a.mean(), b.mean()
    (low_p, high_p), (low_q, high_q) = (
        stats.binomtest(int(x.sum()), n).proportion_ci(level, method="wilson") for x in (a, b)
    )
    both, neither = np.sum(a & b), np.sum(~a & ~b)
    agreement = both * neither - np.sum(a & ~b) * np.sum(~a & b)
    if agreement > 0:
        agreement = max(agreement - n / 2, 0.0)  # the correction for continuity
    spread = n * np.sqrt(p * (1 - p) * q * (1 - q)) * n
    phi = agreement / spread if spread else 0.0

    def reach(x: float, y: float) -> float:
        return float(np.sqrt(x**2 + y**2 - 2 * phi * x * y))

    low, high = reach(p - low_p, high_q - q), reach(high_p - p, q - low_q)
    return float(p - q - low), float(p - q + high)
