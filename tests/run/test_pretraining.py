"""Runs with pretrain=masked: what they share, what they record, and how they resume."""

import os
import signal
import sys
from types import SimpleNamespace
from unittest.mock import Mock

import pandas as pd
import pytest
import torch
from filelock import FileLock

from posfuse.data import locks
from posfuse.errors import Diverged, OutOfMemory
from posfuse.process import signals
from posfuse.runs import identity, records
from posfuse.train import train
from posfuse.training import masked_pretraining
from posfuse.training import run as run_module
from posfuse.training.masked_pretraining import MaskedTokens
from processes import assert_same_files
from refusals import refusal
from small_corpora import labelled, write_splits
from small_runs import OWN_OPERATOR, best_weights, interrupted, small_config, write_corpus

MASKED = [
    "pretrain=masked", "pretrain.max_epochs=3", "pretrain.batch_size=16", "pretrain.lr=0.01",
    "trainer.max_epochs=2",
]  # fmt: skip


def config(corpus, cache, *more):
    return small_config(corpus, *MASKED, f"cache_dir={cache}", *more)


folder_of = run_module.pretrain


@pytest.fixture(scope="module")
def first(corpus, tmp_path_factory):
    root = tmp_path_factory.mktemp("pretrained")
    cfg = config(corpus, root / "cache")
    return cfg, root, train(cfg, root / "run")


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


def test_the_record_has_loss_and_cost(first):
    cfg, _, record = first
    found = record["pretrain"]
    assert found.keys() == {"fingerprint", "loss", "accuracy", "epochs", "seconds"}
    assert found["fingerprint"] == folder_of(cfg).name
    losses = pd.read_csv(folder_of(cfg) / records.HISTORY)["train_loss"].tolist()
    assert len(losses) == found["epochs"] == 3
    assert losses[-1] < losses[0]
    assert found["seconds"] > 0
    assert found["loss"] == records.read_json(folder_of(cfg) / records.RESULT)["loss"]
    assert record["settings"]["pretrain.name"] == "masked"


def test_a_run_starts_from_the_pretrained_values(first, corpus, tmp_path, monkeypatch):
    cfg, *_ = first
    starts = []

    def look(self):
        starts.append({k: v.clone() for k, v in self.state_dict().items()})

    monkeypatch.setattr("posfuse.training.classifier.Classifier.on_train_start", look)
    train(cfg, tmp_path / "again")
    train(small_config(corpus, "trainer.max_epochs=2"), tmp_path / "scratch")
    start, scratch = starts
    for name, weights in best_weights(folder_of(cfg)).items():
        if not name.startswith("model.head."):
            assert torch.equal(start[name], weights), name
    heads = [name for name in start if name.startswith("model.head.")]
    assert all(torch.equal(start[name], scratch[name]) for name in heads)
    assert not torch.equal(start["model.embedding.weight"], scratch["model.embedding.weight"])


def test_runs_that_differ_in_their_own_training_share_it(first, corpus, tmp_path, monkeypatch):
    _, root, record = first
    monkeypatch.setattr(masked_pretraining, "MaskedWords", None)  # would fail
    other = config(corpus, root / "cache", "optim.lr=0.1", "trainer.max_epochs=1")
    assert train(other, tmp_path / "run")["pretrain"] == record["pretrain"]
    with pytest.raises(TypeError):
        train(config(corpus, root / "cache", "fusion=concat"), tmp_path / "concat")


def test_own_code_that_has_changed_is_pretrained_again(corpus, tmp_path, own_module):
    code = own_module("pretrained_operator", OWN_OPERATOR)
    own = ["fusion.name=mine", "fusion._target_=pretrained_operator.Mine", "pretrain.max_epochs=1"]
    cfg = config(corpus, tmp_path / "cache", *own)
    before = folder_of(cfg)
    assert folder_of(cfg) == before
    code.write_text(f"{code.read_text()}    # changed\n")
    assert folder_of(cfg) == before  # this process has loaded the earlier code
    del sys.modules["pretrained_operator"]  # as in another process
    assert folder_of(cfg) != before


@pytest.mark.parametrize("step", [5, 9])  # inside the second epoch of four steps, and the third
def test_pretraining_resumes_where_it_was(first, corpus, tmp_path, step):
    _, _, record = first
    cfg = config(corpus, tmp_path / "cache")
    interrupted(cfg, tmp_path / "run", step, module=MaskedTokens)
    (place,) = (tmp_path / "cache" / "pretrained").iterdir()
    assert (place / records.LAST).exists()
    assert not (place / records.RESULT).exists()
    again = train(cfg, tmp_path / "run")
    assert same(best_weights(place), best_weights(folder_of(first[0])))
    assert again["test"] == record["test"]
    for key in ("loss", "accuracy", "epochs", "fingerprint"):
        assert again["pretrain"][key] == record["pretrain"][key]
    assert not (place / records.LAST).exists()


def test_the_second_phase_resumes_too(first, tmp_path):
    cfg, root, _ = first
    interrupted(cfg, tmp_path / "run", 5)
    train(cfg, tmp_path / "run")
    assert_same_files(root / "run", tmp_path / "run")


def test_the_advice_names_the_keys_of_pretraining(corpus, tmp_path):
    with pytest.raises(Diverged, match=r"lower pretrain\.lr=1e\+30"):
        folder_of(config(corpus, tmp_path / "cache", "pretrain.lr=1e30"))
    module = SimpleNamespace(training=True, global_step=3, batch_key=MaskedTokens.batch_key)
    with (
        pytest.raises(OutOfMemory, match=r"at step 3 with pretrain\.batch_size="),
        run_module.explaining(module, config(corpus, tmp_path).data),
    ):
        raise MemoryError


def test_validation_documents_without_known_words_are_one_line(tmp_path):
    unknown = labelled(["zzzz"] * 3, [0, 1, 2])
    root = write_splits(write_corpus(tmp_path / "corpus"), validation=unknown)
    message = refusal(folder_of, config(root, tmp_path / "cache"))
    assert "the validation documents have no known word" in message


def test_a_run_that_waits_for_pretraining_heeds_signals(corpus, tmp_path, monkeypatch):
    cfg = config(corpus, tmp_path / "cache")
    monkeypatch.setattr(locks, "WAIT", 0.01)
    own = identity.owner(masked_pretraining.first_phase(cfg))
    folder = tmp_path / "cache" / "pretrained" / "-".join(own.values())
    folder.mkdir(parents=True)
    with FileLock(folder / ".lock"), signals.handling():
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(signals.Interrupted, match="interrupted by SIGTERM before pretraining"):
            folder_of(cfg)
    with FileLock(folder / ".lock", timeout=0):  # it is free again
        assert [path.name for path in folder.iterdir()] == [".lock"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("trainer.evaluations=9", "trainer.evaluations: 9, but an epoch has 4 batches"),
        ("optim.warmup=8", "optim.warmup: must be below 8, the number of training steps (got 8)"),
        ("data.test_lengths=[5000]", "data.test_lengths: "),
    ],
)
def test_a_wrong_second_phase_is_refused_before_the_first(
    given, message, corpus, tmp_path, monkeypatch
):
    monkeypatch.setattr(run_module, "fit", None)  # would fail
    cfg = config(corpus, tmp_path / "cache", given)
    assert refusal(train, cfg, tmp_path / "run").startswith(message)


def test_a_finished_pretraining_needs_no_lock(first, monkeypatch):
    """The lock of another user's cache cannot be opened."""
    cfg, *_ = first
    monkeypatch.setattr(run_module, "lock", Mock(side_effect=PermissionError))
    assert (folder_of(cfg) / records.BEST).exists()


def test_a_damaged_result_is_made_again(corpus, tmp_path):
    cfg = config(corpus, tmp_path / "cache")
    folder = folder_of(cfg)
    before = best_weights(folder)
    for name in (records.BEST, records.RESULT):
        path = folder / name
        path.write_bytes(path.read_bytes()[:-1] + b"?")
        assert same(best_weights(folder_of(cfg)), before)
        assert not path.read_bytes().endswith(b"?")
