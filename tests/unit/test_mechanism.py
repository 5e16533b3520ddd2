"""Attention by distance, the probe and patching, against values by hand and other computations."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from posfuse.data.batching import Batch
from posfuse.model.encoder import Encoder
from posfuse.model.fusion import Multiply
from posfuse.model.network import Backbone, PositionClassifier
from posfuse.model.positions import PositionSampler
from posfuse.runs.records import WHOLE
from posfuse.training import mechanism
from posfuse.training.mechanism import (
    attention_rows,
    measure,
    patch_rows,
    patched_logits,
    probe_rows,
    ridge,
)
from variants import ENCODINGS, OPERATORS, dense_weights, make_network, random_tensor

INSIDE = [name for name, node in ENCODINGS.items() if node.get("attention")]


def batch_of(documents):
    lengths = torch.tensor([len(ids) for ids in documents])
    ids = torch.zeros(len(documents), int(lengths.max()), dtype=torch.long)
    for row, document in zip(ids, documents, strict=True):
        row[: len(document)] = torch.tensor(document)
    index = torch.arange(len(documents))
    return Batch(ids, index % 3, lengths, index, int(lengths.sum()))


BATCH = batch_of([[2, 3, 4, 5, 6], [9, 8, 7]])
OTHER = batch_of([[5, 6], [3, 9, 2, 2, 4, 8, 7]])


def network(fusion="add", encoding="sinusoidal", seed=0, **options):
    """In double precision, with positions inside attention that matter."""
    model = make_network(fusion, encoding, seed, **options).double().eval()
    for i, parameter in enumerate(model.encoder.positions.parameters()):
        parameter.data = random_tensor(*parameter.shape, seed=i)
    return model


def table_of(rows):
    return {(row.name, row.layer, row.low, row.high): row for row in rows}


@pytest.mark.parametrize("encoding", ENCODINGS)
@torch.no_grad()
def test_attention_by_distance_is_that_of_the_kernels(encoding):
    model = network("add", encoding)
    found = table_of(attention_rows(model, [BATCH, OTHER]))
    kinds = {"first": [], "previous": [], "same": []}
    by_bucket = {}
    for batch in (BATCH, OTHER):
        weights = dense_weights(model, batch, 1).mean(1)
        for one, n in zip(weights, batch.lengths.tolist(), strict=True):
            for i in range(n):
                kinds["first"].append(one[i, 0])
                kinds["same"].append(one[i, i])
                kinds["previous"] += [one[i, i - 1]] if i else []
                for j in range(n):
                    low = 2 ** int(np.log2(abs(j - i))) if i != j else 0
                    bucket = (j > i) - (j < i), low
                    by_bucket.setdefault(bucket, []).append((one[i, j], n * one[i, j]))
    for name, values in kinds.items():
        row = found[f"attention_{name}", 2, 0, 0]
        assert (row.n, row.value) == (len(values), pytest.approx(np.mean(values), abs=1e-6))
    for (sign, low), values in by_bucket.items():
        ends = sorted((sign * low, sign * max(2 * low - 1, 0)))
        for name, column in zip(("mean", "ratio"), np.transpose(values), strict=True):
            row = found[f"attention_{name}", 2, *ends]
            assert (row.n, row.value) == (len(column), pytest.approx(np.mean(column), abs=1e-6))
    assert len(found) == 1 + 2 * (3 + 2 * len(by_bucket))
    assert len(by_bucket) == 7  # up to 6 tokens: 0, and 1, 2..3 and 4..7 on both sides


@torch.no_grad()
def test_uniform_attention_is_one_at_every_distance():
    model = network()
    for block in model.encoder.blocks:
        block.attention.qkv_weight.zero_()
    found = table_of(attention_rows(model, [BATCH]))
    # Five queries with 1/5 and three with 1/3.
    uniform = found["attention_uniform", WHOLE, 0, 0]
    assert (uniform.value, uniform.n) == (pytest.approx(2 / 8), 8)
    assert all(row.value == pytest.approx(1) for key, row in found.items() if "ratio" in key[0])


def test_ridge_is_that_of_scikit_learn():
    x = random_tensor(40, 6).numpy() * [1, 10, 0.1, 1, 1, 0] + 3  # the last column is constant
    y = random_tensor(40, seed=1).numpy() + x[:, 0]
    weight, bias = ridge(x, y, 2.5)
    expected = make_pipeline(StandardScaler(), Ridge(alpha=2.5)).fit(x, y).predict(x)
    np.testing.assert_allclose(x @ weight + bias, expected)


@torch.no_grad()
def test_the_probe_reads_the_output_of_each_block():
    model = network("concat", "rope")
    batches = [BATCH, OTHER, batch_of([[2, 4, 6, 8], [3, 5, 7, 9], [4] * 9])]
    features, places, halves = [[], [], []], [], []
    for number, document in enumerate(
        [b.ids[i : i + 1, :n] for b in batches for i, n in enumerate(b.lengths.tolist())]
    ):
        n = document.shape[1]
        x, at = model.fuse(document), torch.arange(n)
        features[0].append(x[0])
        for layer, block in enumerate(model.encoder.blocks, 1):
            x = block(x, None, (model.encoder.positions[0], at, None))
            features[layer].append(x[0])
        places += range(n)
        halves += [number % 2] * n
    half, place = np.array(halves), np.array(places)
    found = table_of(probe_rows(model, batches))
    for layer, parts in enumerate(features):
        x = torch.cat(parts).numpy()
        probe = make_pipeline(StandardScaler(), Ridge(alpha=1.0)).fit(
            x[half == 0], place[half == 0]
        )
        predicted = probe.predict(x[half == 1])
        r2 = r2_score(place[half == 1], predicted)
        within = np.mean(np.abs(predicted - place[half == 1]) <= 2)
        assert found["probe_r2", layer, 0, 0].value == pytest.approx(r2, abs=1e-6)
        assert found["probe_within_2", layer, 0, 0].value == pytest.approx(within)
        assert found["probe_r2", layer, 0, 0].n == (half == 1).sum()
    mean = np.full((half == 1).sum(), place[half == 0].mean())
    assert found["probe_r2", WHOLE, 0, 0].value == pytest.approx(r2_score(place[half == 1], mean))


@torch.no_grad()
def test_there_is_no_probe_without_two_documents_or_two_places():
    assert probe_rows(network(), [batch_of([[2, 3, 4]])]) == []
    assert probe_rows(network(), [batch_of([[2], [3], [4]])]) == []
    names = {row.name for row in measure(network(), [batch_of([[2], [3]])])}
    assert {"attention_same", "patch_reordered_changed"} <= names
    assert "attention_previous" not in names


ORDER = torch.tensor([[3, 0, 4, 1, 2], [2, 0, 1, 3, 4]])  # of BATCH's documents, padding at the end


def close(one, other):
    return torch.allclose(one, other, rtol=0, atol=1e-10)


@pytest.mark.parametrize("encoding", ENCODINGS)
@torch.no_grad()
def test_without_position_no_patch_changes_anything(encoding):
    for fusion in ("none", "add"):
        logits = patched_logits(network(fusion, encoding), BATCH, ORDER)
        if encoding in INSIDE or (fusion == "add" and encoding != "none"):
            assert not close(logits["own"], logits["reordered"])
        else:
            assert all(close(logits["own"], other) for other in logits.values())


@torch.no_grad()
def test_a_position_in_the_input_alone_decides_alone():
    for fusion in OPERATORS:
        logits = patched_logits(network(fusion, "sinusoidal"), BATCH, ORDER)
        by_hand = torch.tensor([[5, 2, 6, 3, 4], [7, 9, 8, 0, 0]])
        model = network(fusion, "sinusoidal")
        assert close(logits["reordered"], model(by_hand, BATCH.lengths)), fusion
        assert close(logits["own"], model(BATCH.ids, BATCH.lengths)), fusion
        assert close(logits["input"], logits["reordered"]), fusion
        assert close(logits["attention"], logits["own"]), fusion


@pytest.mark.parametrize("encoding", INSIDE)
@torch.no_grad()
def test_a_position_inside_attention_alone_decides_alone(encoding):
    logits = patched_logits(network("none", encoding), BATCH, ORDER)
    assert close(logits["input"], logits["own"])
    assert close(logits["attention"], logits["reordered"])


@torch.no_grad()
def test_a_patch_gives_the_fused_input_explicit_positions():
    """Each token of the document at its place inside attention, with the row of its place in the
    other order; tupe's positions inside attention are given by hand."""
    model = network("add", "tupe")
    rows = model.table()
    place = ORDER.argsort(1)  # of each token, in the other order
    for n, i in ((5, 0), (3, 1)):
        tokens = model.tokens(BATCH.ids[i : i + 1, :n])
        at, lengths = torch.arange(n), torch.tensor([n])
        logits = patched_logits(model, BATCH, ORDER)
        fused = tokens + rows[place[i, :n]]
        assert close(logits["input"][i], model.classify(fused, lengths, at)[0])
        fused = tokens + rows[:n]
        assert close(logits["attention"][i], model.classify(fused, lengths, place[i, :n])[0])


class FirstRow(torch.nn.Module):
    """1 at position 0, 0 elsewhere."""

    def forward(self):
        return F.one_hot(torch.tensor(0), 12).double()[:, None].expand(12, 4)


@torch.no_grad()
def test_shares_by_hand(monkeypatch):
    """The class is the token at the first place. The new order is from the last token to the
    first, so the class is then the last token."""
    encoder = Encoder(4, n_heads=2, n_layers=0, d_ff=4)
    backbone = Backbone(Multiply(4), None, encoder, token_scale=1.0)
    model = PositionClassifier(backbone, 4, 4).double().eval()
    model.table = FirstRow()
    model.embedding.weight.copy_(torch.eye(4))
    model.head.weight.copy_(torch.eye(4))
    model.head.bias.zero_()
    batch = batch_of([[1, 2, 3], [2, 2, 3], [3, 1, 3], [1, 1, 1]])
    monkeypatch.setattr(mechanism, "random_order", lambda *_: torch.tensor([2, 1, 0]).expand(4, 3))
    rows = {
        row.name.removeprefix("patch_"): (row.n, row.value) for row in patch_rows(model, [batch])
    }
    assert rows == {
        "reordered_changed": (4, 0.5),
        "input_changed": (4, 0.5),
        "input_followed": (2, 1),
        "input_stayed": (2, 0),
        "attention_changed": (4, 0),
        "attention_followed": (2, 0),
        "attention_stayed": (2, 1),
    }
    names = {row.name for row in patch_rows(model, [batch_of([[1, 1, 1]] * 4)])}
    assert names == {f"patch_{kind}_changed" for kind in ("reordered", "input", "attention")}


@pytest.mark.parametrize("sampler", [None, PositionSampler(12, seed=1)])
def test_every_operator_is_measured_without_drawing_a_random_number(sampler):
    for fusion in OPERATORS:
        for encoding in ("learned", "rope"):
            model = make_network(fusion, encoding, sampler=sampler).eval()
            before = torch.get_rng_state(), np.random.get_state()[1].tolist()
            weights = {name: value.clone() for name, value in model.state_dict().items()}
            rows = measure(model, [BATCH, OTHER])
            assert torch.equal(torch.get_rng_state(), before[0])
            assert np.random.get_state()[1].tolist() == before[1]
            assert all(torch.equal(weights[k], v) for k, v in model.state_dict().items())
            assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
            assert np.isfinite([row.value for row in rows]).all()
            assert rows == measure(model, [BATCH, OTHER])
            assert {"attention_ratio", "probe_r2", "patch_input_changed"} <= {r.name for r in rows}
