"""Paired statistics as plain functions on arrays.

Shapes: S seeds, R lengths, D documents. A difference is fused minus baseline of one seed, in any
unit (the report uses points of accuracy). What cannot be computed is NaN, never a guess: a spread
of one seed, a test where all differences are equal.
"""

import warnings
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar as statsmodels_mcnemar
from statsmodels.stats.multitest import multipletests

Floats = NDArray[np.float64]
Interval = tuple[float, float]
NONE: Interval = (np.nan, np.nan)
RESAMPLES = 9_999
EXACT_UP_TO = 14  # seeds whose 2^n sign flips are all enumerated
MOST_SEEDS = 1_000_000


def _testable(differences: ArrayLike, at_least: int = 2) -> tuple[Floats, bool]:
    """The differences as an array, and whether a test of them is defined: a spread to judge by."""
    d = np.asarray(differences, dtype=float)
    # Equal but for rounding counts as equal: a spread of 1e-16 would make any p-value.
    return d, len(d) >= at_least and bool(np.ptp(d) > 1e-9 * np.abs(d).max())


def spread(differences: ArrayLike) -> float:
    """Sample standard deviation (n - 1); NaN for one seed."""
    d = np.asarray(differences, dtype=float)
    return float(np.std(d, ddof=1)) if len(d) > 1 else np.nan


def effect_size(differences: ArrayLike) -> float:
    """d_z = mean / standard deviation of the paired differences (Cohen 1988)."""
    d, testable = _testable(differences)
    return float(d.mean() / spread(d)) if testable else np.nan


def t_interval(differences: ArrayLike, level: float = 0.95) -> Interval:
    """Student's interval of the mean difference."""
    d, testable = _testable(differences)
    if not testable:
        return NONE
    low, high = stats.t.interval(level, len(d) - 1, d.mean(), stats.sem(d))
    return float(low), float(high)


def bootstrap_interval(differences: ArrayLike, level: float = 0.95, seed: int = 0) -> Interval:
    """Bias-corrected and accelerated bootstrap interval of the mean (Efron 1987).

    From 3 seeds on; too narrow with few: 83 % with 5 seeds (docs/statistics.md).
    """
    d, testable = _testable(differences, at_least=3)
    if not testable:
        return NONE
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stats.DegenerateDataWarning)  # gives NaN: what we want
        found = stats.bootstrap(
            (d,), np.mean, confidence_level=level, n_resamples=RESAMPLES, method="BCa",
            rng=np.random.default_rng(seed),
        ).confidence_interval  # fmt: skip
    return float(found.low), float(found.high)


def p_above(differences: ArrayLike, threshold: float = 0.0) -> float:
    """One-sided t-test of H0: mean <= threshold."""
    d, testable = _testable(differences)
    return (
        float(stats.ttest_1samp(d, threshold, alternative="greater").pvalue) if testable else np.nan
    )


def p_below(differences: ArrayLike, threshold: float = 0.0) -> float:
    """One-sided t-test of H0: mean >= threshold."""
    return p_above(-np.asarray(differences, dtype=float), -threshold)


def p_paired_t(differences: ArrayLike) -> float:
    """Two-sided paired t-test."""
    d, testable = _testable(differences)
    return float(stats.ttest_1samp(d, 0.0).pvalue) if testable else np.nan


def p_equivalence(differences: ArrayLike, margin: float) -> float:
    """Two one-sided t-tests (Schuirmann 1987): small when the mean is shown to lie in +-margin."""
    return max(p_above(differences, -margin), p_below(differences, margin))


def p_wilcoxon(differences: ArrayLike) -> float:
    """Wilcoxon's signed rank test, two-sided, zeros left out; NaN when every difference is 0.

    Exact up to 14 seeds, ties or not: it is the sign-flip test of the signed ranks.
    """
    d = np.asarray(differences, dtype=float)
    # Ranks in billionths of the largest, so that what differs by rounding alone is tied.
    d = np.rint(1e9 * d / np.abs(d).max()) if d.any() else d
    n, d = len(d), d[d != 0]
    if n < 2 or not len(d):
        return np.nan
    if len(d) == 1:
        return 1.0
    if len(d) > EXACT_UP_TO:
        return float(stats.wilcoxon(d).pvalue)
    return p_sign_flip(np.sign(d) * stats.rankdata(np.abs(d)))


def p_sign_flip(differences: ArrayLike, seed: int = 0) -> float:
    """Permutation test over the signs, two-sided: all 2^n of them up to 14 seeds, else sampled."""
    d = np.asarray(differences, dtype=float)
    if len(d) < 2:
        return np.nan
    if len(d) <= EXACT_UP_TO:
        signs = 1 - 2 * (np.arange(2 ** len(d))[:, None] >> np.arange(len(d)) & 1)
        rounding = 1e-9 * np.abs(d).sum()  # equal but for rounding is as extreme
        return float(np.mean(np.abs(signs @ d) >= abs(d.sum()) - rounding))
    d = np.rint(1e9 * d / np.abs(d).max()) if d.any() else d
    return float(
        stats.permutation_test(
            (d,), lambda x, axis: x.mean(axis), permutation_type="samples", vectorized=True,
            n_resamples=2**EXACT_UP_TO, rng=np.random.default_rng(seed),
        ).pvalue
    )  # fmt: skip


def smallest_p(n: int) -> float:
    """The smallest two-sided p that a sign-flip (or signed rank) test of n seeds can reach."""
    return float(min(1.0, 2.0 ** (1 - n)))


def p_more_variable(one: ArrayLike, other: ArrayLike) -> float:
    """Pitman-Morgan test of H0: variance of `one` <= variance of `other`, paired, from 3 seeds."""
    x, y = np.asarray(one, dtype=float), np.asarray(other, dtype=float)
    # A spread of 0 says that accuracies are counts of documents, not that a thing is stable.
    if not all(_testable(values, 3)[1] for values in (x, y, x + y, x - y)):
        return np.nan
    return float(stats.pearsonr(x + y, x - y, alternative="greater").pvalue)


def seeds_for_spreads(
    one: ArrayLike, other: ArrayLike, alpha: float = 0.05, target: float = 0.8
) -> float:
    """Seeds that `p_more_variable` needs if the spreads stay as they are (Fisher's z)."""
    x, y = np.asarray(one, dtype=float), np.asarray(other, dtype=float)
    if np.isnan(p_more_variable(x, y)):
        return np.nan
    z = np.arctanh(abs(stats.pearsonr(x + y, x - y).statistic))
    reach = stats.norm.ppf(1 - alpha) + stats.norm.ppf(target)
    return float(np.ceil((reach / z) ** 2 + 3)) if z > 0 else np.inf


def holm(p_values: ArrayLike) -> Floats:
    """Holm's adjusted p-values; NaNs stay and do not count in the family."""
    p = np.asarray(p_values, dtype=float)
    adjusted = np.full(p.shape, np.nan)
    if (known := ~np.isnan(p)).any():
        adjusted[known] = multipletests(p[known], method="holm")[1]
    return adjusted


def power(effect: float, std: float, n: int, alpha: float = 0.05, sides: int = 2) -> float:
    """Power of the paired t-test with n seeds for a true mean difference of `effect`.

    The noncentral t's tail, averaged over the sample's spread: scipy's and statsmodels' own
    return NaN for effects of many standard deviations.
    """
    error = std / np.sqrt(n)
    reach = stats.t.ppf(1 - alpha / sides, n - 1) * std * _spreads(n) / np.sqrt(n)
    found = stats.norm.sf((reach - abs(effect)) / error)
    if sides == 2:
        found += stats.norm.cdf((-reach - abs(effect)) / error)
    return float(found.mean())


def equivalence_power(
    std: float, margin: float, n: int, effect: float = 0.0, alpha: float = 0.05
) -> float:
    """Power of `p_equivalence` with n seeds for a true mean difference of `effect`."""
    error = std / np.sqrt(n)
    room = margin - stats.t.ppf(1 - alpha, n - 1) * std * _spreads(n) / np.sqrt(n)
    inside = stats.norm.cdf((room - effect) / error) - stats.norm.cdf((-room - effect) / error)
    return float(np.where(room > 0, inside, 0.0).mean())


@lru_cache(maxsize=512)  # a search for the seeds needed asks for the same n again and again
def _spreads(n: int) -> Floats:
    """2,000 equally likely sample standard deviations of n standard normal draws: s^2 (n-1) is
    chi-squared, and independent of the mean, so a power is an average over them."""
    share = (np.arange(2_000) + 0.5) / 2_000
    return np.asarray(np.sqrt(stats.chi2.ppf(share, n - 1) / (n - 1)))


def seeds_needed(power_of: Callable[[int], float], target: float = 0.8) -> float:
    """The fewest seeds (2 at least) whose `power_of(n)` reaches the target; inf beyond 1e6."""
    low, high = 1, 2
    while not power_of(high) >= target:
        if high == MOST_SEEDS:
            return np.inf
        low, high = high, min(2 * high, MOST_SEEDS)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power_of(middle) >= target else (middle, high)
    return high


def slopes(gains: ArrayLike, lengths: ArrayLike) -> Floats:
    """Least-squares slope of each seed's gain over log2 length: gains (S, R), lengths (R,) -> (S,).

    The unit is the gains' per doubling of length. One number a seed: seeds stay the sample, so
    the tests of differences above are tests of "the gain grows with length".
    """
    y, x = np.asarray(gains, dtype=float), np.log2(np.asarray(lengths, dtype=float))
    x = x - x.mean()
    return np.asarray(y @ x / (x @ x)) if np.ptp(x) > 1e-9 else np.full(len(y), np.nan)


def hierarchical_bootstrap(
    differences: ArrayLike, level: float = 0.95, resamples: int = 2_000, seed: int = 0
) -> Interval:
    """Percentile interval of the mean of (S, D) when both seeds and documents are drawn anew.

    All seeds judge the same documents, so a resample draws rows and columns on their own (the
    pigeonhole bootstrap, Owen 2007). A resample of few seeds spreads too little: what each seed
    differs from their mean is first widened as Student's t widens it.
    """
    x = np.asarray(differences, dtype=np.float32)
    n_seeds, n_documents = x.shape
    if n_seeds < 2:
        return NONE
    tail = (1 + level) / 2
    widen = np.sqrt(n_seeds / (n_seeds - 1)) * stats.t.ppf(tail, n_seeds - 1) / stats.norm.ppf(tail)
    x = x + np.float32(widen - 1) * (x.mean(1, keepdims=True) - x.mean())
    rng = np.random.default_rng(seed)
    rows = rng.multinomial(n_seeds, np.full(n_seeds, 1 / n_seeds), resamples).astype(np.float32)
    columns = document_draws(n_documents, resamples, seed)
    means = np.einsum("bd,bd->b", rows @ x, columns) / (n_seeds * n_documents)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


@lru_cache(maxsize=1)  # all comparisons on a corpus share the draws
def document_draws(n_documents: int, resamples: int, seed: int) -> NDArray[np.float32]:
    """How often each resample draws each document, (resamples, D)."""
    rng = np.random.default_rng([seed, 1])
    draws = np.zeros((resamples, n_documents), np.float32)
    for row in draws:
        row += np.bincount(rng.integers(n_documents, size=n_documents), minlength=n_documents)
    return draws


def p_mcnemar(correct: ArrayLike, baseline_correct: ArrayLike) -> float:
    """McNemar's exact test of one seed's two models on the same documents, (D,) booleans each."""
    a, b = np.asarray(correct, dtype=bool), np.asarray(baseline_correct, dtype=bool)
    table = [[np.sum(a & b), np.sum(a & ~b)], [np.sum(~a & b), np.sum(~a & ~b)]]
    return float(statsmodels_mcnemar(table, exact=True).pvalue)
