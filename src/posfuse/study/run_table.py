"""One row per run of a study, in runs.csv: enough to judge its hypotheses again."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from posfuse.evidence.bag_of_words import task_bags
from posfuse.evidence.metric import Metric
from posfuse.runs.records import DIAGNOSTICS, Diagnostic, Record, read_table
from posfuse.study.plan import Plan
from posfuse.study.scores import by_length, value_of
from posfuse.study.spec import Values
from posfuse.study.sweeps import Sweep

RUNS = "runs.csv"


def at(metric: Metric) -> str:
    """The prefix of the columns of test lengths."""
    return f"test_{metric.name}_at_"


def run_table(
    plan: Plan, tuning: Mapping[str, Sweep], testing: Mapping[str, Sweep]
) -> pd.DataFrame:
    """The finished runs of both stages, from their sweeps by the part of the study.

    Results are in the unit of the study's metric. `norm_ratio` is the mean norm of the token's part
    of the fused vector divided by that of the position's part, at the end of the last whole epoch;
    it is missing if the operator has no such parts. A test run of a classifier on a generated task
    also has the accuracy of both bags of words.
    """
    rows: list[dict[str, Any]] = []
    for part, sweep in tuning.items():
        study = sweep.study
        seeds = study.tuning_seeds + study.final_seeds
        named = {name: name.rpartition(".") for name in sweep.arms}
        values = {name: study.trials(arm)[trial] for name, (arm, _, trial) in named.items()}
        rows += _rows("tuning", part, sweep, seeds, values, study.measured)
    for part, own in plan.parts().items():
        values = {arm: choice.values for arm, choice in own.choices.items()}
        rows += _rows(
            "testing", part, testing[part], own.study.test_seeds, values, own.study.measured
        )
    frame = pd.DataFrame(rows)
    return frame if "norm_ratio" in frame else frame.assign(norm_ratio=np.nan)


def _rows(
    stage: str, part: str, sweep: Sweep, seeds: list[int], values: dict[str, Values], metric: Metric
) -> list[dict[str, Any]]:
    folders = sweep.folders(sweep.arms, seeds)
    rows = []
    counted: set[str] = set()
    for (arm, seed), record in sweep.results(sweep.arms, seeds).items():
        name, _, trial = arm.rpartition(".") if stage == "tuning" else (arm, "", "")
        row: dict[str, Any] = {"stage": stage, "arm": name, "trial": trial, "seed": seed}
        row |= {"repeat": part} if part else {}
        row |= values[arm]
        row |= {"diverged": record is None, "folder": folders[arm, seed].as_posix()}
        if record is not None:
            if stage == "testing":
                row |= task_bags(folders[arm, seed], record)
            row |= {
                f"test_{metric.name}": value_of(record["test"], metric),
                f"validation_{metric.name}": value_of(record["validation"], metric),
                "best_evaluation": record["best_evaluation"],
                "evaluations": record["evaluations"],
                **{f"{at(metric)}{n}": value for n, value in by_length(record, metric).items()},
                "max_len": record["settings"]["data.max_len"],
                "classes": len(record.get("label_names", [])),
                "test_documents": record["documents"]["test"],
                "norm_ratio": _norm_ratio(folders[arm, seed]),
                "core_seconds": _seconds(record, counted) * record["host"]["threads"],
                "fingerprint": record["fingerprint"],
                "commit": record["commit"],
                "plan": record.get("plan"),
                "started": record.get("started"),
            }
        rows.append(row)
    return rows


def _seconds(record: Record, counted: set[str]) -> float:
    """The seconds of a run, plus those of its pretraining unless `counted` has it already."""
    seconds = float(sum(record["seconds"].values()))
    first = record.get("pretrain")
    if first and first["fingerprint"] not in counted:
        counted.add(first["fingerprint"])
        seconds += float(first["seconds"])
    return seconds


def _norm_ratio(folder: Path) -> float:
    frame = read_table(folder / DIAGNOSTICS, Diagnostic)
    frame = frame[(frame["name"] == "norm_ratio") & (frame["by"] == "")]
    return float(frame.sort_values("epoch")["value"].iloc[-1]) if len(frame) else np.nan
