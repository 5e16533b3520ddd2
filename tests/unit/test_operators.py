"""benchmarks/operators.py on small networks: all operators are timed, and the tables are right."""

import json
import sys
from functools import cache

import pytest
import torch

import operators
import timing
from posfuse.runs.checks import checked
from small_runs import SMALL, composed

SMALLEST = operators.Settings(batch=2, rounds=1, latency_rounds={1: 2, 64: 1})


@cache  # composing a config takes longer than a step of these networks
def small(protocol, fusion):
    overrides = [f"data={protocol}", f"protocol={protocol}", f"fusion={fusion}", *SMALL]
    return checked(composed(*overrides, "data.max_len=6"))


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The results of networks with d=8 and documents of 6 tokens."""
    path = tmp_path_factory.mktemp("operators") / "operators.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(operators, "config", small)
        patch.setattr(operators, "SETTINGS", {"imdb": SMALLEST, "arxiv": SMALLEST})
        patch.setattr(operators, "WORDS", 20)
        patch.setattr(operators, "ALONE", 1)
        patch.setattr(operators.timing, "product_rate", lambda kind, device: 1e9)
        patch.setattr(sys, "argv", ["operators.py", "--out", str(path)])
        operators.main()
    return json.loads(path.read_text())


def test_every_operator_is_timed_in_both_settings_unfolded_and_folded(written):
    steps, latency, before = (table["rows"] for table in written["tables"])
    every = set(operators.FUSIONS)
    assert {"add", "concat", "gate_scalar", "mlp"} <= every
    for setting in ("imdb", "arxiv"):
        assert {row[1] for row in steps if row[0] == f"{setting}, batch 2"} == every
        for n in (1, 64):
            assert {row[1] for row in before if row[0] == f"{setting}, batch {n}"} == every
        assert {row[1] for row in latency if row[0] == f"{setting}, batch 1"} == every
        at_64 = {row[1] for row in latency if row[0] == f"{setting}, batch 64"}
        assert at_64 == {"add", "gate_cnn", "gate_scalar"}
    for table in written["tables"]:
        assert all(len(row) == len(table["columns"]) for row in table["rows"])


def test_only_operators_of_the_paper_have_a_published_latency(written):
    theirs = {(row[0], row[1]): row[-1] for row in written["tables"][1]["rows"]}
    assert theirs["arxiv, batch 1", "gate_cnn"] == "912 ms"
    assert theirs["arxiv, batch 1", "mlp"] == theirs["imdb, batch 1", "gate_cnn"] == ""


def test_products_of_a_fusion_by_hand(written):
    """batch 2, 6 tokens, d = 8; a product m x n x k is 2 m n k FLOPs."""
    flops = written["raw"]["training_ms"]["imdb"]["flops"]
    token, position = 2 * 12 * 8 * 8, 2 * 6 * 8 * 8
    assert flops["add"] == flops["gate_constant"] == 0
    # Forward, and the gradients of the weight and of the tokens; the table has none.
    assert flops["concat"] == flops["gate_feature"] == 3 * token + 2 * position
    assert flops["mlp"] == flops["gate_mlp"] == 6 * token + 2 * position


def test_ratios_and_shares_by_hand():
    found = {
        "step": {"add": [100.0, 200.0, 400.0], "mlp": [110.0, 204.0, 404.0]},
        "alone": {"add": [1.0, 1.0, 9.0], "mlp": [5.0, 5.0, 5.0]},
        "flops": {"add": 0, "mlp": 2_000_000},
    }
    rows = operators.training_table({"imdb": found}, product_rate=1e9)["rows"]
    assert rows[1] == ["imdb, batch 8", "mlp", 204.0, "1.020×", 5.0, 2.0, "+2.00%"]


def test_latency_by_hand(monkeypatch):
    monkeypatch.setattr(operators, "FUSIONS", ["add", "gate_cnn"])
    whole = {"add": [10.0, 20.0, 30.0], "add folded": [10.0, 10.0, 10.0]}
    whole |= {"gate_cnn": [11.0, 21.0, 33.0], "gate_cnn folded": [10.1, 10.1, 10.2]}
    before = {"add": [2.0], "add folded": [1.0], "gate_cnn": [4.0], "gate_cnn folded": [1.5]}
    latency, input_half = operators.latency_tables(
        {"arxiv": {1: {"whole": whole, "before": before}}}
    )
    median, p95, ratio, folded, folded_p95, folded_ratio, theirs = latency["rows"][1][3:]
    assert (median, ratio, folded, folded_ratio, theirs) == (
        21.0, "1.100×", 10.1, "1.010×", "912 ms"
    )  # fmt: skip
    assert p95 == pytest.approx(21 + 0.9 * 12)
    assert folded_p95 == pytest.approx(10.1 + 0.9 * 0.1)
    assert input_half["rows"][1] == ["arxiv, batch 1", "gate_cnn", 4.0, "+10.00%", 1.5, "+5.00%"]


def test_rounds_alternate_in_direction():
    order: list[str] = []
    turns = {name: lambda name=name: order.append(name) for name in "abc"}
    times = operators.in_turn(turns, 3)
    assert "".join(order) == "abc" + "abc" + "cba" + "abc"
    assert {name: len(found) for name, found in times.items()} == {"a": 3, "b": 3, "c": 3}


def test_documents_fill_every_position():
    ids, lengths = operators.documents(3, 7)
    assert ids.shape == (3, 7)
    assert (ids > 1).all()
    assert torch.equal(lengths.cpu(), torch.tensor([7, 7, 7]))
    assert timing.now(operators.DEVICE) > 0
