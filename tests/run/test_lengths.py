"""Runs that are tested at further lengths."""

import numpy as np
import pandas as pd
import pytest
import torch

from posfuse.runs import records
from posfuse.train import train
from posfuse.training.trained import load_run
from small_runs import small_config

CUT = ["data.max_len=6", "fusion=concat", "trainer.max_epochs=2"]
LONGER = [*CUT, "data.test_lengths=[9,12]"]


@pytest.fixture(scope="module")
def longer(corpus, tmp_path_factory):
    """A run on texts cut at 6 words, and its record; the longer ones are tested at 9 and 12."""
    folder = tmp_path_factory.mktemp("longer")
    return folder, train(small_config(corpus, *LONGER), folder)


def test_the_model_reads_each_document_up_to_the_length(longer, corpus):
    """The accuracies and predictions, computed again from the checkpoint one document at a time."""
    folder, record = longer
    _, data, classifier = load_run(folder)
    texts = pd.read_parquet(corpus / "test.parquet")["text"].str.split()
    found = pd.read_parquet(folder / records.BY_LENGTH)
    assert found["test_length"].unique().tolist() == [9, 12]
    part = data.store.splits["test"]
    for length, frame in found.groupby("test_length"):
        assert frame["group"].tolist() == texts.index[texts.str.len() > 6].tolist()
        assert (frame["length"].to_numpy() == texts[frame["group"]].str.len().to_numpy()).all()
        for row in frame.to_dict("records"):
            start, end = part.offsets[row["group"]], part.offsets[row["group"] + 1]
            ids = torch.from_numpy(part.ids[start : min(end, start + length)].astype(np.int64))
            with torch.no_grad():
                logits = classifier.model(ids[None], torch.tensor([len(ids)]))
            log_p = [row[f"log_p_{c}"] for c in range(3)]
            assert logits.log_softmax(-1)[0].tolist() == pytest.approx(log_p, abs=1e-5)
            assert row["label"] == part.labels[row["group"]]
        of_length = record["lengths"][str(length)]
        accuracy = (frame["label"] == frame["predicted"]).mean()
        assert of_length["accuracy"] == pytest.approx(accuracy)
        loss = -np.mean([row[f"log_p_{row['label']}"] for row in frame.to_dict("records")])
        assert of_length["loss"] == pytest.approx(loss, abs=1e-6)
        assert of_length["documents"] == len(frame)
        assert set(of_length) == {"accuracy", "loss", "macro_f1", "documents"}
    assert found[found["test_length"] == 9]["log_p_0"].tolist() != (
        found[found["test_length"] == 12]["log_p_0"].tolist()
    )


def test_nothing_else_changes(longer, corpus, tmp_path):
    """The sinusoidal table is longer, but its first rows are the same. On some CPUs a product with
    more rows rounds them differently."""
    folder, record = longer
    usual = train(small_config(corpus, *CUT), tmp_path)
    same = ("test", "validation", "position", "documents", "mean_tokens", "truncated_share",
            "unknown_share", "best_epoch", "epochs", "vocabulary_size")  # fmt: skip
    assert {k: usual[k] for k in same} == {k: record[k] for k in same}
    assert record.keys() - usual.keys() == {"lengths"}
    assert record["settings"].keys() - usual["settings"].keys() == {"data.test_lengths"}
    for name in (records.HISTORY, records.DIAGNOSTICS, records.PREDICTIONS):
        read = pd.read_csv if name == records.HISTORY else pd.read_parquet
        pd.testing.assert_frame_equal(read(folder / name), read(tmp_path / name), rtol=1e-5)
    assert not (tmp_path / records.BY_LENGTH).exists()
    assert records.BY_LENGTH in (folder / records.SUMS).read_text()
