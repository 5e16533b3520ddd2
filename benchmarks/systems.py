"""The systems that training.py compares: posfuse's own run and the plain baseline, one epoch on
chosen documents at a time.

posfuse runs as in `posfuse train`: its batches, its trainer, its diagnostics. The training and
evaluation of an epoch are timed, not the checkpoints between them.
"""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch.callbacks import Callback

import plain
from harness import DEVICE, now
from posfuse.config import Config
from posfuse.data.batching import Documents, LengthBatches, SortedBatches
from posfuse.data.token_store import TokenizedSplit
from posfuse.training.build import build_data, build_module, build_trainer
from posfuse.training.observers import Diagnostics, History

Rates = dict[str, float]  # documents a second of "training" and of "evaluation"
Chooser = Callable[[list[np.ndarray], int], list[np.ndarray]]
Texts = dict[str, tuple[list[str], list[int]]]  # of train and test: texts and labels


def spread(batches: list[np.ndarray], n: int) -> list[np.ndarray]:
    """The middles of n equal parts of the batches."""
    return [batches[(2 * i + 1) * len(batches) // (2 * n)] for i in range(n)]


def longest(batches: list[np.ndarray], n: int) -> list[np.ndarray]:
    return batches[-n:]


def members(
    cfg: Config, documents: dict[str, Documents], steps: int, evaluated: int, choose: Chooser
) -> dict[str, np.ndarray]:
    """Indices of the documents in some batches of the training and the test split; `choose`
    selects the batches from those of a real epoch, shortest first."""
    data, lengths = cfg.data, {split: documents[split].lengths for split in ("train", "test")}
    batches = {
        "train": LengthBatches(lengths["train"], data.batch_size, data.pool_batches, cfg.seed),
        "test": SortedBatches(lengths["test"], data.eval_batch_size),
    }
    chosen = {}
    for split, n in (("train", steps), ("test", evaluated)):
        by_length = sorted(batches[split], key=lambda b, of=lengths[split]: float(of[b].mean()))
        chosen[split] = np.concatenate(choose(by_length, min(n, len(by_length))))
    return chosen


def part(split: TokenizedSplit, chosen: np.ndarray) -> TokenizedSplit:
    """The chosen documents of a split as a split."""
    rows = [split.ids[split.offsets[i] : split.offsets[i + 1]] for i in chosen]
    ends = np.cumsum([0, *map(len, rows)])
    labels, groups = (np.asarray(column[chosen]) for column in (split.labels, split.groups))
    return TokenizedSplit(np.concatenate(rows), ends, labels, groups, groups)


class Clock(Callback):
    """Seconds of an epoch's training, including the callbacks at its end, and of its evaluation."""

    def __init__(self, clock: Callable[[], float] = now) -> None:
        self.clock = clock

    def on_train_epoch_start(self, *_: Any) -> None:
        self.start = self.clock()

    def on_validation_start(self, *_: Any) -> None:
        self.trained = self.clock()

    def on_validation_end(self, *_: Any) -> None:
        self.evaluated = self.clock()

    def on_train_epoch_end(self, *_: Any) -> None:
        self.training = self.trained - self.start + self.clock() - self.evaluated
        self.evaluation = self.evaluated - self.trained


class Posfuse:
    """A run like posfuse train's, on the documents of chosen batches. Their lengths differ, so the
    run batches them as the real epoch did."""

    def __init__(self, cfg: Config, steps: int, evaluated: int, choose: Chooser = spread) -> None:
        self.cfg, self.data = cfg, build_data(cfg)
        self.corpus = self.data.documents
        self.members = members(cfg, self.corpus, steps, evaluated, choose)
        train, test = (
            Documents(part(self.data.store.splits[split], chosen), cfg.data.max_len)
            for split, chosen in self.members.items()
        )
        self.data.documents = {"train": train, "validation": test, "test": test}
        self.classifier = build_module(cfg, self.data)

    def epoch(self, batches: int | None = None) -> Rates:
        """Train and evaluate on the chosen documents, or on `batches` batches of them."""
        cfg = replace(self.cfg, trainer=replace(self.cfg.trainer, limit_batches=batches))
        clock = Clock()
        with tempfile.TemporaryDirectory() as folder:
            observers = [History(), Diagnostics(self.data), clock]
            build_trainer(cfg, Path(folder), observers).fit(self.classifier, self.data)
        trained, evaluated = (len(self.data.documents[split]) for split in ("train", "test"))
        return {"training": trained / clock.training, "evaluation": evaluated / clock.evaluation}


class Plain:
    """The baseline on documents of the same batches."""

    def __init__(self, cfg: Config, words: dict[str, int], n_classes: int, texts: Texts) -> None:
        m, o = cfg.model, cfg.optim
        self.cfg, self.words, self.texts, self.taken = cfg, words, texts, 0
        self.model = plain.PlainClassifier(
            len(words) + 2, n_classes, cfg.data.max_len, m.d_model, m.n_heads, m.n_layers, m.d_ff,
            m.dropout, m.activation,
        ).to(DEVICE)  # fmt: skip
        kind = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam}[o.name]
        self.optimizer = kind(self.model.parameters(), lr=o.lr, weight_decay=o.weight_decay)

    def epoch(self, train: int, test: int | None = None) -> Rates:
        """Train on the next `train` documents, and evaluate the first `test`, or all."""
        size, clip_norm = self.cfg.data.batch_size, self.cfg.trainer.clip_norm
        texts, labels = self.texts["train"]
        turn = [(self.taken + i) % len(texts) for i in range(train)]
        self.taken += train
        texts, labels = [texts[i] for i in turn], [labels[i] for i in turn]
        start = now()
        plain.train(self.model, self.optimizer, texts, labels, self.words, size, clip_norm)
        trained = now()
        texts, labels = (column[:test] for column in self.texts["test"])
        plain.evaluate(self.model, texts, labels, self.words, size)
        return {"training": train / (trained - start), "evaluation": len(texts) / (now() - trained)}
