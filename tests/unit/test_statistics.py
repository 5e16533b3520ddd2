"""Every statistic against numbers worked by hand and against a second, independent route."""

import itertools
import math
from collections import Counter
from functools import partial

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.power import TTestPower
from statsmodels.stats.weightstats import DescrStatsW

from posfuse.statistics import over_documents as over
from posfuse.statistics import paired as st
from posfuse.statistics import power
from posfuse.statistics.power import seeds_for_difference, seeds_for_equivalence

FIVE = [1.2, 0.4, -0.3, 2.1, 0.9]
SEVEN = [1.0, 2.0, 4.0, 8.0, 3.0, -1.0, 5.0]
SAMPLES = [[0.5, 1.5], [1.0, 2.0, 4.0], FIVE, SEVEN, [-v for v in FIVE]]


def p_by_counts(whole) -> float:
    """Share of all sign patterns whose sum is as far from 0, by the number of ways to each sum."""
    whole = np.rint(whole).astype(int).tolist()
    ways = Counter({0: 1})
    for d in whole:
        more = Counter()
        for total, count in ways.items():
            more[total + d] += count
            more[total - d] += count
        ways = more
    observed = abs(sum(whole))
    return sum(n for total, n in ways.items() if abs(total) >= observed) / 2 ** len(whole)


def wilcoxon_by_counts(differences) -> float:
    """Share of all sign patterns whose rank sum is as extreme; zeros dropped, ties averaged."""
    d = [x for x in np.round(differences, 9) if x != 0]
    return p_by_counts(2 * stats.rankdata(np.abs(d)) * np.sign(d))


def points_of_gains(base, gains, n_documents):
    """Differences of accuracies in points, with the rounding of doubles that they come with."""
    base = np.asarray(base)
    return 100 * ((base + gains) / n_documents) - 100 * (base / n_documents)


def test_the_bootstrap_interval_is_bias_corrected_and_accelerated():
    d = np.random.default_rng(5).gamma(0.3, 3.0, 25)  # skewed, so that BCa is not the percentile
    for level in (0.9, 0.95):
        with_level = partial(stats.bootstrap, [d], np.mean, confidence_level=level, rng=7)
        own = with_level(method="BCa", n_resamples=50_000).confidence_interval
        plain = with_level(method="percentile", n_resamples=50_000).confidence_interval
        tolerance = 0.03 * (own.high - own.low)
        found = st.bootstrap_interval(d, level)
        assert found == pytest.approx((own.low, own.high), abs=tolerance)
        assert found == st.bootstrap_interval(d, level)  # it is reproducible
        assert own.high - plain.high > 2 * tolerance  # the correction is visible
    for d in SAMPLES[1:]:
        low, high = st.bootstrap_interval(d)
        assert min(d) <= low < np.mean(d) < high <= max(d)
    assert np.isnan(st.bootstrap_interval([1.0, 2.0])).all()  # two are too few
    exact = np.array([-22, 7, -1, 2])  # has means that are ties
    noisy = exact / 1.2 + [0, 3e-13, -3e-13, 0]
    assert st.bootstrap_interval(noisy) == pytest.approx(
        [end / 1.2 for end in st.bootstrap_interval(exact)]
    )


def test_t_tests_and_intervals_are_statsmodels():
    assert st.effect_size([-1.0, -2.0, -3.0]) == pytest.approx(-2)
    for d in SAMPLES:
        table = DescrStatsW(d)
        for level in (0.9, 0.95, 0.99):
            assert st.t_interval(d, level) == pytest.approx(table.tconfint_mean(1 - level))
        assert st.p_paired_t(d) == pytest.approx(table.ttest_mean(0.0)[1])
        for threshold in (0.0, 0.5, -1.25):
            for test, side in ((st.p_above, "larger"), (st.p_below, "smaller")):
                expected = table.ttest_mean(threshold, alternative=side)[1]
                assert test(d, threshold) == pytest.approx(expected)
        for margin in (0.25, 1.0, 5.0):
            expected = table.ttost_mean(-margin, margin)[0]
            assert st.p_equivalence(d, margin) == pytest.approx(expected)


def test_the_smallest_p_is_what_differences_of_one_sign_reach():
    assert st.smallest_p(1) == 1.0
    for n, least in ((2, 0.5), (3, 0.25), (5, 0.0625), (7, 0.015625)):
        d = list(range(1, n + 1))
        assert st.smallest_p(n) == least
        assert st.p_sign_flip(d) == pytest.approx(least)
        assert st.p_wilcoxon(d) == pytest.approx(least)
        assert st.p_sign_flip([5.0] * n) == pytest.approx(least)


TIED = [3.0, -1.0, 4.0, 1.0, -5.0, 9.0, 2.0, 6.0, -5.0, 3.0, 5.0, 8.0, 9.0, -7.0]


def test_wilcoxon_is_exact_with_ties_and_of_more_than_30_seeds_scipys():
    assert st.p_wilcoxon([0.0, 0.0, 2.0]) == 1  # one difference is left
    gains = np.random.default_rng(0).integers(-3, 5, 30)
    points = points_of_gains(np.arange(200, 230), gains, 425)
    for d in [*SAMPLES, [0.0, 1.0, 2.0, 3.0], TIED, points]:
        assert st.p_wilcoxon(d) == pytest.approx(wilcoxon_by_counts(d))
    for n in (20, 40):
        untied = np.arange(-4.0, n - 4) + 0.25
        exact = stats.wilcoxon(untied, method="exact").pvalue
        assert st.p_wilcoxon(untied) == pytest.approx(exact)


@pytest.mark.parametrize("n", range(2, 31))
def test_sign_flip_is_exact_up_to_30_seeds_with_ties(n):
    """Gains of whole documents have many equal sums, which rounding must not break."""
    rng = np.random.default_rng(n)
    assert n <= st.EXACT_UP_TO == 30
    for documents in (425, 600, 1000, 7600):
        for most in (1, 3, 9):
            gains = rng.integers(-most, most + 1, n)
            points = points_of_gains(rng.integers(documents // 2, size=n), gains, documents)
            assert st.p_sign_flip(points) == pytest.approx(p_by_counts(gains), abs=1e-12)
            assert st.p_sign_flip(gains / 7) == st.p_sign_flip(points)


def test_sign_flip_of_more_seeds_is_sampled_with_the_same_ties():
    rng = np.random.default_rng(3)
    for n in (31, 40, 64, 65, 129):
        for most in (1, 2, 9):
            gains = rng.integers(-most, most + 1, n)
            points = points_of_gains(rng.integers(300, size=n), gains, 600)
            exact = p_by_counts(gains)
            error = math.sqrt(exact * (1 - exact) / st.SAMPLED)
            assert st.p_sign_flip(points) == pytest.approx(exact, abs=4 * error + 1e-4)
            assert st.p_sign_flip(points) == st.p_sign_flip(points)
    assert st.p_sign_flip(range(1, 32)) == 1 / (st.SAMPLED + 1)  # a sampled p is never 0


@pytest.mark.parametrize(
    "d",
    [[1.5], [1.0, np.nan, 2.0], [2.0] * 3, [0.0, 0.0], [0.1 + 0.2, 0.3, 0.3], [-0.3, -0.1 - 0.2],
     [70.1 - 70] * 3],
    ids=str,
)  # fmt: skip
def test_without_a_spread_there_is_no_t_test_and_no_interval(d):
    """Of one seed, of a missing difference, or of differences that are equal but for rounding."""
    by_t = (st.p_above, st.p_below, st.p_paired_t, partial(st.p_equivalence, margin=0.5))
    for statistic in (*by_t, st.effect_size, st.t_interval, st.bootstrap_interval, st.spread_limit):
        assert np.isnan(statistic(d)).all()
    if len(d) == 1 or np.isnan(d).any():
        for statistic in (st.spread, st.p_wilcoxon, st.p_sign_flip):
            assert np.isnan(statistic(d))
    if len(d) == 1:
        for statistic in (*by_t, st.t_interval, st.spread_limit):
            assert np.isnan(statistic(d, resolution=0.1)).all()
    if not any(d):
        assert np.isnan(st.p_wilcoxon(d))
        assert st.p_sign_flip(d) == 1


def test_equal_differences_have_the_spread_of_one_document():
    """As statsmodels has it for a sample with this mean and standard deviation."""
    for mean, n, step in ((2.0, 3, 0.235), (-0.3, 5, 0.1), (0.0, 2, 0.5)):
        d = [mean] * n
        alike = DescrStatsW(mean + step * stats.zscore(range(n), ddof=1))
        interval = st.t_interval(d, resolution=step)
        assert interval == pytest.approx(alike.tconfint_mean())
        for side, test in (("larger", st.p_above), ("smaller", st.p_below)):
            for threshold in (0.0, 0.5, -0.5):
                expected = alike.ttest_mean(threshold, alternative=side)[1]
                assert test(d, threshold, step) == pytest.approx(expected)
        assert st.p_paired_t(d, step) == pytest.approx(alike.ttest_mean(0)[1])
        assert st.p_equivalence(d, 0.5, step) == pytest.approx(alike.ttost_mean(-0.5, 0.5)[0])
        limit = step * math.sqrt((n - 1) / stats.chi2.ppf(0.2, n - 1))
        assert st.spread_limit(d, step) == pytest.approx(limit)


@pytest.mark.parametrize("unit", [1e-12, 0.013, 1e12])
def test_the_unit_of_the_differences_does_not_matter(unit):
    for d in [*SAMPLES, TIED, [0.1, 0.1, -0.1, 0.3 - 0.2], [2.0] * 3]:
        scaled = [x * unit for x in d]
        for test in (st.p_paired_t, st.p_wilcoxon, st.p_sign_flip, st.effect_size):
            assert test(scaled) == pytest.approx(test(d), rel=1e-6, nan_ok=True)
        expected = pytest.approx(st.p_equivalence(d, 0.5), rel=1e-6, nan_ok=True)
        assert st.p_equivalence(scaled, 0.5 * unit) == expected


@pytest.mark.parametrize(
    ("p", "adjusted"),
    [
        # sorted .01 .02 .03 .04, times 4 3 2 1: .04 .06 .06 .04, never falling: .04 .06 .06 .06
        ([0.04, 0.01, 0.03, 0.02], [0.06, 0.04, 0.06, 0.06]),
        ([0.9, 0.8], [1, 1]),  # at most 1
        ([0.01, np.nan, 0.02, np.nan], [0.02, np.nan, 0.02, np.nan]),  # of two
        ([np.nan, np.nan], [np.nan, np.nan]),
        ([], []),
    ],
)
def test_holm_by_hand(p, adjusted):
    assert st.holm(p).tolist() == pytest.approx(adjusted, nan_ok=True)


ONE, OTHER = [1.0, 5.0, -3.0, 8.0, 2.0, -4.0], [1.5, 2.0, 0.5, 3.0, 1.0, 0.0]


def test_pitman_morgan_is_its_textbook_t():
    for n in (3, 4, 6):
        x, y = np.array(ONE[:n]), np.array(OTHER[:n])
        r = np.corrcoef(x + y, x - y)[0, 1]
        t = r * math.sqrt((n - 2) / (1 - r**2))
        assert st.p_more_variable(x, y) == pytest.approx(stats.t.sf(t, n - 2))
        assert st.p_more_variable(y, x) == pytest.approx(1 - st.p_more_variable(x, y))


def test_spreads_that_cannot_be_compared_give_nan():
    for one, other in (
        ([1.0], [2.0]),
        ([1.0, 2.0], [2.0, 5.0]),
        ([1.0, 2.0, 4.0], [-1.0, -2.0, -4.0]),
        ([1.0, 2.0, 4.0], [2.0, 3.0, 5.0]),
        # With a spread of 0 the correlation is 1 by construction, so the test would find any p.
        ([1.0, 2.0, 4.0], [3.0, 3.0, 3.0]),
        ([3.0, 3.0, 3.0], [1.0, 2.0, 4.0]),
    ):
        assert np.isnan(st.p_more_variable(one, other))
        assert np.isnan(st.seeds_for_spreads(one, other))


def test_seeds_for_spreads_by_hand_and_by_simulation():
    # r of sums and gaps, z = artanh r, n = ((1.644854 + 0.841621) / z)^2 + 3
    x, y = np.array(ONE), np.array([2.0, 1.0, -2.0, 6.0, 5.0, -1.0])
    r = np.corrcoef(x + y, x - y)[0, 1]
    z = 0.5 * math.log((1 + r) / (1 - r))
    n = st.seeds_for_spreads(x, y)
    assert n == math.ceil((2.486475 / z) ** 2 + 3)
    assert 10 < n < 40
    assert st.seeds_for_spreads(y, x) == n
    draws = np.random.default_rng(0).multivariate_normal([0, 0], np.cov(x, y), size=(1_000, int(n)))
    found = np.mean([st.p_more_variable(d[:, 0], d[:, 1]) < 0.05 for d in draws])
    assert 0.75 < found < 0.87  # n is whole and Fisher's z an approximation


def test_power_is_statsmodels():
    theirs = TTestPower()
    for n, d_z, alpha in itertools.product([2, 3, 10, 200], [0.1, 0.5, 1.0], [0.05, 0.01]):
        both = theirs.power(d_z, n, alpha)
        for effect in (2 * d_z, -2 * d_z):
            found = power.decision_power(effect, 2.0, n, 0.0, alpha=alpha)
            assert found == pytest.approx(both, abs=1e-4)


def test_decision_power_is_how_often_either_test_decides():
    """Against both tests on simulated samples, and each alone where the other cannot decide."""
    rng = np.random.default_rng(0)
    for effect, std, n, margin, beyond in (
        (0.4, 1.0, 12, 1.0, 0.0), (0.0, 0.5, 10, 0.5, 0.0), (0.7, 0.4, 6, 1.0, 0.0),
        (-1.6, 0.8, 8, 1.0, 1.0), (0.2, 0.9, 15, 1.0, 1.0), (0.0, 1.0, 3, 1.0, 0.0),
    ):  # fmt: skip
        samples = rng.normal(effect, std, (20_000, n))

        def p(mean, side, samples=samples):
            return stats.ttest_1samp(samples, mean, axis=1, alternative=side).pvalue

        differs = np.minimum(p(beyond, "greater"), p(-beyond, "less")) <= 0.025
        equivalent = np.maximum(p(-margin, "greater"), p(margin, "less")) <= 0.05
        share = power.decision_power(effect, std, n, margin, beyond)
        assert np.mean(differs | equivalent) == pytest.approx(share, abs=0.011), (effect, n)
        assert power.decision_power(-effect, std, n, margin, beyond) == pytest.approx(share)
    far = power.decision_power(0.1, 0.5, 4, 0.6, beyond=100.0)
    assert far == pytest.approx(power.decision_power(0.1, 0.5, 4, 0.6, beyond=np.inf))


def test_the_needed_seeds_are_the_fewest_that_reach_the_target():
    def fewest(power_of):
        return next(n for n in itertools.count(2) if power_of(n) >= 0.8)

    for d_z in (0.5, 0.8, 1.0, 2.0, 4.0, 100.0):
        n = fewest(lambda n, d=d_z: power.decision_power(d, 1.0, n, 0.0))
        assert seeds_for_difference(d_z, 1.0, 0.05) == n
        assert seeds_for_difference(-3 * d_z, 3.0, 0.05) == n
    for std, effect in ((0.3, 0.0), (0.5, 0.0), (1.0, 0.0), (0.5, 0.25)):
        n = fewest(lambda n, s=std, e=effect: power.decision_power(e, s, n, 0.5, np.inf))
        assert seeds_for_equivalence(std, 0.5, effect, 0.05) == n
        assert seeds_for_equivalence(std, 0.5, -effect, 0.05) == n
    # If the mean lies within the margin, equivalence is shown first. By hand: (z std / effect)^2.
    n = fewest(lambda n: power.decision_power(0.15, 0.83, n, 0.5))
    assert power.seeds_for_decision(0.15, 0.83, 0.5, 0.05) == n == 27
    assert seeds_for_difference(0.15, 0.83, 0.05) == pytest.approx(7.85 * (83 / 15) ** 2, rel=0.02)


def test_the_search_finds_every_number_of_seeds_up_to_a_million():
    for target in [*range(2, 70), 100_000, 600_000, 1_000_000]:
        assert power.seeds_needed(lambda n, least=target: float(n >= least)) == target
    assert power.seeds_needed(lambda n: float(n >= 1_000_001)) == np.inf
    assert power.seeds_needed(lambda n: np.nan) == np.inf


def test_seeds_without_a_spread_or_an_effect():
    assert np.isnan(seeds_for_difference(1.0, np.nan, 0.05))
    assert np.isnan(seeds_for_difference(1.0, 0.0, 0.05))
    assert seeds_for_difference(0.0, 1.0, 0.05) == np.inf
    assert np.isnan(seeds_for_equivalence(np.nan, 0.5, 0.0, 0.05))
    assert seeds_for_equivalence(1.0, 0.5, 0.5, 0.05) == np.inf
    assert seeds_for_equivalence(1.0, 0.5, -0.7, 0.05) == np.inf


def test_slopes_by_hand():
    # one point more per doubling, none, two less per doubling
    gains = [[1.0, 2.0, 4.0], [5.0, 5.0, 5.0], [6.0, 4.0, 0.0]]
    assert st.slopes(gains, [16, 32, 128]) == pytest.approx([1.0, 0.0, -2.0])
    for length in (8.0, 10.0, 11.0, 15.0, 41.0, 47.0, 55.0, 234.7):  # one length has no slope
        assert np.isnan(st.slopes(gains, [length] * 3)).tolist() == [True] * 3


def test_curvatures_by_hand_and_those_of_lines_are_0():
    # 4, 0, 8 over two doublings each: second difference 12 over 2 * 2^2
    assert st.slopes([[4.0, 0.0, 8.0]], [16, 64, 256], degree=2) == pytest.approx([1.5])
    lines = np.outer(np.random.default_rng(0).normal(0, 3, 20), np.log2([10, 30, 70])) + 5
    assert st.slopes(lines, [10, 30, 70], degree=2).tolist() == [0] * 20
    assert st.slopes(np.full((3, 3), 70.1 - 0.3), [10, 30, 70]).tolist() == [0] * 3
    assert np.isnan(st.slopes(lines[:, :2], [10, 30], degree=2)).all()
    assert np.isnan(st.slopes(lines, [10, 30, 30], degree=2)).all()


def plain_hierarchical(x, resamples, seed, groups=None):
    """Owen's pigeonhole bootstrap as a double loop, each seed's own part widened as the t
    interval is wider than the bootstrap of n values. Groups are drawn whole."""
    groups = range(x.shape[1]) if groups is None else groups
    members = [np.flatnonzero(np.equal(groups, g)) for g in sorted(set(groups))]
    rng = np.random.default_rng(seed)
    n = len(x)
    widen = (n / (n - 1)) ** 0.5 * stats.t.ppf(0.975, n - 1) / 1.959964
    x = np.array([row + (widen - 1) * (row.mean() - x.mean()) for row in x])
    means = []
    for _ in range(resamples):
        rows = rng.integers(x.shape[0], size=x.shape[0])
        drawn = rng.integers(len(members), size=len(members))
        columns = np.concatenate([members[g] for g in drawn])
        means.append(np.mean([x[row, columns].mean() for row in rows]))
    return np.quantile(means, [0.025, 0.975])


def test_the_hierarchical_bootstrap_is_a_plain_double_loop_over_seeds_and_groups():
    rng = np.random.default_rng(4)
    groups = [7, 7, 7, 3, 3, 9, 9, 9, 9, 1, 2, 2, 2, 8, 8, 8, 8, 5, 5, 5]
    in_groups = 400 + 100.0 * rng.integers(-1, 2, 10)[groups] + 30 * rng.normal(size=(3, 20))
    cases = [(in_groups, groups)]
    for n, documents in ((2, 50), (5, 30), (4, 1)):
        shares = 100.0 * rng.integers(-1, 2, (n, documents))
        cases.append((shares + 20 * rng.normal(size=(n, 1)), None))
    for x, of in cases:
        own = plain_hierarchical(x, 3_000, 1, of)
        found = over.hierarchical_bootstrap(x, resamples=6_000, groups=of)
        assert found == pytest.approx(tuple(own), abs=0.09 * (own[1] - own[0]))
    whole, alone = (over.hierarchical_bootstrap(in_groups, groups=of) for of in (groups, None))
    assert alone[1] - alone[0] < 0.85 * (whole[1] - whole[0])
    assert over.hierarchical_bootstrap(in_groups, groups=range(50, 70)) == alone


def test_the_hierarchical_bootstrap_by_hand():
    # two seeds, one document: the mean is 2 - w, 2 or 2 + w with chances 1/4, 1/2, 1/4, where
    # w = 2 sqrt(2) 12.7062 / 1.95996
    ends = (2 - 18.3363, 2 + 18.3363)
    assert over.hierarchical_bootstrap([[0.0], [4.0]]) == pytest.approx(ends, abs=1e-3)
    assert over.hierarchical_bootstrap([[0.0], [4.0]], level=0.4) == pytest.approx((2, 2))
    assert over.hierarchical_bootstrap(np.full((3, 7), 12.5)) == pytest.approx((12.5, 12.5))
    x = np.random.default_rng(0).normal(size=(3, 20))
    assert over.hierarchical_bootstrap(x) == over.hierarchical_bootstrap(x)
    assert np.isnan(over.hierarchical_bootstrap(x[:1])).all()  # of one seed


@pytest.mark.parametrize(
    "counts",
    [(3, 1, 8, 10), (0, 0, 5, 0), (4, 3, 3, 4), (7, 35, 20, 99), (5, 1, 0, 5), (2, 0, 0, 3)],
)
def test_mcnemar_is_statsmodels(counts):
    one, other = np.repeat([[0, 0, 1, 1], [0, 1, 0, 1]], counts, axis=1)
    expected = mcnemar(np.reshape(counts, (2, 2)), exact=True).pvalue
    assert over.p_mcnemar(one, other) == pytest.approx(expected)
    assert over.p_mcnemar(other, one) == pytest.approx(expected)


def test_mcnemar_over_groups_is_the_enumeration_of_the_groups_signs():
    rng = np.random.default_rng(0)
    for _ in range(20):
        groups = rng.integers(0, 8, 30)
        one, other = rng.integers(0, 2, (2, 30))
        net = np.array([np.sum((one - other)[groups == g]) for g in range(8)])
        assert over.p_mcnemar(one, other, groups) == pytest.approx(p_by_counts(net))
    assert over.p_mcnemar([1, 0], [0, 1], [3, 3]) == 1  # gained and lost within one group
