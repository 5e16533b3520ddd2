"""Words to ids."""

import itertools
import os
import signal
import threading
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posfuse.data.vocabulary import PAD, SPECIAL, UNKNOWN, build_vocabulary, text_encoder


def ids_of(texts: list[str], **options) -> list[list[int]]:
    tokenizer = build_vocabulary(texts, **{"max_size": 100, "min_count": 1, **options})
    ids, offsets = text_encoder(tokenizer)(texts)
    return [ids[a:b].tolist() for a, b in itertools.pairwise(offsets)]


@pytest.mark.parametrize("word", ["<pad>", "<PAD>", "<unk>", "foo<pad>bar", "<pad><pad>"])
def test_no_text_has_the_id_of_padding(word: str) -> None:
    ids = ids_of([f"one {word} two"])[0]
    assert len(ids) == 3
    assert PAD not in ids


def test_large_vocabularies_take_wider_ids() -> None:
    words = " ".join(f"w{i}" for i in range(70_000))
    ids, _ = text_encoder(build_vocabulary([words], 100_000, 1))([words])
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


def test_a_signal_is_handled_while_words_are_counted() -> None:
    """`tokenizers` reads the texts in another thread; signals are handled in this one."""
    handled = threading.Event()

    def texts():
        yield "one two"
        os.kill(os.getpid(), signal.SIGUSR1)
        assert handled.wait(60)
        yield "two three"

    before = signal.signal(signal.SIGUSR1, lambda *_: handled.set())
    try:
        assert build_vocabulary(texts(), 9, 1).get_vocab_size() == 5
    finally:
        signal.signal(signal.SIGUSR1, before)
