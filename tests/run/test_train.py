"""One run: what it leaves behind, that it repeats, resumes, and keeps the best epoch."""

import json
import logging
import subprocess
from collections import defaultdict

import numpy as np
import pandas as pd
import pytest
import torch

from posfuse.errors import InputError
from posfuse.runs import records
from posfuse.train import train
from posfuse.training import run as entry
from posfuse.training.classifier import Classifier
from small_runs import small_config, write_corpus

SAME = ("test", "validation", "best_epoch", "epochs")  # what a repeat must give bit for bit


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("train") / "corpus")


@pytest.fixture(scope="module")
def reference(corpus, tmp_path_factory):
    """An uninterrupted run: its folder and its record."""
    folder = tmp_path_factory.mktemp("reference")
    return folder, train(small_config(corpus, "seed=3"), folder)


def assert_same_run(one, two):
    first, second = (records.read_result(folder / records.RESULT) for folder in (one, two))
    assert {k: first[k] for k in SAME} == {k: second[k] for k in SAME}
    pd.testing.assert_frame_equal(
        *(pd.read_parquet(folder / records.PREDICTIONS) for folder in (one, two)), check_exact=True
    )
    histories = [(folder / records.HISTORY).read_bytes() for folder in (one, two)]
    assert histories[0] == histories[1]


def wrap(monkeypatch, name, before):
    """Call `before(classifier, *arguments)` ahead of one of Classifier's methods."""
    original = getattr(Classifier, name)

    def wrapped(self, *arguments):
        before(self, *arguments)
        return original(self, *arguments)

    monkeypatch.setattr(Classifier, name, wrapped)


def test_a_run_leaves_config_result_predictions_and_best_weights(reference):
    folder, _ = reference
    left = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    assert left - {".lock"} == {
        "config.yaml",
        "result.json",
        "predictions.parquet",
        "history.csv",
        "checkpoints/best.ckpt",
        "diagnostics.parquet",
        "SHA256SUMS",
    }
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=folder, check=True)


def test_result_json_is_what_train_returned(reference):
    folder, record = reference
    assert json.loads((folder / "result.json").read_text()) == record


def test_the_written_config_gives_the_same_run(reference):
    from omegaconf import OmegaConf

    from posfuse.config import Config
    from posfuse.runs.checks import checked

    folder, record = reference
    loaded = OmegaConf.merge(OmegaConf.structured(Config), OmegaConf.load(folder / "config.yaml"))
    assert records.fingerprint(checked(loaded)) == record["fingerprint"]


def test_accuracy_and_loss_recomputed_from_predictions_are_the_records(reference):
    folder, record = reference
    frame = pd.read_parquet(folder / "predictions.parquet")
    log_p = frame[["log_p_0", "log_p_1", "log_p_2"]].to_numpy()
    assert list(frame["index"]) == list(range(20))
    assert (log_p.argmax(1) == frame["predicted"]).all()
    np.testing.assert_allclose(np.exp(log_p).sum(1), 1, atol=1e-6)
    assert (frame["label"] == frame["predicted"]).mean() == pytest.approx(
        record["test"]["accuracy"], abs=1e-7
    )
    loss = -log_p[np.arange(20), frame["label"]].mean()
    assert loss == pytest.approx(record["test"]["loss"], abs=1e-6)


def test_lengths_in_predictions_are_the_words_of_the_test_file(reference, corpus):
    frame = pd.read_parquet(reference[0] / "predictions.parquet")
    texts = pd.read_parquet(corpus / "test.parquet")["text"]
    assert frame["length"].tolist() == [len(text.split()) for text in texts]
    assert frame["length"].nunique() > 1


def test_the_history_has_a_row_an_epoch_and_the_best_one_is_the_records(reference):
    folder, record = reference
    history = pd.read_csv(folder / "history.csv")
    assert history["epoch"].tolist() == [1, 2, 3, 4]
    best = history.iloc[history["val_accuracy"].argmax()]
    assert best["epoch"] == record["best_epoch"]
    assert best["val_accuracy"] == pytest.approx(record["validation"]["accuracy"], abs=1e-7)
    assert best["val_loss"] == pytest.approx(record["validation"]["loss"], abs=1e-6)
    assert history["train_loss"].is_monotonic_decreasing
    assert record["latency_ms"] > 0


def test_labels_in_predictions_are_those_of_the_test_file(reference, corpus):
    frame = pd.read_parquet(reference[0] / "predictions.parquet")
    given = pd.read_parquet(corpus / "test.parquet")["label"]
    assert frame["label"].tolist() == given.tolist()


def test_a_repeat_is_bitwise_equal_whatever_ran_before_it(reference, corpus, tmp_path):
    folder, record = reference
    other = train(small_config(corpus, "seed=4", "fusion=gate_scalar"), tmp_path / "other")
    torch.manual_seed(991)
    train(small_config(corpus, "seed=3"), tmp_path / "again")
    assert_same_run(folder, tmp_path / "again")
    assert other["test"]["loss"] != record["test"]["loss"]


def test_seed_0_seeds_as_any_other(corpus, tmp_path):
    for name, noise in (("one", 5), ("two", 6)):
        torch.manual_seed(noise)
        np.random.seed(noise)
        train(small_config(corpus, "seed=0", "trainer.max_epochs=1"), tmp_path / name)
    assert_same_run(tmp_path / "one", tmp_path / "two")
    one = train(small_config(corpus, "seed=1", "trainer.max_epochs=1"), tmp_path / "three")
    assert one["test"] != records.read_result(tmp_path / "one" / "result.json")["test"]


def test_a_finished_run_is_skipped_and_says_so(reference, corpus, monkeypatch, caplog):
    folder, record = reference
    before = {p: p.stat().st_mtime_ns for p in folder.rglob("*") if p.name != ".lock"}
    monkeypatch.setattr(entry, "run", lambda *_: pytest.fail("trained again"))
    caplog.set_level(logging.INFO)
    assert train(small_config(corpus, "seed=3"), folder) == record
    assert "tiny sinusoidal add seed=3: done already" in caplog.text
    assert before == {p: p.stat().st_mtime_ns for p in folder.rglob("*") if p.name != ".lock"}


def test_another_configuration_in_the_folder_is_refused_and_nothing_lost(reference, corpus):
    folder, _ = reference
    before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    with pytest.raises(InputError, match=r"another configuration's.*optim.lr 0.01 -> 0.02"):
        train(small_config(corpus, "seed=3", "optim.lr=0.02"), folder)
    assert before == {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_run_without_predictions_is_not_done(reference, corpus, tmp_path):
    folder, _ = reference
    (tmp_path / "result.json").write_text((folder / "result.json").read_text())
    assert records.finished(tmp_path, small_config(corpus, "seed=3")) is None


INTERRUPTIONS = {
    "inside epoch 3": ("training_step", lambda self: self.global_step == 9),
    "validation of epoch 3": ("on_validation_epoch_end", lambda self: self.current_epoch == 2),
    "the test": ("test_step", lambda self: True),
}


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("where", INTERRUPTIONS)
def test_an_interrupted_run_resumes_to_the_same_numbers(
    where, error, reference, corpus, tmp_path, monkeypatch
):
    method, when = INTERRUPTIONS[where]

    def interrupt(self, *_):
        if when(self):
            raise error("stop here")

    with monkeypatch.context() as patched:
        wrap(patched, method, interrupt)
        with pytest.raises((error, SystemExit)):
            train(small_config(corpus, "seed=3"), tmp_path)
    assert not (tmp_path / "result.json").exists()
    assert (tmp_path / "checkpoints" / "last.ckpt").exists()
    epochs = set()
    wrap(monkeypatch, "training_step", lambda self, *_: epochs.add(self.current_epoch))
    train(small_config(corpus, "seed=3"), tmp_path)
    assert epochs == (set() if where == "the test" else {2, 3})  # from 0: not from the start
    assert_same_run(reference[0], tmp_path)
    assert not (tmp_path / "checkpoints" / "last.ckpt").exists()


@pytest.mark.parametrize("where", ["inside epoch 3", "the test"])
def test_early_stopping_survives_an_interruption(where, corpus, tmp_path, monkeypatch):
    cfg = small_config(corpus, "seed=3", "trainer.patience=3", "optim.lr=1e-12")
    cfg.trainer.max_epochs = 9
    whole = train(cfg, tmp_path / "whole")
    method, when = INTERRUPTIONS[where]

    def interrupt(self, *_):
        if when(self):
            raise RuntimeError("stop here")

    with monkeypatch.context() as patched:
        wrap(patched, method, interrupt)
        with pytest.raises(RuntimeError):
            train(cfg, tmp_path / "parts")
    train(cfg, tmp_path / "parts")
    assert whole["epochs"] == 4  # the first, and three that are no better
    assert_same_run(tmp_path / "whole", tmp_path / "parts")


def test_without_patience_no_run_stops_early(corpus, tmp_path):
    assert train(small_config(corpus, "optim.lr=1e-12"), tmp_path)["epochs"] == 4


@pytest.mark.parametrize("seed", [0, 1])
def test_the_tested_weights_are_the_first_best_epochs(seed, corpus, tmp_path, monkeypatch):
    history = []

    def keep(self):
        if self.trainer.state.fn == "fit":
            accuracy = self.val_metrics.compute()["val/accuracy"].item()
            history.append((accuracy, {k: v.clone() for k, v in self.state_dict().items()}))

    final = {}
    wrap(monkeypatch, "on_validation_epoch_end", keep)
    wrap(monkeypatch, "on_test_epoch_start", lambda self: final.update(self.state_dict()))
    cfg = small_config(corpus, f"seed={seed}", "optim.lr=0.1")
    cfg.trainer.max_epochs = 6
    record = train(cfg, tmp_path)
    accuracies = [accuracy for accuracy, _ in history]
    best = accuracies.index(max(accuracies))
    assert len(accuracies) == 6
    assert best < 5  # else the last epoch's weights would pass too
    assert record["best_epoch"] == best + 1
    assert record["validation"]["accuracy"] == accuracies[best]
    weights = history[best][1]
    assert all(torch.equal(final[k], weights[k]) for k in weights if k.startswith("model."))


def batches_seen(cfg, folder, monkeypatch):
    """The document numbers of every training batch, by epoch."""
    seen = defaultdict(list)
    with monkeypatch.context() as patched:
        wrap(
            patched,
            "training_step",
            lambda self, batch, _: seen[self.current_epoch].append(batch.index.tolist()),
        )
        train(cfg, folder)
    return seen


def test_runs_of_a_seed_see_the_same_batches_and_each_epoch_others(corpus, tmp_path, monkeypatch):
    add, concat, other = (
        batches_seen(small_config(corpus, *overrides), tmp_path / str(i), monkeypatch)
        for i, overrides in enumerate(
            (["fusion=add", "seed=5"], ["fusion=concat", "seed=5"], ["fusion=add", "seed=6"])
        )
    )
    assert add == concat
    assert add[0] != add[1]
    assert add[0] != other[0]
    assert all(
        sorted(i for batch in batches for i in batch) == list(range(60)) for batches in add.values()
    )


def test_two_runs_at_once_in_one_folder_are_refused(corpus, tmp_path):
    with (
        records.sole_use(tmp_path),
        pytest.raises(InputError, match="another process is running this run") as caught,
    ):
        train(small_config(corpus), tmp_path)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "config.yaml").exists()
