"""Runs on a plain text and with a user's tokenizer: trained, sampled, exported and read again."""

import numpy as np
import pandas as pd
import pytest
from tokenizers import Tokenizer

from commands import called
from posfuse.runs.checks import checked
from posfuse.train import train
from posfuse.training.export import export, load_export
from posfuse.training.trained import load_run
from small_pretrained import byte_bpe
from small_runs import SMALL, composed, small_config, write_corpus

LINES = [f"Line {i}: the cat sat on the mat.\n" for i in range(60)]


@pytest.fixture
def tokenizer(tmp_path):
    byte_bpe(LINES).save(str(tmp_path / "tok.json"))
    return tmp_path / "tok.json"


def test_a_language_model_of_a_text_file_reads_the_users_tokens(tmp_path, tokenizer):
    (tmp_path / "input.txt").write_text("".join(LINES))
    cfg = checked(composed(
        "task=language_model", "data=folder", f"data.path={tmp_path}/input.txt", "data.name=lines",
        f"data.vocabulary.file={tokenizer}", "data.max_len=16", f"cache_dir={tmp_path}/cache",
        "fusion=concat", *SMALL, "trainer.max_epochs=2",
    ))  # fmt: skip
    folder = tmp_path / "sweep" / "run"
    record = train(cfg, folder)
    theirs = Tokenizer.from_file(str(tokenizer))
    ids = [i + 2 for line in LINES[-6:] for i in theirs.encode(line).ids]
    _, data, _ = load_run(folder)
    assert data.store.splits["test"].ids.tolist() == ids
    assert record["documents"]["test"] == (len(ids) - 1) // 16
    assert record["test"]["loss"] < np.log(300)
    printed, status = called("sample", str(folder), "--prompt", "Line 1: the", "--tokens", "9")
    assert status is None
    text = printed.removesuffix("\n")
    assert text.startswith("Line 1: the")
    assert "Ġ" not in text
    printed, status = called("sample", str(folder), "--prompt", "\n", "--tokens", "9")
    assert status is None
    assert printed.startswith("\n")


def test_an_exported_classifier_reads_the_users_tokens(tmp_path, tokenizer):
    corpus, run = write_corpus(tmp_path / "corpus"), tmp_path / "sweep" / "run"
    own = [f"data.vocabulary.file={tokenizer}", "fusion=add", "trainer.max_epochs=1"]
    train(small_config(corpus, *own), run)
    export(run, tmp_path / "model.safetensors")
    tokenizer.unlink()  # an export needs nothing else
    exported = load_export(tmp_path / "model.safetensors")
    texts = pd.read_parquet(corpus / "test.parquet")["text"].tolist()
    found = pd.read_parquet(run / "predictions.parquet").filter(like="log_p_").to_numpy()
    mine = exported.probabilities([*texts, ""]).log().numpy()
    np.testing.assert_allclose(mine[:-1], found, atol=1e-5)
    assert np.isfinite(mine[-1]).all()
