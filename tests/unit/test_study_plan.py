"""What tuning chooses, and when a frozen plan is refused."""

from dataclasses import replace

import pandas as pd
import pytest

from posfuse.config import CONF_DIR
from posfuse.errors import InputError
from posfuse.runs import records
from posfuse.study.plan import PLAN, Choice, choose, finalists, freeze, load_plan, read_plan
from posfuse.study.spec import Assumed, Evaluation, Tuning
from study_runs import small_study

STUDY = small_study(tuning=Tuning(grid={"optim.lr": [1e-3, 3e-3, 1e-2]}, seeds=[100, 101]))
CONFIGS = {"add": "f0", "concat": "f1"}
CHOICES = {"add": Choice({"optim.lr": 0.003}, 60.0), "concat": Choice({"optim.lr": 0.01}, 61.0)}


def tuned(scores, seeds=(100, 101), trials=("t00", "t01", "t02"), best=2):
    """Runs of each trial; `scores` has the validation accuracies of add, then concat, in percent by
    trial and seed. None is a run that diverged."""
    return pd.DataFrame([
        {"arm": arm, "trial": trial, "seed": seed, "diverged": value is None,
         "validation_accuracy": value, "test_accuracy": value and 100 - value,
         "best_evaluation": best, "evaluations": 3, "classes": 2}
        for arm, rows in zip(("add", "concat"), scores, strict=True)
        for trial, row in zip(trials, rows, strict=True)
        for seed, value in zip(seeds, row, strict=True)
    ])  # fmt: skip


def test_the_mean_validation_accuracy_over_the_tuning_seeds_chooses():
    """The test accuracies are the other way round, so they cannot have chosen."""
    scores = [[(50, 50), (90, 20), (60, 40)], [(50, 50), (50, 50), (70, 70)]]
    found = choose(STUDY, tuned(scores))
    assert {arm: choice.values for arm, choice in found.items()} == {
        "add": {"optim.lr": 3e-3}, "concat": {"optim.lr": 1e-2}
    }  # fmt: skip
    assert found["add"].validation == pytest.approx(55)
    assert found["add"].scores == pytest.approx([50, 55, 50])
    assert (found["add"].edges, found["concat"].edges) == ([], ["optim.lr"])


def test_the_first_of_equal_trials_is_chosen_and_one_that_diverged_is_not():
    scores = [[(50, 50), (50, 50), (40, 40)], [(90, None), (30, 30), (20, 20)]]
    found = choose(STUDY, tuned(scores))
    assert found["add"].values == {"optim.lr": 1e-3}
    assert found["concat"].values == {"optim.lr": 3e-3}
    assert found["concat"].scores == pytest.approx([70, 30, 20])  # 90 and chance, 50
    nothing = [[(50, 50)] * 3, [(None, 50)] * 3]
    with pytest.raises(InputError, match=r"arms\.concat: every trial diverged; lower"):
        choose(STUDY, tuned(nothing))


def test_the_fewest_bits_per_byte_choose():
    """By hand for add: means of 2.5, 2.4 and 2.2. Guessing takes 8 bits."""
    bits = [[(2.5, 2.5), (2.6, 2.2), (2.2, 2.2)], [(2.1, None), (2.4, 2.4), (2.5, 2.5)]]
    runs = tuned(bits).rename(columns={"validation_accuracy": "validation_bits_per_byte"})
    found = choose(replace(STUDY, metric="bits_per_byte"), runs)
    assert found["add"].values == {"optim.lr": 1e-2}
    assert found["add"].scores == pytest.approx([2.5, 2.4, 2.2])
    assert found["concat"].values == {"optim.lr": 3e-3}
    assert found["concat"].scores == pytest.approx([(2.1 + 8) / 2, 2.4, 2.5])


def test_final_seeds_alone_choose_among_the_finalists():
    """The first trial is best on the tuning seeds, the third on the final ones."""
    tuning = replace(STUDY.tuning, finalists=2, final_seeds="102-103")
    study = replace(STUDY, tuning=tuning)
    runs = tuned([[(90, 90), (20, 20), (80, 80)]] * 2)
    assert finalists(study, runs) == {"add": ["t00", "t02"], "concat": ["t00", "t02"]}
    scores = [[(40, 50), (60, 50)], [(90, None), (30, 20)]]
    finals = tuned(scores, (102, 103), ("t00", "t02"), best=3)
    found = choose(study, pd.concat([runs, finals]))
    assert found["add"].values == found["concat"].values == {"optim.lr": 1e-2}
    assert (found["add"].validation, found["concat"].validation) == pytest.approx((55, 25))
    assert found["add"].scores == pytest.approx([90, 20, 80])
    assert found["add"].last == 1.0  # of the final seeds alone


def test_a_trial_that_diverged_is_no_finalist():
    study = replace(STUDY, tuning=replace(STUDY.tuning, finalists=2, final_seeds=[102]))
    scores = [[(90, None), (50, 50), (50, 50)], [(90, None), (None, 90), (50, 50)]]
    assert finalists(study, tuned(scores)) == {"add": ["t01", "t02"], "concat": ["t02"]}


def test_a_frozen_plan_is_read_back(tmp_path):
    plan = freeze(STUDY, CHOICES, CONFIGS, tmp_path)
    assert read_plan(STUDY, tmp_path, has_tested=True) == plan
    assert plan.arms()["concat"] == {"fusion": "concat", "optim.lr": 0.01}
    assert len(plan.digest) == 64
    assert (tmp_path / PLAN).read_text().count("assumed") == 1  # as of earlier versions


def test_any_change_gives_another_digest(tmp_path):
    digests = {
        freeze(study, choices, configs, tmp_path).digest
        for study, choices, configs in (
            (STUDY, CHOICES, CONFIGS),
            (STUDY, CHOICES | {"add": Choice({"optim.lr": 0.001}, 60.0)}, CONFIGS),
            (replace(STUDY, testing=Evaluation(seeds="0-8", looks=[4, 8])), CHOICES, CONFIGS),
            (replace(STUDY, hypotheses=[replace(STUDY.hypotheses[0], margin=2.0)]), CHOICES,
             CONFIGS),
            (STUDY, CHOICES, CONFIGS | {"add": "f2"}),
            (replace(STUDY, hypotheses=[replace(STUDY.hypotheses[0], assumed=Assumed(1, 1))]),
             CHOICES, CONFIGS),
        )
    }  # fmt: skip
    assert len(digests) == 6


def test_the_time_of_a_plan_is_part_of_its_digest(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "now", lambda: "2026-11-25T12:00:00+00:00")
    plan = freeze(STUDY, CHOICES, CONFIGS, tmp_path)
    assert plan.frozen == "2026-11-25T12:00:00+00:00"
    text = (tmp_path / PLAN).read_text()
    (tmp_path / PLAN).write_text(text.replace("T12:00", "T11:00"))
    for has_tested in (False, True):
        with pytest.raises(InputError, match=r"plan.yaml: was edited: its digest does not fit"):
            read_plan(STUDY, tmp_path, has_tested)
    monkeypatch.setattr(records, "now", lambda: "2026-11-25T13:00:00+00:00")
    assert freeze(STUDY, CHOICES, CONFIGS, tmp_path).digest != plan.digest


def test_committed_plans_are_whole_also_those_of_an_earlier_version_without_a_time():
    docs = CONF_DIR.parent / "docs"
    plans = {path.parent.name: load_plan(path)[0] for path in docs.glob("**/plan.yaml")}
    for path in docs.glob("**/plan.yaml"):
        plan = plans[path.parent.name]
        assert read_plan(plan.study, path.parent, has_tested=True) == plan
    assert plans["own_best"].frozen == ""
    assert plans["example-study"].frozen > "2026-11-25"


def test_the_search_path_of_a_study_is_no_part_of_its_plan(tmp_path):
    plan = freeze(STUDY, CHOICES, CONFIGS, tmp_path)
    moved = replace(STUDY, searchpath=["/elsewhere"])
    assert read_plan(moved, tmp_path, has_tested=True) == replace(plan, study=moved)
    assert "searchpath" not in (tmp_path / PLAN).read_text()


def test_a_study_that_was_changed_is_refused_once_a_test_seed_ran(tmp_path):
    freeze(STUDY, CHOICES, CONFIGS, tmp_path)
    changed = replace(STUDY, testing=Evaluation(seeds="0-9", looks=[4, 10]))
    assert read_plan(changed, tmp_path, has_tested=False) is None
    with pytest.raises(InputError, match=r"changed after test seeds ran \(testing\); restore"):
        read_plan(changed, tmp_path, has_tested=True)


def test_a_plan_that_is_lost_or_damaged_is_refused(tmp_path):
    assert read_plan(STUDY, tmp_path, has_tested=False) is None
    with pytest.raises(InputError, match=r"plan.yaml: missing, but test seeds ran"):
        read_plan(STUDY, tmp_path, has_tested=True)
    for damage in ("", "a: [", "1", "digest: x", "digest: x\n1: 2\na: 3", "choices: 3"):
        (tmp_path / PLAN).write_text(damage)
        with pytest.raises(InputError, match=r"plan.yaml: contains no plan \(.*\); restore it"):
            read_plan(STUDY, tmp_path, has_tested=True)
