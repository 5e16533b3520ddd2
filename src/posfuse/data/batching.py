"""Batches of documents with similar lengths.

Shapes: B documents, L tokens of the batch's longest document.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from posfuse.data.evaluations import ONE_PER_EPOCH, Evaluations
from posfuse.data.token_store import TokenizedSplit
from posfuse.data.vocabulary import PAD

ALIGNED = 8  # tokens; GPU kernels are fastest with lengths that are a multiple of it


@dataclass(frozen=True)
class Batch:
    """Documents padded to the longest of them."""

    ids: Tensor  # (B, L) int64; padding is 0, and `lengths` separate it from a token with id 0
    labels: Tensor  # (B,) int64; for a language model the targets, (B, L) (windows.py)
    lengths: Tensor  # (B,) int64, tokens of each document, at least 1
    index: Tensor  # (B,) int64, each document's number in its split
    n_tokens: int  # without padding

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "Batch":
        parts = (self.ids, self.labels, self.lengths, self.index)
        ids, labels, lengths, index = (part.to(device, non_blocking=non_blocking) for part in parts)
        return Batch(ids, labels, lengths, index, self.n_tokens)


class Documents(Dataset[Batch]):
    """A split, cut at max_len; its items are batches, its index a list of document numbers.

    A cut document keeps its last `ending` tokens, such as the [SEP] of a pretrained model.
    """

    def __init__(self, split: TokenizedSplit, max_len: int, ending: int = 0) -> None:
        self.split, self.max_len, self.ending = split, max_len, ending
        self.whole_lengths = split.lengths  # (documents,), before the cut
        self.lengths = np.minimum(self.whole_lengths, max_len)
        self.groups = split.groups  # (documents,), equal for documents that share a part
        self.rows = split.rows  # (documents,), the row of each document in its file, from 0

    def __len__(self) -> int:
        return len(self.lengths)

    def counts(self, vocabulary_size: int) -> np.ndarray:
        """The counts of each word in the documents after the cut to max_len, (V,)."""
        counts, padding = np.zeros(vocabulary_size, dtype=np.int64), 0
        for chunk in _chunks(np.arange(len(self)), 1000):  # bounds the memory of bincount
            batch = self[chunk]
            counts += np.bincount(batch.ids.flatten(), minlength=vocabulary_size)
            padding += batch.ids.numel() - batch.n_tokens
        counts[PAD] = max(counts[PAD] - padding, 0)  # a pretrained model has a token with this id
        return counts

    def __getitem__(self, members: np.ndarray) -> Batch:
        lengths, starts = self.lengths[members], self.split.offsets[members]
        ids = np.full((len(members), lengths.max()), PAD, dtype=np.int64)
        ends, n = self.split.offsets[members + 1], self.ending
        for row, start, end, length in zip(ids, starts, ends, lengths, strict=True):
            row[:length] = self.split.ids[start : start + length]
            row[length - n : length] = self.split.ids[end - n : end]
        return Batch(
            torch.from_numpy(ids),
            torch.from_numpy(self.split.labels[members]),
            torch.from_numpy(lengths),
            torch.from_numpy(members),
            int(lengths.sum()),
        )


def in_random_order(split: TokenizedSplit, max_len: int) -> TokenizedSplit:
    """The split with the first `max_len` tokens of each document in one fixed random order.

    The order depends only on the document's row in its file and its length before the cut. So it is
    the same for every seed, split and vocabulary.
    """
    ids = split.ids.copy()
    places = zip(split.rows, split.offsets[:-1], split.lengths, strict=True)
    for row, start, length in places:
        n = min(length, max_len)
        order = np.random.default_rng([row, length]).permutation(n)
        ids[start : start + n] = split.ids[start : start + n][order]
    return replace(split, ids=ids)


class ResidentDocuments(Documents):
    """The same documents with their ids on a device, which assembles each batch. Only document
    numbers are copied to the device, and the CPU never waits for it."""

    def __init__(self, documents: Documents, max_len: int, device: torch.device) -> None:
        super().__init__(documents.split, max_len, documents.ending)
        ids = self.split.ids.astype(np.int32)
        columns = (ids, self.split.offsets[:-1], self.lengths, self.split.labels)
        self.left_out = torch.tensor(self.whole_lengths - self.lengths, device=device)
        self.columns = [torch.tensor(column, device=device) for column in columns]

    def __getitem__(self, members: np.ndarray) -> Batch:
        longest = -(-int(self.lengths[members].max()) // ALIGNED) * ALIGNED
        all_ids, all_starts, all_lengths, all_labels = self.columns
        index = torch.from_numpy(members).to(all_ids.device, non_blocking=True)
        starts, lengths = all_starts[index, None], all_lengths[index]
        position = torch.arange(min(longest, self.max_len), device=all_ids.device)
        places = starts + position
        if self.ending:
            is_ending = position >= lengths[:, None] - self.ending
            places = places + is_ending * self.left_out[index, None]
        # After the last document there are no ids to read.
        ids = all_ids[places.clamp_(max=len(all_ids) - 1)].long()
        ids.masked_fill_(position >= lengths[:, None], PAD)
        n_tokens = int(self.lengths[members].sum())
        return Batch(ids, all_labels[index], lengths, index, n_tokens)


@dataclass(eq=False)
class LengthBatches(Sampler[np.ndarray]):
    """Batches of documents with similar lengths, in an order that depends on (seed, epoch).

    Documents are shuffled and cut into pools of `pool_batches` batches. Each pool is sorted by
    length and cut into batches. Then the batches are shuffled. The process `rank` of `world` gets
    its share of each batch.

    With several evaluations an epoch has as many parts, called turns. Turn 0 is the first part of
    the first epoch. The batches and their order do not change.
    """

    lengths: np.ndarray  # (documents,)
    batch_size: int
    pool_batches: int
    seed: int
    rank: int = 0
    world: int = 1
    turn: int = 0
    start: int = 0  # batches of the next turn to skip, because a resumed run has trained on them
    evaluations: Evaluations = ONE_PER_EPOCH
    most: int | None = None  # largest number of batches in an epoch

    def set_epoch(self, epoch: int) -> None:
        """Lightning calls this before each of its epochs, which are turns here."""
        self.turn = epoch

    @property
    def in_epoch(self) -> int:
        """Batches of an epoch."""
        batches = -(-len(self.lengths) // self.batch_size)
        return batches if self.most is None else min(batches, self.most)

    def __len__(self) -> int:
        first, end = self.evaluations.part(self.turn, self.in_epoch)
        return end - first

    def __iter__(self) -> Iterator[np.ndarray]:
        draw = np.random.default_rng([self.seed, self.evaluations.epoch(self.turn) - 1])
        order = draw.permutation(len(self.lengths))
        batches: list[np.ndarray] = []
        for pool in _chunks(order, self.batch_size * self.pool_batches):
            by_length = pool[np.argsort(self.lengths[pool], kind="stable")]
            batches += _chunks(by_length, self.batch_size)
        start, self.start = self.start, 0
        first, end = self.evaluations.part(self.turn, self.in_epoch)
        for i in draw.permutation(len(batches))[first + start : end]:
            batch = batches[i]
            # Each process needs a document, or the others wait for it. So two processes may get the
            # same one.
            first = self.rank if self.rank < len(batch) else self.rank % len(batch)
            yield batch[first :: self.world]


class SortedBatches(Sampler[np.ndarray]):
    """All documents once, shortest first, for evaluation. The process `rank` of `world` gets its
    share of them."""

    def __init__(self, lengths: np.ndarray, batch_size: int, rank: int = 0, world: int = 1) -> None:
        self.batches = _chunks(np.argsort(lengths, kind="stable")[rank::world], batch_size)

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[np.ndarray]:
        return iter(self.batches)


def _chunks(order: np.ndarray, size: int) -> list[np.ndarray]:
    return [order[i : i + size] for i in range(0, len(order), size)]
