"""Labels of a run's encoding and task, from its settings.

The names of encodings and corpora are labels: two encodings may fuse the same table. A run is a row
of `collect` as a dict.
"""

import json
from typing import Any

from posfuse.seals import short_digest

NO_TABLE = "NoTable"  # a table of zeros: an operator keeps its parameters but gets no position
SEED, ENCODING, FUSION = "settings.seed", "settings.encoding.", "settings.fusion."
PRETRAIN = "settings.pretrain."
# The settings in which one task at several lengths may differ.
LENGTHS = tuple(
    f"settings.data.{key}"
    for key in (
        "name", "max_len", "eval_batch_size", "corpus.words", "corpus.passages", "corpus.articles",
        "corpus.lengths", "corpus.sizes",
    )
)  # fmt: skip

Run = dict[Any, Any]


def labels_of(run: Run) -> dict[str, str]:
    """The labels of a run from its settings, by column of a frame of comparisons.

    table: the table that the operator fuses, as "Sinusoidal"; the encoding's name in a record
    without this setting. attention: the encoding's part in attention, as "RelativeKeys clip=16";
    empty if it has none. other_settings: a digest of all settings but the encoding's and the seed.

    task: equal for runs of one task at several lengths: the name of the corpus function (folder for
    a local one), and a digest of all settings but LENGTHS, the encoding's, the operator's and the
    seed. pretrain: the kind of pretraining; records of runs from scratch lack it.
    besides_pretraining: a digest of all settings except pretraining's and the seed.
    """
    settings = _settings(run)
    own = "folder" if "settings.data.path" in settings else str(run["data"])
    corpus = settings.get("settings.data.corpus._target_", own).rpartition(".")[2]
    return {
        "table": _object(settings, f"{ENCODING}table.") or str(run["encoding"]),
        "attention": _object(settings, f"{ENCODING}attention."),
        "other_settings": _digest(settings, SEED, ENCODING),
        "task": f"{corpus}-{_digest(settings, SEED, ENCODING, FUSION, *LENGTHS)}",
        "pretrain": settings.get(f"{PRETRAIN}name", "none"),
        "besides_pretraining": _digest(settings, SEED, PRETRAIN),
    }


def _object(settings: dict[str, str], prefix: str) -> str:
    """The class without its module, and its arguments."""
    arguments = {key.removeprefix(prefix): v for key, v in settings.items() if prefix in key}
    name = arguments.pop("_target_", "").rpartition(".")[2]
    return " ".join([name, *(f"{key}={value}" for key, value in arguments.items())]).strip()


def _digest(settings: dict[str, str], *without: str) -> str:
    others = {key: value for key, value in settings.items() if not key.startswith(without)}
    return short_digest(json.dumps(others))


def _settings(run: Run) -> dict[str, str]:
    """The settings as texts, sorted by key, without null values and settings of other runs (a
    column of integers with gaps has 16.0 for 16)."""
    values = {str(key): value for key, value in run.items() if str(key).startswith("settings.")}
    texts = {k: f"{v:g}" if isinstance(v, float) else str(v) for k, v in sorted(values.items())}
    return {key: text for key, text in texts.items() if text not in ("nan", "None")}
