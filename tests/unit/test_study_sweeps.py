"""Which records a study takes for its arms, and which configs it refuses."""

import json
import re
import shlex
from dataclasses import replace

import pandas as pd
import pytest
import yaml
from omegaconf import OmegaConf

from commands import called
from posfuse.data import corpora
from posfuse.errors import HubUnreachable, InputError
from posfuse.runs import identity, records
from posfuse.study import arm_sweep, configurations, forecast, run_table, stages, subcommands
from posfuse.study.arm_sweep import ArmSweep, RunsFailed
from posfuse.study.plan import Choice, Plan, freeze, provenance
from posfuse.study.reading import read_study
from posfuse.study.spec import Evaluation, Hypothesis, Study, Tuning
from posfuse.study.stages import Stages
from refusals import refusal
from small_records import ask, write_failure, write_record
from small_runs import write_corpus
from study_runs import small_study

ARMS = {"a": {"fusion": "add"}, "c": {"fusion": "concat"}}
PLAIN = {"seed": 0, "data.name": "tiny", "data.max_len": 9, "model.d_model": 8}
SETTINGS = {fusion: PLAIN | {"fusion.name": fusion} for fusion in ("add", "concat")}
CONFIGS = {fusion[0]: identity.fingerprint_of(own) for fusion, own in SETTINGS.items()}
FROZEN = "2026-11-25T12:00:00+00:00"
PLAN = Plan(Study("q", arms=ARMS, testing=Evaluation([0, 1], [2])), {}, CONFIGS, "d" * 64, FROZEN)
OF_C_0, OF_C = (f"tiny/sinusoidal/concat/seed={seed}" for seed in (0, 1))


def write_own(root, accuracy, fusion, seed, **more):
    """Write the record of a run whose fingerprint fits its settings."""
    settings = SETTINGS[fusion] | {"seed": seed} | more.pop("settings", {})
    folder = write_record(root, accuracy, fusion, seed, **more)
    path, own = folder / records.RESULT, {"settings": settings}
    own["fingerprint"] = more.get("fingerprint", identity.fingerprint_of(settings))
    path.write_text(json.dumps(json.loads(path.read_text()) | own))
    return folder


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


def rewrite(sweep, **changes):
    """Change keys of the second record of arm c."""
    path = sweep.folder / OF_C / records.RESULT
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


OWN = SETTINGS["concat"] | {"seed": 1}
OTHER = "has another configuration than the arm"
EARLY = "started at .*, before the plan was frozen"


def own(*without, **more):
    """The keys of a record with other settings, and the fingerprint that fits them."""
    settings = {k: v for k, v in (OWN | more).items() if k not in without}
    return {"settings": settings, "fingerprint": identity.fingerprint_of(settings)}


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (own(**{"model.d_model": 16}), OTHER),
        (own("model.d_model"), OTHER),
        (own(*OWN), OTHER),
        ({"fingerprint": own("model.d_model")["fingerprint"]}, "does not fit its settings"),
        ({"plan": "d" * 64, "started": "2026-11-25T12:00:01+00:00"}, None),
        ({"plan": "d" * 64, "started": "2026-11-25T11:55:00+00:00"}, None),  # its clock is late
        ({"plan": "d" * 64, "started": "2026-11-25T11:45:00+00:00"}, EARLY),
        ({"started": "2026-11-25T11:49:59+00:00"}, EARLY),
        ({"plan": "e" * 64}, "belongs to another plan, with digest eeeeeeeeeeeeeeee"),
        ({}, None),  # of an earlier version
    ],
)
def test_a_record_of_another_config_or_plan_is_no_result(sweep, keys, message):
    rewrite(sweep, **keys)
    whole, found = {("a", 0), ("a", 1), ("c", 0)}, sweep.results("ac", [0, 1, 2])
    assert set(found) == whole | ({("c", 1)} if message is None else set())
    assert (found["c", 0]["fusion"], found["a", 1]["test"]["accuracy"]) == ("concat", 0.6)
    wanted = f"^{sweep.folder / OF_C / records.RESULT}: .*{message}.*; remove it to run again$"
    assert re.search(wanted if message else "^$", sweep.reasons("c", [1]).get(("c", 1), ""))
    sweep.plan = replace(PLAN, frozen="")  # a plan without a time refuses no start
    started = "started" in keys or message is None
    assert (("c", 1) in sweep.results("c", [1])) == started


def test_a_record_may_state_the_precision_that_was_chosen_as_the_fastest(sweep):
    asked = SETTINGS["concat"] | {"trainer.precision": "fastest"}
    sweep.configs = CONFIGS | {"c": identity.fingerprint_of(asked)}
    rewrite(sweep, **own(**{"trainer.precision": "bf16-mixed"}))
    assert sorted(sweep.results("c", [0, 1])) == [("c", 1)]


def test_a_damaged_multirun_yaml_is_one_line_and_its_removal_loses_no_result(sweep):
    """A command of the study writes the file again, and skips the runs that are done."""
    (path := sweep.folder / "multirun.yaml").write_text("damaged")
    line = refusal(sweep.results, "ac", [0])
    assert line.startswith(f"{path}: not a sweep's settings (")
    assert line.endswith("; remove it, and run the command of the sweep or the study again")
    path.unlink()
    assert sweep.results("ac", [0]) == {}
    ask(sweep.folder, None)  # as the sweep's command
    assert len(sweep.results("ac", [0])) == 2


@pytest.mark.parametrize("damage", ["cut", {}, {"accuracy": None}, {"accuracy": "x"}, 1])
def test_a_damaged_record_is_no_result_and_the_others_count(sweep, damage):
    path = sweep.folder / OF_C / records.RESULT
    rewrite(sweep, test=damage)
    if damage == "cut":
        path.write_text(path.read_text()[:100])
    assert sorted(sweep.results("ac", [0, 1])) == [("a", 0), ("a", 1), ("c", 0)]
    (reason,) = sweep.reasons("ac", [0, 1]).values()
    assert reason.startswith(f"{path}: ")
    assert reason.endswith("; remove it to run again")


def test_the_page_says_what_the_records_state():
    run = {"plan": "d" * 64, "started": "2026-11-25T12:30:00+00:00", "diverged": False}
    late = run | {"started": "2026-11-25T11:58:00+00:00"}
    unknown = {"seed": 0, "diverged": False}
    for runs, counts in (
        ([run, run, {"diverged": True}], ["2"]),
        ([run, late, late, *[unknown] * 3], ["1", "2", "3"]),
    ):
        sentence = provenance(PLAN, pd.DataFrame(runs))
        assert sentence.startswith(f"Frozen at {FROZEN}.")
        assert re.findall(r": (\d+)\.", sentence) == counts
    assert "is not recorded" in provenance(replace(PLAN, frozen=""), pd.DataFrame([run]))


def test_a_run_that_diverged_is_identified_by_its_failure_and_needs_no_texts(sweep):
    folder = sweep.folder / OF_C
    (folder / records.RESULT).unlink()
    write_failure(folder, "diverged", "m", run=own() | {"code": "b" * 16})
    (folder / "config.yaml").write_text("data: {path: /moved}")
    assert sweep.results("c", [1]) == {("c", 1): None}
    rewritten = json.loads((sweep.folder / OF_C_0 / records.RESULT).read_text())
    (sweep.folder / OF_C_0 / records.RESULT).write_text(json.dumps(rewritten | {"code": "a" * 16}))
    wanted = f"{folder}/failure.json: has other code than earlier seeds; {OF_CODE}"
    assert sweep.reasons("c", [0, 1]) == {("c", 1): wanted}
    write_failure(folder, "diverged", "m", run=own(**{"model.d_model": 16}))
    wanted = f"{folder}/failure.json: {OTHER}; remove it to run again"
    assert sweep.reasons("c", [1]) == {("c", 1): wanted}
    for damage in ("x", [1], {"fingerprint": 1, "settings": {}}, {"fingerprint": "f"}):
        write_failure(folder, "diverged", "m", run=damage)
        assert "failure.json is damaged" in sweep.reasons("c", [1])["c", 1]


def test_a_failure_that_does_not_identify_a_run_that_diverged_is_no_result(sweep):
    folder = sweep.folder / OF_C
    (folder / records.RESULT).unlink()
    write_failure(folder, "diverged", "m")
    assert sweep.reasons("c", [1]) == {("c", 1): "m"}
    write_failure(folder, "failed", "m", run=own())
    assert sweep.reasons("c", [1]) == {("c", 1): "m"}


COPY = "or copy the study's file to a new name"
FIX = f"restore the code, remove it to run again, {COPY}"
OF_CODE = f"restore the code and remove it, {COPY}"


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
    rewrite(sweep, code="b" * 16)
    assert len(sweep.results("ac", [0, 1])) == 4  # records of earlier versions name no code
    write_own(sweep.folder, 0.5, "concat", 2, code="a" * 16)
    sweep.study = replace(PLAN.study, testing=Evaluation([2, 1, 0], [3]))
    assert sorted(sweep.results("c", [0, 1])) == [("c", 0)]  # seed 2 counts, also if not asked for
    wanted = f"{sweep.folder / OF_C}/result.json: has other code than earlier seeds; {OF_CODE}"
    assert sweep.reasons("c", [1, 2]) == {("c", 1): wanted}


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
            for fusion in ("add", "concat", "mul"):
                for seed in range(4):
                    ahead = (0.3 + 0.05 * seed) * (fusion == "add")
                    write_own(root, 0.5 + ahead, fusion, seed, plan=digest, **TRAINED)
            ask(root, None)
            path = root / "tiny/sinusoidal/mul/seed=2" / records.RESULT
            path.write_text((root / "tiny/sinusoidal/add/seed=2" / records.RESULT).read_text())

    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(SETTINGS, "mul", SETTINGS["add"] | {"fusion.name": "mul"})
    settings = zip("acd", SETTINGS.values(), strict=True)
    configs = {
        arm: configurations.Composed(None, own, identity.fingerprint_of(own))
        for arm, own in settings
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


def test_arms_that_would_share_a_folder_are_refused_before_anything_runs(tmp_path):
    texts = {arm: write_corpus(tmp_path / arm, seed=seed) for seed, arm in enumerate("ab")}
    arms = {arm: {"data.path": str(path)} for arm, path in texts.items()}
    study = Study("q", settings={"data": "folder"}, arms=arms)
    line = (
        r"study mine: arms.b: its runs .* as those of arms.a, .* leaves out data.path; set another"
    )
    assert re.match(line, refusal(Stages("mine", study, []).check_arms))
    arms["b"] |= {"data.name": "B"}
    Stages("mine", study, []).check_arms()


def test_trials_that_would_share_a_folder_are_refused():
    arms = {"a": {"model.dropout": 0.2}, "b": {"model.dropout": 0.3}}
    tuning = Tuning(grid={"fusion": ["gate_cnn", "gate_cnn_linear_start"]}, seeds=[1])
    study = Study("q", settings={"fusion.name": "same"}, arms=arms, tuning=tuning)
    with pytest.raises(InputError, match=r"arms.a.t01: its runs .* as those of arms.a.t00, .* fus"):
        Stages("mine", study, []).tuning_sweeps()


def of_two(metric="accuracy", outcome="", **settings):
    """A study of two operators, with a hypothesis about an outcome."""
    asked = Hypothesis("gain", "t", "concat", "add", "greater", outcome=outcome)
    return small_study(settings=settings, metric=metric, hypotheses=[asked])


STRINGS = {"task": "language_model", "data": "copy"}
BYTES = {"task": "language_model", "data": "bbc_bytes"}


@pytest.mark.parametrize(
    ("study", "message"),
    [
        (of_two("bits_per_byte", data="bbc_lead_story"),
         "add: metric: bbc_lead_story with task=classification has no bits_per_byte; use accuracy"),
        (of_two("exact_match", **BYTES), "no exact_match; use bits_per_byte or accuracy"),
        (of_two("bits_per_byte", **STRINGS), "use exact_match or accuracy or greedy_accuracy"),
        (of_two("greedy_accuracy", **STRINGS), None),
        (of_two(outcome="beyond", data="parity"), None),
        (of_two(outcome="beyond", data="parity", **{"data.test_lengths": [20, 40]}),
         r"add: data.test_lengths: needs a length above data.max_len=40 .*40\]"),
        (of_two(**{"seeds.order": 3}), r"add: seeds.order: must be null in a study, .*got 3"),
        (of_two(seeds="init"), r"add: seeds.order: must be null in a study, .*got 0"),
    ],
)  # fmt: skip
def test_arms_that_do_not_fit_are_refused_before_anything_runs(study, message):
    check = Stages("mine", study, []).check_arms
    if message is None:
        check()
    else:
        assert re.search(f"^study mine: arms.*{message}", refusal(check))


@pytest.mark.parametrize(
    ("settings", "own", "message"),
    [
        ({}, {"model.unheard": 1}, "arms.a: model.unheard: unknown key; use one of"),
        ({"trainer.max_epoch": 3}, {}, "settings: trainer.max_epoch: unknown key; use"),
    ],
)
def test_an_unknown_key_has_hydras_error(settings, own, message):
    found = refusal(configurations.compose, Study("q", settings=settings), {"a": own}, [])
    assert found.startswith(message)


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    """A corpus of 20 training documents, 17 of 30 words, one of 40, one of 80 and one of 100."""
    folder = tmp_path_factory.mktemp("lengths") / "texts"
    folder.mkdir()
    splits = {"train": [30] * 17 + [40, 80, 100], "validation": [30] * 4, "test": [30] * 4}
    for split, lengths in splits.items():
        frame = pd.DataFrame({"text": ["word " * n for n in lengths]})
        frame.assign(label=frame.index % 2).to_parquet(folder / f"{split}.parquet")
    return folder


def by_length(tokens, *lengths, **settings):
    """A study of these data.max_len on the corpus, and the overrides of its command."""
    settings = {"data": "folder", "data.name": "texts", **settings}
    arms = {
        f"add_{n}": {"data.max_len": n, "data.batch_size": 8 if n > 99 else 16} for n in lengths
    }
    study = Study("q", settings=settings, arms=arms, testing=Evaluation([5, 6], [2]))
    return study, [f"data.path={tokens}", f"cache_dir={tokens.parent / 'cache'}"]


@pytest.mark.parametrize(
    ("lengths", "refused"),
    [
        ([16, 30, 40], None),  # 85 % of the documents have fewer than 40 tokens
        ([16, 30, 41], "add_41: data.max_len=41, but 90 % "),
        ([16, 60, 128], "add_60: data.max_len=60, but 90 % "),
        ([128, 16], "add_128: data.max_len=128, but 100 % "),
        ([128, 256], "add_128: data.max_len=128, but 100 % "),
        ([128], None),  # not a study by length
    ],
)
def test_lengths_beyond_nearly_all_documents_are_refused(tokens, lengths, refused) -> None:
    study, extra = by_length(tokens, *lengths)
    check = Stages("mine", study, extra).check_arms
    if refused is None:
        check()
        return
    assert refusal(check) == (
        f"study mine: arms.{refused}of the training documents of texts have fewer tokens (median "
        "30), so this length changes almost nothing; use lengths up to 40, or longer documents"
    )


@pytest.mark.parametrize("command", [["plan", "--no-timing"], ["plan"], ["freeze"], ["run"]])
def test_no_run_starts_with_such_a_length(tokens, tmp_path, monkeypatch, command) -> None:
    monkeypatch.chdir(tmp_path)
    text = QUESTION.replace("data: tiny", "data: folder").replace("a: {", "a: {data.max_len: 30, ")
    (tmp_path / "mine.yaml").write_text(text)
    monkeypatch.setattr(arm_sweep.subprocess, "Popen", None)
    _, stopped = called("study", command[0], "mine.yaml", *command[1:], f"data.path={tokens}")
    assert stopped.startswith("error: study mine: arms.c: data.max_len=512, but 100 % of the train")
    assert not [*tmp_path.glob("multirun/mine*")]


def test_a_next_token_task_of_ones_own_reads_windows_of_any_length(tokens) -> None:
    own = {"task.name": "mine", "task._target_": "posfuse.training.task.NextTokenTask"}
    own["data.vocabulary.unit"] = "bytes"
    Stages("mine", *by_length(tokens, 16, 128, **own)).check_arms()


def test_corpora_of_one_length_each_are_not_a_study_by_length(tokens, tmp_path) -> None:
    study, extra = by_length(tokens, 30, 128)
    study.arms["add_30"]["data.path"] = str(tokens)
    study.arms["add_128"] |= {"data.name": "others", "data.path": str(write_corpus(tmp_path / "B"))}
    Stages("mine", study, extra[1:]).check_arms()


def test_a_plan_without_the_hub_says_that_lengths_are_not_checked(monkeypatch) -> None:
    def hub(cfg, id: str, revision: str = "main"):
        raise HubUnreachable(f"data.corpus.id: cannot load {id}")

    monkeypatch.setattr(corpora, "_hub", hub)
    arms = {f"add_{n}": {"data.max_len": n} for n in (128, 4096)}
    study = Study("q", settings={"data": "arxiv"}, arms=arms, testing=Evaluation([5], [1]))
    lines = []
    Stages("mine", study, [], lines.append).check_arms()
    assert lines == [
        "arxiv: the lengths of its documents are not checked (data.corpus.id: cannot load "
        "mteb/ArxivClassification)"
    ]


def test_the_table_of_runs_names_what_the_base_of_a_study_sets(sweep):
    for path in sweep.folder.rglob(records.RESULT):
        path.write_text(json.dumps(json.loads(path.read_text()) | TRAINED))
    runs = run_table.finished_runs(PLAN.study, {"": sweep})
    named = [("a", "tiny", "add")] * 2 + [("c", "tiny", "concat")] * 2
    assert [*runs[["arm", "data", "fusion"]].itertuples(index=False, name=None)] == named


def test_the_time_of_pretraining_is_counted_once():
    record = {"seconds": {"fit": 3.0, "test": 1.0}}
    first = {**record, "pretrain": {"fingerprint": "f", "seconds": 10.0}}
    counted = set()
    assert [run_table._seconds(r, counted) for r in (record, first, first)] == [4, 14, 4]


def test_a_forecast_has_all_batches_of_each_phase():
    """By hand: 1 s, and 1 ms for each evaluated document; a trained one is worth three. With 10
    batches fit takes 3 x 320 + 2 x 640 documents, 3.24 s; with 30, 3 x 960 + 2 x 640, 5.16 s; with
    all, 3 x 3200 + 2 x 640, 11.88 s. The test takes 0.64 s, 1.92 s and 3.2 s. Pretraining takes
    2 s, 4 s and, in batches of 64, 4 + 20 / 10 = 6 s."""
    settings = {"data.batch_size": 32, "data.eval_batch_size": 64, "trainer.evaluations": 2}
    short, long = (
        {
            "documents": {"train": 3200, "validation": 640, "test": 3200}, "settings": settings,
            "seconds": {"fit": fit, "test": test}, "pretrain": {"seconds": first},
        }
        for fit, test, first in ((3.24, 0.64, 2.0), (5.16, 1.92, 4.0))
    )  # fmt: skip
    assert forecast.whole_seconds(short, long, (10, 30)) == pytest.approx(11.88 + 3.2 + 6)
    del long["pretrain"]
    assert forecast.whole_seconds(short, long, (10, 30)) == pytest.approx(11.88 + 3.2)


def test_short_runs_have_no_warm_up_and_do_not_stop_early(tmp_path, monkeypatch):
    """Their few steps may all lie in the warm-up. Arms that differ only in this are timed once."""
    arms = {arm: {"fusion": "add", "optim.warmup": n} for arm, n in (("a", 500), ("b", 9))}
    arms["c"] = {"fusion": "concat", "trainer.limit_batches": 100}
    study = Study("q", settings={"trainer.patience": 1}, arms=arms, testing=Evaluation([5], [1]))
    made = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ArmSweep, "run", lambda self, *_: made.append(self))
    record = {"host": {"threads": 2}}
    monkeypatch.setattr(ArmSweep, "results", lambda self, *_: {(a, 0): record for a in self.arms})
    monkeypatch.setattr(forecast, "whole_seconds", lambda *given: given[-1] or 10)
    assert forecast.cpu_seconds_per_run("mine", study, []) == pytest.approx(2 * (10 + 10 + 100) / 3)
    (sweep,) = made
    assert sorted(sweep.arms) == ["a.25", "a.5", "c.25", "c.5"]
    for own in configurations.compose(study, sweep.values, []).values():
        assert (own.config.optim.warmup, own.config.trainer.patience) == (0, None)


def test_two_commands_do_not_run_one_study(tmp_path, monkeypatch) -> None:
    """Each would freeze a plan of its own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(QUESTION)
    with subcommands._sole_use("mine"):
        _, stopped = called("study", "freeze", "mine.yaml")
    assert stopped.startswith("error: multirun/mine: another command runs this study; wait until")
    assert not (tmp_path / "multirun" / "mine").exists()
