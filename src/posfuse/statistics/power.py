"""The power of paired t-tests, and the number of seeds that a test needs."""

from bisect import bisect_left
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from scipy import stats
from scipy.special import ndtr  # the normal distribution function

from posfuse.statistics.paired import Floats

POWER = 0.8  # the chance that planned seeds find what they are planned for
MOST_SEEDS = 1_000_000


def decision_power(
    effect: float, std: float, n: int, margin: float, beyond: float = 0.0, alpha: float = 0.05
) -> float:
    """The chance that n seeds decide for a true mean difference of `effect`, in either way.

    The two ways are a two-sided t-test of a difference beyond +-`beyond`, and
    `paired.p_equivalence`, each at alpha. A margin of 0 or an infinite `beyond` leaves one of them.
    Given the sample's spread, the mean decides outside of one interval and inside of another
    interval. The power is the average over spreads, because the noncentral t of scipy and
    statsmodels is NaN for effects of many standard deviations.
    """
    error = std / np.sqrt(n)
    of_sample = error * _spreads(n)
    gap = beyond + stats.t.isf(alpha / 2, n - 1) * of_sample
    room = np.clip(margin - stats.t.isf(alpha, n - 1) * of_sample, 0.0, gap)
    ends = np.stack([-gap, -room, room, gap])
    below = ndtr((ends - effect) / error)  # the chances of a mean below each end
    return float((1 - (below[1] - below[0]) - (below[3] - below[2])).mean())


@lru_cache(maxsize=512)  # each search for the needed seeds uses many of the same n
def _spreads(n: int) -> Floats:
    """2,000 equally likely sample standard deviations of n standard normal draws.

    s^2 (n - 1) is chi-squared and independent of the mean, so a power is an average over them.
    """
    share = (np.arange(2_000) + 0.5) / 2_000
    return np.asarray(np.sqrt(stats.chi2.ppf(share, n - 1) / (n - 1)))


def seeds_needed(power_of: Callable[[int], float]) -> float:
    """The fewest seeds (at least 2) whose `power_of(n)` reaches POWER; inf beyond 1e6."""
    n = 2 + bisect_left(range(2, MOST_SEEDS + 1), True, key=lambda n: power_of(n) >= POWER)
    return n if n <= MOST_SEEDS else np.inf


def seeds_for_decision(
    effect: float, std: float, margin: float, alpha: float, beyond: float = 0.0
) -> float:
    """Seeds needed to decide in either way, as in `decision_power`; inf if no number is enough. NaN
    if the standard deviation is 0."""
    if not std > 0:
        return np.nan
    return seeds_needed(lambda n: decision_power(effect, std, n, margin, beyond, alpha))


def seeds_for_difference(effect: float, std: float, alpha: float) -> float:
    """Seeds needed to find a true mean difference of `effect` by a two-sided t-test."""
    return seeds_for_decision(effect, std, 0.0, alpha)


def seeds_for_equivalence(std: float, margin: float, effect: float, alpha: float) -> float:
    """Seeds needed to show equivalence for a true mean difference of `effect`."""
    return seeds_for_decision(effect, std, margin, alpha, beyond=np.inf)
