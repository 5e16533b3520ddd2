"""The benchmark of a sweep's overhead measures what it says."""

import pyarrow.parquet as pq
import pytest

import overhead
from posfuse.runs import records, request
from small_runs import composed, write_corpus


def test_copied_runs_are_what_the_sweep_asks_for(tmp_path) -> None:
    folder = tmp_path / "none" / "default" / "seed=0"
    folder.mkdir(parents=True)
    record = {"schema": records.SCHEMA, "fingerprint": "one", "test": {"accuracy": 0.5}, "seed": 0}
    records.write_json(folder / records.RESULT, record)
    (folder / records.PREDICTIONS).touch()
    overhead.copy_run(tmp_path, 3)
    basis = request.basis(composed(hydra_too=True).hydra.runtime.config_sources)
    asked = [request.digest(basis, overhead.sweep(tmp_path, "none", str(n))[1:]) for n in range(3)]
    found = request.finished(tmp_path / "none" / "default")
    assert {key: record["seed"] for key, record in found.items()} == dict(
        zip(asked, range(3), strict=True)
    )


def test_a_generated_corpus_has_the_size_asked_for(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(overhead, "WORDS", 1000)
    monkeypatch.setattr(overhead, "PART", 500)
    overhead.write_corpus(tmp_path, 2)
    texts = pq.read_table(tmp_path / "train.parquet")["text"].to_pylist()
    part = sum(map(len, texts[:500]))
    assert 2_000_000 <= sum(map(len, texts)) < 2_000_000 + part
    assert {len(text.split()) for text in texts} == {overhead.DOCUMENT}


def test_ids_are_built_in_a_process_that_tells_words_seconds_and_memory(tmp_path) -> None:
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
