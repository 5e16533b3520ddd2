"""Several evaluations per epoch, and which of them is best: by accuracy or by loss."""

import pandas as pd
import pytest
import torch

from posfuse.errors import InputError
from posfuse.runs import records
from posfuse.sweeps import status
from posfuse.tracking import projection
from posfuse.tracking.projection import Cell, Finished
from posfuse.train import train
from posfuse.training.build import build_data
from posfuse.training.classifier import Classifier
from small_runs import REFERENCE, before_calls, small_config

STEPS = 4  # in an epoch: 60 documents in batches of 16


def history_of(folder):
    return pd.read_csv(folder / records.HISTORY)


@pytest.fixture(scope="module")
def in_parts(corpus, tmp_path_factory):
    """The reference run with three evaluations per epoch: its folder and its record."""
    folder = tmp_path_factory.mktemp("in_parts")
    return folder, train(small_config(corpus, *REFERENCE, "trainer.evaluations=3"), folder)


def test_evaluations_do_not_change_the_training(reference, in_parts):
    """At the end of each epoch the model is that of the run with one evaluation per epoch."""
    one, parts = (history_of(folder) for folder, _ in (reference, in_parts))
    assert parts["step"].tolist() == [1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 16]
    assert parts["epoch"].tolist() == [1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4]
    ends = parts[parts["step"] % STEPS == 0].reset_index(drop=True)
    same = ["epoch", "step", "val_loss", "val_accuracy", "val_macro_f1"]
    pd.testing.assert_frame_equal(ends[same], one[same], check_exact=True)


def test_the_training_loss_is_that_of_the_documents_since_the_last_evaluation(
    corpus, reference, in_parts
):
    one, parts = (history_of(folder) for folder, _ in (reference, in_parts))
    batches = build_data(small_config(corpus, "seed=3", "trainer.evaluations=3"))
    sampler = batches.train_dataloader().sampler
    documents = []
    for turn in range(12):
        sampler.set_epoch(turn)
        documents.append(sum(map(len, sampler)))
    whole = (parts["train_loss"] * documents).groupby(parts["epoch"]).sum() / 60
    assert whole.tolist() == pytest.approx(one["train_loss"].tolist(), rel=1e-6)


def test_the_record_counts_evaluations_and_epochs(reference, in_parts):
    for (folder, record), per_epoch in ((reference, 1), (in_parts, 3)):
        history = history_of(folder)
        best = int(history["val_accuracy"].idxmax())  # the first of equals
        assert record["best_evaluation"] == best + 1
        assert record["best_epoch"] == history["epoch"][best] == best // per_epoch + 1
        assert (record["evaluations"], record["epochs"]) == (4 * per_epoch, 4)
        assert record["validation"]["accuracy"] == pytest.approx(history["val_accuracy"][best])
        saved = torch.load(folder / records.BEST)["global_step"]
        assert saved == history["step"][best]


def test_wandb_gets_a_row_per_evaluation(in_parts):
    finished = Finished.read(in_parts[0])
    steps = history_of(in_parts[0])["step"].tolist()
    assert [row[projection.STEP] for row in finished.rows] == steps
    with_gates = [row["epoch"] for row in finished.rows if "diagnostics/gate_mean" in row]
    assert with_gates == [1, 2, 3, 4]
    assert all("diagnostics/gate_mean" in row for row in finished.rows[2::3])
    for key in ("best_evaluation", "evaluations", "best_epoch", "epochs"):
        assert finished.summary[key] == in_parts[1][key]
    # While it trains, an epoch's diagnostics are not there before its last evaluation.
    history = history_of(in_parts[0]).to_dict("records")
    first = [row for row in finished.diagnostics if row.epoch == 1]
    cell = Cell.of(in_parts[1])
    live = [projection.rows(cell, history[:n], first if n >= 3 else [])[-1] for n in range(1, 5)]
    assert live == finished.rows[:4]


def test_progress_is_shown_in_fractions_of_epochs(corpus, tmp_path, monkeypatch, caplog):
    caplog.set_level("INFO")
    cfg = small_config(corpus, "trainer.evaluations=2", "trainer.progress=lines")
    seen = []

    def look(*_):
        seen.append(status.status_of(tmp_path, tmp_path.parent))

    before_calls(monkeypatch, Classifier, "on_validation_epoch_start", look)
    train(cfg, tmp_path)
    lines = [line for line in caplog.messages if line.startswith("epoch ")]
    epochs = ["0.5/4", "1/4", "1.5/4", "2/4", "2.5/4", "3/4", "3.5/4", "4/4"]
    assert [line.split()[1].rstrip(":") for line in lines] == epochs
    assert [run.detail for run in seen[1:8]] == [f"epoch {epoch}" for epoch in epochs[:7]]
    assert all(run.seconds > 0 for run in seen[1:8])


def test_more_evaluations_than_batches_are_refused(corpus, tmp_path):
    for asked, batches in (([], 4), (["trainer.limit_batches=2"], 2), (["data.batch_size=60"], 1)):
        cfg = small_config(corpus, "trainer.evaluations=5", *asked)
        message = f"evaluations: 5, but an epoch has {batches} batches; use {batches} or fewer$"
        with pytest.raises(InputError, match=f"^trainer.{message}"):
            train(cfg, tmp_path)
    cfg = small_config(corpus, "trainer.evaluations=2", "trainer.limit_batches=3")
    assert train(cfg, tmp_path)["evaluations"] == 8
    assert history_of(tmp_path)["step"].tolist() == [1, 3, 4, 6, 7, 9, 10, 12]


def stopped_at(values, patience, min_delta, sign):
    """The evaluation after which early stopping ends a run, by hand; the last one if it does not.
    It counts gains from the last value that was a gain."""
    best, waited = float("-inf"), 0
    for number, value in enumerate(values, 1):
        if sign * value > best + min_delta:
            best, waited = sign * value, 0
        else:
            waited += 1
        if waited == patience:
            return number
    return len(values)


@pytest.mark.parametrize("monitor", ["accuracy", "loss"])
def test_the_best_evaluation_and_patience_follow_the_monitor(monitor, corpus, tmp_path):
    asked = ["trainer.evaluations=2", "optim.lr=0.1", "trainer.max_epochs=8"]
    asked += [f"trainer.monitor={monitor}"]
    whole = train(small_config(corpus, *asked), tmp_path / "whole")
    history = history_of(tmp_path / "whole")
    values, sign = history[f"val_{monitor}"], {"accuracy": 1, "loss": -1}[monitor]
    assert whole["best_evaluation"] == (sign * values).idxmax() + 1
    assert whole["validation"][monitor] == pytest.approx(values[whole["best_evaluation"] - 1])
    patient = ["trainer.patience=3", "trainer.min_delta=0.001"]
    record = train(small_config(corpus, *asked, *patient), tmp_path / "patient")
    end = stopped_at(values, 3, 0.001, sign)
    assert end < 16  # or the test shows nothing
    assert (record["evaluations"], record["epochs"]) == (end, -(-end // 2))
    kept = history_of(tmp_path / "patient")
    pd.testing.assert_frame_equal(kept, history[:end], check_exact=True)
    assert record["best_evaluation"] == (sign * values[:end]).idxmax() + 1


def test_a_loss_that_is_not_finite_is_no_gain(corpus, tmp_path, monkeypatch):
    """It does not end a run before its patience does, and never is the best one."""
    original = Classifier.validation_step

    def overflow(self, batch, number):
        original(self, batch, number)
        if self.trainer.state.fn == "fit" and self.trainer.current_epoch == 1:
            self.log("val/loss", torch.tensor(float("inf")), batch_size=1)

    monkeypatch.setattr(Classifier, "validation_step", overflow)
    cfg = small_config(corpus, "trainer.monitor=loss", "trainer.patience=2")
    record = train(cfg, tmp_path)
    assert record["evaluations"] == 4
    assert record["best_evaluation"] != 2
