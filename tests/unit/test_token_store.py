"""Token ids on disk."""

import errno
from dataclasses import fields, replace

import numpy as np
import pandas as pd
import pytest

from posfuse.config import DataConfig, SplitsConfig, VocabularyConfig
from posfuse.data import corpora, token_store
from posfuse.data.corpora import load
from posfuse.data.sources import in_hub_form
from posfuse.data.token_store import open_store, store_key
from posfuse.errors import InputError
from small_runs import write_corpus


@pytest.fixture
def cfg(tmp_path) -> DataConfig:
    return DataConfig(name="tiny", path=str(write_corpus(tmp_path / "corpus")))


def store_folder(cache):
    (folder,) = (p for p in cache.iterdir() if p.is_dir())
    return folder


def contents(store) -> list[list[int]]:
    return [
        part.tolist()
        for s in store.splits.values()
        for part in (s.ids, s.offsets, s.labels, s.groups)
    ]


def test_holds_every_document_in_order(cfg, tmp_path, monkeypatch) -> None:
    store = open_store(cfg, tmp_path / "cache")
    texts = pd.read_parquet(f"{cfg.path}/train.parquet")["text"]
    assert store.splits["train"].lengths.tolist() == texts.str.split().str.len().tolist()
    assert store.label_names == ["0", "1", "2"]
    assert isinstance(store.splits["train"].ids.base, np.memmap)
    monkeypatch.setattr(token_store, "splits", lambda *_: pytest.fail("read the corpus again"))
    again = open_store(cfg, tmp_path / "cache")
    assert contents(again) == contents(store)
    leftovers = [p for p in (tmp_path / "cache").iterdir() if p.suffix != ".lock"]
    assert len(leftovers) == 1


@pytest.mark.parametrize("call", [1, 2, 4])  # while words are counted, and while they are encoded
def test_poll_can_stop_the_building_and_no_store_is_left(cfg, tmp_path, call) -> None:
    calls = []

    def poll() -> None:
        calls.append(None)
        if len(calls) == call:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        open_store(cfg, tmp_path / "cache", poll=poll)
    assert not [path for path in (tmp_path / "cache").iterdir() if path.is_dir()]


def test_what_a_killed_process_left_is_removed(cfg, tmp_path) -> None:
    open_store(cfg, tmp_path / "cache")
    folder = store_folder(tmp_path / "cache")
    folder.rename(folder.with_name(f"{folder.name}.0123abcd"))
    open_store(cfg, tmp_path / "cache")
    assert store_folder(tmp_path / "cache") == folder


def test_taken_documents_are_those_at_the_places(cfg, tmp_path) -> None:
    part = open_store(cfg, tmp_path / "cache").splits["train"]
    taken = part.take(np.array([1, 4, 5]))
    assert taken.lengths.tolist() == part.lengths[[1, 4, 5]].tolist()
    assert taken.ids[taken.offsets[1] : taken.offsets[2]].tolist() == (
        part.ids[part.offsets[4] : part.offsets[5]].tolist()
    )
    assert taken.labels.tolist() == part.labels[[1, 4, 5]].tolist()
    assert taken.groups.tolist() == [1, 4, 5]
    assert taken.ids.dtype == part.ids.dtype


def overwritten(name, change):
    return lambda folder: (folder / name).write_bytes(change((folder / name).read_bytes()))


def removed(name):
    return lambda folder: (folder / name).unlink()


DAMAGES = {
    "one bit of the ids": overwritten("train.ids.npy", lambda raw: raw[:-1] + bytes([raw[-1] ^ 1])),
    "a bit of the words": overwritten("vocabulary.json", lambda raw: raw[:-9] + b"!" + raw[-8:]),
    "cut offsets": overwritten("test.offsets.npy", lambda raw: raw[:-5]),
    "no labels": removed("test.labels.npy"),
    "cut meta.json": overwritten("meta.json", lambda raw: raw[:40]),
    "no meta.json": removed("meta.json"),
    "a list as meta.json": overwritten("meta.json", lambda _: b"[]"),
    "a list of checksums": overwritten("meta.json", lambda _: b'{"checksums": []}'),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_store_is_built_again(cfg, tmp_path, caplog, damage) -> None:
    whole = contents(open_store(cfg, tmp_path / "cache"))
    DAMAGES[damage](store_folder(tmp_path / "cache"))
    assert contents(open_store(cfg, tmp_path / "cache")) == whole
    assert "damaged" in caplog.text
    assert store_folder(tmp_path / "cache")  # the one folder: no half-built one beside it


KILLED = ("rename", KeyboardInterrupt(), KeyboardInterrupt, None)
FULL = ("save", OSError(28, "No space left on device"), InputError,
        r"tiny-\w+: .*No space left.*; free space there or set")  # fmt: skip
MEMORY = ("splits", OSError(errno.ENOMEM, "Cannot allocate memory"), OSError, "Cannot allocate")


@pytest.mark.parametrize(("call", "error", "kind", "message"), [KILLED, FULL, MEMORY])
def test_a_build_that_fails_leaves_no_store(cfg, tmp_path, monkeypatch, call, error, kind, message):
    """Lack of memory is not reported as a bad cache."""

    def fail(*_):
        raise error

    place = {"rename": token_store.os, "save": np, "splits": token_store}[call]
    with monkeypatch.context() as patch:
        patch.setattr(place, call, fail)
        with pytest.raises(kind, match=message):
            open_store(cfg, tmp_path / "cache")
    assert not [p for p in (tmp_path / "cache").iterdir() if p.is_dir()]
    open_store(cfg, tmp_path / "cache")


def test_a_corpus_that_cannot_be_read_is_not_reported_as_a_bad_cache(cfg, tmp_path, monkeypatch):
    class OfHub:
        column_names = ("text", "label")

        def select_columns(self, columns):
            raise OSError(errno.EIO, "Input/output error")

    def of_files():
        return {split: pd.read_csv(tmp_path / "lost.csv") for split in corpora.SPLITS}

    def of_hub():
        return dict.fromkeys(corpora.SPLITS, in_hub_form(OfHub(), "a/b (train)"))

    for read, message in (
        (of_files, r"tiny: cannot be read \(.*No such file.*lost\.csv'\)"),
        (of_hub, r"a/b \(train\): not readable \(Input/output error\)"),
    ):
        monkeypatch.setattr(token_store, "load", lambda _, read=read: corpora.Corpus("1", read))
        with pytest.raises(InputError, match=message):
            open_store(cfg, tmp_path / "cache")


CHANGES = [
    ("drop_empty", True),
    ("split_seed", 1),
    ("validation_fraction", 0.2),
    ("validation_stratified", False),
    ("limit", 9),
    ("text", "body"),
    ("labels", "topic"),
    ("vocabulary", VocabularyConfig(min_count=3)),
    ("vocabulary", VocabularyConfig(max_size=9)),
    ("vocabulary", VocabularyConfig(source="all")),
    ("vocabulary", VocabularyConfig(unit="bytes")),
    ("vocabulary", VocabularyConfig(ending=".")),
]
OTHER = {"name": "b", "max_len": 7, "batch_size": 7, "eval_batch_size": 7, "pool_batches": 7,
         "test_lengths": [9], "targets": "answers", "word_order": "shuffled",
         "splits": SplitsConfig(test="eval")}  # fmt: skip


def test_the_key_follows_what_can_change_a_byte_and_nothing_else(cfg) -> None:
    """Every data setting is in one of the two lists."""
    corpus, changes = load(cfg), [*CHANGES, *OTHER.items()]
    assert {key for key, _ in changes} | {"path", "corpus"} == {f.name for f in fields(DataConfig)}
    for key, value in changes:
        is_same = store_key(cfg, corpus) == store_key(replace(cfg, **{key: value}), corpus)
        assert is_same == (key in OTHER), (key, value)


def test_the_key_follows_the_corpus(cfg, tmp_path) -> None:
    other = replace(cfg, path=str(write_corpus(tmp_path / "other", seed=1)))
    copy = replace(cfg, path=str(write_corpus(tmp_path / "copy")))
    assert store_key(other, load(other)) != store_key(cfg, load(cfg))
    assert store_key(copy, load(copy)) == store_key(cfg, load(cfg))


def test_groups_of_a_composed_corpus_are_kept_and_other_documents_have_their_own(
    cfg, tmp_path, monkeypatch
) -> None:
    texts = [f"{word} and more" for word in ("a", "b", "c", "d", "e", "f")]
    frame = pd.DataFrame({"text": ["", *texts], "label": [0, 1, 0, 1, 0, 1, 0]})
    composed = frame.assign(group=[9, 7, 7, 2, 2, 2, 7])
    for six, groups in ((composed, [7, 7, 2, 2, 2, 7]), (frame, [1, 2, 3, 4, 5, 6])):
        corpus = corpora.Corpus(f"{groups}", lambda of=six: dict.fromkeys(corpora.SPLITS, of))
        monkeypatch.setattr(token_store, "load", lambda _, of=corpus: of)
        store = open_store(replace(cfg, drop_empty=True), tmp_path / "cache")
        assert store.splits["test"].groups.tolist() == groups


def test_a_column_group_of_ones_own_file_is_not_read(cfg, tmp_path) -> None:
    path = tmp_path / "corpus" / "test.parquet"
    pd.read_parquet(path).assign(group="any text").to_parquet(path)
    groups = open_store(cfg, tmp_path / "cache").splits["test"].groups
    assert groups.tolist() == list(range(len(groups)))


@pytest.mark.parametrize("source", ["train", "all"])
def test_the_vocabulary_is_counted_on_the_splits_asked_for(tmp_path, source: str) -> None:
    for split in corpora.SPLITS:
        frame = pd.DataFrame({"text": [f"common {split}"] * 4, "label": [0, 1, 0, 1]})
        frame.to_parquet(tmp_path / f"{split}.parquet")
    cfg = DataConfig("tiny", path=str(tmp_path), vocabulary=VocabularyConfig(source=source))
    store = open_store(cfg, tmp_path / "cache")
    assert store.vocabulary_size == (4 if source == "train" else 6)
    assert store.unknown_share["test"] == (0.5 if source == "train" else 0)
