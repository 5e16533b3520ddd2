"""A class, a part or a corpus of the user's own that cannot be used is refused by its name."""

import sys
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from posfuse.config import DataConfig
from posfuse.data.token_store import open_store
from posfuse.model.attention_encoding import AttentionEncoding
from posfuse.model.encoding import FixedTable
from posfuse.model.fusion import Add
from posfuse.model.network import PositionClassifier, check_merge, initialize
from posfuse.runs.checks import checked
from posfuse.training.build import build_backbone
from posfuse.training.part_checks import check_parts
from refusals import refusal
from small_runs import composed
from variants import pairs

CLASSES = """
from torch import nn
from posfuse.model.fusion import Fusion
from posfuse.training.task import Task

class Plain(nn.Module):
    def __init__(self, d_model): ...

class NoMerge(Fusion): ...
class NoSize(Fusion):
    def __init__(self): ...
    def merge(self, token, position): ...

class NotOne:
    def __init__(self, cfg): ...
class NoMethods(Task): ...
class NoConfig(NoMethods):
    def __init__(self): ...
    def network(self, backbone, vocabulary_size, n_classes): ...
    def module(self, network): ...

def none(cfg): ...
"""


@pytest.mark.parametrize(
    ("key", "name", "message"),
    [
        ("fusion", "Plain", "is not a subclass of posfuse.model.fusion.Fusion; make it one"),
        ("fusion", "NoMerge", "does not define merge, which posfuse.model.fusion.Fusion requires"),
        ("fusion", "NoSize", "takes no d_model; give a class that fusion can use"),
        ("task", "NotOne", "is not a subclass of posfuse.training.task.Task; make it one"),
        ("task", "NoMethods", "does not define module and network, which posfuse.training.task"),
        ("task", "NoConfig", "cannot be called with one argument (too many positional argum"),
        ("task", "none", "returns an object of NoneType; return one of a subclass of posfuse.t"),
    ],
)
def test_a_class_of_another_kind_is_named_with_what_it_lacks(key, name, message, own_module):
    own_module("own_classes", CLASSES)
    text = refusal(checked, composed(f"{key}._target_=own_classes.{name}"))
    assert text.startswith(f"{key}._target_: own_classes.{name} {message}")


CORPORA = """
from posfuse.data.corpora import Corpus

def frames(): return {}
def no_function(): return Corpus("no function", {})
def no_dict(): return Corpus("no dict", lambda: [1])
def no_train(): return Corpus("no train", lambda: {"test": None})
"""


@pytest.mark.parametrize("name", ["frames", "no_function", "no_dict", "no_train"])
def test_a_function_that_returns_no_corpus_is_named(name, own_module, tmp_path):
    own_module("own_corpora", CORPORA)
    target = f"own_corpora.{name}"
    cfg = DataConfig(name="mine", corpus={"_target_": target})
    expected = f"data.corpus._target_: {target} must return a Corpus(fingerprint, read"
    if name in ("no_dict", "no_train"):
        expected = "mine: `read` of its Corpus must return a dict of DataFrames with the "
    assert refusal(open_store, cfg, tmp_path).startswith(expected)


def part(base, method, body, **attributes):
    return type("Own", (base,), {method: lambda self, *given: body(self, *given), **attributes})


def table(forward):
    return part(FixedTable, "forward", forward, build=lambda self, d, n: torch.ones(n, d))


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
    line = refusal(check, "encoding.table", table(forward), monkeypatch)
    assert line.startswith(f"encoding=sinusoidal: Own.forward {expected}")


GIVEN = "for tokens (2, 3, 64) and a table (3, 64)"
OPERATORS = {
    "half": (lambda e, p: (e + p)[..., :3], f"returns torch.Size([2, 3, 3]) {GIVEN}; return a "
             "tensor of the tokens' shape, (..., d) with d = 64"),
    "summed": (lambda e, p: e.sum(1, keepdim=True), f"returns torch.Size([2, 1, 64]) {GIVEN}"),
    "no tensor": (lambda e, p: (e, p), f"returns no tensor {GIVEN}"),
    "wide": (lambda e, p: torch.cat((e, e), -1) @ torch.ones(64, 64),
             f"fails {GIVEN} (RuntimeError: mat1 and mat2 shapes"),
    "misspelt": (lambda e, p: e.missing, f"fails {GIVEN} (AttributeError: 'Tensor' object has no "
                 "attribute 'missing'); correct it for parts of shape (..., d)"),
    "wrong value": (lambda e, p: e + int("x"), f"fails {GIVEN} (ValueError: invalid literal"),
    "called": (lambda e, p: e(p), f"fails {GIVEN} (TypeError: 'Tensor' object is not callable)"),
    "double": (lambda e, p: (e + p).double(), "returns values of torch.float64"),
    "nan": (lambda e, p: e / 0, "returns values that are not finite before training"),
    "random": (lambda e, p: torch.rand_like(e), "returns other values in a second call; draw "
               "random numbers only in training, as nn.Dropout does"),
    "padding": (lambda e, p: e - e.mean(-2, keepdim=True), "depends on the padding after"),
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_that_cannot_be_used_is_named(name, monkeypatch):
    """Its shape is checked first, before there is a network."""
    merge, expected = OPERATORS[name]
    own = part(Add, "merge", lambda self, token, position: merge(token[0], position[0]))
    encoding = "encoding=sinusoidal " if GIVEN in expected else ""
    line = refusal(check, "fusion", own, monkeypatch)
    assert line.startswith(f"{encoding}fusion=add: Own.merge {expected}")


def test_a_scalar_that_an_operator_names_and_lacks_is_named(monkeypatch):
    own = part(Add, "merge", lambda self, token, position: token[0], scalars=("shfit",))
    line = refusal(check, "fusion", own, monkeypatch)
    assert line == "encoding=sinusoidal fusion=add: scalars: Own has no attribute `shfit`"


def test_the_check_of_an_operators_shape_draws_no_random_numbers():
    fusion = part(Add, "merge", lambda self, e, p: F.dropout(e[0], 0.5, self.training))(4)
    before = torch.get_rng_state()
    check_merge(fusion)
    assert torch.equal(before, torch.get_rng_state())
    assert fusion.training


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

    with pytest.raises(MemoryError):
        check("encoding.table", table(forward), monkeypatch)
