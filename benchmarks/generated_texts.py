"""Generated corpora with the lengths of AG News, IMDB and ArXiv, and words drawn by Zipf's law."""

from pathlib import Path

import numpy as np
import pandas as pd

WORDS = 60_000  # different ones; a model has 50,000
OWN_WORDS, OWN_SHARE = 40, 0.05  # of a class: its words, and their share of a document
# Median words of a document and the standard deviation of their logarithm; classes; documents for
# training. Lengths are log-normal.
KINDS = {
    "agnews": (38, 0.27, 4, 20_000),
    "imdb": (175, 0.63, 2, 6_000),
    "arxiv": (8_000, 0.2, 11, 300),
}


def folder_of(name: str, given: Path | None, root: Path, least: int = 0) -> Path:
    """The given folder of a corpus; without one, a folder in `root` with generated documents, at
    least so many for training."""
    if given is None and not (root / name).exists():
        *lengths, classes, documents = KINDS[name]
        write(root / name, *lengths, classes, max(least, documents))
    return given or root / name


def write(folder: Path, median: float, spread: float, classes: int, documents: int) -> None:
    """Write `documents` for training and a quarter as many for validation and for test. Each class
    prefers a few words, so a run's accuracy only shows that texts keep their labels."""
    draw = np.random.default_rng(0)
    folder.mkdir(parents=True)
    for split, share in (("train", 1), ("validation", 4), ("test", 4)):
        size = max(documents // share, classes)
        labels = draw.permutation(np.resize(np.arange(classes), size))
        lengths = median * np.exp(spread * draw.normal(size=size))
        texts = []
        for label, length in zip(labels, np.maximum(lengths, 1).astype(int), strict=True):
            words = np.exp(draw.random(length) * np.log(WORDS)).astype(int)
            own = draw.random(length) < OWN_SHARE
            words[own] = 1_000 + OWN_WORDS * label + draw.integers(OWN_WORDS, size=own.sum())
            texts.append(" ".join(f"w{word}" for word in words))
        pd.DataFrame({"text": texts, "label": labels}).to_parquet(folder / f"{split}.parquet")
