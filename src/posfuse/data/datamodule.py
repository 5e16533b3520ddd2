"""The LightningDataModule that serves every corpus and length regime."""

from dataclasses import replace
from typing import Any

import lightning as L
import torch
from torch.utils.data import DataLoader

from posfuse.config import DataConfig
from posfuse.data.batching import Batch, Documents, LengthBatches, ResidentDocuments, SortedBatches
from posfuse.data.corpora import SPLITS
from posfuse.data.evaluations import Evaluations
from posfuse.data.token_store import TokenStore


class TextDataModule(L.LightningDataModule):
    """Batches of similar length from the token store, in an order that depends on the seed.

    The task (training/task.py) chooses the documents of each split. An epoch has at most `limit`
    batches. With several evaluations it has as many parts, one for each of Lightning's epochs. The
    trainer must reload the loaders before each part.
    """

    def __init__(
        self,
        task: Any,
        cfg: DataConfig,
        store: TokenStore,
        seed: int,
        evaluations: Evaluations,
        limit: int | None = None,
    ) -> None:
        super().__init__()
        self.task, self.cfg, self.store, self.seed = task, cfg, store, seed
        self.evaluations, self.limit = evaluations, limit
        self.documents: dict[str, Documents] = task.documents(store)
        self.tested = "test"  # the split of test_dataloader
        self.start = 0  # batches of the next turn that a resumed run skips: it has trained on them
        self.resident: dict[str, ResidentDocuments] = {}

    def facts(self) -> dict[str, Any]:
        """The record's entries about the corpus, by split. Shares are fractions; mean_tokens is per
        document, after the cut to max_len. `repeated` counts the test documents that also occur in
        train."""
        n_test = len(self.store.splits["test"].labels)
        repeated = {"documents": self.store.repeated, "share": self.store.repeated / n_test}
        return {
            **({"repeated": repeated} if self.store.repeated else {}),
            "documents": {split: len(self.documents[split]) for split in SPLITS},
            "mean_tokens": {s: float(self.documents[s].lengths.mean()) for s in SPLITS},
            "truncated_share": {
                split: float((self.documents[split].whole_lengths > self.cfg.max_len).mean())
                for split in SPLITS
            },
            "unknown_share": {split: self.store.unknown_share[split] for split in SPLITS},
            "vocabulary_size": self.store.vocabulary_size,
            "label_names": self.task.label_names(self.store),
        }

    def train_dataloader(self) -> DataLoader[Batch]:
        turn = self.trainer.current_epoch if self.trainer else 0
        sampler = replace(self._sampler(), turn=turn, start=self.start)
        self.start = 0
        return self._loader("train", sampler)

    def steps_of_epoch(self, accumulate: int) -> int:
        """The steps of an epoch if each takes this many batches; an evaluation ends a step."""
        turns = range(self.evaluations.per_epoch)
        parts = (replace(self._sampler(), turn=turn) for turn in turns)
        return sum(-(-len(part) // accumulate) for part in parts)

    def _sampler(self) -> LengthBatches:
        cfg, lengths, (rank, world) = self.cfg, self.documents["train"].lengths, self._place()
        return LengthBatches(
            lengths, cfg.batch_size * world, cfg.pool_batches, self.seed, rank, world,
            evaluations=self.evaluations, most=self.limit,
        )  # fmt: skip

    def state_dict(self) -> dict[str, int]:
        """The number of batches that training has done in its turn; saved in checkpoints."""
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
        # batch_size=None: an item of the sampler is a whole batch. The loader has its own
        # generator, because the global generator draws dropout.
        return DataLoader(
            documents, batch_size=None, sampler=sampler, generator=torch.Generator().manual_seed(0)
        )
