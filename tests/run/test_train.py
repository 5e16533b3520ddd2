"""One run: the files it writes, that it repeats bit for bit, and that it tests its best epoch."""

import hashlib
import json
import logging

import numpy as np
import pandas as pd
import pytest
import torch

from posfuse.train import train
from posfuse.training import run as entry
from posfuse.training.classifier import Classifier
from processes import assert_same_files
from small_corpora import write_splits
from small_runs import REFERENCE, before_calls, small_config


def test_a_run_writes_config_result_predictions_and_best_weights(reference):
    folder, record = reference
    written = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()} - {".lock"}
    sums = [line.split("  ") for line in (folder / "SHA256SUMS").read_text().splitlines()]
    assert written == {
        "config.yaml", "result.json", "predictions.parquet", "mechanism.parquet", "history.csv",
        "checkpoints/best.ckpt", "diagnostics.parquet", "SHA256SUMS",
    }  # fmt: skip
    assert {name for _, name in sums} == written - {"config.yaml", "SHA256SUMS"}
    for digest, name in sums:
        assert digest == hashlib.sha256((folder / name).read_bytes()).hexdigest()
    assert json.loads((folder / "result.json").read_text()) == record


def test_accuracy_and_loss_follow_from_the_predictions(reference):
    folder, record = reference
    frame = pd.read_parquet(folder / "predictions.parquet")
    log_p = frame[["log_p_0", "log_p_1", "log_p_2"]].to_numpy()
    assert list(frame["index"]) == list(frame["group"]) == list(range(20))
    assert (log_p.argmax(1) == frame["predicted"]).all()
    np.testing.assert_allclose(np.exp(log_p).sum(1), 1, atol=1e-6)
    right = int((frame["label"] == frame["predicted"]).sum())
    assert record["test"]["accuracy"] == right / 20  # in double precision
    loss = -log_p[np.arange(20), frame["label"]].mean()
    assert loss == pytest.approx(record["test"]["loss"], abs=1e-6)


@pytest.mark.parametrize(("more", "n"), [("data.limit=9", 1), ("data.test_lengths=[9]", 2)])
def test_predictions_name_the_row_of_the_users_file(corpus, tmp_path, more, n):
    """Though documents without text are left out, and a sample is taken."""
    for split in ("train", "test"):
        frame = pd.read_parquet(corpus / f"{split}.parquet")
        frame.loc[[0, 3], "text"] = [None, " "]
        frame.to_csv(tmp_path / f"{split}.csv", index=False)
    options = ["data.drop_empty=true", "data.max_len=6", f"cache_dir={tmp_path}/cache"]
    short = ["trainer.max_epochs=1", "trainer.mechanism=false"]
    train(small_config(tmp_path, *options, *short, more), tmp_path / "run")
    test = pd.read_csv(tmp_path / "test.csv")
    files = list((tmp_path / "run").glob("predictions*.parquet"))
    assert len(files) == n
    for found in map(pd.read_parquet, files):
        joined = found.merge(test, left_on="row", right_index=True, suffixes=("", "_of_file"))
        assert joined["label"].tolist() == joined["label_of_file"].tolist() != []
        assert joined["length"].tolist() == [len(text.split()) for text in joined["text"]]
        assert found["row"].is_monotonic_increasing
        assert found["row"].tolist() != found["index"].tolist()


def test_a_run_on_unknown_words_warns_once(tmp_path, caplog):
    texts = [f"\u7403\u961f\u6bd4\u8d5b{chr(0x4E00 + i)} \u4f53\u80b2" for i in range(20)]
    frame = pd.DataFrame({"text": texts, "label": [0, 1] * 10})
    write_splits(tmp_path, train=frame, test=frame)
    short = ["trainer.max_epochs=1", "trainer.mechanism=false", "data.name=unknown"]
    for seed in (0, 1):
        options = [*short, f"seed={seed}", f"cache_dir={tmp_path}/cache"]
        train(small_config(tmp_path, *options), tmp_path / str(seed))
    (line,) = [message for message in caplog.messages if "<unk>" in message]
    assert line.startswith(
        "unknown: 50% of the tokens of train are <unk>; set data.vocabulary.unit"
    )


def test_a_repeated_run_is_bitwise_equal_whatever_ran_before(reference, corpus, tmp_path):
    folder, record = reference
    other = train(small_config(corpus, "seed=4"), tmp_path / "other")
    torch.manual_seed(991)
    train(small_config(corpus, *REFERENCE), tmp_path / "again")
    assert_same_files(folder, tmp_path / "again")
    assert other["test"]["loss"] != record["test"]["loss"]


def test_a_finished_run_is_skipped(reference, corpus, monkeypatch, caplog):
    folder, record = reference
    before = {p: p.stat().st_mtime_ns for p in folder.rglob("*") if p.name != ".lock"}
    monkeypatch.setattr(entry, "run", lambda *_: pytest.fail("trained again"))
    caplog.set_level(logging.INFO)
    assert train(small_config(corpus, *REFERENCE), folder) == record
    assert "tiny sinusoidal gate_scalar seed=3: already done" in caplog.text
    assert before == {p: p.stat().st_mtime_ns for p in folder.rglob("*") if p.name != ".lock"}


def test_the_tested_weights_are_those_of_the_first_best_epoch(corpus, tmp_path, monkeypatch):
    history = []

    def keep(self):
        accuracy = self.val_metrics.compute()["val/accuracy"].item()
        history.append((accuracy, {k: v.clone() for k, v in self.state_dict().items()}))

    final = {}

    def keep_final(self):
        final.update(self.state_dict())

    before_calls(monkeypatch, Classifier, "on_validation_epoch_end", keep)
    before_calls(monkeypatch, Classifier, "on_test_epoch_start", keep_final)
    cfg = small_config(corpus, "optim.lr=0.1", "trainer.max_epochs=6")
    record = train(cfg, tmp_path)
    accuracies = [accuracy for accuracy, _ in history]
    best = accuracies.index(max(accuracies))
    assert len(accuracies) == 6  # no other pass over the validation split
    assert best < 5  # otherwise the last epoch's weights would pass too
    assert record["best_epoch"] == best + 1
    assert record["validation"]["accuracy"] == accuracies[best]
    weights = history[best][1]
    assert all(torch.equal(final[k], weights[k]) for k in weights if k.startswith("model."))
