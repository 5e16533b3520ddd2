"""A corpus of a hundred short documents, and configs of runs on it that take a second."""

import os
import signal
from collections.abc import Iterable
from functools import cache
from itertools import count
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig
from torch import Tensor

from posfuse.config import CONF_DIR, Config
from posfuse.data.datamodule import TextDataModule
from posfuse.process import precision, signals
from posfuse.runs import records
from posfuse.runs.checks import checked
from posfuse.runs.composing import Composer
from posfuse.train import train
from posfuse.training.checkpoints import read_checkpoint
from posfuse.training.classifier import Classifier

SIZES = {"train": 60, "validation": 20, "test": 20}
SMALL = [
    "model.d_model=8",
    "model.n_heads=2",
    "model.n_layers=1",
    "model.d_ff=16",
    "optim.lr=0.01",
    "trainer.max_epochs=4",
    "trainer.accelerator=cpu",
    "trainer.threads=1",
    "logger=none",
]
ONE_BATCH = [
    "data.batch_size=2", "data.eval_batch_size=2", "trainer.max_epochs=1", "trainer.evaluations=1",
    "trainer.limit_batches=1", "trainer.accelerator=cpu", "trainer.devices=1", "trainer.threads=1",
    "optim.warmup=0", "logger=none",
]  # fmt: skip
KEEP_WORDS = ["data.vocabulary.source=all", "data.vocabulary.min_count=1"]
OWN_OPERATOR = "from posfuse.model.fusion import Add\n\n\nclass Mine(Add):\n    pass\n"
REFERENCE = ["fusion=gate_scalar", "seed=3"]  # of the run that tests/run/conftest.py trains


def write_corpus(folder: Path, n_classes: int = 3, seed: int = 0, validation: bool = True) -> Path:
    """Documents of 3 to 12 words, most of them the class's own: learnable, not perfectly."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(seed)
    for split, size in SIZES.items():
        labels = draw.permutation(np.resize(np.arange(n_classes), size))
        rows = []
        for label in labels:
            kinds = np.where(draw.random(draw.integers(3, 13)) < 0.5, label, n_classes)
            rows.append(" ".join(f"w{kind}x{draw.integers(6)}" for kind in kinds))
        if validation or split != "validation":
            pd.DataFrame({"text": rows, "label": labels}).to_parquet(folder / f"{split}.parquet")
    return folder


def texts_of(data: TextDataModule, split: str) -> dict[int, list[str]]:
    """The words of each document of a split, by its row in its file."""
    documents = data.documents[split]
    ids = [documents[np.array([i])].ids[0].tolist() for i in range(len(documents))]
    words = map(data.store.words, ids)
    return {int(row): list(text) for row, text in zip(documents.rows, words, strict=True)}


def replaced(overrides: Iterable[str]) -> list[str]:
    """The overrides, a later one of a key in the place of an earlier one."""
    return list({override.partition("=")[0]: override for override in overrides}.values())


def small_overrides(corpus: Path, *own: str) -> list[str]:
    """The overrides of a small run; `own` replace those of the same key."""
    cache = corpus.parent / "cache"
    small = [
        "data=folder",
        "data.name=tiny",
        "data.batch_size=16",
        f"data.path={corpus}",
        f"cache_dir={cache}",
        *SMALL,
    ]
    return replaced([*small, *own])


def hydra_composed(*overrides: str, hydra_too: bool = False) -> DictConfig:
    with initialize_config_dir(str(CONF_DIR), version_base="1.3"):
        return compose("train", list(overrides), return_hydra_config=hydra_too)


@cache
def _composer() -> Composer:
    with initialize_config_dir(str(CONF_DIR), version_base="1.3"):
        return Composer(GlobalHydra.instance().config_loader())


def composed(*overrides: str) -> DictConfig:
    """As `hydra_composed`, but Hydra composes each choice of groups once: that takes 0.1 s."""
    return _composer().without_hydra("train", list(overrides))


def small_config(corpus: Path, *overrides: str) -> Config:
    cfg = checked(composed(*small_overrides(corpus), *overrides))
    cfg.trainer.precision = precision.precision_of(cfg)
    return cfg


def best_weights(folder: Path) -> dict[str, Tensor]:
    """The parameters of a run's best evaluation, by name."""
    return read_checkpoint(folder / records.BEST)["state_dict"]


def before_calls(monkeypatch, owner, method, act):
    """Before each call of the class's method, call `act` with the same arguments."""
    original = getattr(owner, method)

    def wrapped(self, *arguments):
        act(self, *arguments)
        return original(self, *arguments)

    monkeypatch.setattr(owner, method, wrapped)


def at_step(monkeypatch, step, act, module=Classifier):
    """Call `act` in the training step that is the step-th of the run, from 0."""

    def act_at_step(self, *batch):
        if self.global_step == step:
            act()

    before_calls(monkeypatch, module, "training_step", act_at_step)


def interrupted(cfg, folder, step, name="SIGTERM", module=Classifier):
    """Train the run and send this process the signal in that step, from 0; returns the message."""
    with pytest.MonkeyPatch.context() as patch:
        at_step(patch, step, lambda: os.kill(os.getpid(), signal.Signals[name]), module)
        with pytest.raises(signals.Interrupted) as stopped:
            train(cfg, folder)
    return str(stopped.value)


def killed(cfg, folder, after=2, step=None):
    """Start the run and let it fail in this step, or in the evaluation after so many ones."""
    calls = count()

    def fail(*_):
        if step is not None or next(calls) == after:
            raise RuntimeError("killed")

    with pytest.MonkeyPatch.context() as patch:
        if step is None:
            before_calls(patch, Classifier, "on_validation_epoch_start", fail)
        else:
            at_step(patch, step, fail)
        with pytest.raises(RuntimeError, match="killed"):
            train(cfg, folder)
