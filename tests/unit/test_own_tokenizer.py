"""A user's tokenizer file for the suite's own models: its ids, and its part in a run's identity."""

import hashlib
import shutil
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from posfuse.config import DataConfig, VocabularyConfig
from posfuse.data.token_store import open_store
from posfuse.data.vocabulary import tokenizer_file_digest, tokens_of
from posfuse.runs.checks import checked
from posfuse.runs.folders import run_folder
from posfuse.runs.identity import fingerprint
from refusals import refusal
from small_corpora import labelled, write_splits
from small_pretrained import byte_bpe, write_tokenizer
from small_runs import composed

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
    own = VocabularyConfig(file=str(saved(kind, tmp_path)))
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=own.file)
    write_splits(tmp_path, labelled(TEXTS))
    store = open_store(DataConfig("mine", path=str(tmp_path), vocabulary=own), tmp_path / "cache")
    unknown = theirs.convert_tokens_to_ids("[UNK]") if kind != "bytes" else None
    expected = [
        [1 if i == unknown else i + 2 for i in theirs.encode(text, add_special_tokens=False)]
        for text in TEXTS
    ]
    split = store.splits["test"]
    documents = [document.tolist() for document in np.split(split.ids, split.offsets[1:-1])]
    assert documents == expected
    assert store.vocabulary_size == theirs.vocab_size + 2  # transformers adds [PAD] to it
    words = theirs.convert_ids_to_tokens(theirs.encode(TEXTS[1], add_special_tokens=False))
    assert store.words(expected[1]) == words
    assert store.words([0, 1]) == ["<pad>", "<unk>"]
    ids, offsets = store.encoder(own)(["", TEXTS[1]])
    assert ids.tolist() == [1, *expected[1]]  # an empty text is one unknown token
    assert offsets.tolist() == [0, 1, 1 + len(expected[1])]
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
    content = hashlib.sha256(b"content").digest()
    expected = hashlib.sha256(b"tokenizer.JSON" + content).hexdigest()
    assert tokenizer_file_digest(str(file)) == expected


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
