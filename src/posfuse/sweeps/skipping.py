"""Recognises finished runs by their composed configs, and describes them in one line."""

import math
from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig, open_dict

from posfuse.config import Config
from posfuse.runs import records
from posfuse.runs.checks import checked, task_of
from posfuse.runs.configs import has_diverged


def label_of(cfg: Config, own: Sequence[str]) -> str:
    """A run in one line: its names, its `own` overrides and its seed."""
    names = cfg.data.name, cfg.encoding.name, cfg.fusion["name"]
    return " ".join([*names, *own, f"seed={cfg.seed}"])


def score_of(cfg: Config, record: records.Record) -> float:
    """The validation metric of trainer.monitor, which selects the best checkpoint."""
    return float(record["validation"][task_of(cfg).monitor[0].removeprefix("val/")])


def finished(
    config: DictConfig, folder: Path, own: Sequence[str], is_of_study: bool = False
) -> tuple[str, float] | None:
    """The `done_line` and the score of the run in `folder` with this composed config, or None if it
    is not finished. In a study, a run that diverged is finished and has no score (NaN). Raises the
    errors of the run, such as InputError and Conflict.
    """
    with open_dict(config):
        del config["hydra"]
    cfg = checked(config)
    if cfg.trainer.precision == "fastest":  # torch takes seconds to import
        from posfuse.process import precision

        if (choice := precision.stored(cfg)) is None:
            return None  # the run decides
        cfg.trainer.precision = choice
    record = records.finished_record(folder, cfg)
    if record:
        return done_line(cfg, own, record), score_of(cfg, record)
    if is_of_study and has_diverged(folder, cfg):
        return f"{label_of(cfg, own)}: diverged, so it is not run again", math.nan
    return None


def done_line(cfg: Config, own: Sequence[str], record: records.Record) -> str:
    """The log line about a finished run, which is skipped, even if it lacks the measurements of
    trainer.mechanism."""
    metric = task_of(cfg).metric
    value = record["test"][metric]
    line = f"{label_of(cfg, own)}: already done, test {metric.replace('_', ' ')} {value:.4f}"
    is_unmeasured = "position" in record and "mechanism" not in record  # a classifier
    if cfg.trainer.mechanism and is_unmeasured:
        line += f"; to write {records.MECHANISM}, remove its {records.RESULT} and run it again"
    return line
