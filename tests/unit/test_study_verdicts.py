"""From the records of a study's test runs to verdicts and to the runs of the next look."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.stats.power import TTestPower

from posfuse.evidence.metric import ACCURACY, BITS_PER_BYTE, EXACT_MATCH, MACRO_F1
from posfuse.statistics.comparisons import seeds_for_equivalence
from posfuse.study import arm_figures, results_by_arm, results_page, tables
from posfuse.study.looks import deltas, progress, seeds_to_decide
from posfuse.study.plan import Choice
from posfuse.study.scores import outcomes, resolution
from posfuse.study.spec import Hypothesis, Tuning
from posfuse.study.stages import Stages
from study_runs import plan_of, small_study, study_runs

ARMS = ["add", "concat", "add_none", "concat_none"]
GAIN = Hypothesis("gain", "t", "concat", "add", expects="greater", margin=1.0)
PART = Hypothesis(
    "position", "t", "concat", "add", "greater", ["concat_none", "add_none"], 1.0, "secondary"
)
STUDY = small_study("add_none", "concat_none", hypotheses=[GAIN, PART])


def test_a_placebos_difference_is_subtracted_seed_by_seed():
    """By hand: (70 - 60) - (55 - 50) = 5 and (71 - 60) - (54 - 52) = 9. Then the four accuracies
    cancel; in floating point 0.3 - 0.2 is not 0.2 - 0.1."""
    runs = study_runs(add=[60, 60, 0.1, 0.2], concat=[70, 71, 0.2, 0.3],
                      add_none=[50, 52, 0.2, 0.1], concat_none=[55, 54, 0.3, 0.2])  # fmt: skip
    assert deltas(PART, outcomes(runs), [0, 1, 2, 3]) == [5, 9, 0, 0]


def test_each_look_gives_the_verdicts_so_far(monkeypatch):
    noisy = [70.0, 50.0, 65.0, 55.0, 71.0, 49.0, 66.0, 54.0]
    every = study_runs(add=[60] * 8, concat=noisy, add_none=[60] * 8, concat_none=noisy[::-1])
    done = []

    class Tests:
        def run(self, arms, seeds, extra):
            done.append(every[every["arm"].isin(arms) & every["seed"].isin(seeds)])

    plan = plan_of(STUDY)
    monkeypatch.setattr(Stages, "freeze", lambda self: plan)
    monkeypatch.setattr(Stages, "test_runs", lambda *_: done[-1] if done else study_runs())
    monkeypatch.setattr(Stages, "testing_sweeps", lambda *_: {"": Tests()})
    stages = Stages("mine", STUDY, [])
    shown = [(of, len(done[-1]), state.next_look) for of, state in stages.run()]
    assert shown == [(plan, 16, 8), (plan, 32, 0)]
    assert [state.is_finished for _, state in stages.run()] == [True]  # once, if all are made
    assert len(done) == 2


def test_the_figure_of_hypotheses_has_a_block_for_each_family_and_a_mark_for_each_seed():
    """By hand: the differences of the first hypothesis are 15 points and the noise."""
    noise = [0, 1, 2, 1, 0, 2, 1, 1]
    runs = study_runs(add=[60] * 8, concat=[75 + x for x in noise], add_none=[50] * 8,
                      concat_none=[55 + x for x in noise[::-1]])  # fmt: skip
    state = progress(STUDY, runs)
    blocks = results_page.hypotheses(state.verdicts, STUDY).axes
    assert [axis.get_title(loc="left") for axis in blocks] == ["primary", "secondary"]
    (label,) = blocks[0].get_yticklabels()
    assert label.get_text() == "gain supported"
    marks = [line for line in blocks[0].lines if line.get_marker() == "|"]
    first = state.verdicts[0]  # decided by the first look; the other seeds ran for the second one
    assert (first.decision.n, first.counted) == (4, "8, decided at 4")
    assert [mark.get_xdata().item() for mark in marks] == [15 + x for x in noise]
    assert marks[2].get_gid() == "title:primary gain supported seed=2: +17.00"
    (text,) = blocks[0].texts
    assert text.get_text().startswith("+16.00 [")
    assert text.get_text().endswith("n=8, decided at 4")
    assert tables.answer(first, ACCURACY).difference.startswith("+16.0 (")
    beyond = replace(STUDY, hypotheses=[GAIN, replace(PART, outcome="beyond")])
    caption = results_page.hypotheses(state.verdicts, beyond).get_suptitle()
    assert ", or of its mean beyond the trained length;" in " ".join(caption.split())


def test_each_arm_has_the_chance_and_the_resolution_of_its_own_corpus():
    runs = study_runs(add=[60, 61, None], concat=[70, None], mul=[None])
    runs.loc[runs["arm"] == "add", "classes"] = [2, 2, np.nan]
    runs.loc[~runs["diverged"], "test_documents"] = [400, 200, 1000]
    found = outcomes(runs)
    assert (found["add"][2], found["concat"][1], found["mul"][0]) == (50, 20, 20)
    assert resolution(runs, ["add", "concat"]) == 0.5
    assert resolution(runs, ["concat"]) == 0.1
    assert np.isnan(resolution(runs, ["mul"]))
    assert resolution(runs, ["concat"], EXACT_MATCH) == 0.1
    for metric in (MACRO_F1, BITS_PER_BYTE):  # are no fractions of documents
        assert np.isnan(resolution(runs, ["concat"], metric))


@pytest.mark.parametrize(
    ("metric", "guess", "words"),
    [("accuracy", 20, "chance"), ("macro_f1", 20, "chance"), ("exact_match", 0, "0 %"),
     ("bits_per_byte", 8, "8 bits per byte")],
)  # fmt: skip
def test_the_table_of_arms_says_what_a_run_that_diverged_counts_as(metric, guess, words):
    runs = study_runs(metric, best=2, add=[2.0, 2.0], concat=[2.0, None])
    study = small_study(metric=metric)
    table = results_by_arm.arms_table(plan_of(study), runs)
    assert f"A run that diverged counts as {words}. " in table.caption
    assert [row[-2:] for row in table.rows] == [["0", "100 % *"], ["1", "100 % *"]]
    assert outcomes(runs, study.measured)["concat"][1] == guess


def sample_of(mean, std, n=8):
    """n differences (n even) with exactly this mean and standard deviation."""
    return list(mean + np.tile([std, -std], n // 2) * np.sqrt((n - 1) / n))


def test_a_hypothesis_that_the_last_look_leaves_undecided_says_how_many_seeds_would_settle_it():
    """A mean of 1 and a standard deviation of 4 over 8 seeds, whose limit is 4 sqrt(7 / 3.822)."""
    runs = study_runs(add=[50.0] * 8, concat=50 + np.array(sample_of(1, 4)))
    (gain,) = progress(replace(STUDY, hypotheses=[GAIN]), runs).verdicts
    assert (gain.verdict, gain.decision.n) == ("undecided", 8)
    as_measured, at_zero = gain.seeds
    limit = 4 * np.sqrt(7 / stats.chi2.ppf(0.2, 7))
    assert at_zero == seeds_for_equivalence(limit, 1.0, 0.0, 0.05)
    # The true mean is the margin, so 5 % of studies show equivalence; the others a difference.
    assert 0.74 < TTestPower().power(1 / limit, as_measured, 0.05) < 0.8
    assert (as_measured, at_zero) == (206, 253)


def test_a_measured_difference_of_the_margin_settles_no_equivalence():
    equal = replace(GAIN, expects="equivalent", margin=2.0)
    assert seeds_to_decide(equal, sample_of(2.0, 4.0), 0.05)[0] == np.inf


def test_equal_differences_have_the_spread_of_one_document():
    """By hand: one of 200 documents is 0.5 points, over 8 seeds. Without the number of documents
    there is no spread, and nothing is planned."""
    assert np.isnan(seeds_to_decide(GAIN, [0.3] * 8, 0.05)).all()
    limit = 0.5 * np.sqrt(7 / stats.chi2.ppf(0.2, 7))
    expected = seeds_for_equivalence(limit, 1.0, 0.0, 0.05)
    assert seeds_to_decide(GAIN, [0.3] * 8, 0.05, resolution=0.5)[1] == expected
    runs = study_runs(add=[50.0] * 8, concat=[60.0] * 8).assign(test_documents=200)
    (v,) = progress(replace(STUDY, hypotheses=[GAIN]), runs).verdicts
    assert (v.decision.n, v.all_seeds.n) == (4, 8)
    half = 0.5 / np.sqrt(8) * stats.t.isf(0.025, 7)
    assert (v.all_seeds.low, v.all_seeds.high) == pytest.approx((10 - half, 10 + half))


def test_a_look_needs_the_arms_of_hypotheses_that_are_not_decided():
    """The gain is clear at once; the position's part is noise, so its four arms continue."""
    state = progress(STUDY, study_runs())
    assert (state.next_arms, state.next_look, state.is_finished) == (ARMS, 4, False)
    assert [(v.verdict, v.seeds) for v in state.verdicts] == [("undecided", None)] * 2
    noise = np.array([0.0, 8, -9, 3])
    runs = study_runs(
        add=[50] * 4, concat=[70, 70.1, 69.9, 70], add_none=[40] * 4, concat_none=60 + noise
    )
    state = progress(STUDY, runs)
    assert [v.verdict for v in state.verdicts] == ["supported", "undecided"]
    assert state.looks == {"primary": 1, "secondary": 1}
    assert (state.next_arms, state.next_look) == (ARMS, 8)
    assert progress(replace(STUDY, hypotheses=[GAIN]), runs).is_finished


@pytest.mark.parametrize(
    ("expects", "verdicts"),
    [
        ("greater", ["supported", "refuted", "equivalent", "supported"]),
        ("less", ["refuted", "supported", "equivalent", "refuted"]),
        ("equivalent", ["refuted", "refuted", "supported", "supported"]),
    ],
)
def test_verdicts(expects, verdicts):
    """The last shift is a difference, but within the margin."""
    h = Hypothesis("h", "t", "concat", "add", expects=expects, margin=1.0)
    for shift, verdict in zip((20, -20, 0, 0.5), verdicts, strict=True):
        noise = 0.02 * np.array([1, -1, 2, -2])
        runs = study_runs(add=[50] * 4, concat=50 + shift + noise)
        state = progress(replace(STUDY, hypotheses=[h]), runs)
        assert [v.verdict for v in state.verdicts] == [verdict]


def test_expected_results_by_budget_are_for_trials_that_are_random_draws():
    plan = plan_of(STUDY, a=Choice({}, 3.0, [], [1.0, 2.0, 6.0]))
    rows = results_by_arm.budget_table(plan).rows
    assert rows == [["a", "3.00", "4.67", "6.00"]]  # the second is the mean of 2, 6 and 6
    searched = replace(STUDY, tuning=Tuning(method="tpe"))
    assert results_by_arm.budget_table(replace(plan, study=searched)) is None


def test_a_corpus_and_an_operator_of_the_base_are_those_of_the_runs():
    """The study's file names neither; a run that diverged has none."""
    arms = {"a": {"model.token_scale": 1}, "b": {"model.token_scale": 4}, "c": {"fusion": "concat"}}
    study = replace(STUDY, base="mine", arms=arms, settings={})
    runs = pd.DataFrame({"arm": [*"abca"], "norm_ratio": 1.0, "seed": 7, "test_accuracy": 50.0})
    runs = runs.assign(stage="testing", data="parity", fusion=["gate_cnn"] * 3 + [np.nan])
    (axis,) = arm_figures.ratios(runs, study).axes
    labels = [text.get_text() for text in axis.get_legend().get_texts()]
    assert labels == ["gate_cnn", "concat"]
    bags = runs.assign(bag_of_words=50.0, bag_with_ends=70.0)
    assert results_by_arm.bags_table(study, bags).rows == [["parity", "50.00", "70.00"]]


def test_accuracy_by_test_length_as_lines():
    """Tests at 20, the trained length, and at 40 symbols. A run that diverged is left out."""
    arms = {"add": {"fusion": "add"}, "tupe": {"fusion": "none", "encoding": "tupe"}}
    arms |= {"other": {"fusion": "add", "data": "even_pairs"}}
    study = replace(STUDY, arms=arms, settings={"data": "parity"})
    runs = study_runs(add=[80, 90], tupe=[70, None]).assign(max_len=20)
    runs["test_accuracy_at_20"] = [80, 90, 70, np.nan]
    runs["test_accuracy_at_40"] = [60, 50, 40, np.nan]
    (axis,) = arm_figures.lengths(runs, study).axes
    lines = [line.get_xydata().tolist() for line in axis.lines if len(line.get_xdata()) == 2]
    assert [[20, 85], [40, 55]] in lines
    assert [[20, 70], [40, 40]] in lines
    assert {text.get_text() for text in axis.texts} == {"add", "none encoding=tupe"}


def test_the_figure_of_ratios_has_one_mark_per_run():
    runs = pd.DataFrame({"arm": [*"aabc"], "norm_ratio": [1.0, 2, 3, 4], "seed": 7})
    runs = runs.assign(stage=["tuning", *["testing"] * 3], test_accuracy=[40, 50, 60, 70])
    arms = {"a": {"fusion": "add"}, "b": {"fusion": "concat", "model.fused_norm": "layer"}}
    arms["c"] = {"fusion": "add", "model.token_scale": 4}
    (axis,) = arm_figures.ratios(runs, replace(STUDY, arms=arms)).axes
    drawn = sorted((x, y) for line in axis.lines for x, y in zip(*line.get_data(), strict=True))
    assert drawn == [(1.0, 40), (2.0, 50), (3.0, 60), (4.0, 70)]
    labels = [text.get_text() for text in axis.get_legend().get_texts()]
    assert labels == ["add", "concat fused_norm=layer"]
    hollow = [line.get_markerfacecolor() == "none" for line in axis.lines if len(line.get_xdata())]
    assert hollow == [False, False, False, True]
    assert axis.lines[0].get_gid() == "title:a seed=7: 40.00"
    arms = {"a": {}, "b": {"fusion": "add"}, "c": {"data": "parity"}}
    settings = {"fusion": "concat", "data": "listops", "model.fused_norm": "layer"}
    axes = arm_figures.ratios(runs, replace(STUDY, arms=arms, settings=settings)).axes
    shown = [[text.get_text() for text in axis.get_legend().get_texts()] for axis in axes]
    assert shown == [["concat", "add"], ["concat"]]
    assert [axis.get_title(loc="left") for axis in axes] == ["listops", "parity"]
