"""Contrasts and what is decided about them at each look: by hand, against published bounds, and
against second implementations."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from posfuse.statistics import paired as st
from posfuse.statistics import sequential as sq
from posfuse.statistics.contrasts import ANSWERS, decide, differences
from posfuse.statistics.sequential import Looks, Margins
from posfuse.study.looks import deltas
from posfuse.study.spec import Hypothesis
from posfuse.verdicts.sentences import to_settle

THREE = Looks((8, 16, 24))


def test_the_levels_are_the_published_bounds():
    """Five looks, O'Brien-Fleming type spending, two-sided 0.05: the z bounds that ldbounds and
    other programs print to four digits (Reboussin et al. 2000)."""
    bounds = stats.norm.isf(sq.levels((1, 2, 3, 4, 5), 0.025))
    np.testing.assert_allclose(bounds, [4.8769, 3.3569, 2.6803, 2.2898, 2.0310], atol=1.5e-4)


def test_the_levels_agree_with_the_multivariate_normal_distribution():
    """The chance to cross any bound, from scipy's integral over all looks at once."""
    for seeds, shares in (((8, 16, 24), ()), ((5, 7, 20), (0.2, 0.3, 1.0)), ((10, 20), ())):
        z = stats.norm.isf(sq.levels(seeds, 0.05, shares))
        n = np.array(seeds)
        correlation = np.sqrt(np.minimum.outer(n, n) / np.maximum.outer(n, n))
        joint = stats.multivariate_normal(cov=correlation, abseps=1e-8, maxpts=2_000_000, seed=0)
        assert 1 - joint.cdf(z) == pytest.approx(0.05, abs=2e-5)
        first = shares[0] * 0.05 if shares else 2 * stats.norm.sf(1.95996 / np.sqrt(n[0] / n[-1]))
        assert stats.norm.sf(z[0]) == pytest.approx(first, rel=1e-4)


def test_a_look_that_may_spend_almost_nothing_decides_nothing():
    for looks, alpha in (((2, 100), 0.025), ((2, 8, 24), 0.025 / 7), ((2, 40), 0.025)):
        first, *_, last = sq.levels(looks, alpha)
        assert first < 1e-18
        assert last == pytest.approx(alpha, rel=0.01)
    assert sq.levels((8, 16), 0.025, (1e-30, 1.0))[1] == pytest.approx(0.025, rel=1e-6)


@pytest.mark.parametrize(
    ("looks", "spent", "rate"),
    [((8, 16, 24), (), 0.051), ((5, 8), (0.4, 1.0), 0.053),
     ((3, 4, 5, 6, 7, 8), tuple(np.arange(1, 7) / 6), 0.060)],
)  # fmt: skip
def test_the_error_rates_of_early_looks_in_the_docs(looks, spent, rate):
    """The levels are those of normal statistics, so t-tests of few seeds err more often."""
    d, differs = np.random.default_rng(0).normal(size=(200_000, looks[-1])), False
    for n, level in zip(looks, sq.levels(looks, 0.025, spent), strict=True):
        t = d[:, :n].mean(1) / d[:, :n].std(1, ddof=1) * n**0.5
        differs |= np.abs(t) >= stats.t.isf(level, n - 1)
    assert np.mean(differs) == pytest.approx(rate, abs=0.0015)
    text = (Path(__file__).parents[2] / "docs/statistics.md").read_text(encoding="utf-8")
    assert f"{100 * rate:.1f} % with" in " ".join(text.split())


def test_one_look_is_the_ordinary_t_test():
    d = np.random.default_rng(0).normal(1, 1, 10)
    decision = sq.decide_at(d, Margins(0.5), Looks((10,)), 0)
    assert decision.level == pytest.approx(0.05)
    assert decision.p_difference == pytest.approx(stats.ttest_1samp(d, 0).pvalue)
    assert (decision.low, decision.high) == pytest.approx(st.t_interval(d))
    assert decision.p_equivalence == st.p_equivalence(d, 0.5)


def test_the_levels_grow_with_alpha_as_holms_rule_needs():
    grid = [sq.levels((8, 16, 24), alpha) for alpha in (0.05 / 8, 0.05 / 3, 0.025, 0.05)]
    assert (np.diff(grid, axis=0) > 0).all()


@pytest.mark.parametrize(
    ("mean", "margins", "result", "also_small"),
    [
        (3.0, Margins(1.0), sq.AHEAD, False),
        (2.0, Margins(4.0), sq.AHEAD, True),
        (-3.0, Margins(1.0), sq.BEHIND, False),
        (0.0, Margins(2.0), sq.EQUIVALENT, False),
        (0.6, Margins(1.0), sq.UNDECIDED, False),
        (3.0, Margins(1.0, beyond=4.0), sq.UNDECIDED, False),
    ],
)
def test_each_result(mean, margins, result, also_small):
    d = mean + 0.5 * np.array([1, -1, 2, -2, 1, -1, 0.5, -0.5])
    found = sq.decide_at(d, margins, THREE, 0)
    assert (found.result, found.also_small) == (result, also_small)


def test_the_interval_of_equivalence_lies_within_the_margin():
    """It is the interval of two one-sided tests, as (1 - 2 alpha) in Schuirmann 1987."""
    d = 0.2 + 0.95 * np.array([1, -1, 1, -1, 1, -1, 1, -1])
    found = sq.decide_at(d, Margins(1.0), Looks((8,)), 0)
    assert found.result == sq.EQUIVALENT
    assert (found.low, found.high) == pytest.approx(st.t_interval(d, 0.9))
    assert -1 < found.low < found.high < 1
    assert st.t_interval(d)[1] > 1


def test_a_decided_hypothesis_stops_and_frees_its_alpha():
    """By hand: with two hypotheses each has alpha / 2; once the first is decided the second has
    all of it, at the same look. Its p lies between the two levels."""
    looks, unit = Looks((10,)), np.linspace(-1, 1, 10)
    reach = stats.t.isf(0.04 / 2, 9) * unit.std(ddof=1) / np.sqrt(10)  # p = 0.04 two-sided
    samples = {"clear": unit + 5, "close": unit + reach}
    margins = dict.fromkeys(samples, Margins(0.01))
    found, made = sq.judge_family(samples, margins, looks)
    assert made == 1
    assert {name: d.result for name, d in found.items()} == {"clear": "ahead", "close": "ahead"}
    assert found["clear"].level == pytest.approx(0.025)
    assert found["close"].level == pytest.approx(0.05)
    undecided, _ = sq.judge_family(samples | {"clear": unit}, margins, looks)
    assert undecided["close"].result == sq.UNDECIDED


def test_a_decision_does_not_change_with_later_seeds():
    early = 5 + np.tile([0.5, -0.5], 4)
    samples = {"a": np.concatenate([early, np.full(16, -50.0) + np.tile([1, -1], 8)])}
    found, _ = sq.judge_family(samples, {"a": Margins(1.0)}, THREE)
    assert (found["a"].result, found["a"].n) == (sq.AHEAD, 8)


def test_a_family_waits_for_the_seeds_of_its_undecided_hypotheses():
    noise = np.random.default_rng(1).normal(0, 3, 24)
    clear = 20 + noise[:8]
    samples, margins = {"a": clear, "b": noise[:20]}, dict.fromkeys("ab", Margins(0.1))
    found, made = sq.judge_family(samples, margins, THREE)
    assert made == 2  # a needs no more seeds, b has 20 of 24
    assert found["b"].n == 16
    nothing, made = sq.judge_family({"a": clear[:7]}, {"a": Margins(1.0)}, THREE)
    assert (nothing, made) == ({}, 0)


def test_shown_equivalences_leave_nothing_to_the_tests_for_a_difference():
    """Five of six hypotheses are equivalent at once. The sixth, with p = 0.03, would be decided at
    all of alpha; it has the largest of six means, so it may only be decided at alpha / 6."""
    unit = np.linspace(-1, 1, 24)
    reach = stats.t.isf(0.03 / 2, 23) * unit.std(ddof=1) / np.sqrt(24)
    samples = {f"h{i}": 0.01 * unit for i in range(5)} | {"last": unit + reach}
    found, made = sq.judge_family(samples, dict.fromkeys(samples, Margins(0.1)), Looks((24,)))
    assert made == 1
    assert [d.result for d in found.values()] == [sq.EQUIVALENT] * 5 + [sq.UNDECIDED]
    assert found["last"].level == pytest.approx(0.05 / 6)


@pytest.mark.parametrize(("other", "result"), [(5.0, sq.UNDECIDED), (0.0, sq.EQUIVALENT)])
def test_only_shown_equivalences_free_alpha_for_an_equivalence(other, result):
    """The second hypothesis is equivalent with p = 0.04, between alpha / 2 and alpha."""
    unit = np.linspace(-1, 1, 10)
    reach = stats.t.isf(0.04, 9) * unit.std(ddof=1) / np.sqrt(10)
    samples = {"other": 0.1 * unit + other, "close": unit}
    margins = {"other": Margins(1.0), "close": Margins(reach)}
    found, _ = sq.judge_family(samples, margins, Looks((10,)))
    assert found["other"].result == (sq.AHEAD if other else sq.EQUIVALENT)
    assert found["close"].p_equivalence == pytest.approx(0.04)
    assert found["close"].result == result


def test_simulated_shares_are_those_of_decide():
    draws = np.random.default_rng(2).normal(0.6, 1, (200, 24))
    draws[:5] = 0.0
    for margins in (Margins(1.2), Margins(1.0, beyond=0.5)):
        shares = sq.shares_of_results(draws, margins, THREE, hypotheses=2)
        counts = dict.fromkeys(shares[0], 0)
        for d in draws:
            each = (sq.decide_at(d, margins, THREE, look, (2, 2)).result for look in range(3))
            first = next((result for result in each if result != sq.UNDECIDED), None)
            if first:
                counts[first] += 1
        assert shares[-1] == {name: count / 200 for name, count in counts.items()}


def test_the_error_rate_is_alpha():
    """No difference: any difference found is an error. On the margin: equivalence is."""
    at_zero = sq.chances(0.0, 2.0, Margins(1.0), THREE)[-1]
    assert at_zero["ahead"] + at_zero["behind"] == pytest.approx(0.05, abs=0.009)
    at_margin = sq.chances(1.0, 1.0, Margins(1.0), THREE)[-1]
    assert at_margin["equivalent"] < 0.06
    assert sq.chances(3.0, 2.0, Margins(1.0), THREE)[-1]["ahead"] > 0.99


OUTCOMES = pd.DataFrame(
    {"a": [3.0, 5.0, 9.0], "b": [1.0, 1.0, np.nan], "c": [2.0, 4.0, 6.0]}, index=[0, 1, 7]
)


def test_a_contrast_is_a_weighted_sum_over_the_seeds_that_every_arm_has():
    found = differences({"a": 1, "b": -0.5, "c": -0.5}, OUTCOMES)
    assert found.to_dict() == {0: 1.5, 1: 2.5}
    assert differences({"a": 1, "c": -1}, OUTCOMES).to_dict() == {0: 1, 1: 1, 7: 3}
    assert differences({"a": 1, "nobody": -1}, OUTCOMES).empty


def test_a_difference_by_rounding_is_none():
    """0.1 + 0.2 is not 0.3. The next difference is small, but no rounding."""
    outcomes = pd.DataFrame({"a": [0.1 + 0.2, 0.3 + 1e-8, 1e12], "b": [0.3, 0.3, 0.0]})
    found = differences({"a": 1, "b": -1}, outcomes)
    assert found.tolist() == [0.0, pytest.approx(1e-8), 1e12]  # whatever other seeds have


def test_the_weights_sum_to_0():
    with pytest.raises(AssertionError):
        differences({"a": 1, "b": -0.5}, OUTCOMES)


def test_a_hypothesis_is_a_contrast_up_to_the_first_seed_that_an_arm_lacks():
    h = Hypothesis("h", "t", ["a", "c"], "b", "greater", [], 2.0, "main")
    assert h.weights == {"a": 0.5, "c": 0.5, "b": -1.0}
    assert deltas(h, OUTCOMES, [0, 1, 7, 8]) == [1.5, 3.5]
    assert deltas(h, OUTCOMES, [8, 0]) == []


def test_a_shown_difference_comes_before_equivalence():
    mean, differs, same = [1, -1, -1, 1], [True, True, False, False], [True, False, True, False]
    assert decide(mean, differs, same).tolist() == ["ahead", "behind", "equivalent", "undecided"]
    assert ANSWERS["less"]["behind"] == ANSWERS["equivalent"]["equivalent"] == "supported"


def test_differences_without_a_spread_say_nothing_about_more_seeds():
    assert to_settle(math.nan, math.nan) == ""
