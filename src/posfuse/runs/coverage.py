"""Warnings if the tokens of a run do not represent its texts, or if test texts occur in train."""

import math
from collections.abc import Mapping
from operator import itemgetter
from typing import Any

import numpy as np

from posfuse.config import Config
from posfuse.data.corpora import SPLITS, Poll
from posfuse.data.token_store import open_store
from posfuse.runs.checks import task_of
from posfuse.runs.seeds import validation_seed, with_split_seed

UNKNOWN_SHARE = 0.3  # of a split's tokens; a warning from this value on
FEWEST_TOKENS = 3  # of a document, in the mean of a split; a warning below this value
NUMBER = itemgetter(0)  # of a pair of `_of_splits`
CHARACTERS = "set data.vocabulary.unit=characters for texts without spaces between words"


def coverage_warning(row: Mapping[Any, Any]) -> str | None:
    """One line that names an option to change, or None. `row` is a record with flat keys."""
    if isinstance(row.get("settings.data.corpus.test_lengths"), list):
        return None  # a generated task
    unit = row.get("settings.data.vocabulary.unit", "words")
    more = "lower data.vocabulary.min_count or raise data.vocabulary.max_size"
    if row.get("settings.data.vocabulary.file"):
        unit, more = "tokens", "take a tokenizer that was trained on such texts"
    unknown, unknown_in = max(_of_splits(row, "unknown_share"), key=NUMBER, default=(0.0, ""))
    fewest, fewest_in = min(_of_splits(row, "mean_tokens"), key=NUMBER, default=(math.inf, ""))
    if unknown >= UNKNOWN_SHARE:
        fix = f"{CHARACTERS}, or {more}" if unit == "words" else more
        if row.get("settings.host.name") == "transformers":
            fix = "use a model whose tokenizer has tokens for these texts"
        return f"{row['data']}: {unknown:.0%} of the tokens of {unknown_in} are <unk>; {fix}"
    if fewest < FEWEST_TOKENS and unit == "words":
        return (
            f"{row['data']}: a document of {fewest_in} has {fewest:.2f} tokens on average; "
            f"{CHARACTERS}"
        )
    return None


def repetition(row: Mapping[Any, Any]) -> str | None:
    """One line if test documents occur in train, or None. `row` is a record with flat keys."""
    n, share = row.get("repeated.documents"), row.get("repeated.share")
    if not (isinstance(n, int | float) and isinstance(share, int | float) and n > 0):
        return None
    return (
        f"{row['data']}: {n:.0f} of the test documents ({share:.1%}) occur in train word for word"
    )


def training_lengths(cfg: Config, poll: Poll) -> np.ndarray:
    """Tokens of each training document of a run that reads whole documents, before the cut,
    ascending, (documents,). Opens the token store of the run, as `open_store` does."""
    data, labelled = with_split_seed(cfg), task_of(cfg).needs_labels
    seed, path = validation_seed(cfg), cfg.host.path
    store = open_store(data, cfg.cache_dir, seed, poll, path, labelled)
    return np.sort(store.splits["train"].lengths)


def _of_splits(row: Mapping[Any, Any], name: str) -> list[tuple[float, str]]:
    """The number of each split that has one."""
    values = [(row.get(f"{name}.{split}"), split) for split in SPLITS]
    return [(v, split) for v, split in values if isinstance(v, int | float) and math.isfinite(v)]
