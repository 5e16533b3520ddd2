"""What the records of a study's runs say: accuracy, chance, resolution, convergence."""

from collections.abc import Iterable, Mapping

import numpy as np

from posfuse.runs.records import Record

Results = Mapping[tuple[str, int], Record | None]  # by (arm, seed); None for a run that diverged


def accuracies(results: Results) -> dict[tuple[str, int], float]:
    """Test accuracy in percent by (arm, seed); chance for a run that diverged."""
    by_arm: dict[str, list[Record | None]] = {}
    for (arm, _), record in results.items():
        by_arm.setdefault(arm, []).append(record)
    of_all = chance(results.values())
    of_arm = {arm: chance(records, of_all) for arm, records in by_arm.items()}
    return {
        key: of_arm[key[0]] if record is None else 100 * record["test"]["accuracy"]
        for key, record in results.items()
    }


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
