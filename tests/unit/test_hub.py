"""A corpus of the Hugging Face hub: its form, when the hub is asked, and what its errors say."""

import os
import socket
from functools import lru_cache
from unittest.mock import Mock

import pandas as pd
import pytest

from posfuse.config import DataConfig, SplitsConfig
from posfuse.data import corpora
from posfuse.data.corpora import SPLITS, hub
from posfuse.data.splits import splits
from posfuse.errors import HubUnreachable, InputError
from refusals import refusal
from small_corpora import labelled


@pytest.fixture(autouse=True)
def nothing_loaded(monkeypatch):
    monkeypatch.setattr(corpora, "_from_hub", lru_cache(corpora._from_hub.__wrapped__))


def test_each_call_asks_the_hub_and_names_what_it_answers(monkeypatch) -> None:
    down = ConnectionError("Couldn't reach the hub")
    errors = [down, down, FileNotFoundError("no such corpus")]
    monkeypatch.setattr("datasets.load_dataset", Mock(side_effect=errors))
    for error, kind in zip(errors, (HubUnreachable, HubUnreachable, InputError), strict=True):
        with pytest.raises(kind, match=rf"cannot load 'a/b' .* \({error}") as refused:
            hub("a/b")
        assert refused.type is kind


def test_a_lack_of_memory_is_not_reported_as_an_unreachable_hub(monkeypatch) -> None:
    wrapped = RuntimeError("An error occurred while generating the dataset")
    wrapped.__cause__ = MemoryError()  # as `datasets` does while it writes its Arrow files
    for error in (MemoryError(), wrapped):
        monkeypatch.setattr("datasets.load_dataset", Mock(side_effect=error))
        with pytest.raises(MemoryError):
            hub("a/b")


def test_after_use_only_hub_cache_nothing_is_looked_up(monkeypatch) -> None:
    looked_up: list[object] = []
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", False)  # restored at the end
    monkeypatch.setattr(corpora, "_without_hub", [])
    monkeypatch.setattr(socket, "getaddrinfo", lambda *a, **_: looked_up.append(a))
    corpora.use_only_hub_cache()
    with pytest.raises(HubUnreachable, match=r"\(the hub was unreachable in an earlier run"):
        hub("posfuse/no-such-corpus")
    assert not looked_up


@pytest.fixture
def in_hub_form(tmp_path, monkeypatch):
    """Writes the splits of a corpus and its card to a folder, and returns the corpus function."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    data = tmp_path / "hub" / "data"
    data.mkdir(parents=True)

    def write(card: str = "", **frames) -> dict[str, str]:
        for split, frame in frames.items():
            frame.to_parquet(data / f"{split}-00000-of-00001.parquet")
        (tmp_path / "hub" / "README.md").write_text(card)
        return {"_target_": "posfuse.data.corpora.hub", "id": str(tmp_path / "hub")}

    return write


@pytest.mark.parametrize(
    ("names", "own", "expected"),
    [
        (["train", "test"], {}, ["36 of train", "4 of train", "40 of test"]),
        (SPLITS, {}, ["40 of train", "40 of validation", "40 of test"]),
        (SPLITS, {"test": "validation"}, ["36 of train", "4 of train", "40 of validation"]),
    ],
)
def test_a_corpus_in_the_hubs_form_loads(in_hub_form, names, own, expected) -> None:
    frames = {name: labelled([f"{name} {i}" for i in range(40)]) for name in names}
    cfg = DataConfig("tiny", corpus=in_hub_form(**frames), splits=SplitsConfig(**own))
    parts, classes = splits(corpora.load(cfg), cfg)
    assert classes == ["a", "b"]
    found = [f"{len(part)} of {next(part.texts()).split()[0]}" for part in parts.values()]
    assert found == expected


def test_a_file_of_other_texts_with_the_same_time_stamp_is_read(in_hub_form, tmp_path) -> None:
    read = []
    for word in ("old", "newest"):
        frame = labelled([f"{word} {i}" for i in range(40)])
        cfg = DataConfig("tiny", corpus=in_hub_form(train=frame, test=frame))
        for file in (tmp_path / "hub" / "data").iterdir():
            os.utime(file, (1e9, 1e9))  # as an archive may set it
        corpus = corpora.load(cfg)
        parts, _ = splits(corpus, cfg)
        read.append((corpus.fingerprint, next(parts["test"].texts())))
    (old, one), (new, other) = read
    assert (one, other) == ("old 0", "newest 0")
    assert old != new


CARD = """---
configs:
- config_name: default
  data_files:
  - {split: train, path: data/train-*}
  - {split: eval, path: data/eval-*}
  - {split: held, path: data/held-*}
dataset_info:
  features:
  - {name: body, dtype: string}
  - {name: topic, dtype: {class_label: {names: {'0': neg, '1': pos}}}}
---
"""


def test_a_hub_corpus_may_have_other_columns_splits_and_names_of_classes(in_hub_form) -> None:
    frames = {
        name: pd.DataFrame({"body": [f"{name} {i}" for i in range(6)], "topic": [0, 1] * 3})
        for name in ("train", "eval", "held")
    }
    own = {"corpus": in_hub_form(CARD, **frames), "text": "body", "labels": "topic"}
    cfg = DataConfig("tiny", **own, splits=SplitsConfig(validation="eval", test="held"))
    parts, found = splits(corpora.load(cfg), cfg)
    assert found == ["neg", "pos"]
    assert [next(part.texts()) for part in parts.values()] == ["train 0", "eval 0", "held 0"]
    for other in (SplitsConfig(test="absent"), SplitsConfig(validation="absent", test="held")):
        message = refusal(corpora.load, DataConfig("tiny", **own, splits=other))
        assert "has the splits train, eval, held; name those to use by data.splits" in message


@pytest.mark.parametrize("name", ["val", "valid", "dev", "eval"])
def test_a_hub_corpus_whose_validation_split_would_be_ignored_is_refused(monkeypatch, name) -> None:
    monkeypatch.setattr(corpora, "_from_hub", lambda *_: dict.fromkeys(("train", name, "test")))
    found = f"data.corpus.id: 'someone/corpus' has the splits train, {name}, test; name those to "
    assert refusal(hub, "someone/corpus").startswith(found)
