"""A class or corpus of the user's own that is of another kind, or lacks a part, is refused."""

import pytest

from posfuse.config import DataConfig
from posfuse.data.token_store import open_store
from posfuse.runs.checks import checked
from refusals import refusal
from small_runs import composed

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
    line = refusal(open_store, cfg, tmp_path)
    if name in ("frames", "no_function"):
        assert line.startswith(
            f"data.corpus._target_: {target} must return a Corpus(fingerprint, read"
        )
    else:
        assert line.startswith(
            "mine: `read` of its Corpus must return a dict of DataFrames with th"
        )
