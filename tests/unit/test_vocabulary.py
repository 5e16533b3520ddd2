"""Texts to ids: words, characters, bytes and a user's tokenizer file, and vocabularies of them."""

import hashlib
import itertools
import shutil
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from posfuse.config import DataConfig, VocabularyConfig
from posfuse.data import vocabulary
from posfuse.data.corpora import SPLITS
from posfuse.data.token_store import open_store
from posfuse.data.vocabulary import SPECIAL, UNKNOWN, build_vocabulary, text_encoder, tokens_of
from posfuse.runs.checks import checked
from posfuse.runs.folders import run_folder
from posfuse.runs.identity import fingerprint
from refusals import refusal
from small_corpora import labelled, write_splits
from small_pretrained import byte_bpe, write_tokenizer
from small_runs import composed


def documents(encoder, texts) -> list[list[int]]:
    """The ids of each text, which take two bytes."""
    ids, offsets = encoder(texts)
    assert ids.dtype == np.uint16
    return [ids[a:b].tolist() for a, b in itertools.pairwise(offsets)]


def config(root, texts: list[str], **own) -> DataConfig:
    """A corpus of these texts in every split."""
    write_splits(root, labelled(texts))
    return DataConfig("zh", path=str(root), vocabulary=VocabularyConfig(**own))


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


@given(any_texts, st.integers(1, 3), st.integers(3, 12))
def test_ids_are_those_of_the_most_frequent_characters(texts, min_count, max_size) -> None:
    known = vocabulary.character_vocabulary(iter(texts), max_size, min_count)
    counts = Counter("".join(texts))
    kept = sorted((c for c in counts if counts[c] >= min_count), key=lambda c: (-counts[c], c))
    id_of = {character: i for i, character in enumerate(kept[: max_size - 2], 2)}
    assert known.get_vocab() == {"<pad>": 0, "<unk>": 1, **id_of}
    expected = [[id_of.get(character, 1) for character in text] for text in texts]
    assert documents(vocabulary.character_encoder(known), texts) == expected


@given(any_texts)
def test_ids_are_the_bytes_plus_2(texts: list[str]) -> None:
    assert documents(vocabulary.encode_bytes, texts) == [
        [b + 2 for b in text.encode()] for text in texts
    ]


def test_every_byte_has_its_own_spelling() -> None:
    ids = vocabulary.byte_vocabulary().get_vocab()
    assert sorted(ids.values()) == list(range(258))
    assert [ids[name] for name in ("<pad>", "<unk>", "<0x0A>", "<0xFF>")] == [0, 1, 12, 257]
    assert all(ids[chr(b)] == b + 2 for b in range(32, 127))


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
    message = (
        f"data.vocabulary.min_count: zh has no {unit} that occur 9 times; use a smaller number"
    )
    if unit == "words":
        message += ", or data.vocabulary.unit=characters for texts without spaces between words"
    assert refusal(open_store, cfg, tmp_path / "cache") == message


# A user's tokenizer file

TEXTS = ["ภาษาไทย ง่าย มาก", "the cat sat on the mat", "a cat, a mat <unk> [SEP]", "Ωxy"]


def saved(kind: str, folder: Path) -> Path:
    """The file of a tokenizer with special tokens. WordPiece's also pads and truncates."""
    if kind == "wordpiece":
        write_tokenizer(folder, ["the", "cat", "sat", "on", "ma", "##t", ","])
    elif kind == "bytes":
        byte_bpe(TEXTS[:2] * 5).save(str(folder / "tokenizer.json"))
    else:
        tokenizer = Tokenizer(models.Unigram())
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        special = {"special_tokens": ["[UNK]", "[CLS]", "[SEP]"], "unk_token": "[UNK]"}
        trainer = trainers.UnigramTrainer(vocab_size=60, show_progress=False, **special)
        tokenizer.train_from_iterator(TEXTS[:2] * 5, trainer)
        tokenizer.save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json"


@pytest.mark.parametrize("kind", ["bytes", "wordpiece", "unigram"])
def test_ids_are_those_of_transformers_plus_two(tmp_path, kind) -> None:
    transformers = pytest.importorskip("transformers")
    cfg = config(tmp_path, TEXTS, file=str(saved(kind, tmp_path)))
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=cfg.vocabulary.file)
    store = open_store(cfg, tmp_path / "cache")
    unknown = theirs.convert_tokens_to_ids("[UNK]") if kind != "bytes" else None
    expected = [
        [1 if i == unknown else i + 2 for i in theirs.encode(text, add_special_tokens=False)]
        for text in TEXTS
    ]
    split = store.splits["test"]
    assert [part.tolist() for part in np.split(split.ids, split.offsets[1:-1])] == expected
    assert store.vocabulary_size == theirs.vocab_size + 2  # transformers adds [PAD] to it
    words = theirs.convert_ids_to_tokens(theirs.encode(TEXTS[1], add_special_tokens=False))
    assert store.words([0, 1, *expected[1]]) == ["<pad>", "<unk>", *words]
    encoder = store.encoder(cfg.vocabulary)
    assert documents(encoder, ["", TEXTS[1]]) == [[1], expected[1]]  # "" is one unknown token
    if kind == "bytes":
        assert store.text(expected[0]) == TEXTS[0]
    else:
        assert store.unknown_share["test"] > 0


def test_ids_with_a_gap_fit_into_the_embedding() -> None:
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "b": 7}, unk_token="a"))
    tokens = tokens_of(VocabularyConfig(file="any"), tokenizer)
    assert tokens.size == 10
    assert tokens.encode(["b"])[0].tolist() == [9]


def test_capitals_in_a_files_ending_are_part_of_its_digest(tmp_path) -> None:
    """As in earlier records."""
    file = tmp_path / "a.JSON"
    file.write_text("content")
    content = b"tokenizer.JSON" + hashlib.sha256(b"content").digest()
    assert vocabulary.tokenizer_file_digest(str(file)) == hashlib.sha256(content).hexdigest()


def of_file(path):
    return checked(composed(f"data.vocabulary.file={path}"))


def test_the_content_of_the_file_identifies_a_run_and_its_token_ids(tmp_path) -> None:
    one = saved("bytes", tmp_path).rename(tmp_path / "a.json")
    same, other = shutil.copy(one, tmp_path / "same.json"), saved("unigram", tmp_path)
    prints = [fingerprint(of_file(path)) for path in (one, same, other)]
    assert prints[0] == prints[1] != prints[2]
    assert fingerprint(checked(composed())) not in prints
    key = "data.vocabulary.file"
    folders = [run_folder("d", "e", "f", 0, [f"{key}={path}"]) for path in ("x/a.json", "y/a.json")]
    assert folders == [f"d/e/f/{key}=a.json/seed=0"] * 2


def test_a_missing_or_damaged_file_is_one_line(tmp_path) -> None:
    cfg = of_file(tmp_path / "none.json")
    assert "data.vocabulary.file: no file" in refusal(fingerprint, cfg)
    empty = '{"version":"1.0","model":{"type":"WordLevel","vocab":{},"unk_token":"a"}}'
    for content in ("{}", "[", empty):
        (tmp_path / "none.json").write_text(content)
        message = refusal(open_store, cfg.data, tmp_path)
        assert message.startswith(f"{tmp_path}/none.json: not a tokenizer (")
        assert message.endswith("); write it with Tokenizer.save")


@pytest.mark.parametrize("model", [models.WordLevel, models.WordPiece])
def test_a_tokenizer_without_its_unknown_token_is_one_line(model) -> None:
    tokenizer = Tokenizer(model({"a": 0}, unk_token="[UNK]"))
    message = refusal(tokens_of(VocabularyConfig(file="any"), tokenizer).encode, ["b"])
    assert message.startswith("data.vocabulary.file: ")
    assert "Missing [UNK]" in message
    assert "; correct" in message
