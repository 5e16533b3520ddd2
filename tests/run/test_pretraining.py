"""Runs with pretrain=masked: what they share, what they record, and how they resume."""

import os
import shutil
import signal
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
from filelock import FileLock

from posfuse.data import locks
from posfuse.errors import Diverged, InputError, OutOfMemory
from posfuse.process import signals
from posfuse.runs import records
from posfuse.train import train
from posfuse.training import masked_pretraining
from posfuse.training import run as run_module
from posfuse.training.checkpoints import read_checkpoint
from posfuse.training.masked_pretraining import MaskedTokens
from refusals import refusal
from small_runs import interrupted, small_config

MASKED = [
    "pretrain=masked", "pretrain.max_epochs=3", "pretrain.batch_size=16", "pretrain.lr=0.01",
    "trainer.max_epochs=2",
]  # fmt: skip


def config(corpus, cache, *more):
    return small_config(corpus, *MASKED, f"cache_dir={cache}", *more)


def folder_of(cfg):
    return run_module.pretrain(cfg)


@pytest.fixture(scope="module")
def first(corpus, tmp_path_factory):
    root = tmp_path_factory.mktemp("pretrained")
    cfg = config(corpus, root / "cache")
    return cfg, root, train(cfg, root / "run")


def best(folder):
    return read_checkpoint(folder / records.BEST)["state_dict"]


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


def test_the_record_has_loss_and_cost(first):
    cfg, _, record = first
    found = record["pretrain"]
    assert found.keys() == {"fingerprint", "loss", "accuracy", "epochs", "seconds"}
    assert found["fingerprint"] == folder_of(cfg).name
    losses = pd.read_csv(folder_of(cfg) / records.HISTORY)["train_loss"].tolist()
    assert (len(losses), losses[-1] < losses[0]) == (3, True)
    assert found["seconds"] > 0
    history = records.read_json(folder_of(cfg) / records.RESULT)
    assert found["loss"] == history["loss"]
    assert record["settings"]["pretrain.name"] == "masked"


def test_a_run_starts_from_the_pretrained_values(first, corpus, tmp_path, monkeypatch):
    cfg, _, _ = first
    started = {}

    def look(self):
        started.update({k: v.clone() for k, v in self.state_dict().items()})

    monkeypatch.setattr("posfuse.training.classifier.Classifier.on_train_start", look)
    train(cfg, tmp_path / "again")
    weights = best(folder_of(cfg))
    shared = [name for name in weights if not name.startswith("model.head.")]
    assert all(torch.equal(started[name], weights[name]) for name in shared)
    heads = [k for k in started if k.startswith("model.head.")]
    pretrained_heads = {k: started[k].clone() for k in heads}
    started.clear()
    train(small_config(corpus, "trainer.max_epochs=2"), tmp_path / "scratch")
    assert all(torch.equal(started[k], pretrained_heads[k]) for k in heads)
    assert not torch.equal(started["model.embedding.weight"], weights["model.embedding.weight"])


def test_runs_that_differ_in_their_own_training_share_it(first, corpus, tmp_path, monkeypatch):
    _, root, record = first
    monkeypatch.setattr(masked_pretraining, "MaskedWords", None)  # would fail
    other = config(corpus, root / "cache", "optim.lr=0.1", "trainer.max_epochs=1")
    assert train(other, tmp_path / "run")["pretrain"] == record["pretrain"]
    with pytest.raises(TypeError):
        train(config(corpus, root / "cache", "fusion=concat"), tmp_path / "concat")


def test_own_code_that_has_changed_is_pretrained_again(corpus, tmp_path, monkeypatch):
    code = tmp_path / "pretrained_operator.py"
    code.write_text("from posfuse.model.fusion import Add\n\n\nclass Mine(Add):\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    own = ["fusion.name=mine", "fusion._target_=pretrained_operator.Mine", "pretrain.max_epochs=1"]
    cfg = config(corpus, tmp_path / "cache", *own)
    before = folder_of(cfg)
    assert folder_of(cfg) == before
    code.write_text(f"{code.read_text()}    # changed\n")
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
    assert same(best(place), best(folder_of(first[0])))
    assert again["test"] == record["test"]
    for key in ("loss", "accuracy", "epochs", "fingerprint"):
        assert again["pretrain"][key] == record["pretrain"][key]
    assert not (place / records.LAST).exists()


def test_the_second_phase_resumes_too(first, tmp_path):
    cfg, root, record = first
    interrupted(cfg, tmp_path / "run", 5)
    again = train(cfg, tmp_path / "run")
    assert again["test"] == record["test"]
    assert same(best(tmp_path / "run"), best(root / "run"))


def test_the_advice_names_the_keys_of_pretraining(corpus, tmp_path):
    with pytest.raises(Diverged, match=r"lower pretrain\.lr=1e\+30"):
        folder_of(config(corpus, tmp_path / "cache", "pretrain.lr=1e30"))
    module = SimpleNamespace(training=True, global_step=3, batch_key=MaskedTokens.batch_key)
    with (
        pytest.raises(OutOfMemory, match=r"at step 3 with pretrain\.batch_size="),
        run_module.explaining(module, config(corpus, tmp_path).data),
    ):
        raise MemoryError


def test_validation_documents_without_known_words_are_one_line(corpus, tmp_path):
    for path in corpus.glob("*.parquet"):
        shutil.copy(path, tmp_path)
    labels = pd.read_parquet(corpus / "test.parquet")["label"].unique()
    unknown = pd.DataFrame({"text": ["zzzz"] * len(labels), "label": labels})
    unknown.to_parquet(tmp_path / "validation.parquet")
    with pytest.raises(InputError, match="the validation documents have no known word"):
        folder_of(config(tmp_path, tmp_path / "cache"))


def test_a_run_that_waits_for_pretraining_heeds_signals(first, monkeypatch):
    cfg, *_ = first
    monkeypatch.setattr(locks, "WAIT", 0.01)
    folder = folder_of(cfg)
    with FileLock(folder / ".lock"), signals.handling():
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(signals.Interrupted, match="interrupted by SIGTERM before pretraining"):
            folder_of(cfg)
    with signals.handling():  # forgets the signal
        assert folder_of(cfg) == folder  # the lock is free again


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


@pytest.mark.parametrize("damage", ["weights", "result"])
def test_a_damaged_result_is_made_again(first, corpus, tmp_path, damage):
    cfg = config(corpus, tmp_path / "cache")
    folder = folder_of(cfg)
    before = best(folder)
    path = folder / (records.BEST if damage == "weights" else records.RESULT)
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert same(best(folder_of(cfg)), before)
