"""Seeds as users write them, and the seeds of a run's splits.

data.split_seed is a number, or the word `seed` for the run's own seed. The config, its fingerprint
and the record keep the word, so two runs of a cell differ only in `seed`. Code that opens the
corpus gets the number from this module.
"""

import re
from dataclasses import replace
from typing import Any

from posfuse.config import LARGEST_SEED, Config, DataConfig
from posfuse.errors import InputError

MOST = 10_000  # seeds in one list
RANGE = re.compile(r"\s*(\d{1,20})(?:-(\d{1,20}))?\s*", re.ASCII)
BY_RUN = "seed"  # the value of data.split_seed that means the run's seed


def seeds_of(key: str, given: Any) -> list[int]:
    """Seeds from a number, a text such as "0-4,9", or a list of numbers. Raises InputError for
    anything else."""
    items = given.split(",") if isinstance(given, str) else given
    seeds: list[int] = []
    for item in items if isinstance(items, list) else [items]:
        ends = RANGE.fullmatch(str(item))
        first, last = (int(end) for end in (ends[1], ends[2] or ends[1])) if ends else (1, 0)
        if not first <= last <= LARGEST_SEED:
            raise InputError(
                f"{key}: must be seeds such as 0-7 or 0,1,2, at most {LARGEST_SEED} (got {given!r})"
            )
        if len(seeds) + last - first >= MOST:
            raise InputError(f"{key}: more than {MOST} seeds; give fewer")
        seeds += range(first, last + 1)
    if len(set(seeds)) < len(seeds) or not seeds:
        raise InputError(f"{key}: must be seeds, each given once (got {given!r})")
    return seeds


def split_seed(cfg: Config) -> int:
    """The seed of the splits, of the sample for data.limit, and of a generated corpus."""
    seed = cfg.data.split_seed
    return cfg.seed if isinstance(seed, str) else seed


def validation_seed(cfg: Config) -> int:
    """The seed that draws the validation split from the training documents."""
    return cfg.seed if cfg.fidelity.validation_split == "by_seed" else split_seed(cfg)


def with_split_seed(cfg: Config) -> DataConfig:
    """`cfg.data` with the number in place of the word, also in the corpus's argument `split_seed`,
    which conf/data sets to ${data.split_seed}."""
    seed, corpus = split_seed(cfg), cfg.data.corpus
    if cfg.data.split_seed == BY_RUN and corpus and corpus.get("split_seed") == BY_RUN:
        corpus = {**corpus, "split_seed": seed}
    return replace(cfg.data, split_seed=seed, corpus=corpus)
