"""The benchmark of a sweep's overhead measures what its rows name."""

import pyarrow.parquet as pq
import pytest

import overhead
from small_runs import write_corpus


def test_a_generated_corpus_has_the_size_asked_for(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(overhead, "WORDS", 1000)
    monkeypatch.setattr(overhead, "PART", 500)
    overhead.write_corpus(tmp_path, 2)
    texts = pq.read_table(tmp_path / "train.parquet")["text"].to_pylist()
    part = sum(map(len, texts[:500]))
    assert 2_000_000 <= sum(map(len, texts)) < 2_000_000 + part
    assert {len(text.split()) for text in texts} == {overhead.DOCUMENT}


def test_ids_are_built_in_a_process_that_reports_words_seconds_and_memory(tmp_path) -> None:
    corpus = write_corpus(tmp_path / "corpus")
    _, _, printed = overhead.timed(overhead.IDS, str(corpus), str(tmp_path / "ids"))
    words, seconds, before, peak = map(float, printed.split())
    texts = [t for s in ("train", "validation", "test")
             for t in pq.read_table(corpus / f"{s}.parquet")["text"].to_pylist()]  # fmt: skip
    assert words == sum(len(text.split()) for text in texts)
    assert seconds > 0
    assert 10e6 < before < peak


def test_a_process_that_fails_ends_the_benchmark() -> None:
    with pytest.raises(SystemExit, match=r"error: [\s\S]*ZeroDivisionError"):
        overhead.timed("1 / 0")
