"""Group-sequential tests, which look at the seeds several times with the error rate of one look.

Look k tests the first n_k seeds at a nominal level, and a decided hypothesis stops. The levels
follow from an alpha-spending function (Lan & DeMets 1983) and the joint normal distribution of the
test statistics of all looks. They are used for t-tests as well (Jennison & Turnbull 2000, section
3.8). A family shares alpha by Holm's rule at each look, separately for differences and for
equivalences (Maurer & Bretz 2013). docs/statistics.md gives the reasons, docs/error_rates.md the
rates.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, stats

from posfuse.statistics import contrasts, shares
from posfuse.statistics import paired as st
from posfuse.statistics.contrasts import AHEAD, BEHIND, DECIDED, EQUIVALENT, UNDECIDED

NODES = 201  # of the Gauss-Legendre rule; 801 give the same levels to 1e-9
FAR = 9.0  # standard deviations that the integrals cover


@lru_cache(maxsize=1024)
def levels(looks: tuple[int, ...], alpha: float, shares: tuple[float, ...] = ()) -> list[float]:
    """The nominal levels of a one-sided test at looks after these numbers of seeds.

    `shares` are the fractions of alpha that are spent up to each look; the last one is 1. Without
    them it is the O'Brien-Fleming type function of Lan & DeMets: after a fraction t of the seeds
    2 - 2 Phi(z_(alpha / 2) / sqrt(t)).
    """
    fractions = [n / looks[-1] for n in looks]
    z = stats.norm.isf(alpha / 2)
    spent = [alpha * s for s in shares] or [2 * stats.norm.sf(z / t**0.5) for t in fractions]
    nominal: list[float] = []
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    # The values of the sum, and their probabilities, if not stopped.
    points, masses = np.zeros(1), np.ones(1)
    steps, amounts = np.sqrt(np.diff(fractions, prepend=0.0)), np.diff(spent, prepend=0.0)
    for fraction, step, amount in zip(fractions, steps, amounts, strict=True):

        def excess(bound: float, step: float = step, amount: float = amount) -> float:
            return float(masses @ stats.norm.sf((bound - points) / step)) - amount  # noqa: B023

        far = FAR * np.sqrt(fraction)
        # If a look may spend almost nothing, its bound is beyond the range of the integrals.
        bound = optimize.brentq(excess, -far, far, xtol=1e-12) if excess(far) < 0 else far
        nominal.append(float(stats.norm.sf(bound / np.sqrt(fraction))))
        grid = (bound - far) / 2 + (bound + far) / 2 * nodes  # from -far to the bound
        density = stats.norm.pdf((grid[:, None] - points) / step) / step
        points, masses = grid, (bound + far) / 2 * weights * (density @ masses)
    return nominal


@dataclass(frozen=True)
class Looks:
    """The numbers of seeds at the looks, and the error rate of a family of hypotheses."""

    seeds: tuple[int, ...]  # at each look; ascending
    alpha: float = 0.05
    shares: tuple[float, ...] = ()  # of alpha, spent up to each look; empty: O'Brien-Fleming type

    def level(self, look: int, alpha: float) -> float:
        """The nominal level of a one-sided test with error rate `alpha` at a look (from 0)."""
        return levels(self.seeds, alpha, self.shares)[look]


@dataclass(frozen=True)
class Margins:
    """The limits of one hypothesis for a difference and for equivalence, in points."""

    equivalence: float  # a mean within +-equivalence does not matter
    beyond: float = 0.0  # a mean counts as ahead above this, and as behind below its negative
    resolution: float = np.nan  # of equal differences, as in paired.py
    of_shares: bool = False  # differences are 100, 0 or -100 points, for the tests of shares.py


@dataclass(frozen=True)
class Decision:
    """The decision about one mean difference from the seeds up to one look, in points."""

    result: str  # ahead, behind, equivalent or undecided
    n: int  # seeds
    mean: float
    low: float  # the interval of the test that decided, at the level of its look
    high: float
    p_difference: float  # two-sided, for a mean beyond the threshold of a difference
    p_equivalence: float
    level: float  # the nominal two-sided level of this look, after Holm
    also_small: bool = False  # ahead or behind, and also within the margin


def decide_at(
    differences: ArrayLike, margins: Margins, looks: Looks, look: int,
    sharing: tuple[int, int] = (1, 1),
) -> Decision:  # fmt: skip
    """Judge paired differences at one look (from 0). `sharing` has the numbers of hypotheses that
    share alpha for a difference and for equivalence.

    The mean is ahead or behind if a one-sided t-test shows it, at half of the hypothesis's alpha on
    each side. It is equivalent if one-sided tests of both ends of the margin show that it is
    inside, each at the full alpha. For a true mean only one of these results can be false, so the
    chance of a false one is at most alpha. The exception is a true mean of exactly `beyond`, if
    this equals the margin: then it is 1.5 alpha. With `margins.of_shares` the exact tests of
    shares.py replace the t-tests.
    """
    d = np.asarray(differences, dtype=float)[: looks.seeds[look]]
    mean = float(d.mean())
    level = looks.level(look, looks.alpha / sharing[0] / 2)
    level_equivalence = looks.level(look, looks.alpha / sharing[1])
    tests: list[Callable[..., Any]] = [st.p_above, st.p_below, st.t_interval]
    tests = [partial(test, resolution=margins.resolution) for test in tests]
    if margins.of_shares:
        tests = [shares.p_above, shares.p_below, shares.difference_interval]
    p_above, p_below, interval = tests
    p = 2 * min(p_above(d, margins.beyond), p_below(d, -margins.beyond))
    p_equivalence = max(p_above(d, -margins.equivalence), p_below(d, margins.equivalence))
    rounded = 1 + shares.ROUNDING * margins.of_shares
    equivalent, differs = p_equivalence <= rounded * level_equivalence, p <= rounded * 2 * level
    result = str(contrasts.decide(mean, differs, equivalent))
    small = bool(differs and equivalent)
    of_one_side = level_equivalence if result == EQUIVALENT else level
    low, high = interval(d, 1 - 2 * of_one_side)
    return Decision(result, len(d), mean, low, high, min(p, 1), p_equivalence, 2 * level, small)


def judge_family(
    samples: Mapping[str, ArrayLike], margins: Mapping[str, Margins], looks: Looks
) -> tuple[dict[str, Decision], int]:
    """Judge the hypotheses of one family look by look, with all seeds that they have.

    `samples` has the paired differences of each hypothesis, in the order of the seeds. Returns the
    decision of each hypothesis at the look that decided it, or at the last look that all undecided
    ones have reached, and the number of looks that were made.
    """
    latest: dict[str, Decision] = {}
    remaining = list(samples)
    for look, n in enumerate(looks.seeds):
        if not remaining or any(len(np.asarray(samples[name])) < n for name in remaining):
            return latest, look
        new = remaining
        while remaining and new:
            decided = [decision.result for decision in latest.values()]
            differ = sum(result in (AHEAD, BEHIND) for result in decided)
            sharing = len(samples) - differ, len(samples) - decided.count(EQUIVALENT)
            judged = {h: decide_at(samples[h], margins[h], looks, look, sharing) for h in remaining}
            latest |= judged
            new = [h for h, decision in judged.items() if decision.result != UNDECIDED]
            remaining = [h for h in remaining if h not in new]
    return latest, len(looks.seeds)


def chances(
    effect: float, spread: float, margins: Margins, looks: Looks, hypotheses: int = 1,
    simulated: int = 10_000,
) -> list[dict[str, float]]:  # fmt: skip
    """The chance of each result up to each look, for a true difference and normal noise, by
    simulation. It gives the power of a plan, and the chance of an early end.

    With `margins.of_shares` the differences are 100, 0 and -100, with this mean and spread.
    """
    rng, size = np.random.default_rng(0), (simulated, looks.seeds[-1])
    if margins.of_shares:
        gained, lost = shares.of_pairs(effect, spread)
        one = rng.random(size)
        draws = np.select([one < gained, one > 1 - lost], [100.0, -100.0])
    else:
        draws = rng.normal(effect, spread, size)
    return shares_of_results(draws, margins, looks, hypotheses)


def shares_of_results(
    samples: ArrayLike, margins: Margins, looks: Looks, hypotheses: int = 1
) -> list[dict[str, float]]:
    """The fraction of samples (N, seeds) with each result of `decide_at` up to each look."""
    draws, alpha = np.asarray(samples, dtype=float), looks.alpha / hypotheses
    results, rows = np.full(len(draws), UNDECIDED), []
    for look, n in enumerate(looks.seeds):
        d, level, level_equal = draws[:, :n], looks.level(look, alpha / 2), looks.level(look, alpha)
        mean = d.mean(1)
        if margins.of_shares:
            differs, equivalent = shares.shown(
                np.sum(d > 0, axis=1), np.sum(d < 0, axis=1), n, margins.equivalence,
                margins.beyond, level, level_equal,
            )  # fmt: skip
        else:
            error = d.std(1, ddof=1) / np.sqrt(n)
            error[np.ptp(d, axis=1) == 0] = np.nan  # equal differences decide nothing
            differs = abs(mean) >= margins.beyond + stats.t.isf(level, n - 1) * error
            room = margins.equivalence - stats.t.isf(level_equal, n - 1) * error
            equivalent = abs(mean) <= room
        now = contrasts.decide(mean, differs, equivalent)
        results = np.where(results == UNDECIDED, now, results)
        rows.append({result: float(np.mean(results == result)) for result in DECIDED})
    return rows
