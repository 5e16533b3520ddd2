"""Repeated tuning: its parts, its seeds, and verdicts over the means of repeats."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from posfuse.statistics.nested import components
from posfuse.study import forecast, results_by_arm, results_page
from posfuse.study.looks import progress
from posfuse.study.plan import PLAN, Choice, freeze, load_plan
from posfuse.study.reading import read_study
from posfuse.study.repeats import FAR, parts_of, unit_of
from posfuse.study.spec import NULL_ARM, Assumed, Evaluation, Range, Tuning
from posfuse.study.stages import Stages, runs_of
from refusals import refusal
from study_runs import GOOD, small_study, study_runs, write_study

RANDOM = {"optim.lr": Range(0.001, 0.01), "model.token_scale": Range(0.1, 10.0)}
CONTENT = GOOD | {
    "tuning": {
        "random": {"optim.lr": {"least": 0.001, "most": 0.01}}, "trials": 4, "seeds": "100-102",
        "finalists": 2, "final_seeds": "200-205", "repeats": 3, "null_arm": "add",
    },
    "testing": {"seeds": "0-5", "looks": [2, 3]},
    "hypotheses": GOOD["hypotheses"][:1],
    "assumed": {"difference": 3, "spread": 2, "between": 1},
}  # fmt: skip


def study(**tuning):
    own = Tuning(**CONTENT["tuning"] | {"random": RANDOM, **tuning})
    testing, assumed = Evaluation(**CONTENT["testing"]), Assumed(**CONTENT["assumed"])
    return small_study(tuning=own, testing=testing, assumed=assumed)


RUNS = study_runs(
    add=[50, 52, 54, 54, 50, 56],
    concat=[60, 64, 60, 66, 61, 61],
    null_arm={FAR + i: value for i, value in enumerate([51, 53, 50, 54, 52, 52])},
)


def test_each_repeat_has_trials_and_seeds_of_its_own():
    parts = parts_of(study())
    assert list(parts) == ["r1", "r1_null", "r2", "r2_null", "r3", "r3_null"]
    second, null = parts["r2"], parts["r2_null"]
    assert (list(second.arms), list(null.arms)) == (["add", "concat"], [NULL_ARM])
    seeds = [second.tuning_seeds, second.final_seeds, second.test_seeds]
    assert seeds == [[101], [202, 203], [2, 3]]
    assert [null.tuning_seeds, null.final_seeds, null.test_seeds] == [
        [FAR + s for s in own] for own in seeds
    ]
    assert second.trials() == null.trials() != parts["r1"].trials()  # one repeat, one set of trials
    every = [s for own in parts.values() for s in (*own.tuning_seeds, *own.final_seeds)]
    every += [s for own in parts.values() for s in own.test_seeds]
    assert len(set(every)) == len(every)
    assert parts_of(study(repeats=1, null_arm=""))[""].trials() == parts["r1"].trials()


def test_verdicts_are_about_the_means_of_repeats():
    """By hand: repeat 1 has (60 + 64) / 2 - (50 + 52) / 2 = 11 points."""
    gain, null = progress(study(), RUNS).verdicts
    assert (gain.differences, null.differences) == ([11, 9, 8], [1, -2, -1])
    assert (gain.verdict, gain.decision.n) == ("supported", 3)
    null = null.hypothesis
    assert (null.name, null.family, null.expects) == (NULL_ARM, "control", "equivalent")


def test_a_repeat_that_lacks_a_seed_is_not_judged():
    state = progress(study(), RUNS.query("arm != 'concat' or seed != 5"))
    assert [v.decision.n for v in state.verdicts] == [2, 3]
    assert state.next_look == 3


def test_the_runs_of_a_look_are_those_of_its_repeats():
    own = study()
    assert runs_of(own, ["concat", NULL_ARM], 2) == {
        "r1": (["concat"], [0, 1]), "r1_null": ([NULL_ARM], [FAR, FAR + 1]),
        "r2": (["concat"], [2, 3]), "r2_null": ([NULL_ARM], [FAR + 2, FAR + 3]),
    }  # fmt: skip
    assert [seed for seed, unit in unit_of(own).items() if unit == 3] == [4, 5, FAR + 4, FAR + 5]
    plain = study(repeats=1, null_arm="")
    assert runs_of(plain, ["concat"], 2) == {"": (["concat"], [0, 1])}


def frozen(tmp_path):
    own = study()
    choices, configs = {}, {}
    for i, (part, of_part) in enumerate(parts_of(own).items()):
        for arm in of_part.arms:
            values = {"optim.lr": 0.001 * (i + 1), "model.token_scale": 1.0}
            choices[f"{part}.{arm}"] = Choice(values, 60.0, [], [50.0] * 4, 0.0)
            configs[f"{part}.{arm}"] = f"{i}{arm}"
    code = {name: config for name, config in configs.items() if "concat" in name}
    return freeze(own, choices, configs, tmp_path, code)


def test_a_plan_has_the_choices_of_every_repeat(tmp_path):
    plan = frozen(tmp_path)
    part = plan.parts()["r2"]
    assert part.arms()["concat"] == {
        "fusion": "concat", "optim.lr": 0.003, "model.token_scale": 1.0
    }  # fmt: skip
    assert part.configs == {"add": "2add", "concat": "2concat"}
    assert part.code == {"concat": "2concat"}
    again = load_plan(tmp_path / PLAN)
    assert again == plan
    assert [h.name for h in again.study.hypotheses] == ["gain", NULL_ARM]  # once


def start(sweep):
    """The first file of a run."""
    Path("multirun", sweep, "seed=0").mkdir(parents=True)
    Path("multirun", sweep, "seed=0", "config.yaml").touch()


@pytest.mark.parametrize("sweep", ["mine_test", "mine_r3_test", "mine_r1_null_test"])
def test_another_number_of_repeats_is_refused_after_test_seeds_ran(sweep, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plan, other = frozen(Path("multirun/mine")), study(repeats=1, null_arm="")
    for name in ("mine_rough_test", "mine_r1_tune", "other_mine_test", "mine_r8_large_test"):
        start(name)
    assert Stages("mine", other, []).frozen_plan() is None
    start(sweep)
    assert Stages("mine", study(), []).frozen_plan() == plan
    line = refusal(Stages("mine", other, []).frozen_plan)
    assert "the study was changed after test seeds ran (" in line
    shutil.rmtree(Path("multirun", sweep))
    assert Stages("mine", other, []).frozen_plan() is None
    Path("multirun/mine/report").mkdir()
    Path("multirun/mine/report/runs.csv").touch()  # the report of the removed test runs
    assert refusal(Stages("mine", other, []).frozen_plan) == line


def test_the_noise_of_tuning_is_that_of_whole_repeats(tmp_path):
    plan = frozen(tmp_path)
    table = results_by_arm.tuning_table(plan, RUNS.query("arm != 'add' or seed != 5"))
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert (row["optim.lr"], row["model.token_scale"]) == ("0.001 to 0.005", "1")
    known = components([[50, 52], [54, 54]])
    assert (row["repeats"], row["between repeats"]) == ("2", f"{known['between']:.2f}")
    verdicts = progress(plan.study, RUNS).verdicts
    caption = results_page.hypotheses(verdicts, plan.study).get_suptitle()
    assert "small mark: one repeat;" in " ".join(caption.split())


def test_the_list_of_runs_names_the_repeat(tmp_path):
    row = {"stage": "tuning", "arm": "add", "trial": "t00", "seed": 100, "folder": "f"}
    row |= {"test_accuracy": np.nan, "repeat": "r2", "diverged": True}
    html = results_page._runs(pd.DataFrame([row]), study().measured, tmp_path).html
    assert "tuning r2 add t00 seed=100" in html


def test_variance_components_by_hand():
    """Means 1, 3 and 5, and a variance of 2 in each group of two: (2 * 4 - 2) / 2 = 3 between."""
    found = components([[0, 2], [2, 4], [4, 6]])
    assert (found["between"], found["within"]) == pytest.approx((3**0.5, 2**0.5))
    assert found["share"] == pytest.approx(3 / 5)
    f = stats.f_oneway([0, 2], [2, 4], [4, 6]).statistic
    ends = [f / stats.f.ppf(p, 2, 3) for p in (0.975, 0.025)]
    assert found["low"] == pytest.approx(max(ends[0] - 1, 0) / (max(ends[0] - 1, 0) + 2))
    assert found["high"] == pytest.approx((ends[1] - 1) / (ends[1] - 1 + 2))
    assert components([[1, 1], [1, 1]])["within"] == 0
    assert np.isnan(components([[1, 2]])["share"])


def test_the_forecast_counts_all_repeats():
    own = study()
    # 3 repeats x 3 arms x (4 trials x 1 seed + 2 finalists x 2 seeds); 3 arms x 2 seeds a repeat.
    assert forecast.numbers_of_runs(own) == (72, 12, 18)
    assert own.expected_spread(own.hypotheses[0]) == pytest.approx((1 + 4 / 2) ** 0.5)
    lines = "\n".join(forecast.forecast(own, None))
    assert "tuning: 3 repeats x 3 arms x (4 trials x 1 seeds + 2 finalists x 2 seeds) = 72" in lines
    assert "2 points over seeds and by 1 over repeats of tuning" in lines
    assert "looks: 2, 3 repeats" in lines


OF_NULL = "arms.null_arm: this name is for tuning.null_arm; rename"
OWN_NULL = {"arms__null_arm": {"fusion": "mul"}}
NARROW = {"optim.lr": {"least": 1.0, "most": 1.001}}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tuning__seeds": "100-103"}, "tuning.seeds: 4 seeds cannot be shared equally by"),
        ({"testing__seeds": "0-6"}, "testing.seeds: 7 seeds cannot be shared equally by"),
        ({"tuning__final_seeds": "200-204"}, "tuning.final_seeds: 5 seeds cannot be shared"),
        ({"testing__seeds": f"0-2,{FAR}-{FAR + 2}"}, "testing.seeds: seeds of a study with"),
        ({"testing__looks": [2, 4]}, "testing.looks: the last look needs 4 repeats, but"),
        ({"testing__looks": [1, 3]}, "testing.looks: must be ascending numbers of repeats, each"),
        ({"testing__looks": []}, "testing.looks: must be ascending numbers of repeats, each"),
        ({"tuning__null_arm": "mlp"}, "tuning.null_arm: no arm 'mlp'; use one of add, concat"),
        ({"tuning__random": NARROW}, "tuning.random: has fewer than 4 different values of"),
        ({"tuning__repeats": 1}, "tuning.null_arm: needs tuning.repeats of 2 or more"),
        ({"assumed__between": 0}, "assumed.between: missing; give the spread of"),
        ({"hypotheses__0__assumed": {"difference": 3, "spread": 2}},
         "hypotheses[0].assumed.between: missing; give the spread of"),
        (OWN_NULL, OF_NULL),
        (OWN_NULL | {"tuning__null_arm": ""}, OF_NULL),
        (OWN_NULL | {"tuning__null_arm": NULL_ARM}, OF_NULL),
    ],
)  # fmt: skip
def test_mistakes_are_one_line(changes, message, tmp_path):
    path = tmp_path / "mine.yaml"
    line = refusal(read_study, write_study(path, CONTENT, **changes))
    assert line.startswith(f"{path}: {message}")
