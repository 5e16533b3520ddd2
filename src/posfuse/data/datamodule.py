"""The LightningDataModule that serves every corpus and length regime."""

from collections.abc import Callable
from functools import partial
from typing import Any

import lightning as L
import numpy as np
import torch
from torch.utils.data import DataLoader

from posfuse.config import DataConfig
from posfuse.data.batching import (
    Batch,
    Documents,
    LengthBatches,
    ResidentDocuments,
    SortedBatches,
    shuffled,
)
from posfuse.data.causal_tasks import BAR
from posfuse.data.corpora import SPLITS, is_task, length_split
from posfuse.data.token_store import Poll, TokenizedSplit, TokenStore, open_store
from posfuse.data.windows import Answers, Windows
from posfuse.errors import InputError


class TextDataModule(L.LightningDataModule):
    """Batches of similar length from the token store, in an order that follows from the seed.

    `validation_seed`, `poll` and `pretrained` are those of `open_store`. An epoch has `limit`
    batches at most. With several `evaluations` per epoch, each of Lightning's epochs is the part of
    an epoch before one of them; the trainer must reload the loaders before each.
    """

    def __init__(
        self,
        cfg: DataConfig,
        cache_dir: str,
        seed: int,
        validation_seed: int | None = None,
        poll: Poll = lambda: None,
        evaluations: int = 1,
        limit: int | None = None,
        models_language: bool = False,
        pretrained: str | None = None,
    ) -> None:
        super().__init__()
        self.models_language = models_language
        self.cfg, self.seed, self.evaluations, self.limit = cfg, seed, evaluations, limit
        self.store = open_store(
            cfg, cache_dir, validation_seed, poll, pretrained, labelled=not models_language
        )
        if is_task(cfg) and any(self.store.unknown_share.values()):
            raise InputError(
                f"data.vocabulary: leaves symbols of {cfg.name} out, and with them labels; remove "
                "data.vocabulary.max_size and data.vocabulary.min_count"
            )
        read: Callable[..., Documents] = partial(Documents, ending=self.store.ending)
        if cfg.word_order == "shuffled":
            read = _shuffled
        if models_language:
            read = partial(_windows, self.store, cfg)
        self.documents = {s: read(self.store.splits[s], cfg.max_len) for s in SPLITS}
        if models_language and not is_task(cfg):
            test = self.store.splits["test"]
            for length in (cfg.max_len, *cfg.test_lengths):
                if length > cfg.max_len:
                    self.documents[length_split(length)] = read(test, length)
                self.documents[sliding_split(length)] = read(test, length, length // 2)
        else:
            self.documents |= _by_length(self.store, cfg, read)
        self.tested = "test"  # the split of test_dataloader; `length_split` names the others
        self.start = 0  # batches of the next turn to skip: a resumed run has trained on them
        self.resident: dict[str, ResidentDocuments] = {}

    def facts(self) -> dict[str, Any]:
        """The record's entries about the corpus, by split. Shares are fractions; mean_tokens is per
        document, after the cut to max_len."""
        return {
            "documents": {split: len(self.documents[split]) for split in SPLITS},
            "mean_tokens": {s: float(self.documents[s].lengths.mean()) for s in SPLITS},
            "truncated_share": {
                split: float((self.documents[split].whole_lengths > self.cfg.max_len).mean())
                for split in SPLITS
            },
            "unknown_share": {split: self.store.unknown_share[split] for split in SPLITS},
            "vocabulary_size": self.store.vocabulary_size,
            "label_names": [] if self.is_text_model else self.store.label_names,
        }

    @property
    def is_text_model(self) -> bool:
        """Whether the documents are windows of a running text, which have no classes."""
        return self.models_language and not is_task(self.cfg)

    def train_dataloader(self) -> DataLoader[Batch]:
        cfg, lengths = self.cfg, self.documents["train"].lengths
        rank, world = self._place()
        sampler = LengthBatches(
            lengths, cfg.batch_size * world, cfg.pool_batches, self.seed, rank, world,
            turn=self.trainer.current_epoch if self.trainer else 0, start=self.start,
            parts=self.evaluations, most=self.limit,
        )  # fmt: skip
        self.start = 0
        return self._loader("train", sampler)

    def state_dict(self) -> dict[str, int]:
        """The batch that training has reached in its turn; saved in checkpoints."""
        assert self.trainer is not None
        done = self.trainer.fit_loop.epoch_loop.batch_progress
        return {"start": 0 if done.is_last_batch else done.current.ready}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        self.start = state_dict["start"]

    def val_dataloader(self) -> DataLoader[Batch]:
        return self._evaluation("validation")

    def test_dataloader(self) -> DataLoader[Batch]:
        return self._evaluation(self.tested)

    def _evaluation(self, split: str) -> DataLoader[Batch]:
        lengths = self.documents[split].lengths
        return self._loader(split, SortedBatches(lengths, self.cfg.eval_batch_size, *self._place()))

    def _place(self) -> tuple[int, int]:
        """The rank of this process in its run, and the number of processes."""
        return (self.trainer.global_rank, self.trainer.world_size) if self.trainer else (0, 1)

    def _loader(self, split: str, sampler: LengthBatches | SortedBatches) -> DataLoader[Batch]:
        documents = self.documents[split]
        device = self.trainer.strategy.root_device if self.trainer else torch.device("cpu")
        if device.type != "cpu" and type(documents) is Documents:
            if split not in self.resident:  # copied once, though loaders are made again
                self.resident[split] = ResidentDocuments(documents, documents.max_len, device)
            documents = self.resident[split]
        # batch_size=None: an item of the sampler is a whole batch. The loader has its own generator
        # because the global one draws dropout.
        return DataLoader(
            documents, batch_size=None, sampler=sampler, generator=torch.Generator().manual_seed(0)
        )


def sliding_split(length: int) -> str:
    """The name of the test split of overlapping windows of this length."""
    return f"sliding@{length}"


def _shuffled(split: TokenizedSplit, max_len: int) -> Documents:
    return Documents(shuffled(split, max_len), max_len)


def _windows(
    store: TokenStore,
    cfg: DataConfig,
    split: TokenizedSplit,
    length: int,
    stride: int | None = None,
) -> Documents:
    """What a language model reads of a split."""
    if is_task(cfg):
        return Answers(split, length, store.id_of(BAR), {"answers": 1, "values": 2}[cfg.targets])
    try:
        return Windows(split, length, stride)
    except ValueError as error:
        key = "data.max_len" if length == cfg.max_len else "data.test_lengths"
        raise InputError(
            f"{key}: a split of {cfg.name} has {error}; use shorter windows"
        ) from error


def _by_length(
    store: TokenStore, cfg: DataConfig, read: Callable[[TokenizedSplit, int], Documents]
) -> dict[str, Documents]:
    """The further test splits: the store's own, or the test documents that are longer than max_len.

    Raises InputError if there is no such document.
    """
    lengths = {length_split(length): length for length in cfg.test_lengths}
    if lengths.keys() <= store.splits.keys():
        return {split: read(store.splits[split], n) for split, n in lengths.items()}
    test = store.splits["test"]
    long = np.flatnonzero(test.lengths > cfg.max_len)
    if not len(long):
        raise InputError(
            f"data.test_lengths: no test document of {cfg.name} has more than data.max_len="
            f"{cfg.max_len} tokens; lower data.max_len, or remove data.test_lengths"
        )
    texts = test.take(long)
    return {split: read(texts, n) for split, n in lengths.items()}
