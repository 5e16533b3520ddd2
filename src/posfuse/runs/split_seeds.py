"""The seeds of a run's splits.

data.split_seed is a number, or the word `seed` for the run's own seed. The config, its fingerprint
and the record keep the word, so that two runs of a cell differ in `seed` alone. Whatever opens the
corpus gets the number from here.
"""

from dataclasses import replace

from posfuse.config import Config, DataConfig

BY_RUN = "seed"  # the value of data.split_seed that stands for the run's seed


def split_seed(cfg: Config) -> int:
    """The seed of the splits, of the sample for data.limit, and of a generated corpus."""
    seed = cfg.data.split_seed
    return cfg.seed if isinstance(seed, str) else seed


def validation_seed(cfg: Config) -> int:
    """The seed that draws the validation split from the training documents."""
    return cfg.seed if cfg.fidelity.validation_split == "by_seed" else split_seed(cfg)


def with_split_seed(cfg: Config) -> DataConfig:
    """`cfg.data` with the number in place of the word, also in the corpus's argument of this name,
    which conf/data sets to ${data.split_seed}."""
    seed, corpus = split_seed(cfg), cfg.data.corpus
    if cfg.data.split_seed == BY_RUN and corpus and corpus.get("split_seed") == BY_RUN:
        corpus = {**corpus, "split_seed": seed}
    return replace(cfg.data, split_seed=seed, corpus=corpus)
