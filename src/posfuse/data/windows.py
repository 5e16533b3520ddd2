"""The documents of a language model: windows of a running text, or questions with their answers.

Shapes: B windows, L tokens. Targets are the next tokens; IGNORED targets do not count.
"""

import numpy as np
import torch
from torch import Tensor

from posfuse.data.batching import Batch, Documents
from posfuse.data.token_store import TokenizedSplit
from posfuse.data.vocabulary import PAD

IGNORED = -100  # the default of F.cross_entropy


class Windows(Documents):
    """All documents of a split in a row, cut into windows of `length` tokens and their successors.

    Consecutive windows begin `stride` tokens apart (None: `length`, so every token except the first
    is a target once). With a smaller stride windows overlap, and only the last `stride` targets of
    each count. In the first window all targets count. So each other target sees at least length -
    stride tokens. The tokens at the end that do not fill a window are left out.
    """

    def __init__(self, split: TokenizedSplit, length: int, stride: int | None = None) -> None:
        """Raises ValueError if the text is shorter than one window and its last target."""
        self.split, self.max_len, self.stride = split, length, stride or length
        n = (len(split.ids) - 1 - length) // self.stride + 1
        if n < 1:
            raise ValueError(
                f"{len(split.ids)} tokens, but a window of {length} and its last target need "
                f"{length + 1}"
            )
        self.starts = np.arange(n) * self.stride
        self.lengths = self.whole_lengths = np.full(n, length)  # (windows,); nothing is cut
        first_document = np.searchsorted(split.offsets, self.starts, side="right") - 1
        self.groups, self.rows = split.groups[first_document], split.rows[first_document]

    def __getitem__(self, members: np.ndarray) -> Batch:
        places = self.starts[members][:, None] + np.arange(self.max_len + 1)
        tokens = torch.from_numpy(self.split.ids[places].astype(np.int64))
        targets = tokens[:, 1:].clone()
        again = self.max_len - self.stride  # targets of the window before
        targets[torch.from_numpy(members > 0), :again] = IGNORED
        return _batch(tokens[:, :-1].contiguous(), targets, self.lengths[members], members)


class Answers(Documents):
    """Strings with a question, the token `bar` and an answer. The targets are the answer's tokens,
    or with `every` = 2 its second, fourth and so on, as in | a 3 b 0."""

    def __init__(self, split: TokenizedSplit, max_len: int, bar: int, every: int = 1) -> None:
        super().__init__(split, max_len)
        self.bar, self.every = bar, every

    def __getitem__(self, members: np.ndarray) -> Batch:
        whole = super().__getitem__(members)
        ids = whole.ids.numpy()
        after = (ids == self.bar).cumsum(1).astype(bool)[:, :-1]  # the target follows the bar
        number = np.where(after, after.cumsum(1), 0)  # of the target in the answer, from 1
        counts = (number > 0) & (number % self.every == 0) & (ids[:, 1:] != PAD)
        targets = torch.from_numpy(np.where(counts, ids[:, 1:], IGNORED))
        return _batch(whole.ids[:, :-1].contiguous(), targets, self.lengths[members] - 1, members)


def _batch(ids: Tensor, targets: Tensor, lengths: np.ndarray, members: np.ndarray) -> Batch:
    index = torch.from_numpy(members)
    return Batch(ids, targets, torch.from_numpy(lengths), index, int(lengths.sum()))
