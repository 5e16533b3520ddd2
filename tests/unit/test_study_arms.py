"""Which arms of a study are refused before anything runs: their folders, outcomes and lengths."""

import re

import pandas as pd
import pytest

from commands import called
from posfuse.data import corpora
from posfuse.errors import HubUnreachable
from posfuse.study import arm_sweep, configurations
from posfuse.study.spec import Evaluation, Hypothesis, Study, Tuning
from posfuse.study.stages import Stages
from refusals import refusal
from small_runs import write_corpus
from study_runs import small_study


def check(study, extra=(), say=print):
    Stages("mine", study, [*extra], say).check_arms()


def test_arms_that_would_share_a_folder_are_refused(tmp_path):
    texts = {arm: write_corpus(tmp_path / arm, seed=seed) for seed, arm in enumerate("ab")}
    arms = {arm: {"data.path": str(path)} for arm, path in texts.items()}
    study = Study("q", settings={"data": "folder"}, arms=arms)
    line = "study mine: arms.b: its runs .* as those of arms.a, .* leaves out data.path; set anot"
    assert re.match(line, refusal(check, study))
    arms["b"] |= {"data.name": "B"}
    check(study)


def test_trials_that_would_share_a_folder_are_refused():
    arms = {"a": {"model.dropout": 0.2}, "b": {"model.dropout": 0.3}}
    tuning = Tuning(grid={"fusion": ["gate_cnn", "gate_cnn_linear_start"]}, seeds=[1])
    study = Study("q", settings={"fusion.name": "same"}, arms=arms, tuning=tuning)
    line = r"arms.a.t01: its runs .* as those of arms.a.t00, .* fus"
    assert re.match(line, refusal(Stages("mine", study, []).tuning_sweeps))


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
def test_arms_that_do_not_fit_are_refused(study, message):
    if message is None:
        check(study)
    else:
        assert re.search(f"^study mine: arms.*{message}", refusal(check, study))


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
        ([128, 16], "add_128: data.max_len=128, but 100 % "),
        ([128, 256], "add_128: data.max_len=128, but 100 % "),
        ([128], None),  # not a study by length
    ],
)
def test_lengths_beyond_nearly_all_documents_are_refused(tokens, lengths, refused):
    study, extra = by_length(tokens, *lengths)
    if refused is None:
        check(study, extra)
        return
    assert refusal(check, study, extra) == (
        f"study mine: arms.{refused}of the training documents of texts have fewer tokens (median "
        "30), so this length changes almost nothing; use lengths up to 40, or longer documents"
    )


QUESTION = """
question: q
settings: {data: folder}
arms: {a: {data.max_len: 30}, c: {fusion: concat}}
testing: {seeds: 0-3, looks: [4]}
hypotheses: [{name: gain, text: t, arm: c, than: a, expects: less}]
assumed: {difference: 1, spread: 1}
"""


@pytest.mark.parametrize("command", [["plan", "--no-timing"], ["plan"], ["freeze"], ["run"]])
def test_no_run_starts_with_such_a_length(tokens, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(QUESTION)
    monkeypatch.setattr(arm_sweep.subprocess, "Popen", None)
    _, stopped = called("study", command[0], "mine.yaml", *command[1:], f"data.path={tokens}")
    assert stopped.startswith("error: study mine: arms.c: data.max_len=512, but 100 % of the train")
    assert not [*tmp_path.glob("multirun/mine*")]


def test_windows_and_corpora_of_one_length_each_may_have_any_length(tokens, tmp_path):
    own = {"task.name": "mine", "task._target_": "posfuse.training.task.NextTokenTask"}
    check(*by_length(tokens, 16, 128, **own, **{"data.vocabulary.unit": "bytes"}))
    study, extra = by_length(tokens, 30, 128)
    study.arms["add_30"]["data.path"] = str(tokens)
    study.arms["add_128"] |= {"data.name": "others", "data.path": str(write_corpus(tmp_path / "B"))}
    check(study, extra[1:])


def test_a_plan_without_the_hub_says_that_lengths_are_not_checked(monkeypatch):
    def hub(cfg, id: str, revision: str = "main"):
        raise HubUnreachable(f"data.corpus.id: cannot load {id}")

    monkeypatch.setattr(corpora, "_hub", hub)
    arms, lines = {f"add_{n}": {"data.max_len": n} for n in (128, 4096)}, []
    study = Study("q", settings={"data": "arxiv"}, arms=arms, testing=Evaluation([5], [1]))
    check(study, say=lines.append)
    unchecked = "data.corpus.id: cannot load mteb/ArxivClassification"
    assert lines == [f"arxiv: the lengths of its documents are not checked ({unchecked})"]
