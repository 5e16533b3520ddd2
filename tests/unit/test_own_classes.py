"""A class of the user's own that is of another kind, or lacks a method, is refused in one line."""

import pytest

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
        ("fusion", "Plain", "is no subclass of posfuse.model.fusion.Fusion; make it one"),
        ("fusion", "NoMerge", "has no method merge; define it in the class, as posfuse.model.fus"),
        ("fusion", "NoSize", "takes no d_model; give a class that fusion can use"),
        ("task", "NotOne", "is no subclass of posfuse.training.task.Task; make it one"),
        ("task", "NoMethods", "has no method module and no network; define it in the class, as "),
        ("task", "NoConfig", "(cfg) is no call of it (too many positional arguments); let it take"),
    ],
)
def test_a_class_of_another_kind_is_named_with_what_it_lacks(key, name, message, own_module):
    own_module("own_classes", CLASSES)
    text = refusal(checked, composed(f"{key}._target_=own_classes.{name}"))
    joint = "" if message.startswith("(") else " "
    assert text.startswith(f"{key}._target_: own_classes.{name}{joint}{message}")
