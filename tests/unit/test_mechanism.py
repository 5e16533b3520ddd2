"""Attention by distance, the probe and patching, against values by hand and other computations."""

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from posfuse.model.positions import PositionSampler
from posfuse.runs.measurements import WHOLE
from posfuse.training import mechanism
from posfuse.training.mechanism import attention_rows, measure, patched_logits, probe_rows
from variants import (
    ENCODINGS,
    INSIDE,
    OPERATORS,
    batch_of,
    dense_weights,
    make_network,
    random_tensor,
    randomized,
)

BATCH = batch_of([2, 3, 4, 5, 6], [9, 8, 7])
OTHER = batch_of([5, 6], [3, 9, 2, 2, 4, 8, 7])


def network(fusion="add", encoding="sinusoidal", **options):
    """In double precision, with positions inside attention that matter."""
    model = make_network(fusion, encoding, **options).double().eval()
    randomized(model.encoder.positions)
    return model


def table_of(rows):
    return {(row.name, row.layer, row.low, row.high): row for row in rows}


@pytest.mark.parametrize("encoding", ENCODINGS)
@torch.no_grad()
def test_attention_by_distance_is_that_of_the_kernels(encoding):
    model, of_pairs = network("add", encoding), []
    for batch in (BATCH, OTHER):
        weights = dense_weights(model, batch, 1).mean(1).tolist()
        for one, n in zip(weights, batch.lengths.tolist(), strict=True):
            of_pairs += [(i, j, one[i][j], n * one[i][j]) for i in range(n) for j in range(n)]
    pairs = pd.DataFrame(of_pairs, columns=["query", "key", "mean", "ratio"])
    distance = pairs["key"] - pairs["query"]
    found = table_of(attention_rows(model, [BATCH, OTHER]))

    def check(name, values, low=0, high=0):
        row = found[f"attention_{name}", 2, low, high]
        assert (row.n, row.value) == (len(values), pytest.approx(values.mean(), abs=1e-6))

    check("first", pairs["mean"][pairs["key"] == 0])
    check("same", pairs["mean"][distance == 0])
    check("previous", pairs["mean"][distance == -1])
    buckets = [(0, 0), (1, 1), (2, 3), (4, 7), (-1, -1), (-3, -2), (-7, -4)]
    for low, high in buckets:
        inside = pairs[distance.between(low, high)]
        check("mean", inside["mean"], low, high)
        check("ratio", inside["ratio"], low, high)
    assert len(found) == 1 + 2 * (3 + 2 * len(buckets))


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
    weight, bias = mechanism.ridge(x, y)
    expected = make_pipeline(StandardScaler(), Ridge(alpha=mechanism.PENALTY)).fit(x, y).predict(x)
    np.testing.assert_allclose(x @ weight + bias, expected)


@torch.no_grad()
def test_the_probe_reads_the_output_of_each_block():
    model = network("concat", "rope")
    batches = [BATCH, OTHER, batch_of([2, 4, 6, 8], [3, 5, 7, 9], [4] * 9)]
    features, places, halves = [[], [], []], [], []
    documents = [b.ids[i : i + 1, :n] for b in batches for i, n in enumerate(b.lengths.tolist())]
    for number, document in enumerate(documents):
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
        probe = make_pipeline(StandardScaler(), Ridge(alpha=1.0))
        predicted = probe.fit(x[half == 0], place[half == 0]).predict(x[half == 1])
        r2 = r2_score(place[half == 1], predicted)
        within = np.mean(np.abs(predicted - place[half == 1]) <= 2)
        assert found["probe_r2", layer, 0, 0].value == pytest.approx(r2, abs=1e-6)
        assert found["probe_within_2", layer, 0, 0].value == pytest.approx(within)
        assert found["probe_r2", layer, 0, 0].n == (half == 1).sum()
    mean = np.full((half == 1).sum(), place[half == 0].mean())
    assert found["probe_r2", WHOLE, 0, 0].value == pytest.approx(r2_score(place[half == 1], mean))


@torch.no_grad()
def test_there_is_no_probe_without_two_documents_or_two_places():
    assert probe_rows(network(), [batch_of([2, 3, 4])]) == []
    assert probe_rows(network(), [batch_of([2], [3], [4])]) == []
    names = {row.name for row in measure(network(), [batch_of([2], [3])])}
    assert {"attention_same", "patch_reordered_changed"} <= names
    assert "attention_previous" not in names


ORDER = torch.tensor([[3, 0, 4, 1, 2], [2, 0, 1, 3, 4]])  # of BATCH's documents, padding at the end


def close(one, other):
    return torch.allclose(one, other, rtol=0, atol=1e-10)


@pytest.mark.parametrize("encoding", ENCODINGS)
@torch.no_grad()
def test_a_position_inside_attention_alone_decides_alone(encoding):
    logits = patched_logits(network("none", encoding), BATCH, ORDER)
    assert close(logits["input"], logits["own"])
    assert close(logits["attention"], logits["reordered"])
    assert close(logits["own"], logits["reordered"]) == (encoding not in INSIDE)
    both = patched_logits(network("add", encoding), BATCH, ORDER)
    assert close(both["own"], both["reordered"]) == (encoding == "none")


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


def test_shares_by_hand(monkeypatch):
    classes = {"own": [0, 0, 0, 0], "reordered": [1, 1, 1, 0], "input": [1, 0, 2, 2]}
    classes["attention"] = [0, 0, 0, 0]
    logits = {name: F.one_hot(torch.tensor(of), 3) for name, of in classes.items()}
    monkeypatch.setattr(mechanism, "patched_logits", lambda *_: logits)
    rows = {
        row.name.removeprefix("patch_"): row for row in mechanism.patch_rows(None, [BATCH, BATCH])
    }
    assert {name: (row.n, row.value) for name, row in rows.items()} == {
        "reordered_changed": (8, 3 / 4),
        "input_changed": (8, 3 / 4),
        "input_followed": (6, pytest.approx(1 / 3)),
        "input_stayed": (6, pytest.approx(1 / 3)),
        "attention_changed": (8, 0),
        "attention_followed": (6, 0),
        "attention_stayed": (6, 1),
    }
    logits["reordered"] = logits["own"]
    names = {row.name for row in mechanism.patch_rows(None, [BATCH])}
    assert names == {f"patch_{kind}_changed" for kind in ("reordered", "input", "attention")}


@pytest.mark.parametrize("sampler", [None, PositionSampler(12, seed=1)])
def test_every_operator_is_measured_without_drawing_a_random_number(sampler):
    for fusion in OPERATORS:
        for encoding in ("learned", "rope"):
            model = make_network(fusion, encoding, sampler=sampler).eval()
            before = torch.get_rng_state(), repr(np.random.get_state())
            weights = {name: value.clone() for name, value in model.state_dict().items()}
            rows = measure(model, [BATCH, OTHER])
            assert torch.equal(torch.get_rng_state(), before[0])
            assert repr(np.random.get_state()) == before[1]
            assert all(torch.equal(weights[k], v) for k, v in model.state_dict().items())
            assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
            assert np.isfinite([row.value for row in rows]).all()
            assert rows == measure(model, [BATCH, OTHER])
            assert {"attention_ratio", "probe_r2", "patch_input_changed"} <= {r.name for r in rows}
