"""What a study's file may say, and the one line for each mistake."""

from copy import deepcopy

import pytest
import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser

from posfuse.errors import InputError
from posfuse.study.reading import read_study
from posfuse.study.spec import seeds_of
from posfuse.study.sweeps import check_extra, overrides

GOOD = {
    "question": "Does concat gain?",
    "base": "quickstart",
    "settings": {"data": "bbc_lead_paragraph", "trainer.max_epochs": 1},
    "arms": {
        "add": {"fusion": "add"},
        "concat": {"fusion": "concat"},
        "add_none": {"fusion": "add", "encoding": "none"},
        "concat_none": {"fusion": "concat", "encoding": "none"},
    },
    "tuning": {"grid": {"optim.lr": [0.001, 0.003], "model.token_scale": [1, 4]}, "seeds": [100]},
    "testing": {"seeds": "0-7", "looks": [4, 8]},
    "hypotheses": [
        {"name": "gain", "text": "t", "arm": "concat", "than": "add", "expects": "greater"},
        {
            "name": "position", "text": "t", "arm": "concat", "than": "add",
            "minus": ["concat_none", "add_none"], "expects": "greater", "margin": 2,
        },
    ],
    "assumed": {"difference": 3, "spread": 2},
}  # fmt: skip


@pytest.fixture
def written(tmp_path):
    """Write a study with some values replaced; keys are paths such as testing.looks."""

    def write(**changes):
        content = deepcopy(GOOD)
        for path, value in changes.items():
            *parents, last = path.split("__")
            node = content
            for key in parents:
                node = node[int(key) if key.isdecimal() else key]
            node[int(last) if last.isdecimal() else last] = value
        file = tmp_path / "mine.yaml"
        file.write_text(yaml.safe_dump(content, sort_keys=False))
        return str(file)

    return write


def test_a_study_is_read(written):
    name, study = read_study(written())
    assert name == "mine"
    assert study.looks.seeds == (4, 8)
    assert study.hypotheses[1].weights == {"concat": 1, "add": -1, "concat_none": -1, "add_none": 1}
    assert study.hypotheses[1].difference == "(concat - add) - (concat_none - add_none)"
    assert study.trials() == {
        "t00": {"optim.lr": 0.001, "model.token_scale": 1},
        "t01": {"optim.lr": 0.001, "model.token_scale": 4},
        "t02": {"optim.lr": 0.003, "model.token_scale": 1},
        "t03": {"optim.lr": 0.003, "model.token_scale": 4},
    }


def test_random_trials_lie_in_their_range_and_are_the_same_each_time(written):
    tuning = {"random": {"optim.lr": {"least": 1e-4, "most": 1e-2}}, "trials": 20, "seeds": 9}
    _, study = read_study(written(tuning=tuning))
    values = [trial["optim.lr"] for trial in study.trials().values()]
    assert len(set(values)) == 20
    assert all(1e-4 <= value <= 1e-2 for value in values)
    assert sum(value < 1e-3 for value in values) in range(5, 16)  # log-uniform: half of them
    assert study.trials() == study.trials()


MISTAKES = [
    ({"testing": {"looks": [4, 8]}}, "testing.seeds: missing; give fresh seeds, such as 0-23"),
    ({"testing__seeds": "96-110"}, "testing.seeds: 100 are tuning seeds too; use fresh ones"),
    ({"testing__seeds": "0-6"}, "testing.seeds: 7 seeds, but the last look needs 8"),
    ({"testing__seeds": [1, 2, 2, 3, 4, 5, 6, 7]}, "testing.seeds: seed 2 is given twice"),
    ({"testing__seeds": "few"}, "testing.seeds: must be seeds such as 0-7 or [0, 1, 2] (got 'few"),
    ({"testing__looks": [8, 4]}, "testing.looks: must be ascending numbers of seeds from 2 on"),
    ({"testing__looks": [1, 4]}, "testing.looks: must be ascending numbers of seeds from 2 on"),
    ({"testing__alpha": 0}, "testing.alpha: must be above 0 and below 0.5 (got 0)"),
    ({"testing__spent": [0.05]}, "testing.spent: must be the alpha spent up to each of the 2 look"),
    ({"testing__spent": [0.04, 0.03]}, "testing.spent: must be the alpha spent up to each"),
    ({"tuning__grid": {"optim.lr": [0.1]}}, "tuning.grid.optim.lr: needs two values or more"),
    ({"tuning__grid": {"optim.lr": [0.1], "model.token_scale": [1, 4]}}, "tuning.grid.optim.lr: n"),
    ({"tuning__grid": {"optim.lr": [1, 1]}}, "tuning.grid.optim.lr: has a value twice (got [1, 1"),
    ({"tuning": {"random": {"optim.lr": {"least": 1, "most": 2}}, "trials": 10**9, "seeds": 99}},
     "tuning: 1000000000 trials per arm; give at least 2 and at most 10000"),
    ({"testing__seeds": "0-99999999999"}, "testing.seeds: must be seeds such as 0-7"),
    ({"testing__seeds": "0-999999999"}, "testing.seeds: 0-999999999 are more than 10000 seeds"),
    ({"tuning__grid": {"fusion": ["add", "mul"]}}, "tuning: fusion is also set in arms.add; rem"),
    ({"tuning__grid": {}}, "tuning: give either grid or random"),
    ({"tuning__seeds": None}, "tuning.seeds: must be seeds such as 0-7"),
    ({"tuning__finalists": 4}, "tuning.finalists: must be at least 2 and below the 4 trials (got"),
    ({"tuning__finalists": 2}, "tuning.final_seeds: missing; give the finalists' seeds, such as"),
    ({"tuning__finalists": 2, "tuning__final_seeds": "100-101"},
     "tuning.final_seeds: 100 is in tuning.seeds too; use another"),
    ({"tuning__finalists": 2, "tuning__final_seeds": [7]},
     "testing.seeds: 7 are tuning seeds too; use fresh ones"),
    ({"tuning__final_seeds": [7]}, "tuning.final_seeds: are for finalists; set tuning.finalists"),
    ({"hypotheses__0__than": "mul"}, "hypotheses: gain: no arm 'mul'; use one of add, concat, a"),
    ({"hypotheses__0__than": "concat"}, "hypotheses: gain: compares concat with itself; name"),
    ({"hypotheses__0__margin": 0}, "hypotheses: gain: margin: must be points above 0, at"),
    ({"hypotheses__0__outcome": "loss"}, "hypotheses: gain: outcome 'loss'; use accuracy or"),
    ({"metric": "loss"}, "metric: 'loss'; use one of accuracy, exact_match, greedy_"),
    ({"metric": "bits_per_byte", "hypotheses__0__outcome": "accuracy"},
     "hypotheses: gain: outcome 'accuracy'; use bits_per_byte or beyond"),
    ({"metric": "bits_per_byte", "hypotheses__0__margin": 0},
     "hypotheses: gain: margin: must be bits per byte above 0, at most 100 (got 0)"),
    ({"hypotheses__0__expects": "more"}, "hypotheses: gain: expects 'more'; use one of greater,"),
    ({"hypotheses__0__minus": ["add"]}, "hypotheses: gain: minus: give two arms, whose"),
    ({"hypotheses__0__arm": 3}, "hypotheses: gain: 3 is no arm; give a name or a list of names"),
    ({"hypotheses__0__arm": []}, "hypotheses: gain: [] is no arm; give a name or a list of names"),
    ({"hypotheses__0__arm": ["concat", "add_none"], "hypotheses__0__than": ["add", "add_none"]},
     "hypotheses: gain: add_none is in `arm` and in `than`; remove it from one"),
    ({"hypotheses__0__minus": ["concat", "add_none"]},
     "hypotheses: gain: concat cancels out of the difference; name another arm"),
    ({"hypotheses__1__name": "gain"}, "hypotheses: two are named gain; rename one"),
    ({"hypotheses": []}, "hypotheses: none; a study tests at least one"),
    ({"arms": {"add": {}}}, "arms: needs at least two, such as add: {fusion: add}"),
    ({"arms__add": {"fusion": "concat"}}, "arms.concat: is the same as arms.add; remove one"),
    ({"arms__add": {"seed": 1}}, "arms.add.seed: a study sets this key itself; remove it"),
    ({"settings__logger": "none"}, "settings.logger: a study sets this key itself; remove it"),
    ({"hypotheses__0__minus": ["concat", "add"]}, "hypotheses: gain: minus: give two other"),
    ({"hypotheses__0__minus": ["add", "add"]}, "hypotheses: gain: minus: give two other"),
    ({"testing__spent": [float("nan"), 0.05]}, "testing.spent: must be the alpha spent up to"),
    ({"assumed": {}}, "assumed: give the difference and the spread to plan for, both above 0"),
    ({"assumed__spread": float("inf")}, "assumed: give the difference and the spread to plan for"),
    ({"convergence": {"most_last": 2}}, "convergence.most_last: must be a share between 0 and 1"),
    ({"tuning__grid": {"optim.lr": [1, 1.0]}}, "tuning.grid.optim.lr: has a value twice (got"),
    ({"arms__add": {"fusion": ["add", "mlp"]}}, "arms.add.fusion: takes one name (got ['add'"),
    ({"hypotheses__0__margin": 150}, "hypotheses: gain: margin: must be points above 0, at most"),
    ({"hypotheses__0__minus": ["add", "concat"]}, "hypotheses: gain: minus: give two other arms"),
    ({"hypotheses__0__arm": ["concat", "add"]}, "hypotheses: gain: add is in `arm` and in `than`;"),
    ({"testing__seeds": "9-4"}, "testing.seeds: must be seeds such as 0-7 or [0, 1, 2] (got '9-4'"),
    ({"base": "nope"}, "base: no file "),
    ({"arms": [1, 2]}, "arms: has a list in the place of keys with values, or the reverse"),
    ({"arms__add": 3}, "arms.add: must be keys with values (got 3 (int))"),
    ({"testing__looks": 4}, "testing.looks: must be a list"),
    ({"hypotheses__0": "x"}, "hypotheses[0]: must be keys with values (got str)"),
    ({"hypothesis": 1}, "hypothesis: unknown key; use one of question, metric, base"),
]  # fmt: skip


def test_each_mistake_is_one_line_that_names_the_key(written):
    for changes, message in MISTAKES:
        path = written(**changes)
        with pytest.raises(InputError) as refused:
            read_study(path)
        assert str(refused.value).startswith(f"{path}: {message}"), refused.value
        assert "\n" not in str(refused.value)


def test_the_name_of_a_studys_own_sweep_is_refused(tmp_path):
    (tmp_path / "mine_test.yaml").write_text(yaml.safe_dump(GOOD))
    with pytest.raises(InputError, match="the file's name: must not end in _tune, _test, _timing"):
        read_study(str(tmp_path / "mine_test.yaml"))


def test_an_unknown_study_is_one_line():
    with pytest.raises(InputError, match=r"nope: no such study; use one of .*a YAML file"):
        read_study("nope")


def test_seeds():
    assert seeds_of("k", "3-5") == [3, 4, 5]
    assert seeds_of("k", "7") == seeds_of("k", 7) == [7]
    for wrong in ("5-3", [], [True], [-1], ["a"], 1.5, None):
        with pytest.raises(InputError, match="k: must be seeds"):
            seeds_of("k", wrong)


def test_hydra_reads_the_values_of_an_arm_as_they_are_written():
    values = {
        "fusion": "add", "optim.lr": 1e-05, "data.limit": None, "trainer.compile": True,
        "data.corpus.sizes": [10, 20], "data.path": "/my 'own' {folder}, a=b", "model.x": "1/8",
    }  # fmt: skip
    parsed = OverridesParser.create().parse_overrides(overrides(values))
    assert {o.get_key_element(): o.value() for o in parsed} == values
    assert not any(o.is_sweep_override() for o in parsed)


def test_overrides_that_would_change_the_study_are_refused():
    check_extra(["hydra/launcher=slurm", "hydra.launcher.n_jobs=2", "logger=none", "data.path=x"])
    for override in (
        "trainer.max_epochs=2",
        "seed=3",
        "+fusion=add",
        "sweep_id=x",
        "hydra.sweeper.params.seed=7",
        "hydra.sweep.dir=x",
    ):
        with pytest.raises(InputError, match="would change the study; put"):
            check_extra([override])
