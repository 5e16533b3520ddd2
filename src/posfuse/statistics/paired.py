"""Statistics of paired differences, as plain functions on arrays.

Shapes: S seeds, R lengths. A difference is fused minus baseline for one seed, in any unit (the
report uses points of accuracy). A result that is not defined is NaN, for example the spread of one
seed.

Differences that are equal in all seeds have no spread, although the seeds would differ if accuracy
had more digits. Functions that take `resolution`, the step of an accuracy (100 points / documents),
use it as the standard deviation of such differences. Without it their result is NaN.
"""

import warnings

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

Floats = NDArray[np.float64]
Interval = tuple[float, float]
NONE: Interval = (np.nan, np.nan)
RESAMPLES = 9_999
EXACT_UP_TO = 30  # up to this many seeds, all 2^n sign flips are counted
SAMPLED = 2**14  # sign flips of more seeds


def _standard_deviation(differences: ArrayLike, if_equal: float = np.nan) -> float:
    """Sample standard deviation. It is `if_equal` if the values are equal up to rounding, because a
    spread of 1e-16 could give any p-value; NaN for one seed."""
    d = np.asarray(differences, dtype=float)
    if len(d) > 1 and not np.ptp(d) > 1e-9 * np.abs(d).max():
        return if_equal
    return spread(d)


def _t_statistic(
    differences: ArrayLike, threshold: float, resolution: float
) -> tuple[float, float, int]:
    """Student's t of the mean difference minus the threshold, the standard error, and the degrees
    of freedom."""
    d = np.asarray(differences, dtype=float)
    if len(d) < 2:
        return np.nan, np.nan, 1
    error = _standard_deviation(d, resolution) / np.sqrt(len(d))
    return (d.mean() - threshold) / error, error, len(d) - 1


def spread(values: ArrayLike) -> float:
    """Sample standard deviation (n - 1); NaN for one seed."""
    x = np.asarray(values, dtype=float)
    return float(np.std(x, ddof=1)) if len(x) > 1 else np.nan


def spread_interval(values: ArrayLike) -> Interval:
    """The 95 % interval of the standard deviation of normal values (chi-square of n - 1)."""
    df = len(np.asarray(values)) - 1
    ends = stats.chi2.ppf([0.975, 0.025], df)
    low, high = _standard_deviation(values) * np.sqrt(df / ends)
    return float(low), float(high)


def effect_size(differences: ArrayLike) -> float:
    """d_z = mean / standard deviation of the paired differences (Cohen 1988)."""
    d = np.asarray(differences, dtype=float)
    return float(d.mean() / _standard_deviation(d))


def spread_limit(differences: ArrayLike, resolution: float = np.nan) -> float:
    """The one-sided 80 % upper confidence limit of the standard deviation; NaN for one seed.

    A sample of few seeds often has a smaller spread than its population. A number of seeds planned
    for this limit is enough with a chance of 80 % (Browne 1995).
    """
    df = len(np.asarray(differences)) - 1
    std = _standard_deviation(differences, resolution)
    return float(std * np.sqrt(df / stats.chi2.ppf(1 - 0.8, df)))


def t_interval(differences: ArrayLike, level: float = 0.95, resolution: float = np.nan) -> Interval:
    """Student's interval of the mean difference."""
    _, error, df = _t_statistic(differences, 0.0, resolution)
    if np.isnan(error):
        return NONE
    mean = np.asarray(differences, dtype=float).mean()
    low, high = stats.t.interval(level, df, mean, error)
    return float(low), float(high)


def bootstrap_interval(differences: ArrayLike, level: float = 0.95) -> Interval:
    """Bias-corrected and accelerated bootstrap interval of the mean (Efron 1987).

    It needs 3 seeds and is too narrow with few: it covers 83 % with 5 (docs/error_rates.md).
    """
    d = np.asarray(differences, dtype=float)
    if len(d) < 3 or np.isnan(_standard_deviation(d)):
        return NONE
    unit = np.abs(d).max() / 1e9
    whole = np.rint(d / unit)  # equal sums are equal exactly, as the counts of ties need
    with warnings.catch_warnings():
        # The result is NaN then.
        warnings.simplefilter("ignore", stats.DegenerateDataWarning)
        interval = stats.bootstrap(
            (whole,), np.mean, confidence_level=level, n_resamples=RESAMPLES, method="BCa",
            rng=np.random.default_rng(0),
        ).confidence_interval  # fmt: skip
    return float(interval.low * unit), float(interval.high * unit)


def p_above(differences: ArrayLike, threshold: float = 0.0, resolution: float = np.nan) -> float:
    """One-sided t-test of H0: mean <= threshold."""
    t, _, df = _t_statistic(differences, threshold, resolution)
    return float(stats.t.sf(t, df))


def p_below(differences: ArrayLike, threshold: float = 0.0, resolution: float = np.nan) -> float:
    """One-sided t-test of H0: mean >= threshold."""
    t, _, df = _t_statistic(differences, threshold, resolution)
    return float(stats.t.cdf(t, df))


def p_paired_t(differences: ArrayLike, resolution: float = np.nan) -> float:
    """Two-sided paired t-test."""
    t, _, df = _t_statistic(differences, 0.0, resolution)
    return float(2 * stats.t.sf(abs(t), df))


def p_equivalence(differences: ArrayLike, margin: float, resolution: float = np.nan) -> float:
    """Two one-sided t-tests (Schuirmann 1987). Small if the mean is shown to be within +-margin."""
    above = p_above(differences, -margin, resolution)
    return max(above, p_below(differences, margin, resolution))


def p_wilcoxon(differences: ArrayLike) -> float:
    """Wilcoxon's signed rank test, two-sided, without the zeros; NaN when every difference is 0.

    Up to 30 seeds it is exact, also with ties, because it is the sign-flip test of the signed
    ranks.
    """
    d = np.asarray(differences, dtype=float)
    if len(d) < 2 or np.isnan(d).any() or not d.any():
        return np.nan
    d = np.rint(1e9 * d / np.abs(d).max())  # so that differences equal up to rounding are ties
    d = d[d != 0]
    if len(d) == 1:
        return 1.0
    if len(d) > EXACT_UP_TO:
        return float(stats.wilcoxon(d).pvalue)
    return p_sign_flip(np.sign(d) * stats.rankdata(np.abs(d)))


def p_sign_flip(differences: ArrayLike) -> float:
    """Permutation test over the signs, two-sided: all 2^n of them up to 30 seeds, else sampled.

    It is the fraction of signs whose sum is at least as far from 0. Sums that are equal up to
    rounding are ties; scipy's permutation_test counts some of them as smaller.
    """
    d = np.asarray(differences, dtype=float)
    n, least = len(d), abs(d.sum()) - 1e-9 * np.abs(d).sum()
    if n < 2 or np.isnan(least):
        return np.nan
    if least <= 0:
        return 1.0
    if n <= EXACT_UP_TO:
        # A sum is a sum of the first half plus a sum of the second half. For each sum of the second
        # half the sorted sums of the first half are counted. The distribution is symmetric, so both
        # tails are equal.
        first, second = np.sort(_signed_sums(d[: n // 2])), _signed_sums(d[n // 2 :])
        above = len(first) * len(second) - np.searchsorted(first, least - second).sum()
        return float(2 * above / 2**n)
    size = (SAMPLED, -(-n // 64))  # of words with 64 signs each
    bits = np.random.default_rng(0).integers(2**64, size=size, dtype=np.uint64).view(np.uint8)
    negative = np.unpackbits(bits, axis=1, count=n)
    hits = np.sum(np.abs(d.sum() - 2 * (negative @ d)) >= least)
    return float((hits + 1) / (SAMPLED + 1))  # the observed signs count too, so p is above 0


def _signed_sums(values: Floats) -> Floats:
    """The sums of all 2^n signs of n values."""
    sums = np.zeros(1)
    for value in values:
        sums = np.concatenate([sums - value, sums + value])
    return sums


def smallest_p(n: int) -> float:
    """The smallest two-sided p that a sign-flip (or signed rank) test of n seeds can reach."""
    return min(1.0, 2.0 ** (1 - n))


def p_more_variable(one: ArrayLike, other: ArrayLike) -> float:
    """Pitman-Morgan test of H0: variance of `one` <= variance of `other`, paired, from 3 seeds."""
    x, y = np.asarray(one, dtype=float), np.asarray(other, dtype=float)
    # A spread of 0 does not show stability. It arises because accuracies are counts of documents.
    if len(x) < 3 or np.isnan([_standard_deviation(v) for v in (x, y, x + y, x - y)]).any():
        return np.nan
    return float(stats.pearsonr(x + y, x - y, alternative="greater").pvalue)


def seeds_for_spreads(one: ArrayLike, other: ArrayLike, alpha: float = 0.05) -> float:
    """Seeds that `p_more_variable` needs at 80 % power if the true spreads equal the measured ones
    (by Fisher's z)."""
    x, y = np.asarray(one, dtype=float), np.asarray(other, dtype=float)
    if np.isnan(p_more_variable(x, y)):
        return np.nan
    z = np.arctanh(abs(stats.pearsonr(x + y, x - y).statistic))
    reach = stats.norm.ppf(1 - alpha) + stats.norm.ppf(0.8)
    return float(np.ceil((reach / z) ** 2 + 3)) if z > 0 else np.inf


def holm(p_values: ArrayLike) -> Floats:
    """Holm's adjusted p-values (Holm 1979); NaNs stay NaN and do not count in the family."""
    p = np.asarray(p_values, dtype=float)
    adjusted = np.full(p.shape, np.nan)
    order = np.argsort(p)[: np.sum(~np.isnan(p))]  # argsort puts NaNs last
    # statsmodels' multipletests runs the garbage collector at each call: 0.1 s in a report.
    running = np.maximum.accumulate(p[order] * np.arange(len(order), 0, -1))
    adjusted[order] = np.minimum(running, 1.0)
    return adjusted


def slopes(gains: ArrayLike, lengths: ArrayLike, degree: int = 1) -> Floats:
    """Least-squares slope of each seed's gain over log2 length: gains (S, R), lengths (R,) -> (S,).
    With degree=2, the coefficient of the squared log2 length in a parabola. NaN if the number of
    different lengths is not above the degree.

    The unit is the gains' per doubling of length. Each seed has one slope, so the tests above,
    applied to slopes, test whether the gain grows with length. If the gain follows a straight line,
    the coefficients of degree 2 are 0 on average, so a test of them is one of lack of fit.
    """
    y, x = np.asarray(gains, dtype=float), np.log2(np.asarray(lengths, dtype=float))
    if len(np.unique(x.round(9))) <= degree:
        return np.full(len(y), np.nan)
    found = np.polyfit(x - x.mean(), y.T, degree)[0]
    # Rounding errors become 0, because their spread could give any p-value.
    return np.where(np.abs(found) <= 1e-9 * np.abs(y).max(), 0.0, found)
