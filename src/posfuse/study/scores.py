"""Values from the records of a study's runs: results, guessing, resolution, convergence."""

from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd

from posfuse.evidence.metric import ACCURACY, Metric
from posfuse.runs.records import Record
from posfuse.statistics.lengths import area
from posfuse.study.spec import BEYOND

Results = Mapping[tuple[str, int], Record | None]  # by (arm, seed); None for a run that diverged


def outcomes(
    results: Results, metric: Metric = ACCURACY, outcome: str = "", solved: float | None = None
) -> pd.DataFrame:
    """The metric on the test split, or with outcome=beyond its mean beyond the trained length: a
    row for each seed, a column for each arm. A run that diverged has the result of guessing. With
    `solved` it is 100 for a run that has at least this result, and 0 for the others; a run that
    diverged is not solved.

    NaN for a run that is not done, or has no test beyond its trained length.
    """
    of_arm, values = guesses(results, metric), dict[str, dict[int, float]]()
    if solved is not None:
        of_arm = dict.fromkeys(of_arm, -np.inf)
    for (arm, seed), record in results.items():
        value = of_arm[arm] if record is None else _value(record, metric, outcome)
        values.setdefault(arm, {})[seed] = value
    frame = pd.DataFrame(values, dtype=float)
    if solved is None:
        return frame
    return (100.0 * (frame.round(9) >= solved)).where(frame.notna())


def _value(record: Record, metric: Metric, outcome: str) -> float:
    if outcome != BEYOND:
        return value_of(record["test"], metric)
    values = by_length(record, metric)
    return area(values, record["settings"]["data.max_len"]) if values else np.nan


def by_length(record: Record, metric: Metric) -> dict[int, float]:
    """The metric by test length, in the metric's unit; empty without data.test_lengths.

    If the trained length has no separate test, the test split is used for it.
    """
    values = {int(n): value_of(split, metric) for n, split in record.get("lengths", {}).items()}
    if values:
        values.setdefault(int(record["settings"]["data.max_len"]), value_of(record["test"], metric))
    return values


def value_of(split: Mapping[str, float], metric: Metric) -> float:
    """The metric in the results of a split, in the metric's unit."""
    return metric.factor * float(split[metric.name])


def guess(records: Iterable[Record | None], metric: Metric, otherwise: float = 0.0) -> float:
    """The result of guessing, in the metric's unit.

    For accuracy it depends on the largest number of classes in a record; it is `otherwise` if no
    record has classes.
    """
    if metric != ACCURACY:
        return metric.guess
    classes = [len(r["label_names"]) for r in records if r and r.get("label_names")]
    return 100 / max(classes) if classes else otherwise


def guesses(results: Results, metric: Metric) -> dict[str, float]:
    """The result of guessing of each arm, or of all arms if none of its runs has classes."""
    by_arm: dict[str, list[Record | None]] = {}
    for (arm, _), record in results.items():
        by_arm.setdefault(arm, []).append(record)
    of_all = guess(results.values(), metric)
    return {arm: guess(records, metric, of_all) for arm, records in by_arm.items()}


def resolution(results: Results, arms: Iterable[str], metric: Metric = ACCURACY) -> float:
    """The points of one test document in the smallest test split of these arms; NaN if no record
    has its size, or if the metric is not a fraction of documents."""
    wanted = set(arms)
    records = [r for (arm, _), r in results.items() if arm in wanted and r and "documents" in r]
    if not records or not metric.is_share:
        return np.nan
    return 100 / min(int(r["documents"]["test"]) for r in records)


def best_was_last(record: Record) -> bool:
    """True if a run's best evaluation was its last one, so it may not have converged."""
    if "evaluations" in record:
        return bool(record["best_evaluation"] == record["evaluations"])
    return bool(record["best_epoch"] == record["epochs"])
