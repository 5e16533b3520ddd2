"""Generated documents of ArXiv's length, whose words are drawn by Zipf's law."""

from pathlib import Path

import numpy as np
import pandas as pd

CLASSES = [f"cs.{s}" for s in ("AI", "CE", "CV", "DS", "IT", "NE", "PL", "SY")]
CLASSES += [f"math.{s}" for s in ("AC", "GR", "ST")]  # those of the hub's ArxivClassification
README = "---\ndataset_info:\n  features:\n  - name: text\n    dtype: string\n  - name: label\n"
README += "    dtype:\n      class_label:\n        names:\n"
WORDS = 60_000  # different ones; a model has 50,000
OWN_WORDS, OWN_SHARE = 40, 0.05  # of a class: its words, and their share of a document


def write_arxiv(folder: Path, documents: int, is_hub: bool = False) -> None:
    """Documents of 5,000 words and more: `documents` for training, a quarter as
    many for validation and for test. Each class prefers a few words, so a run's accuracy only shows
    that texts keep their labels. `is_hub` writes them as the hub does, with the names of classes.
    """
    draw = np.random.default_rng(0)
    data = folder / "data" if is_hub else folder
    data.mkdir(parents=True, exist_ok=True)
    for split, share in (("train", 1), ("validation", 4), ("test", 4)):
        size = max(documents // share, len(CLASSES))
        labels = draw.permutation(np.resize(np.arange(len(CLASSES)), size))
        texts = []
        for label in labels:
            ranks = draw.random(draw.integers(5_000, 12_000)) * np.log(WORDS)  # of their logarithms
            words = np.exp(ranks).astype(int)
            own = draw.random(len(words)) < OWN_SHARE
            words[own] = 1_000 + OWN_WORDS * label + draw.integers(OWN_WORDS, size=own.sum())
            texts.append(" ".join(f"w{word}" for word in words))
        name = f"{split}-00000-of-00001" if is_hub else split
        pd.DataFrame({"text": texts, "label": labels}).to_parquet(data / f"{name}.parquet")
    if is_hub:
        names = "".join(f"          '{i}': {name}\n" for i, name in enumerate(CLASSES))
        (folder / "README.md").write_text(f"{README}{names}---\n", encoding="utf-8")
