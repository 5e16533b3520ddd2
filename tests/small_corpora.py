"""Corpora in folders, and how posfuse reads them."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from posfuse.config import DataConfig
from posfuse.data.corpora import SPLITS, load
from posfuse.data.splits import Split, splits
from posfuse.data.token_store import TokenizedSplit


def labelled(texts: list[Any], labels: list[Any] | None = None) -> pd.DataFrame:
    """Texts with these labels; without, with a and b in turn."""
    in_turn = ["ab"[i % 2] for i in range(len(texts))]
    return pd.DataFrame({"text": texts, "label": in_turn if labels is None else labels})


def write_splits(
    folder: Path, every: pd.DataFrame | None = None, end: str = "parquet", **frames: pd.DataFrame
) -> Path:
    """A file for each split, of its frame or of `every`, as Parquet, CSV, TSV or lines of JSON."""
    common = {} if every is None else dict.fromkeys(SPLITS, every)
    for split, frame in (common | frames).items():
        path = folder / f"{split}.{end}"
        if end == "parquet":
            frame.to_parquet(path)
        elif end == "jsonl":
            frame.to_json(path, orient="records", lines=True)
        else:
            frame.to_csv(path, sep="\t" if end == "tsv" else ",", index=False)
    return folder


def read_splits(
    path: Path, labelled: bool = True, **options: Any
) -> tuple[dict[str, Split], list[str]]:
    """The splits of a folder or a text, and the names of their classes."""
    cfg = DataConfig("tiny", path=str(path), **options)
    return splits(load(cfg), cfg, labelled=labelled)


def tokenized(*documents: list[int]) -> TokenizedSplit:
    """Documents of these ids; their labels are 0, 1 and 2 in turn."""
    offsets, rows = np.cumsum([0, *map(len, documents)]), np.arange(len(documents))
    ids = np.concatenate(documents).astype(np.uint16)
    return TokenizedSplit(ids, offsets, labels=rows % 3, groups=rows, rows=rows)
