"""Texts pass through a part at a time, and the store is what the plain way gives."""

import io
import json
import os
import zlib
from collections import Counter
from itertools import chain

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.model_selection import train_test_split

from posfuse import seals
from posfuse.config import DataConfig, VocabularyConfig
from posfuse.data import corpora, sources, vocabulary
from posfuse.data.corpora import files_digest
from posfuse.data.sources import file_source
from posfuse.data.token_store import open_store
from small_corpora import labelled, write_splits

PARTS = 7  # documents of a part here


def documents(size: int, seed: int) -> pd.DataFrame:
    """Some of them without a word, none of the words with a capital."""
    draw = np.random.default_rng(seed)
    texts = [" ".join(f"w{i}" for i in draw.geometric(0.1, draw.integers(9))) for _ in range(size)]
    return pd.DataFrame({"text": texts, "label": draw.permutation([*"abc"] * (size // 3))})


def saved(array) -> int:
    """The checksum of the file that np.save writes."""
    file = io.BytesIO()
    np.save(file, array)
    return zlib.crc32(file.getvalue())


FRAMES = {"train": documents(60, 0), "test": documents(24, 1)}


@pytest.fixture(params=["parquet", "csv", "jsonl"])
def folder(request, tmp_path):
    return write_splits(tmp_path, end=request.param, **FRAMES)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(sources, "ROWS", PARTS)
    monkeypatch.setattr(vocabulary, "PORTION", 40)


def test_the_store_is_bit_for_bit_what_the_plain_way_writes(folder) -> None:
    def drawn(frame, size):
        parts = train_test_split(frame, test_size=size, stratify=frame["label"], random_state=3)
        return [part.sort_index() for part in parts]

    frames = {s: f.assign(rows=f.index) for s, f in FRAMES.items()}
    frames = {s: f[f["text"].str.strip() != ""].reset_index(drop=True) for s, f in frames.items()}
    assert len(frames["train"]) < 60
    rest, frames["validation"] = drawn(frames["train"], round(0.2 * len(frames["train"])))
    _, frames["train"] = drawn(rest, 25)

    counts = Counter(" ".join(frames["train"]["text"]).split())
    kept = sorted((w for w in counts if counts[w] > 1), key=lambda w: (-counts[w], w))[:18]
    ids = {word: i for i, word in enumerate(kept, 2)}
    checksums, unknown = {}, {}
    for split, frame in frames.items():
        rows = [[ids.get(word, 1) for word in text.split()] for text in frame["text"]]
        flat = np.array([i for row in rows for i in row], dtype=np.uint16)
        ends = np.cumsum([0, *map(len, rows)], dtype=np.int64)
        classes = frame["label"].map("abc".index).to_numpy(np.int64)
        parts = {"ids": flat, "offsets": ends, "labels": classes, "rows": frame["rows"]}
        for part, array in {**parts, "groups": frame["rows"]}.items():
            checksums[f"{split}.{part}.npy"] = saved(array)
        unknown[split] = (flat == 1).mean()

    cfg = DataConfig(
        "tiny", path=str(folder), drop_empty=True, split_seed=3, validation_fraction=0.2, limit=25,
        vocabulary=VocabularyConfig(max_size=20),
    )  # fmt: skip
    store = open_store(cfg, folder / "cache")
    meta = json.loads((store.folder / "meta.json").read_text())
    assert meta["checksums"].pop("vocabulary.json")
    assert meta["checksums"] == checksums
    assert store.words(range(20)) == ["<pad>", "<unk>", *kept]
    assert store.unknown_share == unknown
    assert store.label_names == ["a", "b", "c"]


def test_texts_come_in_parts_and_all_of_them(folder) -> None:
    (path,) = folder.glob("train.*")
    parts = [part.fillna("").tolist() for part in file_source(path).read("text")]
    assert [len(part) for part in parts] == [7] * 8 + [4]
    assert [*chain(*parts)] == FRAMES["train"]["text"].tolist()


def test_a_parquet_file_is_not_held_whole(tmp_path) -> None:
    draw = np.random.default_rng(0)  # random letters cannot be compressed to nothing
    texts = [draw.bytes(1_000).hex() for _ in range(8_000)]
    write_splits(tmp_path, train=labelled(texts))
    before = most = pa.total_allocated_bytes()
    for _ in file_source(tmp_path / "train.parquet").read("text"):
        most = max(most, pa.total_allocated_bytes())
    assert most - before < 0.5 * sum(map(len, texts))


def test_a_file_is_digested_once_and_again_when_it_changes(tmp_path, monkeypatch) -> None:
    path = tmp_path / "train.csv"
    path.write_text("text,label\nsome,1\n")
    monkeypatch.setattr(corpora, "SETTLED", np.inf)  # both files are new
    state = path.stat()
    first = files_digest({"train": path})
    path.write_text("text,label\nmore,1\n")
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))  # a coarse clock tells no change
    second = files_digest({"train": path})
    assert second != first
    monkeypatch.setattr(corpora, "SETTLED", -1.0)
    assert files_digest({"train": path}) == second
    with monkeypatch.context() as patched:
        patched.setattr(seals, "digest", lambda *_: pytest.fail("read again"))
        assert files_digest({"train": path}) == second
    path.write_text("text,label\nsome words,1\n")
    assert files_digest({"train": path}) != second
