"""Reads the files beside the records of runs: predictions, learning curves, use of position."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from posfuse.errors import InputError, input_errors
from posfuse.evidence.collect import CELL
from posfuse.evidence.metric import ACCURACY, BITS_PER_BYTE, EXACT_MATCH, GREEDY_ACCURACY, Metric
from posfuse.evidence.rows import is_number
from posfuse.runs.measurements import Measurement, read_history, read_measurements
from posfuse.runs.records import HISTORY, PREDICTIONS, RESULT
from posfuse.seals import check_whole
from posfuse.untrusted import read_parquet

OF_DOCUMENTS = ["index", "length", "group", "label", "predicted"]
OF_WINDOWS = ["index", "group", "targets"]
COUNTED = {  # the counted column of a window, by metric
    ACCURACY.name: "right",
    EXACT_MATCH.name: "right",
    GREEDY_ACCURACY.name: "greedy_right",
    BITS_PER_BYTE.name: "loss",
}


@contextmanager
def _whole(path: Path) -> Iterator[None]:
    """Raises InputError if the file is missing or damaged, or cannot be read."""
    with input_errors(f"{path}: not usable", "remove it to run again"):
        check_whole(path)
        yield


def read_predictions(run: dict[Any, Any]) -> pd.DataFrame:
    """OF_DOCUMENTS and value (100 if the prediction is right, otherwise 0) of the D test
    documents of a row of `collect`. Lengths are cut at the run's max_len.

    Raises InputError where the file is missing, damaged, or contradicts the run's record.
    """
    path = Path(run["folder"]) / PREDICTIONS
    names, accuracy = run.get("label_names"), run.get(ACCURACY.column)
    with _whole(path):
        table = read_parquet(path, dict.fromkeys(OF_DOCUMENTS, "a whole number"))
        for name, column in table.items():
            if column.dtype.kind not in "iu" or column.empty or column.min() < 0:
                raise ValueError(f"{name} is not a whole number from 0 for each document")
        if isinstance(names, list) and table[["label", "predicted"]].to_numpy().max() >= len(names):
            raise ValueError("more classes than result.json names")
        correct = (table["label"] == table["predicted"]).mean()
        if accuracy is not None and abs(correct - accuracy) > 1e-4:
            right = f"{100 * correct:.2f} % are right"
            raise ValueError(f"{right}, result.json says {100 * accuracy:.2f} %")
    table["length"] = table["length"].clip(1, run.get("settings.data.max_len"))
    table = table.astype(np.int64)
    return table.assign(value=100.0 * (table["label"] == table["predicted"]))


def read_windows(run: dict[Any, Any], metric: Metric) -> pd.DataFrame:
    """index, group and value of the W windows of a language model's test split, or of the strings
    of a task. The mean value is the metric.

    Raises InputError where the file is missing, damaged, or contradicts the run's record.
    """
    path = Path(run["folder"]) / PREDICTIONS
    with _whole(path):
        kinds = dict.fromkeys(OF_WINDOWS, "a whole number") | {COUNTED[metric.name]: "a number"}
        frame = read_parquet(path, kinds)
        lacking = frame.columns[frame.isna().any()]
        if len(lacking):
            raise ValueError(f"{lacking[0]} has missing values")
        if metric == EXACT_MATCH:
            frame = frame[frame["targets"] > 0]  # a string can end before its answer
        counted = frame[COUNTED[metric.name]]
        if metric == EXACT_MATCH:
            value = 100.0 * (counted == frame["targets"])
        else:  # a mean over targets, of which each window counts its own
            share = counted / frame["targets"].mean()
            value = share / math.log(2) if metric == BITS_PER_BYTE else 100.0 * share
        recorded = metric.factor * run[metric.column]
        if not abs(value.mean() - recorded) < 10**-metric.digits:
            own = metric.number(value.mean())
            raise ValueError(f"{metric.title} is {own}, result.json says {metric.number(recorded)}")
    return frame[["index", "group"]].assign(value=value)


def learning_curves(
    runs: pd.DataFrame, metric: Metric = ACCURACY
) -> tuple[pd.DataFrame, list[str]]:
    """CELL, seed, epoch and value of the metric, with one row per evaluation of each run; and a
    line for each run whose history.csv is missing or damaged. A task of the user may not validate
    the metric; its runs have no rows.

    `epoch` is the number of done epochs, a fraction if an epoch has several evaluations.
    """
    return _of_runs(runs, lambda run: _curve(run, metric), ["epoch", "value"])


def mechanism(runs: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """The rows of mechanism.parquet of every run, with CELL and seed; and a line for each run whose
    file is damaged.

    Columns: CELL, seed and those of `Measurement`. No rows if no run has the file.
    """
    columns = [field.name for field in fields(Measurement)]
    return _of_runs(runs, lambda run: read_measurements(Path(run["folder"])), columns)


def _curve(run: dict[Any, Any], metric: Metric) -> pd.DataFrame:
    path = Path(run["folder"]) / HISTORY
    with input_errors(f"{path}: no learning curve", f"remove {RESULT} to run again"):
        history, column = read_history(path.parent), f"val_{metric.name}"
        if column not in history:
            return pd.DataFrame()
        epoch, value = history[["epoch", column]].to_numpy(float).T
        if not np.isfinite([epoch, value]).all():
            raise ValueError("has values that are not numbers")
    per_epoch = run.get("settings.trainer.evaluations", 1)
    if is_number(per_epoch) and per_epoch > 1:
        epoch = (np.arange(1, len(epoch) + 1) / per_epoch).round(3)
    return pd.DataFrame({"epoch": epoch, "value": value * metric.factor})


def _of_runs(
    runs: pd.DataFrame, read: Callable[[dict[Any, Any]], pd.DataFrame], columns: list[str]
) -> tuple[pd.DataFrame, list[str]]:
    """The rows of `read` for each run, with CELL and seed; and a line for each run for which it
    raises InputError."""
    labels = [*CELL, "seed"]
    frames, problems = [], []
    for run in runs.to_dict("records"):
        try:
            frame = read(run)
        except InputError as error:
            problems.append(str(error))
            continue
        if len(frame):
            frames.append(frame.assign(**{name: run[name] for name in labels}))
    if not frames:
        return pd.DataFrame(columns=[*labels, *columns]), problems
    return pd.concat(frames, ignore_index=True)[[*labels, *columns]], problems
