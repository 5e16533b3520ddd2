"""Words to ids."""

import itertools
from collections import Counter
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.trainers import WordLevelTrainer

from posfuse.data import vocabulary
from posfuse.data.vocabulary import PAD, SPECIAL, UNKNOWN, build_vocabulary, word_encoder


def ids_of(texts: list[str], **options) -> list[list[int]]:
    tokenizer = build_vocabulary(texts, **{"max_size": 100, "min_count": 1, **options})
    ids, offsets = word_encoder(tokenizer)(texts)
    return [ids[a:b].tolist() for a, b in itertools.pairwise(offsets)]


def test_words_are_lower_cased_and_split_on_white_space() -> None:
    assert ids_of(["The cat, the CAT\tcat,\n\nThe  cat,"]) == [[3, 2, 3, 4, 2, 3, 2]]


def test_order_is_by_count_then_by_alphabet() -> None:
    vocabulary = build_vocabulary(["c a b b", "d c"], 100, 1).get_vocab()
    assert vocabulary == {"<pad>": 0, "<unk>": 1, "b": 2, "c": 3, "a": 4, "d": 5}


def test_rare_words_are_unknown() -> None:
    assert ids_of(["a a b", "a b c"], min_count=2) == [[2, 2, 3], [2, 3, UNKNOWN]]


def test_max_size_counts_pad_and_unk() -> None:
    assert build_vocabulary(["a a a b b c"], 4, 1).get_vocab_size() == 4
    assert ids_of(["a a a b b c"], max_size=4) == [[2, 2, 2, 3, 3, UNKNOWN]]


@pytest.mark.parametrize("word", ["<pad>", "<PAD>", "<unk>", "foo<pad>bar", "<pad><pad>"])
def test_a_text_cannot_spell_padding(word: str) -> None:
    ids = ids_of([f"one {word} two"])[0]
    assert len(ids) == 3
    assert PAD not in ids


@pytest.mark.parametrize("word", ["<pad>", "<unk>"])
def test_a_word_spelt_like_a_special_one_takes_no_place(word: str) -> None:
    texts = [f"{word} {word} {word} a a b"]
    assert build_vocabulary(texts, 4, 1).get_vocab() == {"<pad>": 0, "<unk>": 1, "a": 2, "b": 3}
    assert ids_of(texts, max_size=4) == [[UNKNOWN] * 3 + [2, 2, 3]]


def test_a_document_without_words_is_one_unknown() -> None:
    assert ids_of(["", "a", " "]) == [[UNKNOWN], [2], [UNKNOWN]]


def test_large_vocabularies_take_wider_ids() -> None:
    words = " ".join(f"w{i}" for i in range(70_000))
    ids, _ = word_encoder(build_vocabulary([words], 100_000, 1))([words])
    assert ids.dtype == np.uint32
    assert len(set(ids.tolist())) == 70_000


few_words = st.lists(st.sampled_from(["a", "B", "b", "ab", "c", *SPECIAL]), min_size=1, max_size=9)
ascii_text = st.text(st.sampled_from([chr(i) for i in range(32, 127)] + list("\t\n\r")), min_size=1)
texts_lists = st.lists(few_words.map(" ".join) | ascii_text, min_size=1, max_size=6)


@settings(deadline=None)
@given(texts_lists, st.integers(1, 3), st.integers(3, 8))
def test_agrees_with_a_dictionary(texts: list[str], min_count: int, max_size: int) -> None:
    counts = Counter(" ".join(texts).lower().split())
    kept = sorted(
        (w for w in counts if counts[w] >= min_count and w not in SPECIAL),
        key=lambda w: (-counts[w], w),
    )
    known = {w: i for i, w in enumerate(kept[: max_size - 2], 2)}
    expected = [[known.get(w, UNKNOWN) for w in t.lower().split()] or [UNKNOWN] for t in texts]
    assert ids_of(texts, min_count=min_count, max_size=max_size) == expected


SPACES = [
    chr(i) for i in (*range(9, 14), *range(28, 33), 0x85, 0xA0, 0x1680, 0x2003, 0x2028, 0x3000)
]
any_text = st.text(st.sampled_from([*"aBΣσςİIıßẞÀÉǅﬁ", *SPACES]) | st.characters(codec="utf-8"))
no_special = any_text.filter(lambda text: not any(word in text.lower() for word in SPECIAL))


@settings(deadline=None, max_examples=300)
@given(
    st.lists(no_special, min_size=1, max_size=5),
    st.integers(1, 2),
    st.integers(3, 9),
    st.sampled_from([1, 9, vocabulary.PORTION]),
)
def test_words_are_those_of_tokenizers(
    texts: list[str], min_count: int, max_size: int, portion: int
) -> None:
    """Its trainer counts and its tokenizer encodes as we do, but for what special words are."""
    with mock.patch.object(vocabulary, "PORTION", portion):
        tokenizer = build_vocabulary(texts, max_size, min_count)
    trained = Tokenizer(WordLevel({}, unk_token="<unk>"))
    trained.normalizer, trained.pre_tokenizer = tokenizer.normalizer, tokenizer.pre_tokenizer
    trainer = WordLevelTrainer(
        vocab_size=max_size - 2, min_frequency=min_count, show_progress=False
    )
    trained.train_from_iterator(texts, trainer)
    counted = trained.get_vocab()
    assert tokenizer.get_vocab() == {
        **dict(zip(SPECIAL, (PAD, UNKNOWN), strict=True)), **{w: i + 2 for w, i in counted.items()}
    }  # fmt: skip
    expected = [encoding.ids or [UNKNOWN] for encoding in tokenizer.encode_batch(texts)]
    assert ids_of(texts, min_count=min_count, max_size=max_size) == expected
