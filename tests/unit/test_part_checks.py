"""A part of the user's own whose values cannot be used is refused before training."""

import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from posfuse.model.attention_encoding import AttentionEncoding
from posfuse.model.encoding import FixedTable
from posfuse.model.fusion import Add
from posfuse.model.network import PositionClassifier, initialize
from posfuse.runs.checks import checked
from posfuse.training.build import build_backbone
from posfuse.training.part_checks import check_parts
from refusals import refusal
from small_runs import composed
from variants import pairs


def part(base, method, body, **attributes):
    return type("Own", (base,), {method: lambda self, *given: body(self, *given), **attributes})


def check(key, own, monkeypatch):
    monkeypatch.setitem(sys.modules, "my_parts", SimpleNamespace(Own=own))
    plus = "+" if "attention" in key else ""
    cfg = checked(composed(f"{plus}{key}._target_=my_parts.Own"))
    network = PositionClassifier(build_backbone(cfg), 30, 3)
    initialize(network, 0)
    check_parts(cfg, network)


TABLES = {
    "no tensor": (lambda self: None, "does not return a tensor; return one"),
    "integers": (lambda self: self.table.long(), "returns values of torch.int64; convert them to "
                 "torch.float32"),
    "nan": (lambda self: self.table * torch.nan, "returns values that are not finite before"),
    "random": (lambda self: torch.randn_like(self.table), "returns other values in a second call"),
    "transposed": (lambda self: self.table.T, "returns the shape (64, 256); return (max_len, d_mo"),
    "short": (lambda self: self.table[:4], "returns the shape (4, 64); return (max_len, d_model), "
              "here (256, 64)"),
    "raises": (lambda self: self.tabel, "fails (AttributeError: 'Own' object has no attribute "
               f"'tabel', {__file__} line "),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_a_table_that_cannot_be_fused_is_named(name, monkeypatch):
    forward, expected = TABLES[name]
    own = part(FixedTable, "forward", forward, build=lambda self, d, n: torch.ones(n, d))
    line = refusal(check, "encoding.table", own, monkeypatch)
    assert line.startswith(f"encoding=sinusoidal: Own.forward {expected}")


OPERATORS = {
    "double": (lambda self, e, p: (e[0] + p[0]).double(), "returns values of torch.float64"),
    "nan": (lambda self, e, p: e[0] / 0, "returns values that are not finite before training"),
    "random": (lambda self, e, p: torch.rand_like(e[0]), "returns other values in a second call; "
               "draw random numbers only in training, as nn.Dropout does"),
    "padding": (lambda self, e, p: e[0] - e[0].mean(-2, keepdim=True), "depends on the padding "),
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_that_cannot_be_trained_is_named(name, monkeypatch):
    merge, expected = OPERATORS[name]
    line = refusal(check, "fusion", part(Add, "merge", merge), monkeypatch)
    assert line.startswith(f"fusion=add: Own.merge {expected}")


def with_slope(self, d_model, n_heads, max_len):
    AttentionEncoding.__init__(self, d_model, n_heads, max_len)
    self.slope = nn.Parameter(torch.ones(n_heads, 1, 1))


UNTRAINED = "has parameters in `extra`, or reads q there, but `learned` is False; set learned = "
INSIDE = {
    "parameters": ("extra", lambda self, q, i, j: self.slope * j, {"__init__": with_slope},
                   UNTRAINED),
    "queries": ("extra", lambda self, q, i, j: q.sum(-1, keepdim=True) * j, {}, UNTRAINED),
    "type of q": ("extra", lambda self, q, i, j: (j / 3).to(q.dtype).expand(4, len(i), -1), {},
                  UNTRAINED),
    "rows": ("turn", lambda self, x, at, role: x, {"rows": 9}, "has rows = 9 for 256 positions; "
             "set rows to max_len"),
    "shape of turn": ("turn", lambda self, x, at, role: x.sum(-1), {}, "changes the shape of the "
                      "scores; return (B, H, L, D) from `turn`"),
    "shape of extra": ("extra", lambda self, q, i, j: torch.zeros(4, len(i)), {}, "fails (Runtime"),
    "nan": ("extra", lambda self, q, i, j: j.expand(4, len(i), -1) * torch.nan, {},
            "returns values that are not finite"),
}  # fmt: skip


@pytest.mark.parametrize("name", INSIDE)
def test_an_encoding_inside_attention_that_cannot_be_trained_is_named(name, monkeypatch):
    method, body, more, expected = INSIDE[name]
    own = part(AttentionEncoding, method, body, **more)
    line = refusal(check, "encoding.attention", own, monkeypatch)
    assert line.startswith(f"encoding=sinusoidal: Own {expected}")


def test_encodings_with_the_attributes_that_they_need_pass(monkeypatch):
    learned = part(AttentionEncoding, *INSIDE["parameters"][:2], __init__=with_slope, learned=True)
    bounded = part(AttentionEncoding, *INSIDE["rows"][:2], rows=256)
    for own in (learned, bounded):
        check("encoding.attention", own, monkeypatch)


@pytest.mark.parametrize(("fusion", "encoding"), pairs("add", "sinusoidal"))
def test_the_parts_of_posfuse_pass_and_the_check_leaves_no_trace(fusion, encoding):
    for positions in ("contiguous", "randomized"):
        given = [f"fusion={fusion}", f"encoding={encoding}", f"encoding.positions={positions}"]
        cfg = checked(composed(*given))
        network = PositionClassifier(build_backbone(cfg), 30, 3)
        initialize(network, 0)
        network.head.eval()
        before = torch.get_rng_state()
        check_parts(cfg, network)
        assert torch.equal(before, torch.get_rng_state())
        assert [m for m in network.modules() if not m.training] == [network.head]


def test_a_lack_of_memory_is_not_blamed_on_the_part(monkeypatch):
    def forward(self):
        raise MemoryError

    own = part(FixedTable, "forward", forward, build=lambda self, d, n: torch.ones(n, d))
    with pytest.raises(MemoryError):
        check("encoding.table", own, monkeypatch)
