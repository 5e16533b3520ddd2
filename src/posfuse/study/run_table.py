"""One row per run of a study, in runs.csv: enough to judge its hypotheses again."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from posfuse.analysis.evidence.bag_of_words import task_bags
from posfuse.runs.records import DIAGNOSTICS
from posfuse.study.plan import Plan
from posfuse.study.scores import Results
from posfuse.study.spec import Values
from posfuse.study.sweeps import Sweep

RUNS = "runs.csv"
AT = "test_accuracy_at_"  # a test length follows


def run_table(plan: Plan, tuning: Sweep | None, testing: Sweep) -> pd.DataFrame:
    """The finished runs of both stages.

    Accuracies are in percent. `norm_ratio` is the mean norm of the token's part of the fused vector
    divided by that of the position's part, at the end of the last whole epoch; it is missing where
    the operator has no such parts. A test run on a task has the accuracy of both bags of words.
    """
    rows: list[dict[str, Any]] = []
    if tuning and plan.study.tuning:
        seeds = plan.study.tuning_seeds + plan.study.final_seeds
        trials = plan.study.trials()
        values = {arm: trials[arm.rpartition(".")[2]] for arm in tuning.arms}
        rows += _rows("tuning", tuning, seeds, values)
    seeds = plan.study.test_seeds
    values = {arm: choice.values for arm, choice in plan.choices.items()}
    frame = pd.DataFrame([*rows, *_rows("testing", testing, seeds, values)])
    return frame if "norm_ratio" in frame else frame.assign(norm_ratio=np.nan)


def _rows(
    stage: str, sweep: Sweep, seeds: list[int], values: dict[str, Values]
) -> list[dict[str, Any]]:
    folders = sweep.folders(sweep.arms, seeds)
    rows = []
    for (arm, seed), record in sweep.results(sweep.arms, seeds).items():
        name, _, trial = arm.rpartition(".") if stage == "tuning" else (arm, "", "")
        row = {"stage": stage, "arm": name, "trial": trial, "seed": seed, **values[arm]}
        row["diverged"] = record is None
        if record is not None:
            if stage == "testing":
                row |= task_bags(folders[arm, seed], record)
            row |= {
                "test_accuracy": 100 * record["test"]["accuracy"],
                "validation_accuracy": 100 * record["validation"]["accuracy"],
                "best_evaluation": record["best_evaluation"],
                "evaluations": record["evaluations"],
                **{
                    f"{AT}{length}": 100 * metrics["accuracy"]
                    for length, metrics in record.get("lengths", {}).items()
                },
                "max_len": record["settings"]["data.max_len"],
                "classes": len(record["label_names"]),
                "test_documents": record["documents"]["test"],
                "norm_ratio": _norm_ratio(folders[arm, seed]),
                "core_seconds": sum(record["seconds"].values()) * record["host"]["threads"],
                "fingerprint": record["fingerprint"],
                "commit": record["commit"],
            }
        rows.append(row)
    return rows


def _norm_ratio(folder: Path) -> float:
    frame = pd.read_parquet(folder / DIAGNOSTICS)
    frame = frame[(frame["name"] == "norm_ratio") & (frame["by"] == "")]
    return float(frame.sort_values("epoch")["value"].iloc[-1]) if len(frame) else np.nan


def read_results(path: Path) -> Results:
    """The test runs in a runs.csv, as `progress` takes them."""
    frame = pd.read_csv(path)
    found: dict[tuple[str, int], Any] = {}
    for row in frame[frame["stage"] == "testing"].to_dict("records"):
        lengths = {
            key.removeprefix(AT): {"accuracy": row[key] / 100}
            for key in map(str, row)
            if key.startswith(AT) and not np.isnan(row[key])
        }
        found[row["arm"], row["seed"]] = None if row["diverged"] else {
            "lengths": lengths,
            "settings": {"data.max_len": row.get("max_len")},
            "test": {"accuracy": row["test_accuracy"] / 100},
            "label_names": list(range(int(row["classes"]))),
            "documents": {"test": int(row["test_documents"])},
            "best_evaluation": row["best_evaluation"],
            "evaluations": row["evaluations"],
        }  # fmt: skip
    return found
