"""Hypotheses about the share of solved runs: exact tests, their interval, plans and pages."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.proportion import proportion_confint

from posfuse.evidence.metric import ACCURACY
from posfuse.statistics import cautions as st
from posfuse.statistics import shares
from posfuse.statistics.sequential import Looks, Margins, chances, decide_at
from posfuse.study import caveats, forecast, looks, results_page, tables
from posfuse.study.reading import read_study
from posfuse.study.scores import outcomes
from posfuse.study.spec import Assumed, Evaluation, Hypothesis
from refusals import refusal
from study_runs import plan_of, small_study, study_runs, write_study

OF_SHARES = Margins(30.0, of_shares=True)


def sample(gained, lost, n):
    return np.repeat([100.0, -100.0, 0.0], [gained, lost, n - gained - lost])


def decided(gained, lost, n, margins=OF_SHARES, alpha=0.05, hypotheses=1):
    """The decision from n pairs at the only look, with a share of alpha."""
    looks = Looks((n,), alpha)
    return decide_at(sample(gained, lost, n), margins, looks, 0, (hypotheses, hypotheses))


def test_a_difference_from_0_is_mcnemars_test():
    for gained, lost in ((0, 0), (5, 0), (6, 0), (7, 1), (3, 9), (4, 4)):
        found = decided(gained, lost, 16)
        table = [[2, gained], [lost, 16 - 2 - gained - lost]]
        assert found.p_difference == pytest.approx(mcnemar(table, exact=True).pvalue)
        one_sided = stats.binomtest(lost, gained + lost or 1, alternative="greater").pvalue
        assert shares.p_below(sample(gained, lost, 16)) == pytest.approx(one_sided)
    assert decided(6, 0, 6).p_difference == 2 * 0.5**6
    for pairs, result in (((5, 0), "undecided"), ((6, 0), "ahead"), ((0, 6), "behind")):
        assert decided(*pairs, 16).result == result  # p = 0.0625 with 5


def test_a_p_that_is_equal_to_the_level_decides():
    assert decided(6, 0, 6, alpha=2**-5).result == "ahead"
    assert decided(6, 0, 6, alpha=2**-5).low >= 0
    assert decided(7, 0, 9, alpha=2**-5, hypotheses=2).result == "ahead"
    assert decided(6, 0, 9, alpha=2**-5, hypotheses=2).result == "undecided"
    assert chances(99.99, 1, OF_SHARES, Looks((6,), 2**-5))[0]["ahead"] > 0.9


def test_the_limits_are_those_of_both_kinds_of_pairs():
    """By hand if a kind has no pair: 1 - (level / 2)^(1 / n); otherwise statsmodels' limits."""
    end = 0.025 ** (1 / 24)
    assert shares.lower_limit(0, 0, 24, 0.05) == pytest.approx(100 * (end - 1))  # -14.3
    assert shares.lower_limit(24, 0, 24, 0.05) == pytest.approx(100 * (2 * end - 1))
    assert shares.lower_limit(0, 24, 24, 0.05) == -100
    for gained, lost, n in ((8, 3, 24), (1, 0, 9), (2, 2, 16)):
        least = proportion_confint(gained, n, 0.05, method="beta")[0]
        most = proportion_confint(lost, n, 0.05, method="beta")[1]
        assert shares.lower_limit(gained, lost, n, 0.05) == pytest.approx(100 * (least - most))


def test_p_is_the_level_at_which_the_limit_is_the_threshold():
    d = sample(8, 3, 24)
    for threshold in (-40.0, -5.0, 3.0, 10.0):
        p = shares.p_above(d, threshold)
        assert shares.lower_limit(8, 3, 24, p) == pytest.approx(threshold, abs=1e-6)
    assert shares.p_above(d, 60.0) == 1.0
    assert shares.p_above(d, -100.0) < 1e-9
    assert shares.p_below(-d, 5.0) == shares.p_above(d, -5.0)


def test_equivalence_is_an_interval_within_the_margin():
    found = decided(0, 0, 24, Margins(14.5, of_shares=True))
    assert (found.result, found.mean) == ("equivalent", 0)
    assert (found.low, found.high) == pytest.approx((-14.25, 14.25), abs=0.01)
    assert found.p_equivalence == pytest.approx(2 * (1 - 0.145) ** 24)
    assert decided(0, 0, 24, Margins(14.0, of_shares=True)).result == "undecided"
    beyond = Margins(20.0, 20.0, of_shares=True)  # of a hypothesis that expects equivalence
    assert decided(20, 0, 24, beyond).result == "ahead"
    assert decided(7, 0, 24, beyond).result == "undecided"


def trinomial(n, gained, lost):
    """All numbers of gained and lost pairs, and their chances."""
    pairs = np.array([(a, b) for a in range(n + 1) for b in range(n + 1 - a)])
    counts = np.column_stack([pairs, n - pairs.sum(1)])
    return *pairs.T, stats.multinomial.pmf(counts, n, [gained, lost, max(1 - gained - lost, 0)])


@pytest.mark.parametrize("n", [6, 16])
def test_the_interval_covers_the_difference_exactly_as_often_as_it_says(n):
    """No simulation: the chances of all outcomes, over a grid of shares."""
    gained, lost, _ = trinomial(n, 0.1, 0.1)
    samples = [sample(a, b, n) for a, b in zip(gained, lost, strict=True)]
    ends = np.array([shares.difference_interval(d) for d in samples])
    signs = np.array([[shares.p_above(d), shares.p_below(d)] for d in samples]) <= 0.025
    assert (ends * [1, -1] >= 0).tolist() == signs.tolist()  # it never contradicts the test
    for p, q in product(np.linspace(0, 1, 21), repeat=2):
        if p + q > 1:
            continue
        chance, d = trinomial(n, p, q)[2], 100 * (p - q)
        assert chance[(ends[:, 0] > d + 1e-9)].sum() <= 0.025
        assert chance[(ends[:, 1] < d - 1e-9)].sum() <= 0.025


def test_the_chances_of_a_plan_are_those_of_its_pairs():
    """By hand: a mean of 40 and a spread of 60 are 46 % gained and 6 % lost pairs."""
    assert shares.of_pairs(40, 60) == pytest.approx((0.46, 0.06))
    rows = chances(40, 60, OF_SHARES, Looks((16,)), simulated=20_000)
    a, b, chance = trinomial(16, 0.46, 0.06)
    ahead = chance[stats.binom.sf(a - 1, a + b, 0.5) <= 0.025].sum()
    assert rows[-1]["ahead"] == pytest.approx(ahead, abs=0.015)
    assert shares.seeds_to_decide(0.46, 0.06, 1.0, 0.0, 0.05) in range(22, 27)


def study(*names, **changes):
    hypotheses = [
        Hypothesis(name, "t", "concat", "add", expects="greater", margin=30)
        for name in names or ["gain"]
    ]
    given = {"testing": Evaluation(seeds="0-15", looks=[8, 16]), "solved": 90.0} | changes
    return small_study(hypotheses=hypotheses, assumed=Assumed(40, 60), **given)


# Both arms solve the first 4 seeds, concat alone the next 11, and neither the last.
ADD = [95.0, 96, 97, 98, *[30.0] * 12]
CONCAT = [96.0, 98, 97, 99, *[90.0] * 10, 99, None]
RUNS = study_runs(add=ADD, concat=CONCAT)


def test_a_run_is_solved_from_the_threshold_on():
    def solved(threshold, *accuracies):
        return outcomes(study_runs(a=accuracies), solved=threshold)["a"].tolist()

    assert solved(90.0, 89.99, 90.0, None) == [0, 100, 0]
    assert solved(20.0, 20.0, None) == [100, 0]  # 20 % is guessing
    assert solved(29.0, 100 * 0.29) == [100]  # 28.999999999999996


def test_later_seeds_of_a_decided_hypothesis_have_an_exact_interval():
    own = study(testing=Evaluation(seeds="0-31", looks=[16, 32]))
    (v,) = looks.progress(own, study_runs(add=[30.0] * 32, concat=[95.0] * 32)).verdicts
    assert (v.decision.n, v.all_seeds.n) == (16, 32)
    ends = shares.difference_interval([100.0] * 32)
    assert (v.all_seeds.low, v.all_seeds.high) == pytest.approx(ends)


def test_a_study_judges_the_share_and_shows_the_accuracy_of_solved_runs():
    own = study()
    state = looks.progress(own, RUNS)
    (v,) = state.verdicts
    assert (v.verdict, v.decision.n, v.decision.mean) == ("supported", 16, 68.75)
    assert v.decision.p_difference == 2 * 0.5**11
    assert (v.solved.arm, v.solved.than, v.solved.both.n) == (15, 4, 4)
    deltas = [1, 2, 0, 1]
    interval = stats.t.interval(0.95, 3, 1.0, stats.sem(deltas))
    assert (v.solved.both.low, v.solved.both.high) == pytest.approx(interval)
    text = tables.numbers(v, ACCURACY)
    assert text.startswith("concat - add in the share of solved runs: +68.8 points (+")
    assert text.endswith(
        "16 seeds. Solved runs: 15 of concat, 4 of add. Accuracy where both are solved: +1.0 (95 % "
        "interval -0.3 to +2.3), 4 seeds, exploratory."
    )
    caption = tables.verdict_table(own, state).caption
    assert "A run is solved if its test accuracy is at least 90 %." in caption
    assert looks.progress(study(solved=None), RUNS).verdicts[0].solved is None
    never_both = study_runs(add=[30.0] * 16, concat=[95.0] * 16)
    (v,) = looks.progress(own, never_both).verdicts
    assert tables.numbers(v, ACCURACY).endswith("Solved runs: 16 of concat, 0 of add.")


def test_captions_name_the_share_or_both_quantities():
    own = study("mean", "share")
    state = looks.progress(own, RUNS)
    assert tables.quantity(own) == "points of the share of solved runs"
    own.hypotheses[0].solved = None
    assert tables.quantity(own) == "points of test accuracy, or of the share of solved runs"
    own.hypotheses[1].outcome = "beyond"
    caption = tables.verdict_table(own, state).caption
    assert "if its test accuracy is at least 90 % beyond the trained length." in caption
    beyond = replace(state.verdicts[1], hypothesis=own.hypotheses[1])
    assert "Accuracy beyond the trained length where both are" in tables.numbers(beyond, ACCURACY)


def test_a_hypothesis_alone_may_be_about_solved_runs():
    own = study("mean", "share", solved=None)
    own.hypotheses[1].solved = 95.0
    mean, share = looks.progress(own, RUNS).verdicts
    assert mean.decision.mean == pytest.approx(np.mean(np.subtract([*CONCAT[:-1], 20], ADD)))
    assert share.decision.mean == 6.25
    both = study("mean", "share")
    both.hypotheses[1].solved = 95.0
    assert [h.solved for h in replace(both).hypotheses] == [90, 95]  # the study's is the default


def test_an_undecided_share_says_how_many_seeds_would_settle_it():
    """4 of 16 pairs are gained: planned for the measured mean and the upper limit of such pairs."""
    own = study()
    own.hypotheses[0].margin = 1.0
    runs = study_runs(add=[30.0] * 16, concat=[95.0] * 4 + [30.0] * 12)
    (v,) = looks.progress(own, runs).verdicts
    assert v.verdict == "undecided"
    as_measured, at_zero = v.seeds
    either = proportion_confint(4, 16, 0.4, method="beta")[1]
    a, b, chance = trinomial(int(as_measured), (either + 0.25) / 2, (either - 0.25) / 2)
    differs = stats.binom.sf(np.maximum(a, b) - 1, a + b, 0.5) <= 0.025
    assert chance[differs].sum() == pytest.approx(0.8, abs=0.04)
    assert 1_000 < at_zero < np.inf


def test_seeds_without_a_gained_or_lost_pair_promise_no_such_seeds():
    """By hand: none of 16 pairs has the upper 80 % limit 1 - 0.2^(1/16)."""
    own = Hypothesis("same", "t", "concat", "add", expects="equivalent", margin=15, solved=90.0)
    n, at_zero = map(int, looks.seeds_to_decide(own, [0.0] * 16, 0.05))
    assert n == at_zero
    either = 1 - 0.2 ** (1 / 16)
    a, b, chance = trinomial(n, either / 2, either / 2)
    _, equivalent = shares.shown(a, b, n, 15, 15, 0.025, 0.05)
    assert chance[equivalent].sum() == pytest.approx(0.8, abs=0.04)


@pytest.mark.parametrize(
    ("solved", "is_guessed", "by_mean"),
    [(20.0, True, False), (20.1, False, False), (None, False, True)],
)
def test_cautions_are_about_what_is_compared(solved, is_guessed, by_mean):
    """A threshold that guessing reaches, or two groups of runs."""
    own = study(solved=solved)
    state = looks.progress(own, RUNS)
    found = caveats.of_verdicts(plan_of(own), state, RUNS)["gain"]
    assert found.get(st.GUESSED) == (["concat", "add"] if is_guessed else None)
    assert (st.GROUPS in found) == by_mean
    assert results_page.hypotheses(state.verdicts, own).axes


def test_a_plan_shows_the_looks_that_can_decide_nothing():
    """At 0.05 an exact test needs six seeds."""
    own = study(testing=Evaluation(seeds="0-15", looks=[4, 16]))
    (line,) = (line for line in forecast.forecast(own, None) if "true difference 40" in line)
    assert "supported in 0 % by 4, " in line


CONTENT = {
    "question": "q", "solved": 90,
    "arms": {arm: {"fusion": arm} for arm in ("add", "concat", "mul")},
    "testing": {"seeds": "0-15", "looks": [16]},
    "hypotheses": [
        {"name": f"h{i}", "text": "t", "arm": arm, "than": "add", "expects": "greater"}
        for i, arm in enumerate(("concat", "mul"))
    ],
    "assumed": {"difference": 40, "spread": 60},
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"solved": None, "hypotheses__1__solved": True}, "solved: must be in percent (got 1)"),
        ({"metric": "bits_per_byte"}, "solved: bits_per_byte is not in percent; remove solved"),
        ({"hypotheses__1__than": ["add", "concat"]}, "hypotheses[1]: the exact test of solved runs "
         "compares two arms; name one in `arm` and one in `than`, without `minus`"),
        ({"hypotheses__0__than": ["add", "add"], "hypotheses__0__minus": ["add", "concat"]},
         "hypotheses[0]: the exact test of solved runs compares two arms"),
        ({"hypotheses__1__expects": "equivalent", "hypotheses__1__margin": 1e-4},
         "hypotheses[1]: 16 seeds cannot decide the hypothesis by solved runs with "
         "alpha=0.05, 2 in its family and margin=0.0001; no feasible number of seeds "
         "can; give a larger margin"),
        ({"assumed": {"difference": 100, "spread": 4}}, "assumed: differences of 100, 0 and"),
        ({"solved": None, "hypotheses__1__solved": 90, "assumed": {"difference": 2, "spread": 4}},
         "hypotheses[1].assumed: diff"),
        ({"hypotheses__1__assumed": {"difference": 2, "spread": 4}}, "hypotheses[1].assumed: diff"),
        ({"testing__looks": [6]},
         "hypotheses[0]: 6 seeds cannot decide the hypothesis by solved runs with alpha=0.05, "
         "2 in its family and margin=1; one look needs 7 or more"),
        ({"hypotheses__1__expects": "equivalent", "hypotheses__1__margin": 10},
         "hypotheses[1]: 16 seeds cannot decide the hypothesis by solved runs with "
         "alpha=0.05, 2 in its family and margin=10; one look needs 42 or more"),
        ({"assumed": {"difference": 2, "spread": 4}}, "assumed: differences of 100, 0 and -100 "
         "points with a mean of d=2 have a spread from √(d (100 - d)) to √(100² - d²) (got 4)"),
        ({"tuning": {"random": {"optim.lr": {"least": 0.1, "most": 1}}, "trials": 4,
                     "seeds": "100-101", "repeats": 2}, "testing__looks": [2],
          "assumed__between": 1},
         "solved: its tests compare seeds, but tuning.repeats compares repeats; remove one key"),
    ],
)  # fmt: skip
def test_what_cannot_be_decided_is_refused_in_one_line(changes, message, tmp_path):
    path = write_study(tmp_path / "mine.yaml", CONTENT, **changes)
    assert refusal(read_study, path).startswith(f"{path}: {message}")


def test_a_hypothesis_about_solved_runs_may_have_its_own_assumed(tmp_path):
    """Its power is that of a study of this kind alone, and so is that of the other hypothesis."""

    def power(**changes):
        changes["hypotheses__1__family"] = "second"
        _, own = read_study(write_study(tmp_path / "mine.yaml", CONTENT, **changes))
        return [line for line in forecast.forecast(own, None) if "true difference" in line]

    means = {"solved": None, "assumed": {"difference": 2, "spread": 4}}
    own = {"hypotheses__1__solved": 90, "hypotheses__1__assumed": CONTENT["assumed"]}
    assert power(**means, **own) == power(**means)[:2] + power()[2:]


def test_the_fewest_seeds_are_enough(tmp_path):
    _, own = read_study(write_study(tmp_path / "mine.yaml", CONTENT, testing__looks=[7]))
    assert [h.solved for h in own.hypotheses] == [90, 90]
    changes = {"hypotheses__1__expects": "equivalent", "hypotheses__1__margin": 10}
    testing = {"seeds": "0-41", "looks": [42]}
    assert read_study(write_study(tmp_path / "mine.yaml", CONTENT, testing=testing, **changes))
