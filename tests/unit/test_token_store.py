"""Token ids on disk."""

import errno
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest

from posfuse.config import DataConfig, SplitsConfig, VocabularyConfig
from posfuse.data import corpora, token_store
from posfuse.data.corpora import load
from posfuse.data.sources import hub_source
from posfuse.data.token_store import open_store, store_key
from posfuse.errors import InputError
from refusals import refusal
from small_corpora import labelled, write_splits
from small_runs import write_corpus


@pytest.fixture
def cfg(tmp_path) -> DataConfig:
    return DataConfig(name="tiny", path=str(write_corpus(tmp_path / "corpus")))


def store_folder(cache):
    (folder,) = (p for p in cache.iterdir() if p.is_dir())
    return folder


def contents(store) -> list[list[int]]:
    return [array.tolist() for split in store.splits.values() for array in vars(split).values()]


def test_a_second_run_reads_the_store_and_not_the_corpus(cfg, tmp_path, monkeypatch) -> None:
    store = open_store(cfg, tmp_path / "cache")
    assert isinstance(store.splits["train"].ids.base, np.memmap)
    monkeypatch.setattr(token_store, "splits", lambda *_: pytest.fail("read the corpus again"))
    assert contents(open_store(cfg, tmp_path / "cache")) == contents(store)


def test_a_store_of_another_user_is_read_without_its_lock(cfg, tmp_path, monkeypatch) -> None:
    store = open_store(cfg, tmp_path / "cache")
    denied = PermissionError(errno.EACCES, "Permission denied")
    monkeypatch.setattr(token_store, "lock", Mock(side_effect=denied))
    assert contents(open_store(cfg, tmp_path / "cache")) == contents(store)
    assert "cannot write token ids" in refusal(open_store, cfg, tmp_path / "other")


def test_a_store_without_labels_is_built_again_for_a_task_that_needs_them(tmp_path) -> None:
    train, test = labelled(["a", "b"], [0, 1]), labelled(["c"], [2])
    write_splits(tmp_path, train=train, test=test)
    cfg = DataConfig(name="tiny", path=str(tmp_path), vocabulary=VocabularyConfig(min_count=1))
    assert open_store(cfg, tmp_path / "cache", labelled=False).label_names == [""]
    assert "is not in the training split" in refusal(open_store, cfg, tmp_path / "cache")


@pytest.mark.parametrize("call", [1, 7, 9, 12])  # reading, words, repeated documents, encoding
def test_poll_can_stop_the_building_and_no_store_is_left(cfg, tmp_path, call) -> None:
    poll = Mock(side_effect=[*[None] * (call - 1), KeyboardInterrupt])
    with pytest.raises(KeyboardInterrupt):
        open_store(cfg, tmp_path / "cache", poll=poll)
    assert not [path for path in (tmp_path / "cache").iterdir() if path.is_dir()]


def test_what_a_killed_process_left_is_removed(cfg, tmp_path) -> None:
    open_store(cfg, tmp_path / "cache")
    folder = store_folder(tmp_path / "cache")
    folder.rename(folder.with_name(f"{folder.name}.part"))
    open_store(cfg, tmp_path / "cache")
    assert store_folder(tmp_path / "cache") == folder


def test_taken_documents_are_those_at_the_places(cfg, tmp_path) -> None:
    part = open_store(cfg, tmp_path / "cache").splits["train"]
    taken = part.take(np.array([1, 4, 5]))
    for found, i in zip(np.split(taken.ids, taken.offsets[1:-1]), (1, 4, 5), strict=True):
        assert found.tolist() == part.ids[part.offsets[i] : part.offsets[i + 1]].tolist()
    assert taken.labels.tolist() == part.labels[[1, 4, 5]].tolist()
    assert taken.groups.tolist() == taken.rows.tolist() == [1, 4, 5]
    assert taken.ids.dtype == part.ids.dtype


DAMAGES = {  # the file, and its bytes afterwards; None: no file
    "one bit of the ids": ("train.ids.npy", lambda raw: raw[:-1] + bytes([raw[-1] ^ 1])),
    "no labels": ("test.labels.npy", None),
    "cut meta.json": ("meta.json", lambda raw: raw[:40]),
    "a list as meta.json": ("meta.json", lambda _: b"[]"),
    "a list of checksums": ("meta.json", lambda _: b'{"checksums": []}'),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_store_is_built_again(cfg, tmp_path, caplog, damage) -> None:
    whole = contents(open_store(cfg, tmp_path / "cache"))
    name, changed = DAMAGES[damage]
    file = store_folder(tmp_path / "cache") / name
    raw = file.read_bytes()
    file.unlink()
    if changed is not None:
        file.write_bytes(changed(raw))
    assert contents(open_store(cfg, tmp_path / "cache")) == whole
    assert "damaged" in caplog.text
    assert store_folder(tmp_path / "cache")  # the one folder: no half-built one beside it


FULL = (np, "save", OSError(errno.ENOSPC, "No space left on device"), InputError,
        r"tiny-\w+: .*No space left.*; free space there or set")  # fmt: skip
MEMORY = (token_store, "splits", OSError(errno.ENOMEM, "Cannot allocate memory"), OSError,
          "Cannot allocate")  # fmt: skip


@pytest.mark.parametrize(("place", "call", "error", "kind", "message"), [FULL, MEMORY])
def test_a_build_that_fails_leaves_no_store(
    cfg, tmp_path, monkeypatch, place, call, error, kind, message
):
    """Lack of memory is not reported as a bad cache."""
    with monkeypatch.context() as patch:
        patch.setattr(place, call, Mock(side_effect=error))
        with pytest.raises(kind, match=message):
            open_store(cfg, tmp_path / "cache")
    assert not [p for p in (tmp_path / "cache").iterdir() if p.is_dir()]
    open_store(cfg, tmp_path / "cache")


def test_a_disk_that_is_full_at_the_vocabulary_is_one_line(cfg, tmp_path, monkeypatch) -> None:
    write_text = Path.write_text

    def fail(path, *given, **named):
        if path.name == token_store.VOCABULARY:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write_text(path, *given, **named)

    monkeypatch.setattr(Path, "write_text", fail)
    assert "No space left on device); free space" in refusal(open_store, cfg, tmp_path / "cache")


def test_a_corpus_that_cannot_be_read_is_not_reported_as_a_bad_cache(cfg, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(errno.EIO, "Input/output error")

    part = SimpleNamespace(column_names=("text", "label"), select_columns=fail)
    of_hub = dict.fromkeys(corpora.SPLITS, hub_source(part, "a/b (train)"))
    for read, message in (
        (fail, "tiny: cannot be read ([Errno 5] Input/output error); correct this file"),
        (lambda: of_hub, "a/b (train): not readable (Input/output error)"),
    ):
        monkeypatch.setattr(token_store, "load", lambda _, read=read: corpora.Corpus("1", read))
        assert refusal(open_store, cfg, tmp_path / "cache").startswith(message)


CHANGES = {"drop_empty": True, "split_seed": 1, "validation_fraction": 0.2, "limit": 9,
           "validation_stratified": False, "text": "body", "labels": "topic"}  # fmt: skip
OF_WORDS = {"min_count": 3, "max_size": 9, "source": "all", "unit": "bytes", "ending": "."}
OTHER = {"name": "b", "max_len": 7, "batch_size": 7, "eval_batch_size": 7, "pool_batches": 7,
         "test_lengths": [9], "targets": "answers", "word_order": "shuffled",
         "splits": SplitsConfig(test="eval")}  # fmt: skip


def test_the_key_follows_what_can_change_a_byte_and_nothing_else(cfg) -> None:
    """Every data setting is in one of the lists. The file of a vocabulary: test_vocabulary.py."""
    of_words = [("vocabulary", VocabularyConfig(**{k: v})) for k, v in OF_WORDS.items()]
    corpus, changes = load(cfg), [*CHANGES.items(), *of_words, *OTHER.items()]
    assert {key for key, _ in changes} | {"path", "corpus"} == {f.name for f in fields(DataConfig)}
    for key, value in changes:
        is_same = store_key(cfg, corpus) == store_key(replace(cfg, **{key: value}), corpus)
        assert is_same == (key in OTHER), (key, value)


@pytest.mark.parametrize("limit", [None, 6])
def test_groups_of_a_composed_corpus_are_kept(cfg, tmp_path, monkeypatch, limit) -> None:
    """Also in a sample. Other documents have their own: test_sources.py."""
    groups = [9, 7, 7, 2, 2, 2, 7, 5, 5]
    frame = labelled(["", *"aabbcccc"]).assign(group=groups)
    corpus = corpora.Corpus("composed", lambda: dict.fromkeys(corpora.SPLITS, frame))
    monkeypatch.setattr(token_store, "load", lambda _: corpus)
    store = open_store(replace(cfg, drop_empty=True, limit=limit), tmp_path / "cache")
    test = store.splits["test"]
    assert len(test.rows) == (limit or 8)
    assert test.groups.tolist() == [groups[row] for row in test.rows]


def test_a_column_group_of_ones_own_file_is_not_read(cfg, tmp_path) -> None:
    path = tmp_path / "corpus" / "test.parquet"
    pd.read_parquet(path).assign(group="any text").to_parquet(path)
    groups = open_store(cfg, tmp_path / "cache").splits["test"].groups
    assert groups.tolist() == list(range(len(groups)))


def test_words_of_every_split_are_known_if_they_are_asked_for(tmp_path) -> None:
    """Without, those of train: test_sources.py."""
    write_splits(tmp_path, **{s: labelled([f"common {s}"] * 4) for s in corpora.SPLITS})
    cfg = DataConfig("tiny", path=str(tmp_path), vocabulary=VocabularyConfig(source="all"))
    store = open_store(cfg, tmp_path / "cache")
    assert store.vocabulary_size == 2 + 1 + 3
    assert store.unknown_share["test"] == 0
