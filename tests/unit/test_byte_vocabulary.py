"""Bytes as tokens: ids, vocabulary, token store, and the bag of bytes."""

import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from posfuse.config import DataConfig, VocabularyConfig
from posfuse.data.corpora import SPLITS
from posfuse.data.token_store import open_store
from posfuse.data.vocabulary import byte_vocabulary, encode_bytes
from posfuse.errors import InputError
from posfuse.evidence.bag_of_words import bag_of_words
from posfuse.runs import records
from posfuse.runs.checks import checked
from small_runs import SMALL, composed, write_corpus

BYTES = VocabularyConfig(unit="bytes")
texts_lists = st.lists(st.text(st.characters(codec="utf-8"), min_size=1), min_size=1, max_size=6)


@given(texts_lists)
def test_ids_are_the_bytes_plus_2(texts: list[str]) -> None:
    ids, offsets = encode_bytes(texts)
    assert ids.dtype == np.uint16
    found = [bytes(i - 2 for i in ids[a:b].tolist()) for a, b in itertools.pairwise(offsets)]
    assert [raw.decode() for raw in found] == texts


def test_ids_by_hand() -> None:
    ids, offsets = encode_bytes(["A a", "é\x00", "<pad>"])
    assert ids.tolist() == [67, 34, 99, 197, 171, 2, 62, 114, 99, 102, 64]
    assert offsets.tolist() == [0, 3, 6, 11]


def test_every_byte_has_its_own_spelling() -> None:
    vocabulary = byte_vocabulary().get_vocab()
    assert sorted(vocabulary.values()) == list(range(258))
    assert (vocabulary["<pad>"], vocabulary["<unk>"]) == (0, 1)
    assert all(vocabulary[chr(b)] == b + 2 for b in range(32, 127))
    assert vocabulary["<0x0A>"] == 12
    assert vocabulary["<0xFF>"] == 257


def write(root, texts: list[str]) -> str:
    for split in SPLITS:
        frame = pd.DataFrame({"text": texts, "label": [i % 2 for i in range(len(texts))]})
        frame.to_parquet(root / f"{split}.parquet")
    return str(root)


def test_a_store_holds_and_spells_the_bytes_of_each_document(tmp_path) -> None:
    texts = ["Straße", "one\ttwo", " ÅÅ ", "日本"]
    cfg = DataConfig("tiny", path=write(tmp_path, texts), vocabulary=BYTES)
    store = open_store(cfg, tmp_path / "cache")
    assert store.vocabulary_size == 258
    assert store.unknown_share == dict.fromkeys(SPLITS, 0.0)
    for part in store.splits.values():
        ends = itertools.pairwise(part.offsets)
        assert [bytes((part.ids[a:b] - 2).tolist()).decode() for a, b in ends] == texts
    first = store.splits["train"].ids[:7]
    assert store.words(first) == [*"Stra", "<0xC3>", "<0x9F>", "e"]
    assert store.words([0, 1, 11]) == ["<pad>", "<unk>", "<0x09>"]


def test_words_and_bytes_of_one_corpus_are_two_stores(tmp_path) -> None:
    path = write(tmp_path, ["a a", "a b"])
    words, by_byte = (
        open_store(DataConfig("tiny", path=path, vocabulary=v), tmp_path / "cache")
        for v in (VocabularyConfig(), BYTES)
    )
    assert words.folder != by_byte.folder
    assert by_byte.splits["test"].lengths.tolist() == [3, 3]
    assert words.splits["test"].lengths.tolist() == [2, 2]


def test_a_text_without_words_is_refused_or_dropped(tmp_path) -> None:
    for name, empty in (("empty", ""), ("blank", " \n")):
        (tmp_path / name).mkdir()
        path = write(tmp_path / name, ["a", empty, "b", "c"])
        cfg = DataConfig("tiny", path=path, vocabulary=BYTES)
        with pytest.raises(InputError, match="no text in row 1"):
            open_store(cfg, tmp_path / "cache")
        cfg.drop_empty = True
        store = open_store(cfg, tmp_path / "cache")
        assert [store.words(s.ids) for s in store.splits.values()] == [["a", "b", "c"]] * 3


def test_a_bag_of_bytes_is_that_of_scikit_learn(tmp_path) -> None:
    corpus = write_corpus(tmp_path / "corpus", n_classes=2)
    overrides = ["data=imdb_bytes", f"data.path={corpus}", f"cache_dir={tmp_path / 'cache'}"]
    cfg = checked(composed(*overrides, *SMALL, "data.max_len=40"))
    found = bag_of_words(cfg, records.settings(cfg), Path())
    train, test = (pd.read_parquet(f"{cfg.data.path}/{s}.parquet") for s in ("train", "test"))
    vectors = TfidfVectorizer(analyzer=lambda text: list(text.encode()[:40]))
    model = LogisticRegression(max_iter=1000).fit(
        vectors.fit_transform(train["text"]), train["label"]
    )
    predicted = model.predict(vectors.transform(test["text"]))
    assert found.accuracy == pytest.approx(100 * (predicted == test["label"]).mean())
