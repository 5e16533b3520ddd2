"""benchmarks/violations.py against closed forms, and its tables in docs/error_rates.md."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import calibrate
import solving
import violations
from posfuse.config import CONF_DIR
from posfuse.statistics import paired, sequential

PAGE = (CONF_DIR.parent / "docs" / "error_rates.md").read_text()


def number(shown):
    return float(shown.partition(" ")[0])


@pytest.mark.parametrize("share", [0.0, 0.05, 0.3])
def test_a_shared_deviation_widens_the_t_statistic(share):
    """The mean has the variance f + (1 - f) / n in place of (1 - f) / n."""
    row = violations.shared_deviation(share, 20_000, 1, seed=0)
    for n in violations.SEEDS:
        wider = np.sqrt(1 + n * share / (1 - share))
        exact = 2 * stats.t.sf(stats.t.isf(0.025, n - 1) / wider, n - 1)
        assert number(row[f"{n} seeds"]) == pytest.approx(exact, abs=0.015)


def test_a_family_of_six_finds_a_difference_more_often_than_one_hypothesis():
    row = violations.shared_deviation(0.3, 1_000, 20, seed=0)
    assert number(row["any of 6, all looks"]) > number(row["looks at 8, 16, 24"])


@pytest.mark.parametrize("share", [0.05, 0.2])
def test_failing_runs_without_other_noise_are_binomial(share):
    """By hand: with k of n runs failed the mean is q - k / n and the standard error
    sqrt(k (n - k) / n^2 / (n - 1)) gaps."""
    row = violations.failing_runs(share, 1e4, 20_000, seed=0)
    for n in violations.SEEDS:
        k = np.arange(n + 1)
        with np.errstate(divide="ignore"):  # without a failure, or with failures alone
            t = np.abs(share - k / n) / np.sqrt(k * (n - k) / n**2 / (n - 1))
        exact = stats.binom.pmf(k, n, share)[t >= stats.t.isf(0.025, n - 1)].sum()
        assert number(row[f"{n} seeds"]) == pytest.approx(exact, abs=0.015)


@pytest.mark.parametrize("study", violations.TUNINGS)
def test_identical_operators_with_equal_trials_differ_in_5_of_100_studies(study):
    row = violations.tuned_once(study, 0.0, 20_000, seed=0)
    assert number(row["24 seeds"]) == pytest.approx(0.05, abs=0.006)
    assert row["spread of the true difference"] == "0.0"
    wide = violations.tuned_once(study, 1.0, 20_000, seed=0)
    assert number(wide["5 seeds"]) < number(wide["8 seeds"]) < number(wide["24 seeds"])


def test_the_spreads_are_those_of_the_records():
    """A random-effects analysis of variance of the finalists, by loops."""
    runs = pd.read_csv(violations.FINDINGS / "own_best" / "runs.csv")
    within, between = [], []
    for _, arm in runs[runs["stage"].eq("tuning") & runs["seed"].ge(111)].groupby("arm"):
        groups = [trial["validation_accuracy"].to_numpy() for _, trial in arm.groupby("trial")]
        assert [len(group) for group in groups] == [4, 4, 4]
        within += [group.var(ddof=1) for group in groups]
        between.append(np.var([group.mean() for group in groups], ddof=1))
    learn, over_trials, over_seeds, of_tests = violations.measured("own_best")
    assert over_seeds**2 == pytest.approx(np.mean(within))
    assert over_trials**2 == pytest.approx(np.mean(between) - np.mean(within) / 4)
    tests = runs[runs["stage"] == "testing"].groupby("arm")["test_accuracy"].std()
    assert of_tests**2 == pytest.approx((tests**2).mean())
    assert learn == 8  # of 14


def test_the_tables_of_the_page_are_those_of_the_command():
    """A row of each table that is quick to simulate; the seed is the row's place."""
    tasks = calibrate.simulations(1_000)
    places = {title: sum(map(len, list(tasks.values())[:i])) for i, title in enumerate(tasks)}
    for title in tasks:
        assert PAGE.count(f"**{title}**") == 1
        if title.startswith(("One arm fails", "Two identical")) or title.endswith("by one test"):
            last = 0 if title.endswith("by one test") else len(tasks[title]) - 1
            row = tasks[title][last](seed=places[title] + last)
            table = PAGE.partition(f"**{title}**")[2].partition("**")[0]
            assert f"| {' | '.join(row.values())} |" in table


def test_procedures_for_solved_runs_agree_with_other_implementations():
    a, b = (solving.runs(np.random.default_rng(i), 0.6, (3, 8)) for i in (0, 1))
    found = {name: test(a, b, 5.0) for name, test in solving.PROCEDURES.items()}
    for i, d in enumerate(a - b):
        for side, way in enumerate(("greater", "less")):
            t = stats.ttest_1samp(d, 5.0, alternative=way)
            assert found["t"][side][i] == pytest.approx(t.pvalue)
        assert 2 * min(p[i] for p in found["sign flips"]) == pytest.approx(
            paired.p_sign_flip(d - 5.0), abs=1e-9
        )
        both = (a[i] >= 90) & (b[i] >= 90)
        if both.sum() > 1:
            t = stats.ttest_1samp(d[both], 5.0, alternative="greater")
            assert found["t where both solve"][0][i] == pytest.approx(t.pvalue)
    d, looks = 100.0 * ((a >= 90) * 1 - (b >= 90)), sequential.Looks((8,))
    for i, p in enumerate(2 * np.minimum(*solving.by_shares(a, b, 0.0))):
        decision = sequential.decide_at(d[i], sequential.Margins(9.0, of_shares=True), looks, 0)
        assert min(p, 1) == pytest.approx(decision.p_difference)
    normal = np.random.default_rng(2).normal(size=(2, 1, 20))
    welch = stats.ttest_ind(*normal[:, 0], equal_var=False, alternative="greater").pvalue
    assert solving.by_permutation(*normal, 0.0)[0] == pytest.approx(welch, abs=0.05)


def test_a_bet_multiplies_capital_by_hand():
    """The first bet on d = 100 is 0.75 / m at m = 1/2: 1 + 1.5 (1 - 1/2); the second is larger than
    0.75 / m too."""
    above, below = solving.by_betting(np.full((1, 2), 100.0), np.zeros((1, 2)), 0.0)
    assert above == pytest.approx(1 / 1.75**2)
    assert below == 1


def test_some_tables_are_replaced_and_the_others_stay():
    tables = "made\n\n**one**\n\n| 1 |\n\n**two**\n\n| 2 |"
    page = f"a\n{calibrate.BEGIN}\n{tables}\n{calibrate.END}\nb\n"
    new = {"two": "**two**\n\n| 3 |\n"}
    once = calibrate.replaced(page, "new", new, ["one", "two"], "wo")
    assert once.count("With `--only 'wo'`") == 1
    assert once.replace("| 3 |", "| 2 |").split("**", 1)[1] == page.split("**", 1)[1]
    assert calibrate.replaced(once, "new", new, ["one", "two"], "wo") == once
    assert "one" not in calibrate.replaced(page, "new", new, ["one", "two"], "")
