"""Kinds of task: the three of posfuse, and the one of docs/tasks.md."""

import sys

import pandas as pd
import pytest

from posfuse.config import CONF_DIR, TASKS
from posfuse.errors import InputError, TrainingError
from posfuse.runs import identity, measurements, records
from posfuse.runs.checks import checked, task_of
from posfuse.tracking.projection import Finished, charts
from posfuse.train import train
from posfuse.training import recording, run
from posfuse.training.trained import load_run
from recipes import blocks
from small_records import reported
from small_runs import composed, small_config

RAREST = ["task.name=rarest_word", "task._target_=my_tasks.RarestWord", "trainer.monitor=metric"]


@pytest.fixture
def my_tasks(own_module):
    return own_module("my_tasks", *blocks("docs/tasks.md"))


def test_the_task_in_the_docs_trains_and_is_judged_by_its_metric(
    my_tasks, corpus, tmp_path, caplog
):
    cfg = small_config(corpus, *RAREST)
    folder = tmp_path / "run"
    with caplog.at_level("INFO"):
        record = train(cfg, folder)
    assert set(record["test"]) == {"error"}
    assert f"test error {record['test']['error']:.4f}" in caplog.text
    history = pd.read_csv(folder / records.HISTORY)
    assert list(history) == ["epoch", "step", "train_loss", "val_loss", "val_error"]
    assert record["best_evaluation"] == history["val_error"].idxmin() + 1  # the first of equals
    assert history["train_loss"].iloc[-1] < history["train_loss"].iloc[0]
    table = pd.read_parquet(folder / records.PREDICTIONS)
    error = (table["label"] - table["predicted"]).abs().mean()
    assert error == pytest.approx(record["test"]["error"], abs=1e-6)
    assert record["settings"]["task._target_"] == "my_tasks.RarestWord"
    assert record["task"] == {"metric": "error", "predictions": measurements.OTHER}
    assert not any("confusion" in name for name in charts(Finished.read(folder)))
    assert identity.own_code(cfg) == {"code": record["code"]}
    assert train(cfg, folder) == record
    assert type(load_run(folder)[2]).__name__ == "PlaceModule"
    my_tasks.write_text(f"{my_tasks.read_text()}# changed")
    del sys.modules["my_tasks"]  # as in another process
    assert identity.own_code(cfg)["code"] != record["code"]
    assert identity.own_code(small_config(corpus)) == {}


def test_a_task_without_accuracy_needs_another_monitor_which_need_not_be_tested(
    my_tasks, corpus, tmp_path
):
    with pytest.raises(InputError, match=r"has no accuracy; set trainer\.monitor=m"):
        small_config(corpus, *RAREST[:2])
    cfg = small_config(corpus, *RAREST[:2], "trainer.monitor=loss", "trainer.max_epochs=1")
    assert set(train(cfg, tmp_path / "run")["test"]) == {"error"}


@pytest.mark.parametrize("split", ["hard", "test@long", "test@0", "seed@5"])
def test_a_test_split_that_a_record_cannot_name_is_refused(split, corpus, monkeypatch):
    cfg = small_config(corpus)
    data = run.build_data(cfg)
    data.documents |= {split: data.documents["test"]}
    monkeypatch.setattr(run, "build_data", lambda cfg: data)
    with pytest.raises(InputError, match=f"^task: the split '{split}' of its documents"):
        run.build(cfg, run.build_backbone(cfg), None)


def test_a_metric_that_is_not_finite_is_named():
    recording.check_finite({"validation": {"loss": 1.0}, "test": {"error": 0.5}})
    for value in (float("nan"), float("inf")):
        with pytest.raises(TrainingError, match=f"^test@9: error is {value}; let the task's"):
            recording.check_finite({"validation": {"loss": 1.0}, "test@9": {"error": value}})


def test_a_next_token_task_of_ones_own_is_reported_as_a_language_model(
    corpus, tmp_path, own_module
):
    code = "from posfuse.training.task import NextTokenTask\n\nclass Mine(NextTokenTask): ...\n"
    own_module("mine", code)
    characters = ["data.vocabulary.unit=characters", "data.max_len=8", "trainer.max_epochs=1"]
    cfg = small_config(corpus, "task.name=mine", "task._target_=mine.Mine", *characters)
    record = train(cfg, tmp_path / "default/tiny/sinusoidal/add/seed=0")
    assert record["task"] == {"metric": "accuracy", "predictions": measurements.WINDOWS}
    printed = reported(tmp_path / "default")
    assert "bag of words" not in printed


def test_each_kind_of_task_has_a_metric_and_its_direction():
    for overrides, expected in (
        ([], ("accuracy", False, ("accuracy", "macro_f1"))),
        (["task=language_model", "data=bbc_article"], ("accuracy", False, ("accuracy",))),
        (["task=language_model"], ("bits_per_byte", True, ("bits_per_byte", "accuracy"))),
        (
            ["task=language_model", "data=copy"],
            ("exact_match", False, ("exact_match", "accuracy", "greedy_accuracy")),
        ),
    ):
        task = task_of(checked(composed(*overrides)))
        assert (task.metric, task.lower_is_better, task.metrics) == expected
    assert {path.stem for path in (CONF_DIR / "task").iterdir()} == set(TASKS)
