"""What the benchmarks count, compare and write, but not the times that they measure."""

import dataclasses
import json
import re
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

import generated_texts
import harness
import language_model
import long_documents
import operators
import plain
import plain_language_model
import store
import systems
import training
from posfuse.model import kernels
from posfuse.training.build import build_data, build_module
from posfuse.training.optimizer import optimizer, rate_factor
from processes import ended
from small_runs import SMALL, small_config
from variants import TORCH_NAMES

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def usual_denormals():
    """A benchmark leaves denormal numbers flushed, because it has a process of its own."""
    yield
    torch.set_flush_denormal(False)


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


def words_of(data):
    """The id of each word of the run's vocabulary."""
    ids = range(data.store.vocabulary_size)
    return dict(zip(data.store.words(ids), ids, strict=True))


def twins(corpus, *overrides):
    """posfuse's classifier, and the baseline with its weights, for the same documents."""
    cfg = small_config(corpus, "model.n_layers=2", "data.max_len=16", *overrides)
    data = build_data(cfg)
    ours = build_module(cfg, data)
    words = words_of(data)
    theirs = plain.PlainClassifier(len(words), len(data.store.label_names), 16, cfg.model)
    weights, found = ours.model.state_dict(), {}
    for name in theirs.state_dict():
        mine = re.sub(r"encoder\.layers\.(\d+)\.", r"encoder.blocks.\1.", name)
        for of_ours, torchs in TORCH_NAMES.items():
            mine = mine.replace(torchs, of_ours)
        found[name] = theirs.table if name == "table" else weights[mine]
    theirs.load_state_dict(found)
    return cfg, data, ours, theirs, words


def test_plain_has_the_logits_of_posfuse_and_trains_as_it_does(corpus):
    overrides = ["model.dropout=0", "optim.weight_decay=0.5", "trainer.clip_norm=0.01"]
    cfg, data, ours, theirs, words = twins(corpus, *overrides)
    frame = pd.read_parquet(corpus / "train.parquet")
    texts, labels = frame["text"].tolist(), frame["label"].tolist()
    ids = plain.encode(texts, words, 16)
    batch = data.documents["train"][np.arange(len(frame))]
    with torch.no_grad():  # as the benchmark evaluates: torch's fast path is on
        logits = theirs.eval()(ids)
        torch.testing.assert_close(logits, ours.model.eval()(batch.ids, batch.lengths))
    optimizer = ours.configure_optimizers()
    same = torch.optim.AdamW(theirs.parameters(), lr=0.01, weight_decay=0.5)
    for _ in range(3):
        optimizer.zero_grad()
        F.cross_entropy(ours.model(batch.ids, batch.lengths), batch.labels).backward()
        ours.configure_gradient_clipping(optimizer, cfg.trainer.clip_norm)
        optimizer.step()
        plain.train(theirs, same, texts, labels, words, len(texts), cfg.trainer.clip_norm)
    mine = ours.model(batch.ids, batch.lengths)
    torch.testing.assert_close(theirs(ids), mine, rtol=1e-3, atol=1e-4)
    right = (mine.argmax(-1) == batch.labels).float().mean().item()
    assert plain.evaluate(theirs, texts, labels, words, 7) == pytest.approx(right)


def test_training_is_compared_and_stored(written, corpus, monkeypatch):
    pytest.importorskip("accelerate")
    peaks = {systems.Plain: 4 * 10**9, systems.HuggingFace: 2 * 10**9, systems.Posfuse: 10**9}
    monkeypatch.setattr(training, "config", lambda *_: small_config(corpus, "data.max_len=16"))
    monkeypatch.setattr(training, "POSFUSE", {"exact": [], "fast": []})
    tiny = training.Settings("agnews", 16, 16, steps=2, plain_steps=1, evaluated=1)
    monkeypatch.setattr(training, "SETTINGS", {"agnews": tiny})
    monkeypatch.setattr(harness, "peak", lambda work, make, *_: peaks[make])
    found = written(training, ["--agnews", corpus], settings=["agnews"], repeats=2)
    assert found["command"].startswith("python benchmarks/training.py --out result.json --agnews F")
    assert str(corpus.parent) not in json.dumps(found)
    assert found["folders"] == ["agnews"]
    *compared, costs = found["tables"]
    for table, baseline in zip(compared, ("Trainer", "plain loop"), strict=True):
        systems_of = (f"{baseline}, docs/s", "exact", "fast", "products alone")
        assert table["columns"][2:6] == [f"training: {system}" for system in systems_of]
        ((name, tokens, *cells),) = table["rows"]
        assert (name, 0 < tokens <= 16, len(cells)) == ("agnews", True, 8)
        assert all(cell > 0 for cell in cells[::4])
        assert all(re.fullmatch(r"[\d.]+×", cell) for cell in (*cells[1:4], *cells[5:]))
    rows = [(name, system, peak) for name, system, _, _, peak, *_ in costs["rows"]]
    expected = [("Trainer", 2), ("plain loop", 4), ("exact", 1), ("fast", 1)]
    assert rows == [("agnews", *row) for row in expected]


def test_a_ratio_is_the_median_over_the_rounds(monkeypatch):
    rates = {"Trainer": [10, 20, 40], "exact": [20, 60, 40], "fast": [30, 40, 160]}
    rates["products alone"] = [50, 100, 200]
    both = {s: [{"training": r, "evaluation": 2 * r} for r in own] for s, own in rates.items()}
    monkeypatch.setattr(training, "POSFUSE", {"exact": [], "fast": []})
    measured = {"agnews": {"tokens": 38.0, "rates": both}}
    table = training.ratios("Title", measured, "Trainer", "")
    ratios = ["2.000×", "3.000×", "5.000×"]
    assert table["rows"] == [["agnews", 38.0, 20, *ratios, 40, *ratios]]


def test_the_products_are_those_of_the_linear_layers_of_a_run(corpus):
    cfg = small_config(corpus, "data.max_len=8", "model.n_layers=2", "data.eval_batch_size=16")
    n = {"train": 32, "test": 16}
    of = systems.Products(cfg, {split: np.arange(size) for split, size in n.items()})
    lengths = {split: np.sort(of.data.documents[split].lengths) for split in n}
    tokens = 16 * (lengths["train"][15] + lengths["train"][31]), 16 * lengths["test"][15]
    parameters = 2 * (3 * 8 * 8 + 8 * 8 + 2 * 8 * 16)
    with FlopCounterMode(display=False) as counter:
        rates = of.epoch()
    assert counter.get_total_flops() == 2 * parameters * (3 * tokens[0] + tokens[1])
    assert all(rate > 0 for rate in rates.values())


def test_the_trainer_gets_the_sizes_and_the_documents_of_the_run(corpus):
    pytest.importorskip("accelerate")
    cfg = small_config(corpus, "data.max_len=8", "model.n_layers=2", "model.dropout=0.3")
    data = build_data(cfg)
    frame = pd.read_parquet(corpus / "train.parquet")
    texts = frame["text"].tolist(), frame["label"].tolist()
    splits = {"train": texts, "test": texts}
    of = systems.HuggingFace(cfg, systems.Corpus(words_of(data), 3, splits))
    bert = of.trainer.model.config
    assert (bert.hidden_size, bert.num_attention_heads, bert.intermediate_size) == (8, 2, 16)
    assert (bert.num_hidden_layers, bert.hidden_dropout_prob) == (2, 0.3)
    assert (bert.attention_probs_dropout_prob, bert._attn_implementation) == (0.3, "sdpa")
    documents, seen = data.documents["train"], []
    for batch in of.trainer.get_train_dataloader():
        lengths = batch["attention_mask"].sum(1)
        assert batch["input_ids"].shape[1] == lengths.max()  # dynamic padding
        assert lengths.max() - lengths.min() <= 3  # similar lengths
        rows = zip(batch["input_ids"].tolist(), lengths.tolist(), strict=True)
        seen += [row[:n] for row, n in rows]
    ours = (documents[np.array([i])].ids[0].tolist() for i in range(len(documents)))
    assert sorted(seen) == sorted(ours)
    assert of.epoch()["training"] > 0
    assert isinstance(of.trainer.optimizer.optimizer, torch.optim.AdamW)
    assert of.trainer.optimizer.optimizer.defaults["fused"]


@pytest.mark.parametrize("name", generated_texts.KINDS)
def test_generated_texts_have_the_lengths_of_the_corpus(tmp_path, monkeypatch, name):
    words, spread, classes, _ = generated_texts.KINDS[name]
    monkeypatch.setitem(generated_texts.KINDS, name, (words, spread, classes, 200))
    folder = generated_texts.folder_of(name, None, tmp_path)
    train, test = (pd.read_parquet(folder / f"{split}.parquet") for split in ("train", "test"))
    assert train["text"].str.split().str.len().median() == pytest.approx(words, rel=0.15)
    assert (len(train), len(test)) == (200, 50)
    assert set(train["label"]) == set(range(classes))
    assert generated_texts.folder_of(name, tmp_path, tmp_path) == tmp_path


@pytest.fixture
def language_models(tmp_path, monkeypatch):
    """The benchmark's config and data, posfuse's model, and the plain one with biases, for a run of
    so many steps."""

    def build(steps):
        cfg = language_model.config(language_model.Job("posfuse", steps, 4, str(tmp_path)))
        data, m = build_data(cfg), cfg.model
        monkeypatch.setattr(plain_language_model, "BYTES", data.store.vocabulary_size)
        theirs = plain_language_model.PlainLanguageModel(m.d_model, m.n_heads, m.n_layers, 64, True)
        return cfg, data, build_module(cfg, data).model, theirs

    return build


def copy_weights(ours, theirs, m):
    """Give the plain language model the weights of posfuse's."""
    mine = ours.state_dict()
    found = {"tokens.weight": mine["embedding.weight"], "positions.weight": mine["table.absolute"]}
    of_block = {
        "qkv": "attention.qkv_", "out": "attention.out_", "norm1": "norm1.", "up": "linear1.",
        "down": "linear2.", "norm2": "norm2.",
    }  # fmt: skip
    for kind in ("weight", "bias"):
        found[f"norm.{kind}"] = mine[f"encoder.norm.{kind}"]
        for i, (name, own) in product(range(m.n_layers), of_block.items()):
            found[f"blocks.{i}.{name}.{kind}"] = mine[f"encoder.blocks.{i}.{own}{kind}"]
    theirs.load_state_dict(found)


def test_the_plain_loop_and_posfuse_have_the_same_losses_step_by_step(language_models, monkeypatch):
    """From the same weights, on the same windows, with the same AdamW."""
    cfg, data, ours, theirs = language_models(20)
    monkeypatch.setattr(plain_language_model, "BETAS", (0.9, 0.999))
    copy_weights(ours.train(), theirs, cfg.model)
    updates = optimizer(ours, ours.parameters(), cfg.optim)
    their_updates = plain_language_model.optimizer(theirs, cfg.optim.lr)
    assert cfg.optim.lr == 1e-3
    losses = []
    for window in range(20):
        batch = data.documents["train"][np.array([window])]
        logits = ours(batch.ids, batch.lengths), theirs(batch.ids, batch.labels)[0]
        scaled = logits[0], logits[1] * cfg.model.d_model**-0.5  # as posfuse does inside
        both = [F.cross_entropy(found.flatten(0, 1), batch.labels.flatten()) for found in scaled]
        sum(both).backward()
        for model, own in ((ours, updates), (theirs, their_updates)):
            torch.nn.utils.clip_grad_norm_(model.parameters(), plain_language_model.CLIP_NORM)
            own.step()
            own.zero_grad()
        losses.append([loss.item() for loss in both])
    mine, plain_ones = np.array(losses).T
    np.testing.assert_allclose(mine, plain_ones, rtol=1e-4)
    assert mine[-1] < mine[0] - 0.5


def test_the_plain_recipe_decays_the_same_matrices_with_the_same_learning_rates(language_models):
    steps = 500
    cfg, _, ours, theirs = language_models(steps)
    lr = cfg.optim.lr
    both = optimizer(ours, ours.parameters(), cfg.optim), plain_language_model.optimizer(theirs, lr)
    mine, plain_ones = (
        {g["weight_decay"]: sum(p.numel() for p in g["params"]) for g in updates.param_groups}
        for updates in both
    )
    assert mine == plain_ones
    rates = [plain_language_model.learning_rate(step, steps, lr) for step in range(steps)]
    own = [lr * rate_factor(step, cfg.optim, steps) for step in range(steps)]
    assert own == pytest.approx(rates, rel=1e-12)


def test_the_default_output_learns_as_much_as_the_plain_recipe(tmp_path, monkeypatch):
    """With the settings of nanoGPT, but with posfuse's initial values and its own output matrix."""
    untied = [o.replace("output=tied", "output=untied") for o in language_model.OVERRIDES]
    monkeypatch.setattr(language_model, "OVERRIDES", untied)
    bits = {
        system: language_model.train(None, language_model.Job(system, 500, 600, str(tmp_path)))[1]
        for system in ("posfuse", "plain with biases")
    }
    assert bits["posfuse"] < bits["plain with biases"] + 0.05 < 3.6, bits


NANOGPT = """
from collections import namedtuple
import plain_language_model as plain

GPTConfig = namedtuple("GPTConfig", "block_size vocab_size n_layer n_head n_embd dropout bias")

class GPT(plain.PlainLanguageModel):
    def __init__(self, c):
        assert (c.vocab_size, c.dropout) == (256, 0.0)
        super().__init__(c.n_embd, c.n_head, c.n_layer, c.block_size, c.bias)

    def configure_optimizers(self, weight_decay, learning_rate, betas, device_type):
        assert (weight_decay, betas, device_type) == (0.1, (0.9, 0.99), "cpu")
        return plain.optimizer(self, learning_rate)
"""


def test_nanogpt_trains_in_the_plain_loop(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.path", [*sys.path])
    (tmp_path / "model.py").write_text(NANOGPT)
    own = language_model.Job("nanoGPT", 2, 2, str(tmp_path), tmp_path)
    (_, bits), (_, same) = (
        language_model.train(None, dataclasses.replace(own, system=s)) for s in ("nanoGPT", "plain")
    )
    assert bits == same < 8.5


def test_every_operator_is_timed_unfolded_and_folded(written, monkeypatch):
    small = operators.Settings(batch=2, rounds=1, latency_rounds={1: 2, 64: 1})
    monkeypatch.setattr(operators, "SETTINGS", {"imdb": small, "arxiv": small})
    monkeypatch.setattr(operators, "FUSIONS", ["add", "gate_cnn", "mlp"])
    tiny = [*SMALL[:4], "data.max_len=6"]
    found = written(operators, ["--overrides", *tiny], settings=["imdb", "arxiv"], overrides=[])
    trained, latency = (table["rows"] for table in found["tables"])
    assert [tuple(row[:2]) for row in trained] == [
        *product(["imdb, batch 2", "arxiv, batch 2"], operators.FUSIONS)
    ]
    rows = {(row[0], row[1]): row[2:] for row in latency}
    assert all(len(row) == len(found["tables"][1]["columns"]) - 2 for row in rows.values())
    assert rows["imdb, batch 64", "mlp"][:3] == ["", "", ""]  # not the paper's
    assert rows["imdb, batch 64", "gate_cnn"][2].endswith("×")
    published = {of: row[-1] for of, row in rows.items()}
    assert published["arxiv, batch 1", "gate_cnn"] == "912 ms"
    assert published["arxiv, batch 1", "mlp"] == published["imdb, batch 1", "gate_cnn"] == ""


@pytest.mark.skipif(harness.IS_GPU, reason="measures a CPU")
def test_the_parts_of_a_long_step_are_timed_by_speed_and_kernel(written):
    before = dict(kernels.SCORES)
    found = written(long_documents, ["--tokens", "16"], tokens=[1], rounds=1)
    parts, by_kernel = (table["rows"] for table in found["tables"])
    assert [row[:2] for row in parts] == [[16, "exact"], [16, "fast"]]
    assert all(min(row[3:7]) > 0 for row in parts)
    assert [row[1] for row in by_kernel][::8] == ["torch, float32", "torch, bfloat16"]
    assert by_kernel[0][3] == "1.000×"
    assert before == kernels.SCORES


@pytest.mark.parametrize("kernel", long_documents.KERNELS)
def test_each_timed_kernel_of_attention_has_the_gradients_of_torch(kernel, monkeypatch):
    monkeypatch.setitem(kernels.SCORES, "cpu", kernels.SCORES["cpu"])
    q, k, v, gradient = torch.randn(4, 2, 4, 24, 8, generator=torch.Generator().manual_seed(0))
    expected = long_documents.KERNELS["torch"]([q, k, v, gradient])()
    gradients = long_documents.KERNELS[kernel]([x.clone() for x in (q, k, v, gradient)])()
    if kernel.startswith("one"):
        across = 0 if "document" in kernel else 1
        gradients = [torch.cat(parts, across) for parts in zip(*gradients, strict=True)]
    for own, of_torch in zip(gradients, expected, strict=True):
        torch.testing.assert_close(own, of_torch)


def test_the_products_of_attention_are_those_of_two_passes(monkeypatch):
    monkeypatch.setattr(long_documents, "BLOCK", 3 * 10 * 4)
    draw = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 3, 10, 4, generator=draw) for _ in range(3))
    found = list(long_documents.blocks(q, k, v))
    assert [some.shape[2] for some, *_ in found] == [4, 4, 2] * 2
    scores = [some @ seen.transpose(-2, -1) for some, _, seen, _ in found]
    for document in range(2):
        own = torch.cat(scores[3 * document : 3 * document + 3], 2)
        torch.testing.assert_close(own[0], q[document] @ k[document].transpose(-2, -1))
        assert torch.equal(found[3 * document][3][0], v[document])
    with FlopCounterMode(display=False) as counter:
        long_documents.products(q, k, v)
    assert counter.get_total_flops() == 7 * 2 * (2 * 3 * 10 * 10 * 4)  # documents, heads, L, L, D


def test_the_memory_of_work_is_that_of_its_own_process():
    assert 0.19e9 < harness.peak(np.ones, 25_000_000) - harness.peak(list) < 0.25e9


@pytest.mark.parametrize("script", ["run.py", "training.py"])
def test_bad_input_of_a_benchmark_is_one_line(script, tmp_path):
    argv = [sys.executable, str(ROOT / "benchmarks" / script), "--imdb", "/nowhere"]
    done = ended(argv, tmp_path)
    assert done.returncode
    assert done.stderr.rstrip().endswith("/nowhere is no folder; correct it")
    assert "Traceback" not in done.stderr
