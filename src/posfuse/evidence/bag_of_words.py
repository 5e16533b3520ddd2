"""A classifier without positions: TF-IDF and logistic regression on a run's own tokens.

A corpus that it solves shows little about position. For tasks there is a second classifier, which
also has the pair of the first and the last symbol as a word. It solves tasks that need only the
ends.
"""

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse import csr_matrix, hstack
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegression

from posfuse.config import Config
from posfuse.data.corpora import is_task
from posfuse.data.token_store import TokenizedSplit, open_store
from posfuse.errors import InputError, input_errors
from posfuse.evidence.rows import A_SIZE, is_number
from posfuse.runs.configs import read_config, with_folders
from posfuse.runs.identity import PART_NUMERICS, has_own_corpus, own_code, own_files
from posfuse.runs.measurements import CLASSES
from posfuse.runs.records import Record, write_json
from posfuse.runs.seeds import BY_RUN, validation_seed, with_split_seed
from posfuse.seals import digest_of
from posfuse.untrusted import read_json

OWN_TASK = "settings.task._target_"
FORMAT = 3  # increase it if the same corpus gives different numbers


@dataclass(frozen=True)
class BagOfWords:
    """Test results. The fit is not random, so there is no seed and no spread. If each seed has its
    own splits, the results are means over these splits."""

    accuracy: float  # percent
    documents: int  # of a test split
    with_ends: float | None = None  # percent, with the first and last symbol; only for tasks


Bags = dict[tuple[str, str], BagOfWords]  # by (data, variant): a variant may change the corpus


def bags_of_words(runs: pd.DataFrame) -> tuple[Bags, list[str]]:
    """The result for each corpus of the runs, and a line for each corpus that cannot be loaded."""
    bags: Bags = {}
    problems = []
    for (data, variant), group in runs.groupby(["data", "variant"], sort=False):
        if pd.notna(group.iloc[0].get(OWN_TASK)):
            continue  # its targets may not be the labels of the corpus
        try:
            bags[str(data), str(variant)] = _mean_over_splits(group)
        except InputError as error:
            problems.append(
                f"{data}: no bag of words, because the corpus cannot be loaded ({error})"
            )
    return bags, problems


def _mean_over_splits(runs: pd.DataFrame) -> BagOfWords:
    """One fit for all runs, or one for each seed if data.split_seed is the run's seed."""
    bags = []
    for run in runs.drop_duplicates("seed").to_dict("records"):
        folder = Path(run["folder"])
        cfg = read_config(folder)
        code = run.get("code") if pd.notna(run.get("code")) else None
        bags.append(bag_of_words(cfg, json.loads(run["configuration"]), folder, code))
        if cfg.data.split_seed != BY_RUN:
            break
    accuracy = float(np.mean([bag.accuracy for bag in bags]))
    ends = [bag.with_ends for bag in bags if bag.with_ends is not None]
    with_ends = float(np.mean(ends)) if ends else None
    return BagOfWords(accuracy, round(np.mean([bag.documents for bag in bags])), with_ends)


def bag_of_words(
    cfg: Config, settings: dict[str, Any], folder: Path, code: str | None = None
) -> BagOfWords:
    """Fit on the training split and evaluate on the test split, once per corpus.

    `cfg` is the config of the run in `folder`; `settings` and `code` are those of its record. The
    input is that of the models: the same words and documents, with the same cut at max_len. The
    result is cached in the run's cache_dir by the record's settings, the number of the corpus in
    PART_NUMERICS, and the code of a user's own corpus function. So a second report does not need
    the corpus. Raises InputError if the corpus cannot be loaded, and if its texts or this code have
    changed since the run.
    """
    with input_errors(f"{folder}: its texts cannot be read", "restore them, or run again"):
        data = {k: value for k, value in settings.items() if k.startswith(("data.", "host."))}
        corpus = (cfg.data.corpus or {}).get("_target_")
        changed = [PART_NUMERICS[corpus]] if corpus in PART_NUMERICS else []
        parts = [FORMAT, data, validation_seed(cfg), *changed]
        if has_own_corpus(cfg):
            code = code or own_code(cfg).get("code")  # older records have none
            parts.append(code)
        path = Path(cfg.cache_dir) / f"{cfg.data.name}-{digest_of(parts)[:16]}.bag_of_words.json"
        if cached := _cached(path, is_task(cfg.data)):
            return cached
        cfg = with_folders(cfg, folder, settings)
        if has_own_corpus(cfg) and own_code(cfg).get("code") != code:
            files = ", ".join(sorted(file.name for file in own_files(cfg)))
            raise InputError(
                f"{folder}: {files} or its texts have changed since the run; restore them, or run "
                "with data.name=NAME for the new files"
            )
        bag = _fit(cfg)
    with suppress(OSError):  # of a sweep that this user may only read
        write_json(path, asdict(bag))
    return bag


def _cached(path: Path, has_ends: bool) -> BagOfWords | None:
    """The result in a file; None if the file is missing or damaged."""
    try:
        bag = BagOfWords(**read_json(path))
    except (OSError, ValueError, TypeError):
        return None
    percents: list[Any] = [bag.accuracy, bag.with_ends] if has_ends else [bag.accuracy]
    is_whole = all(is_number(p) and 0 <= p <= 100 for p in percents) and A_SIZE[1](bag.documents)
    return bag if is_whole and (bag.with_ends is None) != has_ends else None


def task_bags(folder: Path, record: Record) -> dict[str, float]:
    """`bag_of_words` and `bag_with_ends`, accuracies in percent, of a finished run on a task. Empty
    without predicted classes, if the strings of a user's own function cannot be loaded now, and for
    a run on texts, because the texts may be missing now."""
    cfg = read_config(folder)
    is_own = cfg.task._target_ is not None
    if is_own or not is_task(cfg.data) or record["task"]["predictions"] != CLASSES:
        return {}
    try:
        bag = bag_of_words(cfg, record["settings"], folder, record.get("code"))
    except InputError:
        if has_own_corpus(cfg):
            return {}
        raise
    assert bag.with_ends is not None  # of every task
    return {"bag_of_words": bag.accuracy, "bag_with_ends": bag.with_ends}


def _fit(cfg: Config) -> BagOfWords:
    store = open_store(
        with_split_seed(cfg), cfg.cache_dir, validation_seed(cfg), pretrained=cfg.host.path
    )
    train, test = (store.splits[split] for split in ("train", "test"))
    size, max_len = store.vocabulary_size, cfg.data.max_len
    counts = [_counts(split, max_len, size) for split in (train, test)]
    weighting = TfidfTransformer().fit(counts[0])
    words = [weighting.transform(of_split) for of_split in counts]
    with_ends = None
    if is_task(cfg.data):
        ends = [_ends(split, max_len, size) for split in (train, test)]
        both = [hstack(pair).tocsr() for pair in zip(words, ends, strict=True)]
        with_ends = _accuracy(both, train.labels, test.labels)
    return BagOfWords(_accuracy(words, train.labels, test.labels), len(test.labels), with_ends)


def _accuracy(features: list[csr_matrix], train: np.ndarray, test: np.ndarray) -> float:
    """The test accuracy in percent of logistic regression on these features."""
    model = LogisticRegression(max_iter=1000).fit(features[0], train)
    return float(100 * (model.predict(features[1]) == test).mean())


def _counts(split: TokenizedSplit, max_len: int, vocabulary_size: int) -> csr_matrix:
    """The counts of each word in each document, cut at max_len: (documents, vocabulary)."""
    n_documents = len(split.lengths)
    document = np.repeat(np.arange(n_documents), split.lengths)
    read = np.arange(len(split.ids)) - split.offsets[document] < max_len
    places = (document[read], split.ids[read])
    return csr_matrix((np.ones(read.sum()), places), shape=(n_documents, vocabulary_size))


def _ends(split: TokenizedSplit, max_len: int, vocabulary_size: int) -> csr_matrix:
    """The first and the last word of each document, cut at max_len, as one word of pairs,
    (documents, vocabulary squared)."""
    starts = split.offsets[:-1]
    first = split.ids[starts].astype(np.int64)
    last = split.ids[starts + np.minimum(split.lengths, max_len) - 1]
    places = (np.arange(len(first)), first * vocabulary_size + last)
    return csr_matrix((np.ones(len(first)), places), shape=(len(first), vocabulary_size**2))
