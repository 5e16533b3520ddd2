"""What a study's file may say, and the one line for each mistake."""

from functools import partial

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from posfuse.config import CONF_DIR
from posfuse.errors import InputError
from posfuse.runs.seeds import seeds_of
from posfuse.study.arm_sweep import overrides
from posfuse.study.given import check_extra
from posfuse.study.reading import read_study
from refusals import refusal
from study_runs import GOOD, write_study


@pytest.fixture
def written(tmp_path):
    return partial(write_study, tmp_path / "mine.yaml", GOOD)


@pytest.mark.parametrize(
    ("metric", "margin"), [("accuracy", 1.0), ("macro_f1", 1.0), ("bits_per_byte", 0.01)]
)
def test_the_default_margin_is_one_point_or_the_metrics_own(written, metric, margin):
    tuning = {"random": {"optim.lr": {"least": 1e-4, "most": 1e-2}}, "trials": 2, "seeds": "10-17"}
    tuning |= {"repeats": 8, "null_arm": "add"}
    of_add = {"hypotheses": GOOD["hypotheses"][:1], "arms": dict(list(GOOD["arms"].items())[:2])}
    changes = {"metric": metric, "tuning": tuning, "assumed__between": 1, **of_add}
    _, study = read_study(written(**changes))
    assert [h.margin for h in study.hypotheses] == [margin, margin]  # of the null arm too
    assert read_study(written(metric=metric))[1].hypotheses[1].margin == 2


def test_an_arm_that_a_list_names_twice_counts_twice(written):
    sides = {"arm": "add", "than": ["concat", "concat_none", "concat_none"]}
    changes = {f"hypotheses__0__{key}": value for key, value in sides.items()}
    weights = read_study(written(**changes))[1].hypotheses[0].weights
    assert weights == pytest.approx({"add": 1, "concat": -1 / 3, "concat_none": -2 / 3})


def test_random_trials_lie_in_their_range_and_are_the_same_each_time(written):
    tuning = {"random": {"optim.lr": {"least": 1e-4, "most": 1e-2}}, "trials": 20, "seeds": 9}
    _, study = read_study(written(tuning=tuning))
    values = [trial["optim.lr"] for trial in study.trials().values()]
    assert len(set(values)) == 20
    assert all(1e-4 <= value <= 1e-2 for value in values)
    assert sum(value < 1e-3 for value in values) in range(5, 16)  # log-uniform: half of them
    assert study.trials() == study.trials()


MISTAKES = [
    ({"arms__1_0": {"fusion": "mul"}}, "arms.1_0: in YAML this is not a text; rename it"),
    ({"arms": {"add": {}, 1: {"fusion": "mul"}}}, "arms.1: in YAML this is not a text; put it in"),
    ({"testing": {"looks": [4, 8]}}, "testing.seeds: must be seeds such as 0-7 or 0,1,2"),
    ({"testing__seeds": "96-110"}, "testing.seeds: 100 are tuning seeds too; use fresh ones"),
    ({"testing__seeds": "0-6"}, "testing.seeds: 7 seeds, but the last look needs 8"),
    ({"testing__looks": [8, 4]}, "testing.looks: must be ascending numbers of seeds, each at"),
    ({"testing__spent": [0.05]}, "testing.spent: must be the alpha spent up to each of the 2 look"),
    ({"tuning": {"random": {"optim.lr": {"least": 1, "most": 2}}, "trials": 10**9, "seeds": 99}},
     "tuning: 1000000000 trials per arm; give at least 2 and at most 10000"),
    ({"tuning__grid": {"fusion": ["add", "mul"]}}, "tuning: fusion is also set in arms.add; rem"),
    ({"tuning__grid": {"optim.lr": [0.1, 0.2, 0.1]}}, "tuning.grid.optim.lr: has 0.1 twice; rem"),
    ({"tuning__grid": {}}, "tuning: give either grid, or random with trials"),
    ({"tuning__trials": 5}, "tuning: give either grid, or random with trials"),
    ({"tuning__seeds": None}, "tuning.seeds: must be seeds such as 0-7"),
    ({"tuning__finalists": 4, "tuning__final_seeds": [101]},
     "tuning.finalists: must be at least 2 and below the 4 trials (got"),
    ({"tuning__finalists": 2, "tuning__final_seeds": "100-101"},
     "tuning.final_seeds: 100 is in tuning.seeds too; use another seed"),
    ({"tuning__finalists": 2, "tuning__final_seeds": [7]},
     "testing.seeds: 7 are tuning seeds too; use fresh ones"),
    ({"tuning__final_seeds": [7]}, "tuning: give both finalists and final_seeds, or none of them"),
    ({"hypotheses__0__than": "mul"}, "hypotheses[0]: no arm 'mul'; use one of add, concat, a"),
    ({"metric": "bits_per_byte", "hypotheses__0__outcome": "accuracy"},
     "hypotheses[0].outcome: 'accuracy'; use bits_per_byte or beyond"),
    ({"hypotheses__0__expects": "more"}, "hypotheses[0].expects: no 'more'; use one of greater,"),
    ({"hypotheses__0__minus": ["add"]}, "hypotheses[0].minus: give two arms, whose"),
    ({"hypotheses__0__arm": 3}, "hypotheses[0]: 3 is not an arm; give a name or a list of names"),
    ({"hypotheses__0__arm": ["concat", "add_none"], "hypotheses__0__than": ["add", "add_none"]},
     "hypotheses[0]: add_none cancels out of the difference; name another arm"),
    ({"hypotheses__1__name": "gain"}, "hypotheses: two are named gain; rename one"),
    ({"arms__add": {"++seed": 1}}, "arms.add.++seed: a study sets this key itself; remove it"),
    ({"settings__hydra.sweep.dir": "x"}, "settings.hydra.sweep.dir: a study sets this key itself"),
    ({"settings__hydra/launcher": "slurm"}, "settings.hydra/launcher: give it on the command line"),
    ({"arms__add": {"trainer.mechanism": False}},
     "arms.add.trainer.mechanism: cannot change a result; put it into settings"),
    ({"tuning__grid": {"trainer.mechanism": [False, True]}},
     "tuning.trainer.mechanism: cannot change a result; put it into settings"),
    ({"searchpath": ["nope"]}, "searchpath: no folder /"),
    ({"searchpath": ["pkg://nope.conf"]},
     "searchpath: no package 'nope.conf'; name another package"),
    ({"searchpath": ["pkg://json.decoder"]},
     "searchpath: no package 'json.decoder'; name another package"),
    ({"searchpath": ["pkg://"]}, "searchpath: no package ''; name another package or a folder"),
    ({"hypotheses__1__minus": [[["add"]], "add"]}, "hypotheses[1]: [['add']] is not an arm"),
    ({"hypotheses__0__name": "ga\x1bin"}, "hypotheses[0].name: must be a folder name of letters"),
    ({"testing__spent": [float("nan"), 0.05]}, "testing.spent[0]: Input should be a finite number"),
    ({"assumed": None}, "assumed: missing; add, for example, {difference: 2, "),
    ({"arms__add": {"fusion": ["add", "mlp"]}}, "arms.add.fusion: takes one name (got ['add'"),
    ({"arms__add": {"protocol": "imbd"}}, "protocol: no 'imbd'; use one of agnews, arxiv, imdb"),
    ({"base": "nope"}, "base: no file "),
    ({"arms": None}, "arms: Dictionary should have at least 2 items"),
    # A key that a file must have is not missing if its name is misspelt:
    ({"hypotheses": None, "hypothesis": 1}, "hypothesis: unknown key; use hypotheses"),
    ({"assumed": {"difference": 3, "sprad": 2}}, "assumed.sprad: unknown key; use assumed.spread"),
    ({"hypotheses__0": {"name": "h", "text": "t", "am": "add", "than": "add", "expects": "less"}},
     "hypotheses[0].am: unknown key; use hypotheses[0].arm"),
]  # fmt: skip


def test_each_mistake_is_one_line_that_names_the_key(written):
    for changes, message in MISTAKES:
        path = written(**changes)
        found = refusal(read_study, path)
        assert found.startswith(f"{path}: {message}"), found


def lines_about(path):
    """The lines of the error, without the file's name."""
    with pytest.raises(InputError) as refused:
        read_study(path)
    return [line.removeprefix(f"{path}: ") for line in str(refused.value).splitlines()]


def test_all_mistakes_of_a_file_are_named_at_once(written):
    wrong = {"testing__alpha": "high", "testing__seed": 3, "hypotheses__1__magrin": 2,
             "arms__add": 3, "tuning__grid": {"optim.lr": 1}, "metric": "acuracy"}  # fmt: skip
    path = written(**wrong)
    assert lines_about(path) == [
        "metric: no 'acuracy'; use accuracy",
        "arms.add: Input should be a valid dictionary (got 3)",
        "tuning.grid.optim.lr: Input should be a valid list (got 1)",
        "testing.alpha: Input should be a valid number, unable to parse string as a number "
        "(got 'high')",
        "testing.seed: unknown key; use testing.seeds",
        "hypotheses[1].magrin: unknown key; use hypotheses[1].margin",
    ]
    lines = lines_about(written(base="nope", hypotheses__0__than="mul", arms__add={"seed": 1}))
    assert [line.split()[0] for line in lines] == ["base:", "arms.add.seed:", "hypotheses[0]:"]
    assert lines_about(written(hypotheses="x", hypothesis=[])) == [
        "hypotheses: Input should be a valid list (got 'x')",
        "hypothesis: unknown key; use hypotheses",
    ]


def test_a_name_of_a_studys_own_sweep_and_an_interpolation_are_refused(tmp_path):
    for end in ("test", "r2", "r1_null"):
        found = refusal(read_study, write_study(tmp_path / f"mine_{end}.yaml", GOOD))
        assert "the file's name: must not end in _tune, _test, _timing or _r1; rename it" in found
    found = refusal(read_study, write_study(tmp_path / "mine.yaml", GOOD, question="Is ${a} b?"))
    assert "has ${...}; write the value there instead" in found  # a plan could not be read


def test_an_unknown_study_is_one_line(tmp_path, monkeypatch):
    found = refusal(read_study, "nope")
    assert found.startswith("nope: no such study; use one of ")
    assert found.endswith(", or write nope.yaml in this folder or in --config-dir")
    assert refusal(read_study, "own_bst").startswith("own_bst: no such study; use own_best, or ")
    line = "nope.yaml: no such file; give its path; docs/studies.md has an example"
    assert refusal(read_study, "nope.yaml") == line
    line = f"demo.yaml: no such file; use demo, the name of {CONF_DIR / 'study' / 'demo.yaml'}"
    assert refusal(read_study, "demo.yaml") == line
    monkeypatch.chdir(tmp_path)
    for name in ("a.csv", "demo"):
        (tmp_path / name).touch()
    line = "a.csv: the name of a study's file must end in .yaml; rename it"
    assert refusal(read_study, "a.csv") == line
    assert read_study("demo")[0] == "demo"  # of conf/study


@pytest.mark.parametrize("place", ["", "conf", "conf/study"])
def test_a_study_is_named_without_its_ending(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / place).mkdir(parents=True, exist_ok=True)
    write_study(tmp_path / place / "mine.yaml", GOOD)
    name, study = read_study("mine", [str(tmp_path / "conf")])
    assert (name, study.question) == ("mine", GOOD["question"])


def test_a_name_that_several_files_have_is_refused(tmp_path, monkeypatch):
    """An edited copy of a study must not be mistaken for the original."""
    monkeypatch.chdir(tmp_path)
    write_study(tmp_path / "length.yaml", GOOD)
    shipped = CONF_DIR / "study" / "length.yaml"
    assert refusal(read_study, "length") == (
        f"length: several files have this name ({shipped}, length.yaml); give the path of one"
    )
    assert read_study("length.yaml")[1].question == GOOD["question"]
    assert read_study(str(shipped))[1].question != GOOD["question"]
    write_study(tmp_path / "mine.yaml", GOOD)
    assert read_study("mine", [str(tmp_path)])[0] == "mine"  # one file in two places


def test_seeds():
    assert seeds_of("k", "3-5") == [3, 4, 5]
    assert seeds_of("k", "7") == seeds_of("k", 7) == [7]
    assert refusal(seeds_of, "k", list(range(10_001))) == "k: more than 10000 seeds; give fewer"
    assert refusal(seeds_of, "k", "0-999999999") == "k: more than 10000 seeds; give fewer"
    for wrong in ("5-3", [], [1, 2, 2], [True], [-1], ["a"], 1.5, None):
        assert refusal(seeds_of, "k", wrong).startswith("k: must be seeds")


def test_hydra_reads_the_values_of_an_arm_as_they_are_written():
    values = {
        "fusion": "add", "optim.lr": 1e-05, "data.limit": None, "trainer.compile": True,
        "data.corpus.sizes": [10, 20], "data.path": "/my 'own' {folder}, a=b", "model.x": "1/8",
        "encoding.table": {"_target_": "posfuse.model.encoding.Learned", "n": 1},
        "a": "007", "b": "true", "c": "Null", "d": "1e3", "e": r"x\dy", "f": "last\\",
        "g": r"\'\\'", "h": "-1_0", "i": "inf", "j": ".5", "k": "v1.2", "l": "1/8", "m": "+.inf",
    }  # fmt: skip
    parsed = OverridesParser.create().parse_overrides(overrides(values))
    read = {o.get_key_element(): o.value() for o in parsed}
    assert read == values
    assert {key: type(value) for key, value in read.items()} == {
        k: type(v) for k, v in values.items()
    }
    assert not any(o.is_sweep_override() for o in parsed)


def test_overrides_that_would_change_the_study_are_refused():
    check_extra(["hydra/launcher=slurm", "hydra.launcher.n_jobs=2", "logger=none", "data.path=x"])
    for override, key in (("optim.lr=2", "optim.lr"), ("+fusion=add", "fusion")):
        found = refusal(check_extra, [override])
        assert found == f"{override}: would change the study; put {key} into its file instead"
    for key in ("seed", "sweep_id", "output_dir", "experiment", "sweep.plan", "hydra.sweep.dir"):
        found = refusal(check_extra, [f"{key}=x"])
        assert found == f"{key}=x: a study sets this key itself; remove it"
    wanted = "b.yaml: not an override, such as logger=none; give one study"
    assert refusal(check_extra, ["logger=none", "b.yaml"]) == wanted


def test_a_key_that_cannot_change_a_result_may_be_in_settings_or_on_the_command_line(written):
    neutral = {"trainer.mechanism": False, "trainer.checkpoint_minutes": 5, "logger": "none"}
    assert read_study(written(settings=neutral))[1].settings == neutral
    check_extra(overrides(neutral))


@pytest.mark.parametrize("folder", ["conf", "pkg://of_dots.conf", "pkg://of_slashes/conf"])
def test_a_search_path_is_relative_to_the_studys_file_or_a_package(
    folder, written, tmp_path, monkeypatch
):
    monkeypatch.syspath_prepend(tmp_path)
    place = tmp_path / folder.removeprefix("pkg://").replace(".", "/")
    (place / "own").mkdir(parents=True)
    (place / "mine.yaml").write_text("model: {d_model: 8}")
    changes = {"searchpath": [folder], "base": "mine", "settings": {"own": ["a"]}}
    wanted = "settings.own: takes one name (got ['a'])"
    assert refusal(read_study, written(**changes)).endswith(wanted)
    _, study = read_study(written(**changes | {"settings": {}}), ["/further"])
    assert study.searchpath == [str(place), "/further"]
