"""A corpus of the Hugging Face hub: its form, when the hub is asked, and what its errors say."""

import socket

import pandas as pd
import pytest

from posfuse.config import DataConfig, SplitsConfig
from posfuse.data import corpora
from posfuse.data.corpora import hub
from posfuse.data.splits import splits
from posfuse.errors import HubUnreachable
from refusals import refusal

TEXTS = [f"word{i} and more" for i in range(40)]


@pytest.fixture(autouse=True)
def nothing_loaded():
    corpora._from_hub.cache_clear()
    yield
    corpora._from_hub.cache_clear()


def unreachable(calls):
    def load_dataset(*arguments, **options):
        calls.append(arguments)
        raise ConnectionError("Couldn't reach the hub")

    return load_dataset


def test_outside_a_sweep_each_call_asks_the_hub_again(monkeypatch) -> None:
    calls: list[tuple[str]] = []
    monkeypatch.setattr("datasets.load_dataset", unreachable(calls))
    for _ in range(2):
        with pytest.raises(HubUnreachable, match=r"cannot load 'a/b' .* \(Couldn't reach the hub"):
            hub("a/b")
    assert len(calls) == 2


def test_a_lack_of_memory_is_not_reported_as_an_unreachable_hub(monkeypatch) -> None:
    def plain(*_, **__):
        raise MemoryError

    def wrapped(*_, **__):  # as `datasets` does while it writes its Arrow files
        raise RuntimeError("An error occurred while generating the dataset") from MemoryError()

    for load_dataset in (plain, wrapped):
        monkeypatch.setattr("datasets.load_dataset", load_dataset)
        with pytest.raises(MemoryError):
            hub("a/b")


def test_after_do_without_hub_nothing_is_looked_up(monkeypatch) -> None:
    looked_up: list[object] = []
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", False)  # restored at the end
    monkeypatch.setattr(corpora, "_without_hub", [])
    monkeypatch.setattr(socket, "getaddrinfo", lambda *a, **_: looked_up.append(a))
    corpora.do_without_hub()
    with pytest.raises(HubUnreachable, match=r"\(the hub was unreachable in an earlier run"):
        hub("posfuse/no-such-corpus")
    assert not looked_up


def hub_form(root, features: str = "") -> str:
    (root / "data").mkdir()
    frame = pd.DataFrame({"text": TEXTS, "label": [i % 2 for i in range(40)]})
    for split in ("train", "test"):
        frame.to_parquet(root / "data" / f"{split}-00000-of-00001.parquet")
    (root / "README.md").write_text(features)
    return str(root)


CLASS_LABELS = """---
dataset_info:
  features:
  - name: text
    dtype: string
  - name: label
    dtype:
      class_label:
        names:
          '0': neg
          '1': pos
---
"""


FILES = """---
configs:
- config_name: default
  data_files:
  - {split: train, path: data/train-*}
  - {split: eval, path: data/eval-*}
  - {split: held, path: data/held-*}
dataset_info"""


@pytest.mark.parametrize(("features", "names"), [("", ["0", "1"]), (CLASS_LABELS, ["neg", "pos"])])
def test_a_corpus_in_the_hubs_form_loads(tmp_path, monkeypatch, features: str, names) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "hub").mkdir()
    corpus = hub(hub_form(tmp_path / "hub", features))
    frames, found = splits(corpus, DataConfig(name="tiny"))
    assert found == names
    assert list(frames["test"].texts()) == TEXTS
    assert len(frames["validation"]) == 4


@pytest.mark.parametrize("name", ["val", "valid", "dev", "eval"])
def test_a_hub_corpus_whose_validation_split_would_be_ignored_is_refused(monkeypatch, name) -> None:
    monkeypatch.setattr(corpora, "_from_hub", lambda *_: dict.fromkeys(("train", name, "test")))
    found = f"data.corpus.id: 'someone/corpus' has the splits train, {name}, test; name those to "
    assert refusal(hub, "someone/corpus").startswith(found)


def test_a_hub_corpus_may_have_other_columns_and_splits(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "hub").mkdir()
    path = hub_form(tmp_path / "hub", CLASS_LABELS.replace("name: text", "name: body").replace(
        "name: label", "name: topic"))  # fmt: skip
    for name in ("train", "eval", "held"):
        frame = pd.DataFrame({"body": [f"{name} {i}" for i in range(6)], "topic": [0, 1] * 3})
        frame.to_parquet(tmp_path / "hub" / "data" / f"{name}-00000-of-00001.parquet")
    (tmp_path / "hub" / "data" / "test-00000-of-00001.parquet").unlink()
    (tmp_path / "hub" / "README.md").write_text(
        (tmp_path / "hub" / "README.md").read_text().replace("---\ndataset_info", FILES, 1)
    )
    corpus = {"_target_": "posfuse.data.corpora.hub", "id": path}
    names = SplitsConfig(validation="eval", test="held")
    cfg = DataConfig("tiny", corpus=corpus, text="body", labels="topic", splits=names)
    parts, found = splits(corpora.load(cfg), cfg)
    assert found == ["neg", "pos"]
    assert [next(part.texts()) for part in parts.values()] == ["train 0", "eval 0", "held 0"]
    for other in (SplitsConfig(test="absent"), SplitsConfig(validation="absent", test="held")):
        message = refusal(corpora.load, DataConfig("tiny", corpus=corpus, splits=other))
        assert "has the splits train, eval, held; name those to use by data.splits" in message


def test_the_validation_split_of_the_hub_can_be_the_test_split_alone(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "hub").mkdir()
    path = hub_form(tmp_path / "hub")
    data = tmp_path / "hub" / "data"
    frame = pd.DataFrame({"text": [f"held {i}" for i in range(6)], "label": [0, 1] * 3})
    frame.to_parquet(data / "validation-00000-of-00001.parquet")
    corpus = {"_target_": "posfuse.data.corpora.hub", "id": path}
    cfg = DataConfig("tiny", corpus=corpus, splits=SplitsConfig(test="validation"))
    parts, _ = splits(corpora.load(cfg), cfg)
    assert list(parts["test"].texts()) == frame["text"].tolist()
    assert set(parts["validation"].texts()) < set(TEXTS)
