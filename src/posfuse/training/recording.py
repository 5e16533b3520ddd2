"""Writes the files of a trained and tested run: its tables, and its record last."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import lightning as L
import pandas as pd

from posfuse.errors import TrainingError
from posfuse.process import signals
from posfuse.runs import measurements, records
from posfuse.runs.measurements import Diagnostic, Measurement
from posfuse.runs.records import Record
from posfuse.training.module import TrainingModule
from posfuse.training.observers import Diagnostics, History


class Tested(NamedTuple):
    """The results of a test split."""

    metrics: dict[str, float]
    predictions: pd.DataFrame
    latency_ms: float
    measurements: list[Measurement]


def record(
    folder: Path,
    facts: Record,
    trainer: L.Trainer,
    module: TrainingModule,
    history: History,
    diagnostics: Diagnostics,
    tested: dict[str, Tested],
) -> Record:
    """Write the files of a trained and tested run, the record last. Returns the record.

    `facts` are the record's entries about its identity, its data and its costs. Raises
    TrainingError if a metric is not a finite number.
    """
    check_finite({"validation": history.validation()} | {k: t.metrics for k, t in tested.items()})
    epoch, turns = history.evaluations.epoch, trainer.current_epoch
    test, best_epoch = tested["test"], epoch(history.best)
    predictions = measurements.predictions_of(test.predictions, facts["label_names"])
    content = {
        **facts,
        "task": facts["task"] | {"predictions": predictions},
        "started": history.started,
        "test": test.metrics,
        "validation": history.validation(),
        "best_evaluation": history.best + 1,
        "evaluations": turns,
        "best_epoch": best_epoch,
        "epochs": epoch(turns - 1),  # early stopping may leave the last epoch incomplete
        "parameters": sum(p.numel() for p in module.parameters()),
        "fusion_parameters": sum(p.numel() for p in module.model.fusion.parameters()),
        "latency_ms": test.latency_ms,
    }
    all_diagnostics = [*diagnostics.rows, *diagnostics.worth_rows(best_epoch)]
    tables = {
        records.HISTORY: pd.DataFrame(history.rows),
        records.DIAGNOSTICS: measurements.table_of(Diagnostic, all_diagnostics),
        records.PREDICTIONS: test.predictions,
    }
    if history.steps:
        tables[records.STEPS] = pd.DataFrame(history.steps)
    if diagnostics.worth:
        content["position"] = diagnostics.worth
    if diagnostics.measurements:
        content["mechanism"] = {"documents": diagnostics.measured_documents}
    if every := [*test.measurements, *diagnostics.measurements]:
        tables[records.MECHANISM] = measurements.table_of(Measurement, every)
    by_length = []
    for split, of_split in tested.items():
        kind, _, length = split.partition("@")
        if length and kind == "test":
            documents = {"documents": len(of_split.predictions)}
            content.setdefault("lengths", {})[length] = of_split.metrics | documents
            by_length.append(of_split.predictions.assign(test_length=int(length)))
        elif length:
            content.setdefault(kind, {})[length] = of_split.metrics
    if by_length:
        tables[records.BY_LENGTH] = pd.concat(by_length)
    for name in {*records.SOMETIMES} - {*tables}:  # of an earlier run in this folder
        (folder / name).unlink(missing_ok=True)
    for name, table in tables.items():
        measurements.write_table(folder / name, table)
    signals.check(f"; saved at step {trainer.global_step}")  # a signal since the last batch
    records.write_result(folder, content)
    for name in (records.LAST, records.PROGRESS):  # a finished run needs neither
        (folder / name).unlink(missing_ok=True)
    return content


def check_finite(metrics: Mapping[str, Mapping[str, float]]) -> None:
    """Raise TrainingError for a metric of a split that is NaN or infinite. A record has none."""
    for split, own in metrics.items():
        for name, value in own.items():
            if not math.isfinite(value):
                raise TrainingError(
                    f"{split}: {name} is {value}; let the task's metric give a finite number"
                )
