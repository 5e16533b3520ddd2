"""What the records of a study's runs say: accuracy, chance, resolution, convergence."""

from collections.abc import Iterable, Mapping

import numpy as np

from posfuse.analysis.statistics.lengths import area
from posfuse.runs.records import Record
from posfuse.study.spec import ACCURACY

Results = Mapping[tuple[str, int], Record | None]  # by (arm, seed); None for a run that diverged


def outcomes(results: Results, outcome: str = ACCURACY) -> dict[tuple[str, int], float]:
    """Test accuracy in percent by (arm, seed), or its mean beyond the trained length; chance for a
    run that diverged.

    Runs without a test beyond their trained length have no such mean, and are left out.
    """
    by_arm: dict[str, list[Record | None]] = {}
    for (arm, _), record in results.items():
        by_arm.setdefault(arm, []).append(record)
    of_all = chance(results.values())
    of_arm = {arm: chance(records, of_all) for arm, records in by_arm.items()}
    found = {
        key: of_arm[key[0]] if record is None else _value(record, outcome)
        for key, record in results.items()
    }
    return {key: value for key, value in found.items() if not np.isnan(value)}


def _value(record: Record, outcome: str) -> float:
    if outcome == ACCURACY:
        return 100 * float(record["test"]["accuracy"])
    by_length = {int(n): 100 * m["accuracy"] for n, m in record.get("lengths", {}).items()}
    return area(by_length, record["settings"]["data.max_len"]) if by_length else np.nan


def chance(records: Iterable[Record | None], otherwise: float = 0.0) -> float:
    """The accuracy of guessing in percent, with the most classes of any record; `otherwise` if no
    record has classes."""
    classes = [len(r["label_names"]) for r in records if r and r.get("label_names")]
    return 100 / max(classes) if classes else otherwise


def resolution(results: Results, arms: Iterable[str]) -> float:
    """The points of one test document, in the smallest test split of these arms; NaN if no record
    has its size."""
    wanted = set(arms)
    records = [r for (arm, _), r in results.items() if arm in wanted and r and "documents" in r]
    return 100 / min(r["documents"]["test"] for r in records) if records else np.nan


def best_was_last(record: Record) -> bool:
    """Whether a run's best evaluation was its last one, so that it may not have converged."""
    if "evaluations" in record:
        return bool(record["best_evaluation"] == record["evaluations"])
    return bool(record["best_epoch"] == record["epochs"])
