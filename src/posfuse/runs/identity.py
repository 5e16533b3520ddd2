"""The identity of a run: its settings and their fingerprint, without folders, names and ids.

A run is a function of its config, its texts and the numerics of this version. Two runs with one
fingerprint have the same numbers, on one machine with one number of threads, if the code of a
user's own classes is the same (`own_code`). A corpus of the hub counts by its name and revision.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from posfuse.config import Config
from posfuse.data.corpora import files_below, files_digest, folder_files, load
from posfuse.data.own_code import code_digests, is_own
from posfuse.data.pretrained_folder import pretrained_files
from posfuse.data.vocabulary import tokenizer_file_digest
from posfuse.runs.seeds import with_split_seed
from posfuse.seals import digest_of

NUMERICS = 11  # increase it if the same config and seed no longer give the same numbers
# The same number for a single encoding or corpus, by its _target_, or for a precision.
PART_NUMERICS = {
    "bf16-mixed": 1,
    "posfuse.model.polar.Pope": 1,
    "posfuse.data.bbc.lead_paragraph": 1,
    "posfuse.data.bbc.article": 1,
    "posfuse.data.bbc.digest": 1,
    "posfuse.data.bbc.lead_story": 1,
}

# Keys that cannot change a number. The fingerprint and the folder's name leave them out. The names
# of data, encoding and fusion are labels; their other keys define the run.
NEUTRAL_KEYS = (
    "sweep_id", "output_dir", "cache_dir", "logger", "trainer.progress", "experiment",
    "trainer.checkpoint_minutes", "trainer.mechanism", "fidelity.notebook_parts_only", "sweep",
)  # fmt: skip


def flatten(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested dicts as one, keys joined with dots."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


# Keys that earlier records lack, with the value that changes nothing.
LATER_KEYS = flatten({
    "data": {
        "text": "text", "labels": "label", "test_lengths": [], "word_order": "original",
        "targets": "all", "vocabulary": {"ending": "", "file": None},
        "splits": {"train": "train", "validation": None, "test": "test"},
    },
    "encoding": {"positions": "contiguous", "range": 2048},
    "task": {
        "name": "classification", "_target_": None, "output": "untied", "class_weights": "none",
    },
    "pretrain": {"name": "none", "max_epochs": 10, "lr": 1e-3, "batch_size": 64, "share": 0.15},
    "host": {"name": "own", "path": None},
    "optim": {"weight_decay_of": "all", "schedule": "constant", "warmup": 0, "end_factor": 0.0},
    "trainer": {"accumulate": 1},
})  # fmt: skip

HUB = "posfuse.data.corpora.hub"
HUB_ID = "data.corpus.id"  # of HUB: a repository of the hub, or a local folder in the hub's form
# Keys that name files: their content identifies a run, not their place. The digest of each.
CONTENTS: dict[str, Callable[[str, Config], str]] = {
    "data.path": lambda path, cfg: files_digest(folder_files(path, cfg.data.splits)),
    "data.vocabulary.file": lambda path, cfg: tokenizer_file_digest(path),
    "host.path": lambda path, cfg: files_digest(pretrained_files(path)),
    HUB_ID: lambda path, cfg: files_digest(files_below(Path(path))),
}


def is_neutral(key: str) -> bool:
    """True if a key of the config cannot change a number of a run."""
    return any(key == k or key.startswith(f"{k}.") for k in NEUTRAL_KEYS)


def settings(cfg: Config) -> dict[str, Any]:
    """The config without the neutral keys, flat: {"model.d_model": 64, ...}.

    A key of LATER_KEYS is left out at its value there, so that earlier runs keep their fingerprint.
    """
    flat = {
        key: value
        for key, value in flatten(asdict(cfg)).items()
        if not is_neutral(key) and not (key in LATER_KEYS and value == LATER_KEYS[key])
    }
    if cfg.data.path is not None:
        flat = {k: v for k, v in flat.items() if not k.startswith("data.corpus")}
    return flat | {key: CONTENTS[key](path, cfg) for key, path in files_of(cfg).items()}


def files_of(cfg: Config) -> dict[str, str]:
    """The keys of CONTENTS that name files in this config, with their paths."""
    flat = flatten(asdict(cfg))
    given = {key: flat[key] for key in CONTENTS if flat.get(key) is not None}
    if id := given.pop(HUB_ID, None):
        is_read = cfg.data.path is None and flat.get("data.corpus._target_") == HUB
        # A local folder, which may have moved, and not a repository of the hub.
        if is_read and (Path(id).is_absolute() or Path(id).is_dir()):
            given[HUB_ID] = id
    return given


def fingerprint(cfg: Config) -> str:
    """16 hex digits of everything that can change a number of the run, and nothing else."""
    return fingerprint_of(settings(cfg))


def fingerprint_of(own: Mapping[str, Any]) -> str:
    """The fingerprint of a run with these `settings`, of its config or of its record."""
    parts = [number for part, number in PART_NUMERICS.items() if part in own.values()]
    return digest_of([NUMERICS, dict(own), *parts])[:16]


def is_current(record: Mapping[str, Any]) -> bool:
    """False if an earlier version of posfuse made the record and this version gives other
    numbers, for example other splits."""
    return bool(record["fingerprint"] == fingerprint_of(record["settings"]))


def own_code(cfg: Config) -> dict[str, str]:
    """The entry `code` of a record: a digest of the files outside posfuse that define classes and
    functions of the config, and of the fingerprint of a corpus that such a function returns.
    Without such files there is no entry. It does not change the run's fingerprint."""
    files = own_files(cfg)
    if not files:
        return {}
    parts = sorted(files.values())
    if has_own_corpus(cfg):
        # With one seed for all runs of a cell, whose code is compared.
        parts.append(load(with_split_seed(replace(cfg, seed=0))).fingerprint)
    return {"code": digest_of(parts)[:16]}


def has_own_corpus(cfg: Config) -> bool:
    """True if a function outside posfuse returns the corpus."""
    corpus = cfg.data.corpus
    return cfg.data.path is None and corpus is not None and is_own(corpus["_target_"])


def own_files(cfg: Config) -> dict[Path, str]:
    """The files outside posfuse that define classes and functions of the config, each with the
    digest of the loaded code."""
    targets = {str(v) for k, v in flatten(asdict(cfg)).items() if v and k.endswith("_target_")}
    own = map(code_digests, filter(is_own, targets))
    return {file: digest for files in own for file, digest in files.items()}


def owner(cfg: Config) -> dict[str, str]:
    """The entries that must be equal in a checkpoint and in a run that resumes from it."""
    return {"fingerprint": fingerprint(cfg), **own_code(cfg)}


def differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """The keys whose values differ in two settings, and the keys that one of the two lacks."""
    return [k for k in sorted(one.keys() | other.keys()) if one.get(k, ...) != other.get(k, ...)]
