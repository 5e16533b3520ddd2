"""The documents of each split and their targets, by the kind of task.

The name of a further test split is test@ or sliding@ and a length.
"""

from collections.abc import Callable

import numpy as np

from posfuse.config import DataConfig
from posfuse.data.batching import Documents, in_random_order
from posfuse.data.causal_tasks import BAR
from posfuse.data.corpora import SPLITS, length_split
from posfuse.data.token_store import TokenizedSplit, TokenStore
from posfuse.data.windows import Answers, Windows
from posfuse.errors import InputError, input_errors

Read = Callable[[TokenizedSplit, int], Documents]  # a split, and the length at which it is cut


def whole_documents(store: TokenStore, cfg: DataConfig) -> dict[str, Documents]:
    """The documents. Their targets are their labels."""

    def read(split: TokenizedSplit, length: int) -> Documents:
        if cfg.word_order == "shuffled":
            split = in_random_order(split, length)
        return Documents(split, length, store.ending)

    return _splits(store, cfg, read)


def answers(store: TokenStore, cfg: DataConfig) -> dict[str, Documents]:
    """The strings of a generated task. Their targets are the tokens after the bar. Raises
    InputError for strings without a bar."""
    why = f"data.targets: {cfg.name} has classes and no answers"
    with input_errors(why, "use data=copy, reverse or associative_recall"):
        bar = store.id_of(BAR)
    every = {"answers": 1, "values": 2}[cfg.targets]
    return _splits(store, cfg, lambda split, length: Answers(split, length, bar, every))


def windows(store: TokenStore, cfg: DataConfig) -> dict[str, Documents]:
    """Windows of the texts. Their targets are the next tokens. The further test splits have longer
    windows; at each length there is also a split of windows that overlap by half."""

    def read(split: str, length: int, stride: int | None = None) -> Windows:
        key = "data.max_len" if length == cfg.max_len else "data.test_lengths"
        with input_errors(f"{key}: a split of {cfg.name} is too short", "use shorter windows"):
            return Windows(store.splits[split], length, stride)

    documents: dict[str, Documents] = {split: read(split, cfg.max_len) for split in SPLITS}
    for length in (cfg.max_len, *cfg.test_lengths):
        if length > cfg.max_len:
            documents[length_split(length)] = read("test", length)
        documents[f"sliding@{length}"] = read("test", length, length // 2)
    return documents


def _splits(store: TokenStore, cfg: DataConfig, read: Read) -> dict[str, Documents]:
    """The three splits and the further test splits: the store's splits, or the test documents
    longer than max_len.

    Raises InputError if there is no such document.
    """
    documents = {split: read(store.splits[split], cfg.max_len) for split in SPLITS}
    lengths = {length_split(length): length for length in cfg.test_lengths}
    if lengths.keys() <= store.splits.keys():
        return documents | {split: read(store.splits[split], n) for split, n in lengths.items()}
    test = store.splits["test"]
    long = np.flatnonzero(test.lengths > cfg.max_len)
    if not len(long):
        raise InputError(
            f"data.test_lengths: no test document of {cfg.name} has more than data.max_len="
            f"{cfg.max_len} tokens; lower data.max_len, or remove data.test_lengths"
        )
    texts = test.take(long)
    return documents | {split: read(texts, n) for split, n in lengths.items()}
