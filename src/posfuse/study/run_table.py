"""One row per run of a study, in runs.csv: enough to judge its hypotheses again."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from posfuse.evidence.metric import Metric
from posfuse.runs.records import Record
from posfuse.study.arm_sweep import ArmSweep
from posfuse.study.scores import at
from posfuse.study.spec import Study

RECORD = "record"  # the column with the whole record, which is not in runs.csv


def finished_runs(study: Study, *stages: Mapping[str, ArmSweep]) -> pd.DataFrame:
    """The finished runs of these stages, each with its sweeps by the part of the study.

    Results are in the unit of the study's metric. A run that diverged has none. A run whose trained
    length has no separate test has the result of its test split for this length.
    """
    rows = [
        row for sweeps in stages for part, sweep in sweeps.items() for row in _rows(part, sweep)
    ]
    frame, name = pd.DataFrame(rows), study.metric
    needed = [
        "stage", "arm", "trial", "seed", "diverged", f"test_{name}", f"validation_{name}",
        "best_evaluation", "evaluations", "classes", "test_documents", RECORD,
    ]  # fmt: skip
    frame = frame.reindex(columns=list(dict.fromkeys([*frame, *needed])))
    return frame.astype({"diverged": bool})


def _rows(part: str, sweep: ArmSweep) -> list[dict[str, Any]]:
    folders, rows = sweep.folders(sweep.arms, sweep.seeds), []
    counted: set[str] = set()
    for (name, seed), record in sweep.results(sweep.arms, sweep.seeds).items():
        arm, _, trial = (name, "", "") if sweep.plan else name.rpartition(".")
        rows.append(
            {
                "stage": "testing" if sweep.plan else "tuning",
                "arm": arm,
                "trial": trial,
                "seed": seed,
                **({"repeat": part} if part else {}),
                **{key: sweep.values[name][key] for key in sweep.study.tuned},
                "diverged": record is None,
                "folder": folders[name, seed].as_posix(),
                **(_results(record, sweep.study.measured, counted) if record else {}),
                RECORD: record,
            }
        )
    return rows


def _results(record: Record, metric: Metric, counted: set[str]) -> dict[str, Any]:
    def value(split: Mapping[str, float]) -> float:
        return metric.factor * float(split[metric.name])

    max_len = int(record["settings"]["data.max_len"])
    lengths = {int(n): value(split) for n, split in record.get("lengths", {}).items()}
    if lengths:
        lengths.setdefault(max_len, value(record["test"]))
    beyond = [
        split["documents"]
        for n, split in record.get("lengths", {}).items()
        if int(n) > max_len and "documents" in split
    ]
    return {
        "data": record["data"],
        "fusion": record["fusion"],
        f"test_{metric.name}": value(record["test"]),
        f"validation_{metric.name}": value(record["validation"]),
        "best_evaluation": record["best_evaluation"],
        "evaluations": record["evaluations"],
        **{f"{at(metric)}{n}": result for n, result in lengths.items()},
        "max_len": max_len,
        "classes": len(record.get("label_names", [])),
        "test_documents": record["documents"]["test"],
        **({"beyond_documents": min(beyond)} if beyond else {}),
        "core_seconds": _seconds(record, counted) * record["host"]["threads"],
        "fingerprint": record["fingerprint"],
        "commit": record["commit"],
        "plan": record.get("plan"),
        "started": record.get("started"),
    }


def _seconds(record: Record, counted: set[str]) -> float:
    """The seconds of a run, plus those of its pretraining unless `counted` has it already."""
    seconds = float(sum(record["seconds"].values()))
    first = record.get("pretrain")
    if first and first["fingerprint"] not in counted:
        counted.add(first["fingerprint"])
        seconds += float(first["seconds"])
    return seconds
