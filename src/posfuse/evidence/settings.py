"""What the settings of a run say about its encoding and its task.

The names of encodings and corpora are labels: two encodings may fuse the same table. A run is a row
of `collect` as a dict.
"""

import hashlib
import json
from typing import Any

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
    """All that this module says about a run, by column of a frame of comparisons."""
    return {
        "table": fused_table(run),
        "attention": in_attention(run),
        "other_settings": other_settings(run),
        "task": task(run),
        "pretrain": pretraining(run),
        "besides_pretraining": besides_pretraining(run),
    }


def fused_table(run: Run) -> str:
    """The table that the operator fuses, as "Sinusoidal"; the encoding's name in a record without
    this setting."""
    return _part(run, f"{ENCODING}table.") or str(run["encoding"])


def in_attention(run: Run) -> str:
    """The encoding's part in attention, as "RelativeKeys clip=16"; empty if it has none."""
    return _part(run, f"{ENCODING}attention.")


def _part(run: Run, prefix: str) -> str:
    """The class without its module, and its arguments."""
    arguments = {key.removeprefix(prefix): v for key, v in _settings(run).items() if prefix in key}
    name = arguments.pop("_target_", "").rpartition(".")[2]
    return " ".join([name, *(f"{key}={value}" for key, value in arguments.items())]).strip()


def other_settings(run: Run) -> str:
    """A digest of all settings but the encoding's and the seed."""
    return _digest(run, SEED, ENCODING)


def pretraining(run: Run) -> str:
    """What precedes the run's own training; records of runs from scratch leave it out."""
    return _settings(run).get(f"{PRETRAIN}name", "none")


def besides_pretraining(run: Run) -> str:
    """A digest of all settings but those of pretraining and the seed."""
    return _digest(run, SEED, PRETRAIN)


def task(run: Run) -> str:
    """Equal for runs of one task at several lengths: the name of the corpus function (folder for a
    local one), and a digest of all settings but LENGTHS, the encoding's, the operator's and the
    seed."""
    settings = _settings(run)
    own = "folder" if "settings.data.path" in settings else str(run["data"])
    name = settings.get("settings.data.corpus._target_", own).rpartition(".")[2]
    return f"{name}-{_digest(run, SEED, ENCODING, FUSION, *LENGTHS)}"


def _digest(run: Run, *without: str) -> str:
    kept = {key: value for key, value in _settings(run).items() if not key.startswith(without)}
    return hashlib.sha256(json.dumps(kept).encode()).hexdigest()[:8]


def _settings(run: Run) -> dict[str, str]:
    """The settings as texts, sorted by key, without those that are null or of other runs alone (a
    column of integers with gaps has 16.0 for 16)."""
    values = {str(key): value for key, value in run.items() if str(key).startswith("settings.")}
    texts = {k: f"{v:g}" if isinstance(v, float) else str(v) for k, v in sorted(values.items())}
    return {key: text for key, text in texts.items() if text not in ("nan", "None")}
