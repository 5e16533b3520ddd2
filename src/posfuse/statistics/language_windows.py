"""Statistics of language models' predictions: over windows or strings as well as seeds.

Shapes: S seeds, W windows of a text, or strings of a task.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from posfuse.errors import InputError
from posfuse.evidence.collect import CELL
from posfuse.evidence.metric import (
    ACCURACY,
    BITS_PER_BYTE,
    EXACT_MATCH,
    GREEDY_ACCURACY,
    Metric,
)
from posfuse.runs.records import PREDICTIONS
from posfuse.seals import check_whole
from posfuse.statistics.comparisons import Criteria
from posfuse.statistics.documents import judge_differences
from posfuse.untrusted import read_parquet

COLUMNS = ["index", "group", "targets"]
COUNTED = {  # what each metric counts
    ACCURACY.name: "right",
    EXACT_MATCH.name: "right",
    GREEDY_ACCURACY.name: "greedy_right",
    BITS_PER_BYTE.name: "loss",
}


def window_evidence(
    comparisons: pd.DataFrame, runs: pd.DataFrame, criteria: Criteria
) -> tuple[pd.DataFrame, list[str]]:
    """One row for each row of `compare`: CELL and the keys of `judge_differences`; and a line for
    each run that is left out."""
    metric = criteria.metric
    folder_of = runs.set_index([*CELL, "seed"])
    read: dict[str, pd.DataFrame] = {}
    problems = []
    for run in runs.to_dict("records"):
        try:
            read[run["folder"]] = read_windows(run, metric)
        except InputError as error:
            problems.append(str(error))
    rows = []
    for row in comparisons.to_dict("records"):
        cell = tuple(row[axis] for axis in CELL)
        base = (*cell[:2], criteria.baseline, row["baseline_variant"])
        folders = [[folder_of.loc[(*c, s), "folder"] for c in (cell, base)] for s in row["seeds"]]
        pairs = [[read.get(str(folder)) for folder in both] for both in folders]
        known = [
            (seed, one, other)
            for seed, (one, other) in zip(row["seeds"], pairs, strict=True)
            if one is not None and other is not None
        ]
        same = [one["index"].equals(known[0][1]["index"]) for _, *both in known for one in both]
        if not known or not all(same):
            continue
        seeds, fused, baseline = zip(*known, strict=True)
        differences = np.stack(
            [
                (one["value"] - other["value"]).to_numpy()
                for one, other in zip(fused, baseline, strict=True)
            ]
        )
        group = fused[0]["group"].to_numpy()
        judged = judge_differences(list(seeds), differences, group)
        rows.append({**dict(zip(CELL, cell, strict=True)), **judged})
    return pd.DataFrame(rows, columns=None if rows else CELL), problems


def read_windows(run: dict[Any, Any], metric: Metric) -> pd.DataFrame:
    """index, group and value of the W windows of a run's test split; the mean value is the metric.

    Raises InputError where the file is missing, damaged, or contradicts the run's record.
    """
    path = Path(run["folder"]) / PREDICTIONS
    try:
        check_whole(path)
        kinds = dict.fromkeys(COLUMNS, "a whole number") | {COUNTED[metric.name]: "a number"}
        frame = read_parquet(path, kinds)
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
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{path}: not usable ({reason}); remove it to run again") from error
    return frame[["index", "group"]].assign(value=value)
