"""What the diagnostics say, against values worked out by hand and another route."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F

from posfuse.data.batching import Batch
from posfuse.model.encoder import valid_positions
from posfuse.model.fusion import Concat, Gated
from posfuse.runs import records
from posfuse.train import train
from posfuse.training import diagnostics as dg
from small_runs import small_config, write_corpus
from variants import ENCODINGS, OPERATORS, make_fusion, make_network, random_tensor

IDS = torch.tensor([[2, 3, 4, 5, 6], [9, 8, 7, 0, 0]])
LENGTHS = torch.tensor([5, 3])
BATCH = Batch(IDS, torch.tensor([0, 1]), LENGTHS, torch.arange(2), 8)
VALID = valid_positions(LENGTHS, 5)
WHOLE = {"mlp", "mul"}  # operators whose token and position cannot be told apart
PARTED = [name for name in OPERATORS if name not in WHOLE]


def network(fusion="add", encoding="sinusoidal", **options):
    return make_network(fusion, encoding, **options).eval()


@pytest.mark.parametrize("name", PARTED)
def test_the_tokens_part_and_the_positions_part_make_the_whole(name):
    """The token part is zero without tokens, the rest without a table; a gate keeps its value."""
    fusion = make_fusion(name, 8).double()
    tokens, table = random_tensor(2, 5, 8), random_tensor(5, 8, seed=1)
    parts = fusion.parts(tokens, table)
    part = fusion.token_part(*parts)
    rest = fusion.merge(*parts) - part
    if isinstance(fusion, Gated):
        gate = fusion.gate(*parts)
        torch.testing.assert_close(rest, ((1 - gate) * table).expand_as(rest))
    else:
        torch.testing.assert_close(part, fusion(tokens, torch.zeros_like(table)))
        torch.testing.assert_close(rest, fusion(torch.zeros_like(tokens), table))


def test_the_bias_of_concat_counts_to_the_token_so_that_no_table_means_no_position():
    fusion = Concat(8, bias=True).double()
    tokens, table = random_tensor(2, 5, 8), random_tensor(5, 8, seed=1)
    parts = fusion.parts(tokens, table)
    part = fusion.token_part(*parts)
    torch.testing.assert_close(part, tokens @ fusion.weight_token.T + fusion.bias)
    expected = (table @ fusion.weight_position.T).expand(2, 5, 8)
    torch.testing.assert_close(fusion.merge(*parts) - part, expected)


def test_every_operator_has_parts_but_the_mlp_and_the_product():
    for name in OPERATORS:
        fusion = make_fusion(name, 8)
        part = fusion.token_part(*fusion.parts(torch.ones(1, 2, 8), torch.ones(2, 8)))
        assert (part is None) == (name in WHOLE), name


def test_the_norms_of_an_addition_are_those_of_its_two_terms():
    model = network("add", token_scale=3.0)
    found = dg.fusion_of_tokens(model, BATCH)
    assert found["position"].tolist() == [0, 1, 2, 3, 4, 0, 1, 2]
    assert found["id"].tolist() == [2, 3, 4, 5, 6, 9, 8, 7]
    expected = [3 * model.embedding.weight[i].norm().item() for i in found["id"]]
    assert found["token_norm"].tolist() == pytest.approx(expected, rel=1e-5)
    # d = 8: four pairs (sin, cos), so every row's norm is 2.
    assert found["position_norm"].tolist() == pytest.approx([2.0] * 8, rel=1e-5)
    values = dg.fusion_values({k: v.detach().numpy() for k, v in found.items()}, slice(None))
    assert values["norm_ratio"] == pytest.approx(np.mean(expected) / 2, rel=1e-5)
    assert not any(name.startswith("gate") for name in values)


def test_no_ratio_without_a_position():
    found = dg.fusion_of_tokens(network("add", "none"), BATCH)
    values = dg.fusion_values({k: v.detach().numpy() for k, v in found.items()}, slice(None))
    assert values["position_norm"] == 0
    assert "norm_ratio" not in values


@pytest.mark.parametrize("name", ["gate_scalar", "gate_feature", "gate_cnn", "gate_constant"])
def test_gates_mean_spread_and_entropy(name):
    model = network(name)
    for i, parameter in enumerate(model.fusion.parameters()):
        parameter.data = 0.3 * random_tensor(*parameter.shape, seed=i).float()
    found = dg.fusion_of_tokens(model, BATCH)
    gate = model.fusion.gate(*model.fusion.parts(model.tokens(IDS), model.table()))
    gates = gate.expand(2, 5, -1)[VALID].flatten().tolist()
    values = dg.fusion_values({k: v.detach().numpy() for k, v in found.items()}, slice(None))
    assert values["gate_mean"] == pytest.approx(np.mean(gates), abs=1e-5)
    assert values["gate_std"] == pytest.approx(np.std(gates), abs=1e-6)
    bits = [-g * math.log2(g) - (1 - g) * math.log2(1 - g) for g in gates]
    assert values["gate_entropy"] == pytest.approx(np.mean(bits), abs=1e-5)


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
    assert rows["gate_mean", "frequency", 10].value == pytest.approx(0.4)
    assert (rows["gate_mean", "frequency", 10].high, rows["gate_mean", "frequency", 10].n) == (
        99,
        3,
    )
    assert {row.epoch for row in rows.values()} == {2}


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_attentions_entropy_is_that_of_the_weights_torch_would_use(encoding):
    """The other route: with the values 1 at one key and 0 elsewhere, attention gives its weight."""
    model = network("none", encoding)
    found = dg.attention_entropy(model, BATCH)
    assert len(found) == 2
    block, seen = model.encoder.blocks[0].attention, []
    block.register_forward_pre_hook(lambda module, arguments: seen.append(arguments))
    model(IDS, LENGTHS)
    x, mask, (position, bias) = seen[0]
    q, k, _ = block.heads(x)
    at = [F.one_hot(torch.tensor(j), 5).float()[:, None].expand(2, 2, 5, 4) for j in range(5)]
    weights = torch.stack([position(q, k, v, mask, bias, 0.0)[..., 0] for v in at], -1)
    by_hand = [
        np.mean([sum(-w * math.log2(w) for w in head[i].tolist() if w > 0) for head in weights[b]])
        for b, length in enumerate(LENGTHS)
        for i in range(length)
    ]
    assert found[0].tolist() == pytest.approx(by_hand, abs=1e-4)


def test_entropy_is_looked_at_for_some_queries_of_a_long_document(monkeypatch):
    monkeypatch.setattr(dg, "QUERIES", 3)  # 0, 2 and 4: all of the first's, two of the second's
    assert [len(layer) for layer in dg.attention_entropy(network(), BATCH)] == [5, 5]


def test_shuffling_keeps_each_documents_own_words_and_its_padding():
    ids = torch.arange(2, 402).view(2, 200).clone()
    ids[1, 100:] = 0
    lengths = torch.tensor([200, 100])
    batch = Batch(ids, lengths, lengths, lengths, 300)
    mixed = dg.shuffled(batch, torch.Generator().manual_seed(0)).ids
    assert mixed[0].sort().values.tolist() == ids[0].tolist()
    assert mixed[1, :100].sort().values.tolist() == ids[1, :100].tolist()
    assert mixed[1, 100:].tolist() == [0] * 100
    assert not torch.equal(mixed[0], ids[0])
    order = mixed[0] - 2
    assert (order - torch.arange(200)).abs().double().mean() == pytest.approx(200 / 3, rel=0.2)


@pytest.mark.parametrize("encoding", ["sinusoidal", "learned"])
@pytest.mark.parametrize("fusion", OPERATORS)
def test_an_offset_takes_the_tables_later_rows(fusion, encoding):
    model = network(fusion, encoding)
    plain, shifted = model(IDS, LENGTHS), model(IDS, LENGTHS, 4)
    assert torch.equal(shifted, plain) == (fusion == "none")
    parts = model.fusion.project(model.table())
    model.fusion.project = lambda table: tuple(part.roll(-4, 0) for part in parts)
    torch.testing.assert_close(shifted, model(IDS, LENGTHS))


@pytest.mark.parametrize("encoding", ["rope", "alibi", "t5", "relative", "none"])
def test_an_offset_means_nothing_to_what_looks_at_distances(encoding):
    model = network("none", encoding)
    assert torch.equal(model(IDS, LENGTHS, 4), model(IDS, LENGTHS))


def test_beyond_the_tables_end_is_an_error_with_its_cure():
    ids, lengths = torch.ones(1, 13, dtype=torch.long), torch.tensor([13])
    for fusion, encoding in (("add", "learned"), ("gate_cnn", "sinusoidal")):
        with pytest.raises(ValueError, match=r"13 tokens, but the position table ends at 12; cut"):
            network(fusion, encoding)(ids, lengths)
    model = network("add", "learned")
    for shifted in (model, model.fold()):
        with pytest.raises(ValueError, match=r"14 tokens, but the position table ends at 12; cut"):
            shifted(ids[:, :8], torch.tensor([8]), offset=6)
    with pytest.raises(ValueError, match=r"13 tokens, but rotary has angles for 12; cut the doc"):
        network("none", "rope")(ids, lengths)
    network("none", "alibi")(ids, lengths)


class FirstToken(torch.nn.Module):
    """Reads the class off the first token, and off none with an offset; notes what it is given."""

    def __init__(self):
        super().__init__()
        self.given = []

    def forward(self, ids, lengths, offset=0):
        self.given.append((ids.shape[1], lengths.max().item(), offset))
        return F.one_hot(ids[:, 0] % 2 if not offset else ids[:, 0] * 0, 2).float()


def first_token_batch():
    labels = torch.arange(100) % 2
    ids = torch.full((100, 50), 2) + torch.arange(50) % 2
    ids[:, 0] = 2 + labels
    return Batch(ids, labels, torch.full((100,), 50), labels, 0)


def test_worth_of_position_is_what_is_lost_without_it():
    model = FirstToken()
    found = dg.worth_of_position(model, [first_token_batch()], 50, 3)
    assert found["accuracy"] == found["unshifted"] == 1.0
    assert 0.3 < found["shuffled"] < 0.7
    assert found["shifted"] == 0.5
    assert model.given == [(50, 50, 0), (50, 50, 0), (50, 50, 3)]  # nothing is computed twice


def test_documents_are_cut_where_the_tables_rows_would_run_out():
    model = FirstToken()
    dg.worth_of_position(model, [first_token_batch()], 40, 10)
    assert model.given == [(50, 50, 0), (50, 50, 0), (40, 40, 10), (40, 40, 0)]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The folder of a run on a tiny corpus, by operator."""
    corpus = write_corpus(tmp_path_factory.mktemp("diagnostics") / "corpus")
    found = {}
    for fusion in ("add", "gate_scalar", "mlp"):
        found[fusion] = tmp_path_factory.mktemp(fusion)
        train(small_config(corpus, f"fusion={fusion}"), found[fusion])
    return found


def of(folder, name, by=""):
    frame = pd.read_parquet(folder / records.DIAGNOSTICS)
    return frame[(frame["name"] == name) & (frame["by"] == by)]


def test_a_run_keeps_a_row_an_epoch(runs):
    folder = runs["gate_scalar"]
    for name in ("token_norm", "norm_ratio", "gate_mean", "gate_entropy", "fusion_gradient_norm"):
        assert of(folder, name)["epoch"].tolist() == [1, 2, 3, 4], name
    assert of(folder, "attention_entropy", "layer")["low"].tolist() == [1] * 4
    assert set(of(folder, "gate_mean", "position")["low"]) == {0, 1, 2, 4, 8}
    assert len(of(folder, "gate_mean", "frequency")) >= 4
    assert of(folder, "fusion_gradient_norm")["n"].tolist() == [1] * 4  # of 4 steps an epoch
    assert (of(folder, "fusion_gradient_norm")["value"] > 0).all()
    assert of(folder, "token_scale")["value"].tolist() == [pytest.approx(8**0.5)] * 4


def test_what_an_operator_has_not_is_not_there(runs):
    assert of(runs["add"], "gate_mean").empty
    assert of(runs["add"], "fusion_gradient_norm").empty
    assert of(runs["mlp"], "token_norm").empty
    assert len(of(runs["mlp"], "fusion_gradient_norm")) == 4


def test_the_trained_models_worth_of_position_is_in_the_record_and_in_the_file(runs):
    for folder in runs.values():
        record = records.read_result(folder / records.RESULT)
        worth = record["position"]
        assert worth["documents"] == 20
        assert worth["offset"] == 512 // 8
        assert worth["accuracy"] == pytest.approx(record["test"]["accuracy"])  # none was cut
        for name in ("accuracy", "accuracy_shuffled"):
            row = of(folder, name).iloc[0]
            assert row["epoch"] == record["best_epoch"]
            assert row["value"] == worth[name.removeprefix("accuracy_")]
        for name, offset in (("accuracy_unshifted", 0), ("accuracy_shifted", 64)):
            row = of(folder, name, "offset").iloc[0]
            assert (row["low"], row["high"]) == (offset, offset)
            assert row["value"] == worth[name.removeprefix("accuracy_")]


def test_the_gradients_norm_is_that_of_all_the_operators_gradients(tmp_path, monkeypatch):
    norms, original = [], dg.Diagnostics.on_before_optimizer_step

    def look(self, trainer, module, optimizer):
        parts = [p.grad.flatten() for p in module.model.fusion.parameters()]
        norms.append(math.dist(torch.cat(parts).tolist(), [0.0] * sum(map(len, parts))))
        original(self, trainer, module, optimizer)

    monkeypatch.setattr(dg.Diagnostics, "on_before_optimizer_step", look)
    monkeypatch.setattr(dg, "GRADIENT_STEPS", 1)
    config = small_config(
        write_corpus(tmp_path / "corpus"), "fusion=concat", "trainer.clip_norm=0.001"
    )
    (tmp_path / "run").mkdir()
    train(config, tmp_path / "run")
    found = of(tmp_path / "run", "fusion_gradient_norm")["value"].tolist()
    assert found == pytest.approx(np.reshape(norms, (4, 4)).mean(1).tolist(), rel=1e-5)


def test_looking_changes_nothing(runs, tmp_path, monkeypatch):
    """The same run without diagnostics gives the same predictions, to the last bit."""
    for name in ("on_before_optimizer_step", "on_train_epoch_end"):
        monkeypatch.setattr(dg.Diagnostics, name, lambda *arguments: None)
    folder = runs["gate_scalar"]
    config = records.read_config(folder)
    train(config, tmp_path)
    mine, theirs = (pd.read_parquet(f / records.PREDICTIONS) for f in (tmp_path, folder))
    pd.testing.assert_frame_equal(mine, theirs)


@pytest.mark.parametrize(("batch_size", "counted"), [(60, 1), (16, 1), (12, 2), (8, 2)])
def test_every_epoch_has_a_gradient_norm_whatever_its_steps(tmp_path, batch_size, counted):
    corpus = write_corpus(tmp_path / "corpus")
    (tmp_path / "run").mkdir()
    config = small_config(corpus, "fusion=concat", f"data.batch_size={batch_size}")
    train(config, tmp_path / "run")
    assert of(tmp_path / "run", "fusion_gradient_norm")["n"].tolist() == [counted] * 4


@pytest.mark.parametrize(("max_len", "offset"), [(1, 0), (2, 1), (7, 1), (16, 2)])
def test_positions_shift_by_an_eighth_of_max_len_and_by_one_at_least(tmp_path, max_len, offset):
    corpus = write_corpus(tmp_path / "corpus")
    (tmp_path / "run").mkdir()
    config = small_config(corpus, f"data.max_len={max_len}", "trainer.max_epochs=1")
    assert train(config, tmp_path / "run")["position"]["offset"] == offset
