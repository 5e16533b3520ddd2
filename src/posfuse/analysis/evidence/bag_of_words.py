"""A classifier that knows no position: TF-IDF and logistic regression on a run's own tokens.

A corpus that it solves says little about position.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegression

from posfuse.config import Config
from posfuse.data.token_store import TokenizedSplit, open_store
from posfuse.errors import InputError
from posfuse.runs.fidelity import validation_seed
from posfuse.runs.records import read_config, write_json

FORMAT = 1  # raise it when the same corpus gives other numbers


@dataclass(frozen=True)
class BagOfWords:
    """Test results; the fit has no randomness, so there is no seed and no spread."""

    accuracy: float  # percent
    documents: int  # of the test split


Bags = dict[tuple[str, str], BagOfWords]  # by (data, variant): a variant may change the corpus


def bags_of_words(runs: pd.DataFrame) -> tuple[Bags, list[str]]:
    """The result for each corpus of the runs, and a line for each that could not be had."""
    found: Bags = {}
    problems = []
    for (data, variant), group in runs.groupby(["data", "variant"], sort=False):
        run = group.iloc[0]
        settings = json.loads(run["configuration"])
        try:
            found[str(data), str(variant)] = bag_of_words(
                read_config(Path(run["folder"])), settings
            )
        except (InputError, ImportError, AttributeError, ValueError) as error:
            reason = str(error).splitlines()[0]
            problems.append(f"{data}: no bag-of-words row, its corpus cannot be had ({reason})")
    return found, problems


def bag_of_words(cfg: Config, settings: dict[str, Any]) -> BagOfWords:
    """Fit on the training split, judge on the test split; kept in the run's cache_dir.

    It sees what the models see: the same words, the same documents, the same cut at max_len.
    `settings` are the record's: what is kept is found by them, so a report needs no corpus again.
    """
    data = {key: value for key, value in settings.items() if key.startswith("data.")}
    parts = [FORMAT, data, validation_seed(cfg)]
    key = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
    path = Path(cfg.cache_dir) / f"{cfg.data.name}-{key}.bag_of_words.json"
    kept = _read(path)
    if kept is None:
        kept = _fit(cfg)
        write_json(path, asdict(kept))
    return kept


def _read(path: Path) -> BagOfWords | None:
    try:
        kept = json.loads(path.read_text())
        return BagOfWords(float(kept["accuracy"]), int(kept["documents"]))
    except (OSError, ValueError, LookupError, TypeError):
        return None  # none yet, or a damaged one: fit again


def _fit(cfg: Config) -> BagOfWords:
    store = open_store(cfg.data, cfg.cache_dir, validation_seed(cfg))
    counts = {
        split: _counts(store.splits[split], cfg.data.max_len, store.vocabulary_size)
        for split in ("train", "test")
    }
    weighting = TfidfTransformer().fit(counts["train"])
    model = LogisticRegression(max_iter=1000)
    model.fit(weighting.transform(counts["train"]), store.splits["train"].labels)
    predicted = model.predict(weighting.transform(counts["test"]))
    right = predicted == store.splits["test"].labels
    return BagOfWords(float(100 * right.mean()), len(right))


def _counts(split: TokenizedSplit, max_len: int, vocabulary_size: int) -> csr_matrix:
    """How often each word occurs in each document, cut at max_len, (documents, vocabulary)."""
    lengths = np.minimum(split.lengths, max_len)
    starts = np.repeat(split.offsets[:-1], lengths)
    within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    ids = split.ids[starts + within]
    ends = np.concatenate([[0], np.cumsum(lengths)])
    matrix = csr_matrix((np.ones(len(ids)), ids, ends), shape=(len(lengths), vocabulary_size))
    matrix.sum_duplicates()
    return matrix
