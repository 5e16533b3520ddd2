"""What tuning chooses, and when a frozen plan is refused."""

import re
import sys
from dataclasses import replace

import pandas as pd
import pytest

from posfuse.config import CONF_DIR
from posfuse.runs import identity, records
from posfuse.study import plan as plans
from posfuse.study.plan import PLAN, Choice, choose, finalists, freeze, load_plan, read_plan
from posfuse.study.spec import Assumed, Evaluation, Tuning
from posfuse.study.stages import Stages
from refusals import refusal
from small_runs import OWN_OPERATOR
from study_runs import small_study

LRS = [1e-3, 3e-3, 1e-2]
STUDY = small_study(tuning=Tuning(grid={"optim.lr": LRS}, seeds=[100, 101]))
VALUES = {f"{arm}.{t}": own for arm in STUDY.arms for t, own in STUDY.trials().items()}
CONFIGS = {"add": "f0", "concat": "f1"}
CHOICES = {"add": Choice({"optim.lr": 0.003}, 60.0), "concat": Choice({"optim.lr": 0.01}, 61.0)}


def tuned(scores, seeds=(100, 101), trials=("t00", "t01", "t02"), best=2, metric="accuracy"):
    """Runs of each trial; `scores` has the validation results of add, then concat, by trial and
    seed. None is a run that diverged."""
    return pd.DataFrame([
        {"arm": arm, "trial": trial, "seed": seed, "diverged": value is None,
         f"validation_{metric}": value, f"test_{metric}": value and -value,
         "best_evaluation": best, "evaluations": 3, "classes": 2}
        for arm, rows in zip(("add", "concat"), scores, strict=True)
        for trial, row in zip(trials, rows, strict=True)
        for seed, value in zip(seeds, row, strict=True)
    ])  # fmt: skip


@pytest.mark.parametrize(
    ("metric", "scores", "chosen", "means"),
    [
        ("accuracy", [[(55, 55), (90, 20), (20, 20)], [(90, None), (60, 20), (30, 30)]],
         (0, 1), [[55, 55, 20], [(90 + 50) / 2, 40, 30]]),
        ("bits_per_byte", [[(2.5, 2.5), (2.6, 2.2), (2.2, 2.2)], [(2.1, None), (2.4, 2.4), (3, 2)]],
         (2, 1), [[2.5, 2.4, 2.2], [(2.1 + 8) / 2, 2.4, 2.5]]),
    ],
)  # fmt: skip
def test_the_best_mean_of_validation_over_the_tuning_seeds_chooses(metric, scores, chosen, means):
    """Of equal trials the first, and none with a run that diverged, which counts as guessing. The
    test results are the other way round."""
    found = choose(replace(STUDY, metric=metric), VALUES, tuned(scores, metric=metric)).values()
    for choice, trial, own in zip(found, chosen, means, strict=True):
        assert choice.values == {"optim.lr": LRS[trial]}
        assert (choice.validation, *choice.scores) == pytest.approx((own[trial], *own))
    assert [choice.edges for choice in found] == [["optim.lr"], []]


@pytest.mark.parametrize(
    ("tried", "ends"), [([1, "1/8", 4], [4, "1/8"]), ([1, 4, "sqrt_d"], []), (["adam", "sgd"], [])]
)
def test_an_edge_is_the_smallest_or_largest_number_if_all_are_known(tried, ends):
    trials = {f"t{i}": {"key": value} for i, value in enumerate(tried)}
    assert {v for v in tried if plans.is_edge(trials, "key", v)} == set(ends)


def test_final_seeds_alone_choose_among_the_finalists():
    """The first trial is best on the tuning seeds, the third on the final ones."""
    tuning = replace(STUDY.tuning, finalists=2, final_seeds="102-103")
    study = replace(STUDY, tuning=tuning)
    runs = tuned([[(90, 90), (20, 20), (80, 80)]] * 2)
    assert finalists(study, runs) == ["add.t00", "add.t02", "concat.t00", "concat.t02"]
    scores = [[(40, 50), (60, 50)], [(90, None), (30, 20)]]
    finals = tuned(scores, (102, 103), ("t00", "t02"), best=3)
    found = choose(study, VALUES, pd.concat([runs, finals]))
    assert found["add"].values == found["concat"].values == {"optim.lr": 1e-2}
    assert (found["add"].validation, found["concat"].validation) == pytest.approx((55, 25))
    assert found["add"].scores == pytest.approx([90, 20, 80])
    assert found["add"].last == 1.0  # of the final seeds alone
    # A run of an earlier finalist, which is none any more.
    earlier = tuned([[(99, 99)]] * 2, (102, 103), ("t01",), best=3)
    again = choose(study, VALUES, pd.concat([runs, finals, earlier]))
    assert again["add"].values == found["add"].values


def test_a_trial_that_diverged_is_no_finalist():
    study = replace(STUDY, tuning=replace(STUDY.tuning, finalists=2, final_seeds=[102]))
    scores = [[(90, None), (50, 50), (50, 50)], [(90, None), (None, 90), (50, 50)]]
    assert finalists(study, tuned(scores)) == ["add.t01", "add.t02", "concat.t02"]
    nothing = tuned([[(50, 50)] * 3, [(None, 50)] * 3])
    line = refusal(choose, STUDY, VALUES, nothing)
    assert line == "arms.concat: every trial diverged; lower optim.lr in tuning"


def test_a_frozen_plan_is_read_back_with_any_search_path(tmp_path):
    plan = freeze(STUDY, CHOICES, CONFIGS, tmp_path)
    moved = replace(STUDY, searchpath=["/elsewhere"])
    assert read_plan(moved, tmp_path, has_tested=True) == replace(plan, study=moved)
    assert plan.arms()["concat"] == {"fusion": "concat", "optim.lr": 0.01}
    assert len(plan.digest) == 64


def test_any_change_and_the_time_give_another_digest(tmp_path, monkeypatch):
    def digest(choices=CHOICES, configs=CONFIGS, hour=12, **of_hypothesis):
        monkeypatch.setattr(records, "now", lambda: f"2026-11-25T{hour}:00:00+00:00")
        hypotheses = [replace(STUDY.hypotheses[0], **of_hypothesis)]
        return freeze(replace(STUDY, hypotheses=hypotheses), choices, configs, tmp_path).digest

    others = [
        digest(choices=CHOICES | {"add": Choice({"optim.lr": 0.001}, 60.0)}),
        digest(margin=2.0),
        digest(configs=CONFIGS | {"add": "f2"}),
        digest(assumed=Assumed(1, 1)),
        digest(hour=13),
    ]
    first = digest()
    assert digest() == first
    assert len({first, *others}) == 6


def test_committed_plans_are_whole_also_those_of_an_earlier_version_without_a_time():
    plans = {}
    for path in (CONF_DIR.parent / "docs").glob("**/plan.yaml"):
        plan = load_plan(path)
        assert read_plan(plan.study, path.parent, has_tested=True) == plan
        plans[path.parent.name] = plan
    assert plans["own_best"].frozen == ""
    assert plans["example-study"].frozen > "2026-11-25"


@pytest.mark.parametrize(
    ("seeds", "numerics", "message"),
    [
        ("0-9", 0, "the study was changed after test seeds ran (testing); restore"),
        ("0-7", 1, "frozen by a version of posfuse with other numbers"),
    ],
)
def test_a_changed_study_or_version_is_refused_once_a_test_seed_ran(
    seeds, numerics, message, tmp_path, monkeypatch
):
    freeze(STUDY, CHOICES, CONFIGS, tmp_path)
    now = replace(STUDY, testing=Evaluation(seeds=seeds, looks=[4, 8]))
    monkeypatch.setattr(identity, "NUMERICS", identity.NUMERICS + numerics)
    assert read_plan(now, tmp_path, has_tested=False) is None
    assert f"plan.yaml: {message}" in refusal(read_plan, now, tmp_path, has_tested=True)


def test_a_plan_that_is_lost_damaged_or_edited_is_refused(tmp_path):
    path = tmp_path / PLAN
    assert read_plan(STUDY, tmp_path, has_tested=False) is None
    lost = f"{path}: missing, but test seeds ran; restore it from a copy, or rename the study"
    assert refusal(read_plan, STUDY, tmp_path, has_tested=True) == lost
    damages = dict.fromkeys(("", "a: [", "1", "digest: x", "digest: x\n1: 2", "choices: 3"), "")
    for damage, reason in {**damages, "digest: x\na: &a [1]\nb: *a": "has an alias "}.items():
        path.write_text(damage)
        line = refusal(read_plan, STUDY, tmp_path, has_tested=True)
        assert re.match(rf"{path}: contains no plan \({reason}.*\); restore it", line)
    path.unlink()
    plan = freeze(STUDY, CHOICES, CONFIGS, tmp_path)
    path.write_text(path.read_text().replace(plan.frozen, "2026-11-25T11:00:00+00:00"))
    line = refusal(read_plan, STUDY, tmp_path, has_tested=False)
    assert line.startswith(f"{path}: was edited: its digest does not match")


def test_changed_code_of_ones_own_needs_a_new_plan_and_is_refused_after_a_test_run(
    tmp_path, monkeypatch, own_module
):
    """Before a run of other seeds, whose results would not count."""
    monkeypatch.chdir(tmp_path)
    code = own_module("planned_operator", OWN_OPERATOR)
    own = {"fusion.name": "mine", "fusion._target_": "planned_operator.Mine"}
    study, said = small_study(arms={"add": {"fusion": "add"}, "mine": own}), []
    stages = Stages("mine", replace(study, settings={"data": "parity"}), [], said.append)
    plan = stages.freeze()
    assert [*plan.code] == ["mine"]
    assert (stages.freeze(), load_plan(stages.plan_file)) == (plan, plan)
    code.write_text(f"{code.read_text()}    # changed\n")
    del sys.modules["planned_operator"]  # as in another process
    renewed = stages.freeze()
    assert any("own code or posfuse; a new plan replaces it" in line for line in said)
    assert {**renewed.code} != plan.code
    (run := tmp_path / "multirun/mine_test/parity/none/mine/seed=0").mkdir(parents=True)
    (run / "config.yaml").touch()
    assert stages.freeze() == renewed
    code.write_text(OWN_OPERATOR)
    del sys.modules["planned_operator"]
    line = f"{stages.plan_file}: your own code of mine was changed after test seeds ran; restore"
    assert refusal(stages.freeze).startswith(line)
    path = stages.plan_file  # of an earlier version, which did not record the code
    freeze(stages.study, plan.choices, plan.configs, path.parent)
    assert stages.freeze().code == {}
