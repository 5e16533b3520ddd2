"""What the benchmarks count, compare and write, but not the times that they measure."""

import itertools
import json
import math
import re
import subprocess
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

import arxiv_path
import copied_sweeps
import gpu_steps
import language_model
import plain
import plain_language_model
import precision
import scale
import scale_figure
import stacked
import step_budget
import steps
import stored
import sweep_times
import systems
import timing
import training
import training_tables
from posfuse.config import ModelConfig
from posfuse.data.corpora import load
from posfuse.data.splits import splits
from posfuse.training.build import build_data, build_module
from small_runs import small_config, write_corpus

ROOT = Path(__file__).parents[2]
OF_BLOCK = {  # torch's names: ours
    "self_attn.in_proj_weight": "attention.qkv_weight",
    "self_attn.in_proj_bias": "attention.qkv_bias",
    "self_attn.out_proj.weight": "attention.out_weight",
    "self_attn.out_proj.bias": "attention.out_bias",
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("benchmarks") / "corpus")


def twins(corpus, *overrides):
    """posfuse's classifier, and the baseline with its weights, for the same documents."""
    cfg = small_config(corpus, "model.n_layers=2", "data.max_len=16", *overrides)
    data = build_data(cfg)
    ours = build_module(cfg, data)
    texts = pd.read_parquet(corpus / "train.parquet")["text"]
    words = plain.vocabulary(texts, 50_000, 2)
    n_classes = len(data.store.label_names)
    m = cfg.model
    theirs = plain.PlainClassifier(
        len(words) + 2, n_classes, 16, m.d_model, m.n_heads, m.n_layers, m.d_ff, m.dropout,
        m.activation,
    )  # fmt: skip
    weights = ours.model.state_dict()
    found = {}
    for name in theirs.state_dict():
        mine = re.sub(r"encoder\.layers\.(\d+)\.", r"encoder.blocks.\1.", name)
        for torchs, of_ours in OF_BLOCK.items():
            mine = mine.replace(torchs, of_ours)
        found[name] = theirs.table if name == "table" else weights[mine]
    theirs.load_state_dict(found)
    return cfg, data, ours, theirs, words


def test_plain_has_the_ids_and_the_logits_of_posfuse(corpus):
    _, data, ours, theirs, words = twins(corpus)
    frame = pd.read_parquet(corpus / "train.parquet")
    documents = data.documents["train"]
    batch = documents[np.arange(len(documents))]
    ids = plain.encode(frame["text"].tolist(), words, 16)
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


def test_vocabulary_keeps_the_most_frequent_words():
    texts = ["B b a A c", "c c d\u00a0e f"]
    assert plain.vocabulary(texts, 50, 2) == {"c": 2, "a": 3, "b": 4}
    assert plain.vocabulary(texts, 4, 1) == {"c": 2, "a": 3}


def test_products_counted_by_hand():
    model = ModelConfig(d_model=4, n_layers=2, d_ff=8)
    tokens, pairs = 2 + 3, 4 + 9
    of_layer = 2 * tokens * (3 * 16 + 16 + 32 + 32) + 2 * 2 * pairs * 4
    assert systems.product_flops(np.array([2, 3]), model, 3) == 2 * of_layer + 2 * 2 * 4 * 3


def test_products_counted_by_torch(corpus):
    cfg, _, _, theirs, _ = twins(corpus)
    ids = torch.randint(2, 10, (3, 16))  # no padding: every product is one of valid tokens
    counter = FlopCounterMode(display=False)
    with counter:
        theirs.train()(ids).sum().backward()
    forward = systems.product_flops(np.full(3, 16), cfg.model, theirs.head.out_features)
    assert counter.get_total_flops() == 3 * forward


def test_chosen_batches_are_those_of_the_epoch(corpus):
    cfg = small_config(corpus, "data.batch_size=8", "data.eval_batch_size=4")
    run = systems.Posfuse(cfg, 3, 2)
    real = [frozenset(b.index.tolist()) for b in build_data(cfg).train_dataloader()]
    mine = [run.members["train"][b.index.numpy()] for b in run.data.train_dataloader()]
    assert len(mine) == 3
    assert {frozenset(b.tolist()) for b in mine} < set(real)
    texts = pd.read_parquet(corpus / "test.parquet")["text"].iloc[run.members["test"]]
    lengths = [len(text.split()) for text in texts]
    assert run.data.documents["validation"].lengths.tolist() == lengths


def test_the_baseline_gets_the_documents_with_their_labels(corpus):
    cfg = small_config(corpus)
    parts, _ = splits(load(cfg.data), cfg.data)
    numbers = np.array([7, 2, 11, 40])
    rows = pd.read_parquet(corpus / "train.parquet").iloc[numbers]
    found = training.shuffled(parts["train"], numbers)
    expected = zip(rows["text"], rows["label"], strict=True)
    assert sorted(zip(*found, strict=True)) == sorted(expected)


def test_spread_takes_the_middles():
    assert systems.spread(list(range(50)), 5) == [5, 15, 25, 35, 45]
    assert systems.spread(list(range(3)), 3) == [0, 1, 2]
    assert systems.longest([1, 2, 3], 2) == [2, 3]


@pytest.fixture(scope="module")
def benchmarked(corpus):
    """The results file of a benchmark of the small corpus named agnews, and what it printed."""
    out = corpus.parent / "training.json"
    argv = ["training.py", "--agnews", str(corpus), "--settings", "agnews", "imdb", "--repeats"]
    with pytest.MonkeyPatch.context() as patched, redirect_stdout(StringIO()) as printed:
        patched.setattr(training, "config", lambda *_: small_config(corpus, "data.max_len=16"))
        patched.setitem(training.SETTINGS, "agnews", training.Settings(16, 2, 1, 1, (32,)))
        patched.setattr(training, "peak", lambda threads, work: work() if work else 10**9)
        patched.setattr(training, "train_plain", lambda *_: 4 * 10**9)
        patched.setattr(training, "train_posfuse", lambda cfg: 10**8 * cfg.data.batch_size)
        patched.setattr(timing, "product_rate", lambda kind, device: 2e12)
        patched.setattr("sys.argv", [*argv, "2", "--out", str(out)])
        training.main()
    return out, printed.getvalue()


def test_a_benchmark_from_its_command_to_the_page(benchmarked, corpus):
    out, _ = benchmarked
    found = json.loads(out.read_text())
    assert found["command"].startswith("python benchmarks/training.py --agnews FOLDER --settings")
    assert str(corpus.parent) not in out.read_text()
    assert found["machine"]["torch"] == torch.__version__
    speeds, shares, memory = (table["rows"] for table in found["tables"])
    assert [row[:2] for row in speeds] == [["agnews", s] for s in ("plain", "exact", "fast")]
    assert speeds[0][3] == speeds[0][5] == "1×"
    assert [row[6:] for row in speeds] == [[4.0, "1.00×"], [1.6, "0.40×"], [1.6, "0.40×"]]
    assert memory[3:] == [["agnews", 32, "exact", 3.2]]
    raw = found["raw"]["settings"]["agnews"]
    assert raw["vocabulary_size"]["plain"] == raw["vocabulary_size"]["posfuse"]
    for row, speed in zip(shares, speeds, strict=True):
        assert row[5] == pytest.approx(speed[2] * row[4])
        assert row[7] == f"{row[5] / 2000:.1%}"
    assert found["folders"] == ["agnews"]


def test_a_setting_without_its_folder_is_skipped(benchmarked):
    out, printed = benchmarked
    assert "imdb: skipped, no folder; give --imdb FOLDER" in printed
    assert list(json.loads(out.read_text())["raw"]["settings"]) == ["agnews"]


def test_the_ratio_is_the_median_of_the_repeats_own():
    rates = {"plain": [{"training": t} for t in (1, 2, 4)],
             "exact": [{"training": t} for t in (10, 10, 10)]}  # fmt: skip
    assert training_tables.times_plain(rates, "exact", "training") == 5


def test_commands_in_the_documents_exist():
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([\w-]+):", makefile, re.MULTILINE))
    (first,) = re.findall(r"^# make (.*)$", makefile, re.MULTILINE)
    assert set(first.split(" | ")) == targets
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")):
        text = page.read_text()
        assert set(re.findall(r"(?:^ {4}|`)make ([\w-]+)", text, re.MULTILINE)) <= targets
    for script in re.findall(r"benchmarks/(\w+)\.py", makefile):
        assert (ROOT / "benchmarks" / f"{script}.py").exists()


def test_precisions_are_compared_seed_by_seed():
    by_seed = {"32-true": {0: 50.0, 1: 60.0, 2: 70.0}, "bf16-mixed": {2: 72.0, 0: 51.0, 1: 60.0}}
    found = {(fusion, p): by_seed[p] for fusion in precision.OPERATORS for p in by_seed}
    row = precision.rows(found)[0]
    # Differences 1, 0, 2: mean 1, deviation 1, t(2) at 97.5 % = 4.3027, divided by sqrt(3).
    assert row == ["add", "60.00 ± 10.00", "61.00 ± 10.54", "+1.00", "-1.48..+3.48"]


def test_the_arxiv_path_reads_the_hubs_form_and_keeps_its_records(tmp_path, monkeypatch):
    out = tmp_path / "arxiv.json"
    small = ["data.max_len=32", "model.d_model=8", "model.n_heads=2", "trainer.accelerator=cpu"]
    argv = [
        "arxiv_path.py",
        "--documents",
        "11",
        "--encodings",
        "alibi",
        "--out",
        out,
        "--",
        *small,
    ]
    monkeypatch.setattr("sys.argv", list(map(str, argv)))
    monkeypatch.chdir(tmp_path)
    arxiv_path.main()
    found = json.loads(out.read_text())
    (row,) = found["tables"][0]["rows"]
    assert row[:3] == ["alibi", 11, 32.0]
    assert found["raw"]["records"][0]["label_names"] == arxiv_path.CLASSES
    assert "11 classes, 100% of the documents cut" in found["tables"][0]["note"]


def test_the_plain_language_model_has_the_logits_of_posfuse(tmp_path):
    """With its weights and without biases; posfuse divides the logits by sqrt(d)."""
    job = language_model.Job("posfuse", 0, 4, 1, 4, 1, str(tmp_path))
    cfg = language_model.config(job)
    ours = build_module(cfg, language_model.data_of(cfg, job)).model.eval()
    for name, parameter in ours.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.zeros_(parameter)
    m = cfg.model
    theirs = plain_language_model.PlainLanguageModel(m.d_model, m.n_heads, m.n_layers, 64)
    mine = ours.state_dict()
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


def test_the_plain_learning_rate_rises_and_falls():
    rates = [plain_language_model.learning_rate(step, 300, 1.0) for step in (0, 99, 100, 200, 300)]
    assert rates == pytest.approx([1 / 101, 100 / 101, 1.0, 0.55, 0.1])
    assert plain_language_model.learning_rate(0, None, 0.5) == 0.5


def test_random_windows_are_bytes_and_their_successors():
    ids, targets = plain_language_model.random_windows(np.arange(9, dtype=np.uint8), 50, 4)
    assert torch.equal(ids + 1, targets)
    assert set(ids[:, 0].tolist()) == {0, 1, 2, 3, 4}


def test_the_language_models_are_compared_in_turns(tmp_path, monkeypatch):
    out = tmp_path / "language_model.json"
    given = ["--repeats", "1", "--steps", "6", "--parts", "2", "--windows", "9"]
    monkeypatch.setattr("sys.argv", ["language_model.py", *given, "--out", str(out)])
    language_model.main()
    found = json.loads(out.read_text())
    assert [row[0] for row in found["tables"][0]["rows"]] == list(language_model.SYSTEMS)
    assert found["tables"][0]["rows"][0][3] == "1.00×"
    (run,) = found["raw"]["runs"]
    for parts in run.values():
        assert len(parts) == 2
        assert all(2 < part["bits_per_byte"] < 30 for part in parts)


def test_the_parts_of_a_run_and_the_alternatives_for_a_step(corpus, tmp_path, monkeypatch):
    small = ["data.corpus.sizes=[64,40,40]", "trainer.max_epochs=1", "data.batch_size=8"]
    cell = step_budget.CELLS["lead_story_long"]
    monkeypatch.setitem(step_budget.CELLS, "lead_story_long", [*cell, *small])
    tiny = ["model.d_model=8", "model.n_heads=2", "model.d_ff=8", "data.batch_size=8"]
    monkeypatch.setattr(step_budget, "IMDB", [*step_budget.IMDB, *tiny])
    monkeypatch.setattr(step_budget, "SEEDS", (2,))
    monkeypatch.setattr(step_budget, "TURN", step_budget.Turn(1, 2))
    monkeypatch.setattr(steps.shutil, "which", lambda _: None)  # a compilation takes long
    out = tmp_path / "budget.json"
    options = ["--repeats", "1", "--cells", "lead_story_long", "--imdb", str(corpus)]
    monkeypatch.setattr("sys.argv", ["step_budget.py", *options, "--out", str(out)])
    step_budget.main()
    runs, parts, others, stacks = (table["rows"] for table in json.loads(out.read_text())["tables"])
    assert [row[0] for row in stacks] == ["lead_story_long, 2 seeds"] * 2
    (_, n_steps, fit, *shares) = runs[0]
    assert n_steps == 8
    assert fit > 0
    assert all(0 < float(share.rstrip("%")) < 100 for share in shares)
    for cell in ("lead_story_long", "imdb"):
        shares = {kind: int(share.rstrip("%")) for of, kind, share in parts if of == cell}
        assert 95 <= sum(shares.values()) <= 105
        assert shares["matrix products"] > 0
        assert [row[:2] for row in others].count([cell, steps.USUAL]) == 1
        assert len([row for row in others if row[0] == cell]) == 6
    # The small cell has no dropout inside attention, IMDB has.
    assert dict(row[1:] for row in parts if row[0] == "lead_story_long")["attention kernel"] != "0%"
    assert dict(row[1:] for row in parts if row[0] == "imdb")["attention kernel"] == "0%"


def test_plain_attention_is_attention():
    q, k, v = torch.randn(3, 2, 4, 7, 16)
    mask, bias = (torch.arange(7) < torch.tensor([[7], [3]]))[:, None, None], torch.randn(4, 7, 7)
    expected = F.scaled_dot_product_attention(q, k, v, bias.masked_fill(~mask, -torch.inf))
    torch.testing.assert_close(steps.plain_attention(q, k, v, mask, bias, 0.0), expected)


def test_an_even_batch_has_as_many_tokens_and_no_padding(corpus):
    cfg = small_config(corpus, "data.batch_size=8")
    batch = build_data(cfg).documents["train"][np.arange(7)]
    even = steps.even(batch)
    assert even.ids.shape[1] == -(-batch.n_tokens // 7) < batch.ids.shape[1]
    assert even.lengths.tolist() == [even.ids.shape[1]] * 7
    assert torch.equal(even.ids, batch.ids[:, : even.ids.shape[1]])


def test_the_time_of_many_seeds(tmp_path, monkeypatch):
    out = tmp_path / "sweeps.json"
    options = ["--seeds", "2", "--at-once", "1", "2", "--out", str(out)]
    small = ["trainer.limit_batches=1", "trainer.max_epochs=1", "data.corpus.sizes=[64,40,40]"]
    monkeypatch.setattr("sys.argv", ["sweep_times.py", *options, *small])
    sweep_times.main()
    ((table,),) = (json.loads(out.read_text())["tables"],)
    assert [row[:2] for row in table["rows"]] == [["1", "1"], ["2", "1"], ["2", "2"]]
    assert all(row[2] > 0 for row in table["rows"])


def test_a_sweep_that_fails_has_no_time(tmp_path, capfd):
    assert math.isnan(
        sweep_times.sweep(tmp_path, [*sweep_times.SMALL, "seed=0", "data.limit=2"], 1, 1)
    )
    assert "0 of 1 runs have a result: " in capfd.readouterr().err


def test_a_step_that_fails_has_a_row_without_numbers(corpus):
    cfg = small_config(corpus)
    batch = build_data(cfg).documents["train"][np.arange(4)]

    def failing(_):
        raise torch.OutOfMemoryError("4 TB are missing")

    found = {steps.USUAL: lambda batch: None, "large": failing}
    rows = list(steps.compared("imdb", found, [batch], [batch], 1))
    assert rows[0] == ["imdb", "large", "", "fails here"]
    assert [row[:2] for row in rows[1:]] == [["imdb", steps.USUAL]]


def test_only_validation_within_the_fit_counts(corpus, tmp_path, monkeypatch):
    ticks = itertools.count()
    monkeypatch.setattr(step_budget.time, "process_time", lambda: next(ticks))
    cfg = small_config(corpus, "trainer.max_epochs=2", f"output_dir={tmp_path}")
    found = step_budget.fit_seconds(cfg)
    assert found["validation"] == 2  # ticks: one for each of two epochs
    assert found["diagnostics"] == 2 + len(build_data(cfg).train_dataloader()) * 2
    assert found["fit"] > found["validation"] + found["diagnostics"]


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (
            ["against.py", "nonsense"],
            "error: nonsense: fatal: invalid reference: nonsense; see git log",
        ),
        (["run.py", "--imdb", "/nowhere"], "/nowhere is no folder; give one with train and test"),
        (
            ["gpu_steps.py", "--imdb", "/nowhere"],
            "/nowhere is no folder; give one with train and test",
        ),
    ],
)
def test_bad_input_of_a_benchmark_is_one_line(argv, line):
    script, *options = argv
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / script), *options],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode
    assert done.stderr.rstrip().endswith(line)
    assert "Traceback" not in done.stderr


def test_cost_by_size(tmp_path, monkeypatch):
    out = tmp_path / "scale.json"
    sizes = ["--tokens", "8", "--documents", "50", "--predictions", "700", "--runs", "6"]
    monkeypatch.setattr(scale, "STEPS", 1)
    monkeypatch.setattr(copied_sweeps, "RUN", [*copied_sweeps.RUN, "trainer.limit_batches=1"])
    monkeypatch.setattr("sys.argv", ["scale.py", *sizes, "--out", str(out)])
    scale.main()
    tables = json.loads(out.read_text())["tables"]
    assert [row[0] for table in tables for row in table["rows"]] == [8, 50, 700, 6]
    assert all(row[1] > 0 and row[-1] > 0.1 for table in tables for row in table["rows"])
    assert min(tables[-1]["rows"][0]) > 0
    tables[-1]["rows"].append([10_000, "", "", 3.0, 100.0, 1.5])  # composing is left out
    scale_figure.draw(stored.Result("scale", {"tables": tables}, True), tmp_path / "scale.svg")
    assert (tmp_path / "scale.svg").stat().st_size > 10_000


def two_hundred_megabytes():
    return float(np.ones(200_000_000, dtype=np.uint8)[0])


def test_the_memory_of_work_is_that_of_its_own_process():
    (_, without), (_, with_more) = scale.apart(float), scale.apart(two_hundred_megabytes)
    assert 0.19 < with_more - without < 0.25


def test_a_copied_sweep_is_finished(tmp_path, capfd):
    one = copied_sweeps.trained(tmp_path)
    copied_sweeps.copies(one, tmp_path / "many", 2)
    assert copied_sweeps.skipping(tmp_path / "many", compose=False) > 0
    records = list((tmp_path / "many").rglob("result.json"))
    assert len(records) == 4
    assert not list((tmp_path / "many").rglob("*.ckpt"))  # nothing was trained


def test_the_steps_of_a_gpu_are_compared_without_one_too(corpus, tmp_path, monkeypatch):
    out = tmp_path / "gpu.json"
    monkeypatch.setattr(gpu_steps, "SEEDS", (2,))
    monkeypatch.setattr(steps.shutil, "which", lambda _: None)  # a compilation takes long
    sizes = ["data.max_len=16", "model.d_model=8", "model.n_heads=2", "model.d_ff=8"]
    sizes.append("trainer.accelerator=cpu")
    options = ["--imdb", str(corpus), "--settings", *gpu_steps.SETTINGS, "--repeats", "1"]
    given = [*options, "--documents", "80", "--out", str(out), "--", *sizes, "data.batch_size=4"]
    monkeypatch.setattr("sys.argv", ["gpu_steps.py", *given])
    gpu_steps.main()
    rows, syncs, stacks = (table["rows"] for table in json.loads(out.read_text())["tables"])
    assert {row[0] for row in rows} == {*gpu_steps.SETTINGS}
    assert [row[0] for row in rows if row[1] == "float32"] == [*gpu_steps.SETTINGS]
    assert all(row[2] > 0 for row in rows)
    assert syncs == [[name, "no GPU"] for name in gpu_steps.SETTINGS]
    assert [row[0] for row in stacks] == ["small run, 2 seeds"] * 2
    assert all(row[2] > 0 for row in stacks)


@pytest.mark.parametrize("clip_norm", ["0.1", "100", "null"])
def test_a_stack_trains_as_its_seeds_do(corpus, clip_norm):
    overrides = ["model.dropout=0", "fusion=gate_scalar", "model.token_scale=learned"]
    overrides += ["optim.weight_decay=0.5", f"trainer.clip_norm={clip_norm}"]
    cfg = small_config(corpus, "data.batch_size=4", *overrides)
    data = build_data(cfg)
    every = steps.batches(cfg, data)
    batches = [every[i : i + 3] for i in range(3)]  # of 3 steps, each seed its own
    assert len({batch.ids.shape[1] for batch in batches[0]}) > 1
    stack, step = stacked.stacked_step(cfg, data, 3)
    for of_seeds in batches:
        step(of_seeds)
    for i in range(3):
        module = build_module(small_config(corpus, *overrides, f"seed={i}"), data).train()
        initial = {name: p.detach().clone() for name, p in module.model.named_parameters()}
        optimizer = module.configure_optimizers()
        for of_seeds in batches:
            batch = of_seeds[i]
            optimizer.zero_grad()
            F.cross_entropy(module.model(batch.ids, batch.lengths), batch.labels).backward()
            if clip_norm != "null":
                torch.nn.utils.clip_grad_norm_(module.parameters(), float(clip_norm))
            optimizer.step()
        for name, parameter in module.model.named_parameters():
            assert not torch.equal(parameter, initial[name])
            found, expected = stack.parameters[name][i], parameter
            if name.endswith("qkv_bias"):  # softmax cancels that of keys: its gradient is rounding
                found, expected = (torch.stack(x.chunk(3))[[0, 2]] for x in (found, expected))
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


def test_each_seed_of_a_stack_has_its_own_dropout(corpus):
    cfg = small_config(corpus, "data.batch_size=4", "model.dropout=0.5")
    data = build_data(cfg)
    twice = [build_module(cfg, data).model for _ in range(2)]
    first, second = stacked.Stack(twice).losses(steps.batches(cfg, data, 1) * 2)
    assert first != second


def test_a_stack_is_compared_with_its_seeds_one_after_another(corpus, monkeypatch):
    cfg = small_config(corpus, "data.batch_size=4")
    data = build_data(cfg)
    on = steps.batches(cfg, data, 3)
    short = data.documents["train"][np.arange(2)]  # the last batch of an epoch
    seen = []
    monkeypatch.setattr(steps, "stepper", lambda *_: seen.append)
    rows = [*stacked.compared("cell", cfg, data, [2], (on[:1], [*on[1:], short]), 1)]
    assert [row[:2] for row in rows] == [
        ["cell, 2 seeds", steps.USUAL],
        ["cell, 2 seeds", stacked.STACK],
    ]
    assert all(row[2] > 0 for row in rows)
    assert [id(batch) for batch in seen] == [id(on[i]) for i in (0, 1, 1, 2, 2, 0)]
