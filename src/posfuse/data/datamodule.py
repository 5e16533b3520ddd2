"""The LightningDataModule that serves every corpus and length regime."""

from typing import Any

import lightning as L
import torch
from torch.utils.data import DataLoader

from posfuse.config import DataConfig
from posfuse.data.batching import (
    Batch,
    Documents,
    LengthBatches,
    ResidentDocuments,
    SortedBatches,
)
from posfuse.data.token_store import open_store


class TextDataModule(L.LightningDataModule):
    """Opens the token store, and gives batches of like length in an order fixed by the seed;
    `validation_seed` is `open_store`'s."""

    def __init__(
        self, cfg: DataConfig, cache_dir: str, seed: int, validation_seed: int | None = None
    ) -> None:
        super().__init__()
        self.cfg, self.seed = cfg, seed
        self.store = open_store(cfg, cache_dir, validation_seed)
        self.documents = {
            split: Documents(part, cfg.max_len) for split, part in self.store.splits.items()
        }
        self.start = 0  # batches of its first epoch that a resumed run has had

    def facts(self) -> dict[str, Any]:
        """What a record says of the corpus, by split: shares are fractions, mean_tokens (of a
        document) counts what is left after the cut at max_len."""
        return {
            "documents": {split: len(part) for split, part in self.documents.items()},
            "mean_tokens": {s: float(part.lengths.mean()) for s, part in self.documents.items()},
            "truncated_share": {
                split: float((part.lengths > self.cfg.max_len).mean())
                for split, part in self.store.splits.items()
            },
            "unknown_share": self.store.unknown_share,
            "vocabulary_size": self.store.vocabulary_size,
            "label_names": self.store.label_names,
        }

    def train_dataloader(self) -> DataLoader[Batch]:
        cfg, lengths = self.cfg, self.documents["train"].lengths
        rank, world = self._place()
        sampler = LengthBatches(
            lengths, cfg.batch_size * world, cfg.pool_batches, self.seed, rank, world
        )
        sampler.start, self.start = self.start, 0
        return self._loader("train", sampler)

    def state_dict(self) -> dict[str, int]:
        """Where in its epoch training stands; kept in checkpoints."""
        assert self.trainer is not None
        done = self.trainer.fit_loop.epoch_loop.batch_progress
        return {"start": 0 if done.is_last_batch else done.current.ready}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        self.start = state_dict["start"]

    def val_dataloader(self) -> DataLoader[Batch]:
        return self._evaluation("validation")

    def test_dataloader(self) -> DataLoader[Batch]:
        return self._evaluation("test")

    def _evaluation(self, split: str) -> DataLoader[Batch]:
        lengths = self.documents[split].lengths
        return self._loader(split, SortedBatches(lengths, self.cfg.eval_batch_size, *self._place()))

    def _place(self) -> tuple[int, int]:
        """This process's number among those of the run, and how many they are."""
        return (self.trainer.global_rank, self.trainer.world_size) if self.trainer else (0, 1)

    def _loader(self, split: str, sampler: LengthBatches | SortedBatches) -> DataLoader[Batch]:
        documents = self.documents[split]
        device = self.trainer.strategy.root_device if self.trainer else torch.device("cpu")
        if device.type != "cpu":
            documents = ResidentDocuments(documents, self.cfg.max_len, device)
        # batch_size=None: the sampler's items are whole batches. The loader's own generator keeps
        # it from drawing on the global one, which dropout uses.
        return DataLoader(
            documents, batch_size=None, sampler=sampler, generator=torch.Generator().manual_seed(0)
        )
