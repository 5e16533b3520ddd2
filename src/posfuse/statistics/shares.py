"""Statistics of shares: of runs that solve a task, or of seeds in which an operator beats another.

Intervals are 95 % intervals unless `level` is given. Shares are fractions; differences of solved
runs are in points. A pair of runs with one seed is gained or lost if only one of the two solves the
task. docs/statistics.md explains the tests.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, stats

from posfuse.statistics.paired import NONE, Interval
from posfuse.statistics.power import seeds_needed

ROUNDING = 1e-9  # of a level, relatively; an exact p can be equal to it
GAMMA = 0.75  # the probability of outperforming that matters (Bouthillier et al. 2021)


def share_interval(successes: int, n: int, level: float = 0.95) -> Interval:
    """The exact interval of a share (Clopper and Pearson 1934); NaN if n is 0."""
    if not n:
        return NONE
    interval = stats.binomtest(successes, n).proportion_ci(level, method="exact")
    return float(interval.low), float(interval.high)


def outperforming(differences: ArrayLike) -> tuple[float, float, float]:
    """P(A > B): the probability that a run of A beats a run of B with the same seed, and its
    interval (Bouthillier et al. 2021, section 4), from the differences A minus B, one per seed.

    A tie counts half. For the interval's lower end it counts as a loss, and for its upper end as a
    win. P(A > B) plus half of P(A = B) lies between P(A > B) and P(A >= B), and each end is exact
    for one of them. So the interval has at least its nominal coverage.
    """
    d = np.round(np.asarray(differences, dtype=float), 9)  # values equal up to rounding are ties
    wins, ties, n = int(np.sum(d > 0)), int(np.sum(d == 0)), len(d)
    low, high = share_interval(wins, n)[0], share_interval(wins + ties, n)[1]
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


def lower_limit(gained: ArrayLike, lost: ArrayLike, n: int, level: float) -> NDArray[np.float64]:
    """The one-sided lower limit of the difference of shares in points, from the numbers of gained
    and lost of n pairs (numbers or arrays of one shape, which the result has too). The limit is
    above the true difference in at most `level` of samples."""
    a, b = np.asarray(gained), np.asarray(lost)
    least = np.nan_to_num(stats.beta.ppf(level / 2, a, n - a + 1), nan=0.0)  # none is gained
    most = np.nan_to_num(stats.beta.isf(level / 2, b + 1, n - b), nan=1.0)  # all are lost
    return np.asarray(100 * (least - most))


def is_above(
    gained: ArrayLike, lost: ArrayLike, n: int, threshold: float, level: float
) -> NDArray[np.bool_]:
    """True if a one-sided test at this level shows a difference of shares above the threshold, in
    points. The test is McNemar's exact test for 0, and `lower_limit` for other thresholds. Shapes
    are as in `lower_limit`."""
    level *= 1 + ROUNDING
    if threshold:
        return np.asarray(lower_limit(gained, lost, n, level) >= threshold)
    a, b = np.asarray(gained), np.asarray(lost)
    return np.asarray(stats.binom.sf(a - 1, a + b, 0.5) <= level)


def _pairs(differences: ArrayLike) -> tuple[int, int, int]:
    """The numbers of gained, lost and all pairs, from differences of 100, 0 and -100 points."""
    d = np.asarray(differences, dtype=float)
    assert np.isin(d, (-100, 0, 100)).all()
    return int(np.sum(d > 0)), int(np.sum(d < 0)), len(d)


def p_above(differences: ArrayLike, threshold: float = 0.0) -> float:
    """One-sided p of H0 that the difference of shares <= threshold: the smallest level at which
    `is_above` is true. Differences are 100, 0 or -100 points."""
    gained, lost, n = _pairs(differences)
    if not threshold:
        return float(stats.binom.sf(gained - 1, gained + lost, 0.5))

    def excess(level: float) -> float:
        return float(lower_limit(gained, lost, n, level)) - threshold

    if excess(1.0) < 0:
        return 1.0
    tiny = 1e-15
    return tiny if excess(tiny) >= 0 else float(optimize.brentq(excess, tiny, 1.0, xtol=tiny))


def p_below(differences: ArrayLike, threshold: float = 0.0) -> float:
    """One-sided p of H0: the difference of shares >= threshold."""
    return p_above(-np.asarray(differences, dtype=float), -threshold)


def difference_interval(differences: ArrayLike, level: float = 0.95) -> Interval:
    """The interval of the difference of shares, in points, from differences of 100, 0 and -100.

    It ends at 0 if McNemar's test, at the level of one side, shows the sign and the limits do not.
    """
    gained, lost, n = _pairs(differences)
    side = (1 - level) / 2
    low = float(lower_limit(gained, lost, n, side))
    high = -float(lower_limit(lost, gained, n, side))
    if is_above(gained, lost, n, 0.0, side):
        low = max(low, 0.0)
    if is_above(lost, gained, n, 0.0, side):
        high = min(high, 0.0)
    return low, high


def shown(
    gained: ArrayLike, lost: ArrayLike, n: int, margin: float, beyond: float,
    level: float, level_equivalence: float,
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:  # fmt: skip
    """True where n pairs show a difference beyond +-`beyond`, and equivalence within +-`margin`, by
    one-sided tests at these levels. Shapes are as in `lower_limit`."""
    both = ((gained, lost), (lost, gained))
    ahead, behind = (is_above(*pairs, n, beyond, level) for pairs in both)
    above, below = (is_above(*pairs, n, -margin, level_equivalence) for pairs in both)
    return ahead | behind, above & below


def of_pairs(effect: float, spread: float) -> tuple[float, float]:
    """The shares of gained and lost pairs whose differences of 100, 0 and -100 points have this
    mean and spread; negative, or above 1 together, if no such pairs exist."""
    either = (effect**2 + spread**2) / 100**2
    return (either + effect / 100) / 2, (either - effect / 100) / 2


def seeds_to_decide(
    gained: float, lost: float, margin: float, beyond: float, alpha: float
) -> float:
    """The fewest seeds that decide with a chance of 80 %, by simulation, for these shares of gained
    and lost pairs."""
    shares = [gained, lost, max(1 - gained - lost, 0.0)]

    def power_of(n: int) -> float:
        a, b, _ = np.random.default_rng(0).multinomial(n, shares, 1_000).T
        return float(np.any(shown(a, b, n, margin, beyond, alpha / 2, alpha), axis=0).mean())

    return seeds_needed(power_of)
