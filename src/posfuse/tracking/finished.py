"""Builds W&B's content of a finished run from the files in the run's folder."""

from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from posfuse import seals, untrusted
from posfuse.errors import InputError, input_errors
from posfuse.runs import identity, measurements, records
from posfuse.runs.coverage import coverage_warning
from posfuse.runs.measurements import Diagnostic
from posfuse.tracking.projection import STEP, Cell, config, confusion_key, log_rows, rows

if TYPE_CHECKING:
    import wandb

GATES, CONFUSION = "mean gate by position (1: token alone)", "test documents"
COSTS = ("documents_per_second", "tokens_per_second", "peak_memory_bytes", "latency_ms")
ARTIFACTS = {  # the files of each of logger.artifacts; a run may lack some
    "result": (records.RESULT,),
    "predictions": (records.PREDICTIONS, records.BY_LENGTH),
    "model": (records.BEST,),
}


@dataclass(frozen=True)
class Finished:
    """A finished run's folder, its record and its rows."""

    folder: Path
    record: records.Record
    rows: list[dict[str, float]]
    diagnostics: list[Diagnostic]

    @classmethod
    def read(cls, folder: Path, record: records.Record | None = None) -> "Finished":
        """Read a finished run, with its record if that is not given. Raises InputError if a file is
        missing or differs from its digest."""
        record = record or records.read_placed(folder / records.RESULT)
        if not seals.is_whole(path := folder / records.PREDICTIONS):
            raise InputError(f"{path}: missing or damaged; {records.RUN_AGAIN}")
        history, steps = _read_rows(folder, records.HISTORY), []
        if (folder / records.STEPS).exists():
            steps = _read_rows(folder, records.STEPS)
        frame = measurements.read_table(folder / records.DIAGNOSTICS, Diagnostic)
        diagnostics = [Diagnostic(*row) for row in frame.itertuples(index=False, name=None)]
        # The diagnostics of the trained model are in the summary, as position/...
        inside = [row for row in diagnostics if not row.name.startswith("accuracy")]
        learning = rows(Cell.of(record), history, inside, steps)
        return cls(folder, record, learning, diagnostics)

    @property
    def last_step(self) -> int:
        """The `_step` of the charts, W&B's last row of the run."""
        return int(self.rows[-1][STEP]) + 1

    @property
    def summary(self) -> dict[str, Any]:
        """The values of the best evaluation, whose weights are tested, and the values of the last
        one as last/..."""
        cell = Cell.of(self.record)
        own = ("best_evaluation", "evaluations", "best_epoch", "epochs", "parameters", *COSTS)
        parts = {"val": "validation", "test": "test", "position": "position"}
        by_length = self.record.get("lengths", {}).items()
        warning = coverage_warning(identity.flatten(self.record))
        best = self.record.get("best_evaluation") or self.record["best_epoch"]  # of older records
        evaluations = [row for row in self.rows if "epoch" in row]
        return {
            **{f"last/{k}": v for k, v in self.rows[-1].items()},
            **evaluations[best - 1],
            **cell.score("val", self.record["validation"]),
            **cell.score("test", self.record["test"]),
            **cell.with_any_setting.score("test", self.record["test"]),
            **{
                f"{at}/{k}": v
                for at, part in parts.items()
                for k, v in self.record.get(part, {}).items()
            },
            **{f"length/{n}/{k}": v for n, part in by_length for k, v in part.items()},
            **{k: self.record[k] for k in own if k in self.record},  # older records lack two
            "seconds": sum(self.record["seconds"].values()),
            "mean_tokens": self.record["mean_tokens"]["train"],
            **({"warning": warning} if warning else {}),
        }


def _read_rows(folder: Path, name: str) -> list[dict[str, float]]:
    with input_errors(f"{folder / name}: not readable", records.RUN_AGAIN):
        table = measurements.read_history(folder, name)
        counts = table[[column for column in ("epoch", "step") if column in table]]
        if not np.isfinite(counts.to_numpy(float)).all():
            raise ValueError("has values that are not numbers")
    rows: list[Any] = table.to_dict("records")
    return rows


def artifact_name(kind: str, id_of_run: str) -> str:
    return f"{kind}-{id_of_run}"


def charts(finished: Finished) -> dict[str, Any]:
    """The diagnostics as a table, the gates by position (of an operator with gates), and the
    confusion matrix (of a classifier). Raises InputError if the predictions are damaged."""
    import wandb

    record, rows = finished.record, finished.diagnostics
    names: Any = [column.name for column in fields(Diagnostic)]
    media: dict[str, Any] = {"diagnostics_table": wandb.Table(names, [*map(astuple, rows)])}
    best = [row for row in rows if row.epoch == record["best_epoch"] and row.by == "position"]
    if gates := [[row.low, row.value] for row in best if row.name == "gate_mean"]:
        by_position = wandb.Table(["position", "gate"], gates)  # type: ignore[arg-type]
        media["gates"] = wandb.plot.line(by_position, "position", "gate", title=GATES)
    if record["task"]["predictions"] == measurements.CLASSES:
        path = finished.folder / records.PREDICTIONS
        with input_errors(f"{path}: not usable", records.RUN_AGAIN):
            classes = dict.fromkeys(("label", "predicted"), "a whole number")
            predictions = untrusted.read_parquet(path, classes)
            labels, predicted = (predictions[name].tolist() for name in classes)
            media[confusion_key(record["data"])] = wandb.plot.confusion_matrix(
                None, labels, predicted, record["label_names"], CONFUSION
            )
    return media


def complete(run: "wandb.Run", finished: Finished, next_step: int, artifacts: list[str]) -> None:
    """Log a finished run from `next_step` on, with its charts, config, summary and files. Raises
    InputError for a damaged file."""
    import wandb

    next_step = log_rows(run, finished.rows, next_step)
    if next_step <= finished.last_step:
        last = finished.rows[-1][STEP]
        run.log({STEP: last, **charts(finished)}, step=finished.last_step, commit=True)
    # A run may be resumed on another machine, or with another commit.
    run.config.update(config(finished.record), allow_val_change=True)  # type: ignore[no-untyped-call]
    run.summary.update(finished.summary)
    for kind in artifacts:
        artifact = wandb.Artifact(artifact_name(kind, run.id), kind)
        for path in (finished.folder / name for name in ARTIFACTS[kind]):
            if path.exists():
                with input_errors(f"{path}: cannot be uploaded", records.RUN_AGAIN):
                    seals.check_whole(path)
                artifact.add_file(str(path))
        run.log_artifact(artifact)
