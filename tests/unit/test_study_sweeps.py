"""Which records a study takes for its arms, and what its commands print."""

import json
import re
import shlex
import shutil
from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import pandas as pd
import pytest
import yaml
from omegaconf import OmegaConf

from commands import called
from posfuse.runs import identity, records
from posfuse.study import arm_sweep, configurations, run_table, stages, subcommands
from posfuse.study.arm_sweep import ArmSweep, RunsFailed
from posfuse.study.plan import Choice, Plan, freeze, provenance
from posfuse.study.reading import read_study
from posfuse.study.spec import Evaluation, Study
from posfuse.study.stages import Stages
from small_records import ask, write_failure, write_record

ARMS = {"a": {"fusion": "add"}, "c": {"fusion": "concat"}}
PLAIN = {"seed": 0, "data.name": "tiny", "data.max_len": 9, "model.d_model": 8}
SETTINGS = {fusion: PLAIN | {"fusion.name": fusion} for fusion in ("add", "concat")}
CONFIGS = {fusion[0]: identity.fingerprint_of(own) for fusion, own in SETTINGS.items()}
FROZEN = "2026-11-25T12:00:00+00:00"
PLAN = Plan(Study("q", arms=ARMS, testing=Evaluation([0, 1], [2])), {}, CONFIGS, "d" * 64, FROZEN)
OF_C_0, OF_C = (f"tiny/sinusoidal/concat/seed={seed}" for seed in (0, 1))


def rewrite(folder, **changes):
    """Change keys of the record of a run."""
    path = folder / records.RESULT
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def write_own(root, accuracy, fusion, seed, **more):
    """Write the record of a run whose fingerprint fits its settings."""
    folder, settings = write_record(root, accuracy, fusion, seed, **more), SETTINGS[fusion]
    rewrite(folder, **fitting(settings | {"seed": seed}))
    return folder


def fitting(settings):
    """Settings and their fingerprint, as keys of a record."""
    return {"settings": settings, "fingerprint": identity.fingerprint_of(settings)}


@pytest.fixture
def sweep(tmp_path, monkeypatch):
    """The test sweep of a study with two arms and two seeds, all done."""
    monkeypatch.setattr(arm_sweep, "OUTPUT", tmp_path)
    found = ArmSweep(PLAN.study, "mine", "test", ARMS, CONFIGS, PLAN)
    for fusion in ("add", "concat"):
        for seed in (0, 1):
            write_own(found.folder, 0.5 + 0.1 * seed, fusion, seed)
    ask(found.folder, None)
    return found


OWN = SETTINGS["concat"] | {"seed": 1}
OTHER = "has another configuration than the arm"
EARLY = "started at .*, before the plan was frozen"


def own(*without, **more):
    """The keys of a record with other settings, and the fingerprint that fits them."""
    return fitting({k: v for k, v in (OWN | more).items() if k not in without})


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (own(**{"model.d_model": 16}), OTHER),
        (own("model.d_model"), OTHER),
        (own(*OWN), OTHER),
        ({"fingerprint": own("model.d_model")["fingerprint"]}, "does not fit its settings"),
        ({"plan": "d" * 64, "started": "2026-11-25T11:55:00+00:00"}, None),  # its clock is late
        ({"plan": "d" * 64, "started": "2026-11-25T11:49:59+00:00"}, EARLY),
        ({"started": "2026-11-25T11:49:59+00:00"}, EARLY),
        ({"plan": "e" * 64}, "belongs to another plan, with digest eeeeeeeeeeeeeeee"),
        ({}, None),  # of an earlier version
    ],
)
def test_a_record_of_another_config_or_plan_is_no_result(sweep, keys, message):
    rewrite(sweep.folder / OF_C, **keys)
    whole, found = {("a", 0), ("a", 1), ("c", 0)}, sweep.results("ac", [0, 1, 2])
    assert set(found) == whole | ({("c", 1)} if message is None else set())
    assert (found["c", 0]["fusion"], found["a", 1]["test"]["accuracy"]) == ("concat", 0.6)
    wanted = f"^{sweep.folder / OF_C / records.RESULT}: .*{message}.*; remove it to run again$"
    assert re.search(wanted if message else "^$", sweep.reasons("c", [1]).get(("c", 1), ""))
    sweep.plan = replace(PLAN, frozen="")  # a plan without a time refuses no start
    assert (("c", 1) in sweep.results("c", [1])) == (message in (None, EARLY))


def test_a_record_may_state_the_precision_that_was_chosen_as_the_fastest(sweep):
    asked = SETTINGS["concat"] | {"trainer.precision": "fastest"}
    sweep.configs = CONFIGS | {"c": identity.fingerprint_of(asked)}
    rewrite(sweep.folder / OF_C, **own(**{"trainer.precision": "bf16-mixed"}))
    assert sorted(sweep.results("c", [0, 1])) == [("c", 1)]


@pytest.mark.parametrize("damage", ["cut", {}, {"accuracy": None}, {"accuracy": "x"}, 1])
def test_a_damaged_record_is_no_result_and_the_others_count(sweep, damage):
    path = sweep.folder / OF_C / records.RESULT
    rewrite(sweep.folder / OF_C, test=damage)
    if damage == "cut":
        path.write_text(path.read_text()[:100])
    assert sorted(sweep.results("ac", [0, 1])) == [("a", 0), ("a", 1), ("c", 0)]
    (reason,) = sweep.reasons("ac", [0, 1]).values()
    assert reason.startswith(f"{path}: ")
    assert reason.endswith("; remove it to run again")


def test_the_page_counts_runs_by_what_their_records_state():
    run = {"plan": "d" * 64, "started": "2026-11-25T12:30:00+00:00", "diverged": False}
    sentence = provenance(PLAN, pd.DataFrame([run, run, {"diverged": True}]))
    after = "Test runs of this plan that started after that time: 2."
    assert sentence == f"Frozen at {FROZEN}. {after}"
    late, unknown = run | {"started": "2026-11-25T11:58:00+00:00"}, {"diverged": False}
    sentence = provenance(PLAN, pd.DataFrame([run, late, late, *[unknown] * 3]))
    assert re.findall(r": (\d+)\.", sentence) == ["1", "2", "3"]


COPY = "or copy the study's file to a new name"
FIX = f"restore the code, remove it to run again, {COPY}"
OF_CODE = f"restore the code and remove it, {COPY}"


def test_a_run_that_diverged_is_identified_by_its_failure_and_needs_no_texts(sweep):
    folder, by_code = sweep.folder / OF_C, own() | {"code": "b" * 16}
    (folder / records.RESULT).unlink()
    (folder / "config.yaml").write_text("data: {path: /moved}")
    write_failure(folder, "diverged", "m", run=by_code)
    assert sweep.results("c", [1]) == {("c", 1): None}
    rewrite(sweep.folder / OF_C_0, code="a" * 16)
    damaged, place = "the run failed, but failure.json is damaged", f"{folder}/failure.json: "
    for kind, run, reason in (
        ("diverged", by_code, f"{place}has other code than earlier seeds; {OF_CODE}"),
        ("diverged", own(**{"model.d_model": 16}), f"{place}{OTHER}; remove it to run again"),
        ("diverged", None, "m"),
        ("failed", own(), "m"),
        *(("diverged", damage, damaged)
          for damage in ("x", [1], {"fingerprint": 1, "settings": {}}, {"fingerprint": "f"})),
    ):  # fmt: skip
        write_failure(folder, kind, "m", **({} if run is None else {"run": run}))
        assert sweep.reasons("c", [0, 1]) == {("c", 1): reason}


def test_a_result_of_earlier_code_is_no_result_and_its_fix_is_one_of_a_study(sweep):
    """As posfuse train finds it: the result stays, and failure.json says why it is not used."""
    folder = sweep.folder / OF_C
    write_failure(folder, "conflict", f"{folder}/result.json: has the result of earlier code")
    ask(sweep.folder, {"arm": "c", "seed": "1"}, arms=sweep.arms)
    assert sorted(sweep.results("ac", [0, 1])) == [("a", 0), ("a", 1), ("c", 0)]
    wanted = f"{folder}/result.json: the last command had other code or settings; {FIX}"
    assert sweep.reasons("ac", [0, 1]) == {("c", 1): wanted}
    ask(sweep.folder, {"arm": "a", "seed": "0,1"}, arms=sweep.arms)  # it did not ask for the run
    assert len(sweep.results("ac", [0, 1])) == 4


def test_an_arm_has_the_code_of_its_first_seed(sweep):
    rewrite(sweep.folder / OF_C, code="b" * 16)
    assert len(sweep.results("ac", [0, 1])) == 4  # records of earlier versions name no code
    write_own(sweep.folder, 0.5, "concat", 2, code="a" * 16)
    sweep.study = replace(PLAN.study, testing=Evaluation([2, 1, 0], [3]))
    assert sorted(sweep.results("c", [0, 1])) == [("c", 0)]  # seed 2 counts, also if not asked for
    wanted = f"{sweep.folder / OF_C}/result.json: has other code than earlier seeds; {OF_CODE}"
    assert sweep.reasons("c", [1, 2]) == {("c", 1): wanted}


def test_a_test_run_has_the_code_of_the_plan(sweep):
    """In both records it is another one, as if it was changed while the runs were made."""
    sweep.plan = replace(PLAN, code={"c": "a" * 16})
    assert len(sweep.results("ac", [0, 1])) == 4  # records of earlier versions name no code
    for folder in (OF_C_0, OF_C):
        rewrite(sweep.folder / folder, code="b" * 16)
    assert sorted(sweep.results("ac", [0, 1])) == [("a", 0), ("a", 1)]
    wanted = f"{sweep.folder / OF_C}/result.json: has other code than the plan; {OF_CODE}"
    assert sweep.reasons("c", [1]) == {("c", 1): wanted}
    rewrite(sweep.folder / OF_C, code="a" * 16)
    assert sorted(sweep.results("c", [0, 1])) == [("c", 1)]


TRAINED = {
    "best_evaluation": 1, "evaluations": 2, "validation": {"accuracy": 0.5}, "commit": "",
    "documents": {"test": 40}, "seconds": {}, "host": {"threads": 1},
}  # fmt: skip
QUESTION = """
question: q
settings: {data: tiny}
arms: {a: {fusion: add}, c: {fusion: concat}, d: {fusion: mul}}
testing: {seeds: 0-3, looks: [4]}
hypotheses:
  - {name: gain, text: t, arm: c, than: a, expects: less}
  - {name: other, text: t, arm: d, than: a, expects: less, family: second}
assumed: {difference: 1, spread: 1}
"""


def test_a_study_with_failed_runs_judges_the_others_and_ends_with_an_error(tmp_path, monkeypatch):
    """The third run of arm d fails. Its folder holds another arm's record, as a copy would."""

    class Failing:
        def wait(self, timeout):
            return 1

        def __init__(self, *_, **__):
            digest = yaml.safe_load((tmp_path / "multirun/mine/plan.yaml").read_text())["digest"]
            root = tmp_path / "multirun/mine_test"
            for fusion, seed in product(SETTINGS, range(4)):
                ahead = (0.3 + 0.05 * seed) * (fusion == "add")
                write_own(root, 0.5 + ahead, fusion, seed, plan=digest, **TRAINED)
            ask(root, None)
            of_add, of_mul = (root / f"tiny/sinusoidal/{name}/seed=2" for name in ("add", "mul"))
            shutil.copy(of_add / records.RESULT, of_mul)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(SETTINGS, "mul", SETTINGS["add"] | {"fusion.name": "mul"})
    configs = {
        arm: configurations.Composed(None, own, identity.fingerprint_of(own))
        for arm, own in zip("acd", SETTINGS.values(), strict=True)
    }
    monkeypatch.setattr(Stages, "check_arms", lambda self: None)
    monkeypatch.setattr(stages, "compose", lambda *_: configs)
    monkeypatch.setattr(stages, "own_code", lambda config: {})
    monkeypatch.setattr(arm_sweep.subprocess, "Popen", Failing)
    (tmp_path / "mine.yaml").write_text(QUESTION)
    printed, status = called("study", "run", "mine.yaml")
    assert status.startswith("error: multirun/mine_test: 1 of 12 runs have no result, such as d ")
    printed = " ".join(printed.split())
    assert "2 hypotheses: 1 supported, 1 undecided. The study is not finished." in printed
    assert "supported: t gain: c - a: -37.5 points (" in printed
    assert "undecided: t other: d - a: no look yet. Plan " in printed
    assert "Paired differences in points" in printed
    place = "multirun/mine_test/tiny/sinusoidal/mul/seed=2/result.json"
    assert (
        "other: not judged at 4 seeds, like the rest of family second: no result of 1 run, such "
        f"as d seed=2 ({place}: {OTHER}; remove it to run again)"
    ) in printed
    assert not (tmp_path / "multirun/mine/report").exists()
    printed, status = called("study", "status", "mine.yaml")
    assert status is None
    assert "testing: 7 of 8 runs of the next look are done" in " ".join(printed.split())


def test_tuning_runs_without_a_record_are_counted():
    """Two repeats of two trials with one seed each; a finalist ran with another seed."""
    sweeps = [SimpleNamespace(arms="ab", study=SimpleNamespace(tuning_seeds=s)) for s in ([0], [5])]
    runs = pd.DataFrame({"stage": ["tuning"] * 5 + ["testing"], "seed": [0, 0, 5, 5, 9, 0]})
    assert subcommands._lost(sweeps, runs) == ""
    line = subcommands._lost(sweeps, runs[1:])
    assert line.startswith("1 of 4 tuning runs have no readable record")


def test_a_failure_in_tuning_does_not_show_an_earlier_plan(tmp_path, monkeypatch):
    """conf/ has changed after the plan was frozen and before a test seed ran: tuning runs again."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(QUESTION)
    study, folder = read_study("mine.yaml")[1], tmp_path / "multirun/mine"
    freeze(study, {arm: Choice({}) for arm in study.arms}, dict.fromkeys(study.arms, ""), folder)

    def fail(self):
        raise RunsFailed("multirun/mine_tune: 1 of 3 runs have no result")

    monkeypatch.setattr(Stages, "run", fail)
    printed, stopped = called("study", "run", "mine.yaml")
    assert (printed, stopped) == ("", "error: multirun/mine_tune: 1 of 3 runs have no result")


def test_the_command_to_run_has_the_places_of_files_and_texts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "my code")
    (tmp_path / "mine.yaml").write_text(QUESTION)
    (tmp_path / "b (1)").mkdir()
    more = ["--config-dir", ".", "data.path=x y", "logger=none", "hydra.searchpath=['b (1)']"]
    shown, status = called("study", "status", "mine.yaml", *more)
    start, _, line = shown.partition("run it with ")
    assert (start, status) == ("plan: not frozen yet; ", None)
    path, *words = shlex.split(line)
    assert path == "PYTHONPATH=my code"
    assert words == ["posfuse", "study", "run", "mine.yaml", *more[:3], more[4]]
    shown, status = called("study", "status", *words[3:])
    assert (shown.endswith(line), status) == (True, None)
    shown, status = called("study", "status", "mine.yaml")
    assert ("PYTHONPATH" in shown, status) == (False, None)
    _, stopped = called("study", "status", "mine.yaml", "logger=none", "logger=b")
    assert stopped.startswith("error: logger: given twice (logger=none and logger=b); give it once")
    wanted = f"error: --config-dir: no folder {tmp_path}/nope; name another folder"
    assert called("study", "status", "mine.yaml", "-cd", "nope")[1] == wanted


def test_a_printed_line_keeps_its_paths_whole(capsys):
    names = [f"multirun/{'long-name-' * 9}of/plan.yaml", "multirun/a-b-c-d-e-f-g-h-i/plan.yaml"]
    subcommands._say(f"  plan: frozen in {names[0]}, and another one with a digest in {names[1]}")
    printed = capsys.readouterr().out
    assert printed.split()[3].strip(",") == names[0]
    assert printed.split()[-1] == names[1]
    assert printed.splitlines()[1].startswith("    ")


def test_the_experiment_of_a_test_sweep_names_its_plan_and_the_search_path(sweep, tmp_path):
    settings = {"+x.y": 1, "data.path": "/own", "logger.tags": ["a b", "1e5"]}
    sweep.study = replace(PLAN.study, searchpath=["/my conf"], settings=settings)
    found = sweep.write_experiment(tmp_path, "ac", [3], ["data.path=/d", "logger=none"])
    assert found == [
        f"hydra.searchpath=['file://{tmp_path}','/my conf']", "experiment=mine_test", "logger=none",
    ]  # fmt: skip
    content = yaml.safe_load((tmp_path / "experiment/mine_test.yaml").read_text())
    assert content["sweep"] == {"plan": "d" * 64}
    read = OmegaConf.load(tmp_path / "experiment/mine_test.yaml")  # as Hydra reads it
    assert read.logger == {"job_type": "test", "tags": ["a b", "1e5"]}
    assert content["data"] == {"path": "/d"}  # of the command line, not of the study
    sweep.write_experiment(tmp_path, "ac", [3], [])
    content = yaml.safe_load((tmp_path / "experiment/mine_test.yaml").read_text())
    assert content["data"] == {"path": "/own"}


def test_the_table_of_runs_names_what_the_base_of_a_study_sets(sweep):
    for path in sweep.folder.rglob(records.RESULT):
        rewrite(path.parent, **TRAINED)
    runs = run_table.finished_runs(PLAN.study, {"": sweep})
    named = [("a", "tiny", "add")] * 2 + [("c", "tiny", "concat")] * 2
    assert [*runs[["arm", "data", "fusion"]].itertuples(index=False, name=None)] == named


def test_the_time_of_pretraining_is_counted_once():
    record = {"seconds": {"fit": 3.0, "test": 1.0}}
    first = {**record, "pretrain": {"fingerprint": "f", "seconds": 10.0}}
    counted = set()
    assert [run_table._seconds(r, counted) for r in (record, first, first)] == [4, 14, 4]


def test_two_commands_do_not_run_one_study(tmp_path, monkeypatch) -> None:
    """Each would freeze a plan of its own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(QUESTION)
    with subcommands._sole_use("mine"):
        _, stopped = called("study", "freeze", "mine.yaml")
    assert stopped.startswith("error: multirun/mine: another command runs this study; wait until")
    assert not (tmp_path / "multirun" / "mine").exists()
