"""The diagnostics of a model against values by hand or a second implementation."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from posfuse.data.batching import Batch
from posfuse.model.fusion import Concat, Gated
from posfuse.training import diagnostics as dg
from variants import (
    ENCODINGS,
    OPERATORS,
    batch_of,
    dense_weights,
    make_fusion,
    make_network,
    random_tensor,
    randomized,
)

BATCH = batch_of([2, 3, 4, 5, 6], [9, 8, 7])
IDS, LENGTHS = BATCH.ids, BATCH.lengths
WHOLE = {"mlp", "mul"}  # operators that do not separate the token's part from the position's


def network(fusion="add", encoding="sinusoidal", **options):
    return make_network(fusion, encoding, **options).eval()


def values_of(found):
    """The values over all tokens."""
    return dg.fusion_values({k: v.detach().numpy() for k, v in found.items()}, slice(None))


def test_the_parts_of_token_and_position_sum_to_the_fused_vector():
    """The token's part is zero without tokens, the rest without a table; a gate keeps its value."""
    tokens, table = random_tensor(2, 5, 8), random_tensor(5, 8, seed=1)
    for name in OPERATORS:
        fusion = make_fusion(name, 8).double()
        parts = fusion.parts(tokens, table)
        part = fusion.token_part(*parts)
        assert (part is None) == (name in WHOLE), name
        if part is None:
            continue
        rest = fusion.merge(*parts) - part
        if isinstance(fusion, Gated):
            gate = fusion.gate(*parts)
            torch.testing.assert_close(rest, ((1 - gate) * table).expand_as(rest), msg=name)
        else:
            without_table = fusion(tokens, torch.zeros_like(table))
            torch.testing.assert_close(part, without_table, msg=name)
            without_tokens = fusion(torch.zeros_like(tokens), table)
            torch.testing.assert_close(rest, without_tokens, msg=name)


def test_the_bias_of_concat_belongs_to_the_token():
    fusion = Concat(8, bias=True).double()
    tokens, table = random_tensor(2, 5, 8), random_tensor(5, 8, seed=1)
    part = fusion.token_part(*fusion.parts(tokens, table))
    torch.testing.assert_close(part, tokens @ fusion.weight_token.T + fusion.bias)


def test_the_norms_of_an_addition_are_the_norms_of_its_terms():
    model = network("add", token_scale=3.0)
    found = dg.fusion_of_tokens(model, BATCH)
    assert found["position"].tolist() == [0, 1, 2, 3, 4, 0, 1, 2]
    assert found["id"].tolist() == [2, 3, 4, 5, 6, 9, 8, 7]
    expected = [3 * model.embedding.weight[i].norm().item() for i in found["id"]]
    assert found["token_norm"].tolist() == pytest.approx(expected, rel=1e-5)
    # d = 8: four pairs (sin, cos), so every row's norm is 2.
    assert found["position_norm"].tolist() == pytest.approx([2.0] * 8, rel=1e-5)
    values = values_of(found)
    assert values["norm_ratio"] == pytest.approx(np.mean(expected) / 2, rel=1e-5)
    assert not any(name.startswith("gate") for name in values)


def test_without_a_position_there_is_no_ratio():
    values = values_of(dg.fusion_of_tokens(network("add", "none"), BATCH))
    assert values["position_norm"] == 0
    assert "norm_ratio" not in values


def test_mean_spread_and_entropy_of_gates():
    for name in ("gate_scalar", "gate_feature", "gate_cnn", "gate_constant"):
        model = network(name)
        randomized(model.fusion, 0.3)
        values = values_of(dg.fusion_of_tokens(model, BATCH))
        gate = model.fusion.gate(*model.fusion.parts(model.tokens(IDS), model.table()))
        gates = gate.expand(2, 5, -1)[IDS > 0].flatten().tolist()
        assert values["gate_mean"] == pytest.approx(np.mean(gates), abs=1e-5), name
        assert values["gate_std"] == pytest.approx(np.std(gates), abs=1e-6), name
        bits = [-g * math.log2(g) - (1 - g) * math.log2(1 - g) for g in gates]
        assert values["gate_entropy"] == pytest.approx(np.mean(bits), abs=1e-5), name


def test_bins_by_hand():
    low, high = dg.bins(np.array([0, 1, 2, 3, 4, 7, 8, 4095]), 2)
    assert low.tolist() == [0, 1, 2, 2, 4, 4, 8, 2048]
    assert high.tolist() == [0, 1, 3, 3, 7, 7, 15, 4095]
    low, high = dg.bins(np.array([0, 1, 9, 10, 99, 100, 10**9]), 10)
    assert low.tolist() == [0, 1, 1, 10, 10, 100, 10**9]
    assert high.tolist() == [0, 9, 9, 99, 99, 999, 10**10 - 1]


def test_rows_by_position_and_by_frequency_are_means_over_their_tokens():
    found = {
        "position": np.array([0, 1, 2, 3]),
        "id": np.array([2, 3, 3, 4]),
        "gate": np.array([0.1, 0.2, 0.4, 0.6]),
        "gate_square": np.array([0.1, 0.2, 0.4, 0.6]) ** 2,
        "gate_entropy": np.ones(4),
    }
    counts = np.array([0, 0, 5, 50, 50])
    rows = {(r.name, r.by, r.low): r for r in dg.fusion_rows(2, found, counts)}
    assert rows["gate_mean", "", 0].value == pytest.approx(0.325)
    assert rows["gate_mean", "position", 2].value == pytest.approx(0.5)
    assert rows["gate_std", "position", 2].value == pytest.approx(0.1)
    assert rows["gate_mean", "frequency", 1].value == pytest.approx(0.1)
    last = rows["gate_mean", "frequency", 10]
    assert (last.value, last.high, last.n) == (pytest.approx(0.4), 99, 3)
    assert {row.epoch for row in rows.values()} == {2}


def test_attention_entropy_is_that_of_the_weights_of_training():
    for encoding in ENCODINGS:
        model = network("none", encoding)
        found = dg.attention_entropy(model, BATCH)
        assert len(found) == 2
        for layer, entropies in enumerate(found):
            weights = dense_weights(model, BATCH, layer)
            by_hand = [
                np.mean([-sum(w * math.log2(w) for w in head[i].tolist() if w > 0) for head in one])
                for one, length in zip(weights, LENGTHS, strict=True)
                for i in range(length)
            ]
            assert entropies.tolist() == pytest.approx(by_hand, abs=1e-4), (encoding, layer)


def test_entropy_is_measured_for_some_queries_of_a_long_document(monkeypatch):
    monkeypatch.setattr(dg, "QUERIES", 3)  # 0, 2 and 4; the second document has no 4
    assert [len(layer) for layer in dg.attention_entropy(network(), BATCH)] == [5, 5]


def test_shuffling_keeps_the_words_of_each_document_and_its_padding():
    batch = batch_of([*range(2, 202)], [*range(202, 302)])
    ids = batch.ids
    mixed = ids.gather(1, dg.random_order(batch, torch.Generator().manual_seed(0)))
    assert mixed[0].sort().values.tolist() == ids[0].tolist()
    assert mixed[1, :100].sort().values.tolist() == ids[1, :100].tolist()
    assert mixed[1, 100:].tolist() == [0] * 100
    assert not torch.equal(mixed[0], ids[0])
    order = mixed[0] - 2
    assert (order - torch.arange(200)).abs().double().mean() == pytest.approx(200 / 3, rel=0.2)


def test_a_document_beyond_the_end_of_the_table_is_refused():
    ids, lengths = torch.ones(1, 13, dtype=torch.long), torch.tensor([13])
    for fusion, encoding in (("add", "learned"), ("gate_cnn", "sinusoidal")):
        with pytest.raises(ValueError, match=r"13 tokens, but the position table ends at 12; cut"):
            network(fusion, encoding)(ids, lengths)
    model = network("add", "learned")
    for shifted in (model, model.fold()):
        with pytest.raises(ValueError, match=r"14 tokens, but the position table ends at 12; cut"):
            shifted(ids[:, :8], torch.tensor([8]), 6)
    with pytest.raises(ValueError, match=r"13 tokens, but the encoding inside attention ends at"):
        network("none", "rope")(ids, lengths)
    network("none", "alibi")(ids, lengths)


class FirstToken(torch.nn.Module):
    """Predicts the class from the first token, or 0 with an offset; records its arguments."""

    def __init__(self):
        super().__init__()
        self.given = []

    def forward(self, ids, lengths, offset=0):
        self.given.append((ids.shape[1], lengths.max().item(), offset))
        return F.one_hot(ids[:, 0] % 2 if not offset else ids[:, 0] * 0, 2).float()


def test_worth_of_position_is_the_accuracy_lost_without_it():
    """Documents are cut to the rows that an offset leaves."""
    labels = torch.arange(100) % 2
    ids = torch.full((100, 50), 2) + torch.arange(50) % 2
    ids[:, 0] = 2 + labels
    batch, model = Batch(ids, labels, torch.full((100,), 50), labels, 0), FirstToken()
    found = dg.worth_of_position(model, [batch], 50, 3)
    assert found["accuracy"] == found["unshifted"] == 1.0
    assert 0.3 < found["shuffled"] < 0.7
    assert found["shifted"] == 0.5
    assert model.given == [(50, 50, 0), (50, 50, 0), (50, 50, 3)]  # nothing is computed twice
    model.given.clear()
    dg.worth_of_position(model, [batch], 40, 10)
    assert model.given == [(50, 50, 0), (50, 50, 0), (40, 40, 10), (40, 40, 0)]
