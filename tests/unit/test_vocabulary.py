"""Words, characters and bytes to ids, and vocabularies of them."""

import itertools
import sys
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posfuse.config import DataConfig, VocabularyConfig
from posfuse.data.corpora import SPLITS
from posfuse.data.token_store import open_store
from posfuse.data.vocabulary import (
    SPECIAL,
    UNKNOWN,
    build_vocabulary,
    byte_vocabulary,
    character_encoder,
    character_vocabulary,
    encode_bytes,
    text_encoder,
)
from refusals import refusal
from small_corpora import labelled, write_splits


def documents(encoder, texts) -> list[list[int]]:
    """The ids of each text, which take two bytes."""
    ids, offsets = encoder(texts)
    assert ids.dtype == np.uint16
    return [ids[a:b].tolist() for a, b in itertools.pairwise(offsets)]


# Words


def test_large_vocabularies_take_wider_ids() -> None:
    words = " ".join(f"w{i}" for i in range(70_000))
    ids, _ = text_encoder(build_vocabulary([words], 100_000, 1))([words])
    assert ids.dtype == np.uint32
    assert len(set(ids.tolist())) == 70_000


WORDS = ["a", "B", "b", "ab", "c", *SPECIAL, "<PAD>", "a<pad>b", "<pad><pad>"]
few_words = st.lists(st.sampled_from(WORDS), min_size=1, max_size=9)
ascii_text = st.text(st.sampled_from([chr(i) for i in range(32, 127)] + list("\t\n\r")), min_size=1)
texts_lists = st.lists(few_words.map(" ".join) | ascii_text, min_size=1, max_size=6)


@given(texts_lists, st.integers(1, 3), st.integers(3, 8))
def test_agrees_with_a_dictionary(texts: list[str], min_count: int, max_size: int) -> None:
    counts = Counter(" ".join(texts).lower().split())
    kept = sorted(
        (w for w in counts if counts[w] >= min_count and w not in SPECIAL),
        key=lambda w: (-counts[w], w),
    )
    known = {w: i for i, w in enumerate(kept[: max_size - 2], 2)}
    expected = [[known.get(w, UNKNOWN) for w in t.lower().split()] or [UNKNOWN] for t in texts]
    encoder = text_encoder(build_vocabulary(texts, max_size, min_count))
    assert documents(encoder, texts) == expected


def test_the_counted_words_are_those_that_are_encoded() -> None:
    """Python and Unicode differ in what they call white space."""
    spaces = [c for c in map(chr, range(sys.maxunicode + 1)) if c.isspace()]
    texts = [f"a{c}B{c}" for c in [*spaces, "\u200b", "\ufeff"]] + ["ΑΣ İstanbul Straße ẞ"]
    tokenizer = build_vocabulary(texts, 99, 1)
    ids, _ = text_encoder(tokenizer)(texts)
    assert set(ids.tolist()) == set(range(len(SPECIAL), tokenizer.get_vocab_size()))


# Characters and bytes

CHINESE = ["球队在比赛中获胜", "公司股价今天上涨", "比赛今天开始", "公司获得利润"]
any_texts = st.lists(st.text(st.characters(codec="utf-8"), min_size=1), min_size=1, max_size=6)


def config(root, texts: list[str], **vocabulary) -> DataConfig:
    """A corpus of these texts in every split."""
    write_splits(root, labelled(texts))
    return DataConfig("zh", path=str(root), vocabulary=VocabularyConfig(**vocabulary))


@given(any_texts, st.integers(1, 3), st.integers(3, 12))
def test_ids_are_those_of_the_most_frequent_characters(texts, min_count, max_size) -> None:
    vocabulary = character_vocabulary(iter(texts), max_size, min_count)
    counts = Counter("".join(texts))
    kept = sorted((c for c in counts if counts[c] >= min_count), key=lambda c: (-counts[c], c))
    id_of = {character: i for i, character in enumerate(kept[: max_size - 2], 2)}
    assert vocabulary.get_vocab() == {"<pad>": 0, "<unk>": 1, **id_of}
    expected = [[id_of.get(character, 1) for character in text] for text in texts]
    assert documents(character_encoder(vocabulary), texts) == expected


@given(any_texts)
def test_ids_are_the_bytes_plus_2(texts: list[str]) -> None:
    assert documents(encode_bytes, texts) == [[b + 2 for b in text.encode()] for text in texts]


def test_every_byte_has_its_own_spelling() -> None:
    vocabulary = byte_vocabulary().get_vocab()
    assert sorted(vocabulary.values()) == list(range(258))
    assert (vocabulary["<pad>"], vocabulary["<unk>"]) == (0, 1)
    assert all(vocabulary[chr(b)] == b + 2 for b in range(32, 127))
    assert vocabulary["<0x0A>"] == 12
    assert vocabulary["<0xFF>"] == 257


@pytest.mark.parametrize(
    ("unit", "spelled"),
    [("characters", [*"Straße"]), ("bytes", [*"Stra", "<0xC3>", "<0x9F>", "e"])],
)
def test_a_store_knows_and_spells_every_text(tmp_path, unit, spelled) -> None:
    texts = ["Straße", "one\ttwo", " ÅÅ ", *CHINESE] * 2  # every character twice
    store = open_store(config(tmp_path, texts, unit=unit), tmp_path / "cache")
    assert store.unknown_share == dict.fromkeys(SPLITS, 0.0)
    for part in store.splits.values():
        assert store.words(part.ids[: part.offsets[1]]) == spelled
        encoded = texts if unit == "characters" else [text.encode() for text in texts]
        assert part.lengths.tolist() == [*map(len, encoded)]
    assert store.words([0, 1]) == ["<pad>", "<unk>"]


def test_the_ending_is_a_part_of_each_document_and_of_the_vocabulary(tmp_path) -> None:
    own = config(tmp_path, ["abab", "bb"], unit="characters", ending="\n", min_count=2)
    store = open_store(own, tmp_path / "cache")
    assert store.words(store.splits["test"].ids) == [*"abab\nbb\n"]


@pytest.mark.parametrize("unit", ["words", "characters"])
def test_an_empty_vocabulary_is_refused_with_the_fix(tmp_path, unit) -> None:
    cfg = config(tmp_path, CHINESE, unit=unit, min_count=9)
    of_words = ", or data.vocabulary.unit=characters for texts without spaces between words"
    assert refusal(open_store, cfg, tmp_path / "cache") == (
        f"data.vocabulary.min_count: zh has no {unit} that occur 9 times; use a smaller number"
        + of_words * (unit == "words")
    )
