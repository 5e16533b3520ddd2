"""What the benchmarks count, compare and write, but not the times that they measure."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F

import harness
import language_model
import measured_code
import operators
import plain
import plain_language_model
import store
import training
from posfuse.training.build import build_data, build_module
from small_runs import SMALL, small_config

ROOT = Path(__file__).parents[2]
OF_BLOCK = {  # torch's names: ours
    "self_attn.in_proj_weight": "attention.qkv_weight",
    "self_attn.in_proj_bias": "attention.qkv_bias",
    "self_attn.out_proj.weight": "attention.out_weight",
    "self_attn.out_proj.bias": "attention.out_bias",
}


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Runs a benchmark's `measure` as its command does, with these options; its result."""

    def run(module, given, **options):
        out = tmp_path / "result.json"
        argv = [f"{module.__name__}.py", "--out", str(out), *map(str, given)]
        monkeypatch.setattr("sys.argv", argv)
        store.main(module.__file__, module.measure, **options)
        return json.loads(out.read_text())

    return run


def twins(corpus, *overrides):
    """posfuse's classifier, and the baseline with its weights, for the same documents."""
    cfg = small_config(corpus, "model.n_layers=2", "data.max_len=16", *overrides)
    data = build_data(cfg)
    ours, m = build_module(cfg, data), cfg.model
    words = plain.vocabulary(pd.read_parquet(corpus / "train.parquet")["text"], 50_000, 2)
    theirs = plain.PlainClassifier(
        len(words) + 2, len(data.store.label_names), 16, m.d_model, m.n_heads, m.n_layers, m.d_ff,
        m.dropout, m.activation,
    )  # fmt: skip
    weights, found = ours.model.state_dict(), {}
    for name in theirs.state_dict():
        mine = re.sub(r"encoder\.layers\.(\d+)\.", r"encoder.blocks.\1.", name)
        for torchs, of_ours in OF_BLOCK.items():
            mine = mine.replace(torchs, of_ours)
        found[name] = theirs.table if name == "table" else weights[mine]
    theirs.load_state_dict(found)
    return cfg, data, ours, theirs, words


def test_plain_has_the_ids_and_the_logits_of_posfuse(corpus):
    _, data, ours, theirs, words = twins(corpus)
    documents = data.documents["train"]
    batch = documents[np.arange(len(documents))]
    texts = pd.read_parquet(corpus / "train.parquet")["text"].tolist()
    ids = plain.encode(texts, words, 16)
    assert torch.equal(ids[:, : batch.ids.shape[1]], batch.ids)
    assert not ids[:, batch.ids.shape[1] :].any()
    with torch.no_grad():  # as the benchmark evaluates: torch's fast path is on
        logits = theirs.eval()(ids)
        torch.testing.assert_close(logits, ours.model.eval()(batch.ids, batch.lengths))


def test_plain_trains_as_posfuse_does(corpus):
    overrides = ["model.dropout=0", "optim.weight_decay=0.5", "trainer.clip_norm=0.01"]
    cfg, data, ours, theirs, words = twins(corpus, *overrides)
    frame = pd.read_parquet(corpus / "train.parquet")
    batch = data.documents["train"][np.arange(len(frame))]
    optimizer = ours.configure_optimizers()
    same = torch.optim.AdamW(theirs.parameters(), lr=0.01, weight_decay=0.5)
    for _ in range(3):
        optimizer.zero_grad()
        F.cross_entropy(ours.model(batch.ids, batch.lengths), batch.labels).backward()
        ours.configure_gradient_clipping(optimizer, cfg.trainer.clip_norm)
        optimizer.step()
        texts, labels = frame["text"].tolist(), frame["label"].tolist()
        plain.train(theirs, same, texts, labels, words, len(texts), cfg.trainer.clip_norm)
    mine = ours.model(batch.ids, batch.lengths)
    torch.testing.assert_close(theirs(plain.encode(texts, words, 16)), mine, rtol=1e-3, atol=1e-4)
    right = (mine.argmax(-1) == batch.labels).float().mean().item()
    assert plain.evaluate(theirs, texts, labels, words, 7) == pytest.approx(right)


def test_training_is_compared_and_stored(written, corpus, monkeypatch, capsys):
    monkeypatch.setattr(training, "config", lambda *_: small_config(corpus, "data.max_len=16"))
    monkeypatch.setitem(training.SETTINGS, "agnews", training.Settings(16, 2, 1, 1, (32,)))
    peaks = {training.train_plain: 4 * 10**9}
    monkeypatch.setattr(
        harness, "peak", lambda work, cfg, *_: peaks.get(work, 10**8 * cfg.data.batch_size)
    )
    given = ["--agnews", corpus, "--settings", "agnews", "imdb"]
    found = written(training, given, settings=["agnews"], repeats=2)
    assert "imdb: skipped, no folder; give --imdb FOLDER" in capsys.readouterr().out
    assert found["command"].startswith("python benchmarks/training.py --out result.json --agnews F")
    assert str(corpus.parent) not in json.dumps(found)
    assert found["folders"] == ["agnews"]
    speeds, memory = (table["rows"] for table in found["tables"])
    assert [[row[0], row[2]] for row in speeds] == [["agnews", s] for s in training.SYSTEMS]
    assert speeds[0][4] == speeds[0][6] == "1×"
    assert [row[7:] for row in speeds] == [[4.0, "1.00×"], [1.6, "0.40×"], [1.6, "0.40×"]]
    assert memory[3:] == [["agnews", 32, "exact", 3.2]]
    sizes = found["raw"]["agnews"]["vocabulary_size"]
    assert sizes["plain"] == sizes["posfuse"]


def test_commands_in_the_documents_exist():
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([\w-]+):", makefile, re.MULTILINE))
    (first,) = re.findall(r"^# make (.*)$", makefile, re.MULTILINE)
    assert set(first.split(" | ")) == targets
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")):
        text = page.read_text()
        assert set(re.findall(r"(?:^ {4}|`)make ([\w-]+)", text, re.MULTILINE)) <= targets
    benchmarks = measured_code.benchmarks(ROOT / "benchmarks")
    for only in re.findall(r"run.py --only ([\w ]+)", makefile):
        assert set(only.split()) <= benchmarks.keys()
    for script in re.findall(r"benchmarks/(\w+)\.py", makefile):
        assert (ROOT / "benchmarks" / f"{script}.py").exists()


def test_the_plain_language_model_has_the_logits_of_posfuse(tmp_path):
    """With its weights and without biases; posfuse divides the logits by sqrt(d)."""
    job = language_model.Job("posfuse", 4, 4, str(tmp_path))
    cfg = language_model.config(job)
    ours = build_module(cfg, language_model.data_of(cfg, job)).model.eval()
    for name, parameter in ours.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.zeros_(parameter)
    m, mine = cfg.model, ours.state_dict()
    theirs = plain_language_model.PlainLanguageModel(m.d_model, m.n_heads, m.n_layers, 64)
    found = {
        "tokens.weight": mine["embedding.weight"][language_model.FIRST_BYTE :],
        "positions.weight": mine["table.absolute"],
        "norm.weight": mine["encoder.norm.weight"],
    }
    of_block = {
        "attention.qkv_weight": "qkv", "attention.out_weight": "out", "norm1.weight": "norm1",
        "linear1.weight": "up", "linear2.weight": "down", "norm2.weight": "norm2",
    }  # fmt: skip
    for i in range(m.n_layers):
        for name, other in of_block.items():
            found[f"blocks.{i}.{other}.weight"] = mine[f"encoder.blocks.{i}.{name}"]
    theirs.load_state_dict(found)
    ids = torch.randint(256, (3, 64), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        logits = ours(ids + language_model.FIRST_BYTE, torch.full((3,), 64))
        torch.testing.assert_close(
            theirs(ids), logits[..., language_model.FIRST_BYTE :] * m.d_model**0.5,
            rtol=1e-4, atol=1e-3,
        )  # fmt: skip


def test_every_operator_is_timed_unfolded_and_folded(written, monkeypatch):
    small = operators.Settings(batch=2, rounds=1, latency_rounds={1: 2, 64: 1})
    monkeypatch.setattr(operators, "SETTINGS", {"imdb": small, "arxiv": small})
    monkeypatch.setattr(operators, "FUSIONS", ["add", "gate_cnn", "mlp"])
    tiny = [*SMALL[:4], "data.max_len=6"]
    found = written(operators, ["--", *tiny], settings=["imdb", "arxiv"], overrides=[])
    trained, latency = (table["rows"] for table in found["tables"])
    each = [f"{name}, batch 2" for name in ("imdb", "arxiv") for _ in range(3)]
    assert [row[:2] for row in trained] == [
        [cell, fusion] for cell, fusion in zip(each, operators.FUSIONS * 2, strict=True)
    ]
    rows = {(row[0], row[1]): row[2:] for row in latency}
    assert all(len(row) == len(found["tables"][1]["columns"]) - 2 for row in rows.values())
    assert rows["imdb, batch 64", "mlp"][:3] == ["", "", ""]  # not the paper's
    assert rows["imdb, batch 64", "gate_cnn"][2].endswith("×")
    published = {of: row[-1] for of, row in rows.items()}
    assert published["arxiv, batch 1", "gate_cnn"] == "912 ms"
    assert published["arxiv, batch 1", "mlp"] == published["imdb, batch 1", "gate_cnn"] == ""


def test_the_memory_of_work_is_that_of_its_own_process():
    without, with_more = harness.peak(list), harness.peak(np.ones, 25_000_000)
    assert 0.19e9 < with_more - without < 0.25e9


@pytest.mark.parametrize("script", ["run.py", "steps.py"])
def test_bad_input_of_a_benchmark_is_one_line(script):
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / script), "--imdb", "/nowhere"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode
    assert done.stderr.rstrip().endswith("/nowhere is no folder; give one with train and test")
    assert "Traceback" not in done.stderr
