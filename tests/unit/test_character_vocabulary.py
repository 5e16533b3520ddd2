"""Characters and bytes as tokens: ids, vocabularies and token stores."""

import itertools
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posfuse.config import DataConfig, VocabularyConfig
from posfuse.data.corpora import SPLITS
from posfuse.data.token_store import open_store
from posfuse.data.vocabulary import (
    byte_vocabulary,
    character_encoder,
    character_vocabulary,
    encode_bytes,
)
from refusals import refusal
from small_runs import write_splits

CHINESE = ["球队在比赛中获胜", "公司股价今天上涨", "比赛今天开始", "公司获得利润"]
any_texts = st.lists(st.text(st.characters(codec="utf-8"), min_size=1), min_size=1, max_size=6)


def config(root, texts: list[str], **vocabulary) -> DataConfig:
    """A corpus of these texts in every split."""
    frame = pd.DataFrame({"text": texts, "label": [i % 2 for i in range(len(texts))]})
    write_splits(root, **dict.fromkeys(SPLITS, frame))
    return DataConfig("zh", path=str(root), vocabulary=VocabularyConfig(**vocabulary))


@given(any_texts, st.integers(1, 3), st.integers(3, 12))
def test_ids_are_those_of_the_most_frequent_characters(texts, min_count, max_size) -> None:
    vocabulary = character_vocabulary(iter(texts), max_size, min_count)
    counts = Counter("".join(texts))
    kept = sorted((c for c in counts if counts[c] >= min_count), key=lambda c: (-counts[c], c))
    id_of = {character: i for i, character in enumerate(kept[: max_size - 2], 2)}
    assert vocabulary.get_vocab() == {"<pad>": 0, "<unk>": 1, **id_of}
    ids, offsets = character_encoder(vocabulary)(texts)
    assert ids.dtype == np.uint16
    parts = [ids[a:b].tolist() for a, b in itertools.pairwise(offsets)]
    assert parts == [[id_of.get(character, 1) for character in text] for text in texts]


@given(any_texts)
def test_ids_are_the_bytes_plus_2(texts: list[str]) -> None:
    ids, offsets = encode_bytes(texts)
    assert ids.dtype == np.uint16
    found = [bytes(i - 2 for i in ids[a:b].tolist()) for a, b in itertools.pairwise(offsets)]
    assert [raw.decode() for raw in found] == texts


def test_every_byte_has_its_own_spelling() -> None:
    vocabulary = byte_vocabulary().get_vocab()
    assert sorted(vocabulary.values()) == list(range(258))
    assert (vocabulary["<pad>"], vocabulary["<unk>"]) == (0, 1)
    assert all(vocabulary[chr(b)] == b + 2 for b in range(32, 127))
    assert vocabulary["<0x0A>"] == 12
    assert vocabulary["<0xFF>"] == 257


def test_a_text_without_spaces_is_unknown_as_words_and_known_as_characters(tmp_path) -> None:
    stores = {
        unit: open_store(config(tmp_path, CHINESE * 2, unit=unit), tmp_path / "cache")
        for unit in ("words", "characters")
    }
    assert stores["words"].splits["test"].lengths.tolist() == [1] * 8
    found = stores["characters"]
    assert found.unknown_share == dict.fromkeys(SPLITS, 0.0)
    part = found.splits["test"]
    assert part.lengths.tolist() == [len(text) for text in CHINESE * 2]
    assert "".join(found.words(part.ids[: len(CHINESE[0])])) == CHINESE[0]
    assert stores["words"].folder != found.folder


def test_a_store_holds_and_spells_the_bytes_of_each_document(tmp_path) -> None:
    texts = ["Straße", "one\ttwo", " ÅÅ ", "日本"]
    store = open_store(config(tmp_path, texts, unit="bytes"), tmp_path / "cache")
    assert store.vocabulary_size == 258
    assert store.unknown_share == dict.fromkeys(SPLITS, 0.0)
    for part in store.splits.values():
        ends = itertools.pairwise(part.offsets)
        assert [bytes((part.ids[a:b] - 2).tolist()).decode() for a, b in ends] == texts
    first = store.splits["train"].ids[:7]
    assert store.words(first) == [*"Stra", "<0xC3>", "<0x9F>", "e"]
    assert store.words([0, 1, 11]) == ["<pad>", "<unk>", "<0x09>"]


def test_the_ending_is_a_part_of_each_document_and_of_the_vocabulary(tmp_path) -> None:
    own = config(tmp_path, ["abab", "bb"], unit="characters", ending="\n", min_count=2)
    store = open_store(own, tmp_path / "cache")
    assert store.words(store.splits["test"].ids) == [*"abab\nbb\n"]


@pytest.mark.parametrize("unit", ["words", "characters"])
def test_an_empty_vocabulary_is_refused_with_the_fix(tmp_path, unit) -> None:
    cfg = config(tmp_path, CHINESE, unit=unit, min_count=9)
    assert refusal(open_store, cfg, tmp_path / "cache") == (
        f"data.vocabulary.min_count: zh has no {unit} that occur 9 times; use a smaller number, or "
        "data.vocabulary.unit=characters for texts without spaces between words"
    )
