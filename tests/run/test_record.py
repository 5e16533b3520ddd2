"""What a run records about its process."""

import gc
import weakref

import pytest
import torch

from posfuse.process import environment
from posfuse.train import train
from posfuse.training.classifier import Classifier
from small_runs import before_calls, small_config


@pytest.fixture
def without_gc():
    """Python collects no garbage by itself."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("without_gc")
def test_the_peak_memory_of_a_run_is_without_an_earlier_run(corpus, tmp_path, monkeypatch):
    modules, held = weakref.WeakSet(), []
    monkeypatch.setattr(environment, "reset_peak_memory", lambda: held.append(len(modules)))
    before_calls(monkeypatch, Classifier, "on_train_start", lambda module: modules.add(module))
    for seed in (0, 1):
        cfg = small_config(corpus, "trainer.max_epochs=1", f"seed={seed}")
        train(cfg, tmp_path / str(seed))
    assert held == [0, 0]


def test_the_versions_are_those_at_the_start(corpus, tmp_path, monkeypatch):
    def update(module):
        monkeypatch.setattr(environment.importlib.metadata, "version", lambda package: "later")

    before_calls(monkeypatch, Classifier, "on_train_start", update)
    record = train(small_config(corpus, "trainer.max_epochs=1"), tmp_path)
    assert record["versions"]["torch"] == torch.__version__
