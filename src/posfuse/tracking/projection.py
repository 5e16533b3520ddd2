"""What W&B shows of a run, built from the run's records through W&B's public API.

Each evaluation is one row of W&B's history, its `_step` the number of training steps done. The
charts are one more row after the last one. W&B appends rows in the order of `_step` and never
rewrites one, so only rows with a larger `_step` than its last one are logged.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from posfuse import untrusted
from posfuse.config import LoggerConfig
from posfuse.errors import InputError, input_errors
from posfuse.runs import identity, measurements, records
from posfuse.runs.coverage import coverage_warning
from posfuse.runs.records import Diagnostic

if TYPE_CHECKING:  # wandb takes half a second to import, and runs with logger=none do not need it
    import wandb

STEP = "trainer/global_step"  # the axis of learning curves
LABELS = ("data", "encoding", "fusion", "seed", "sweep_id", "variant")


def run_id(identity: records.Record, suffix: str = "") -> str:
    """W&B's id of a run: its fingerprint and its place, since two sweeps may hold the same run."""
    place = f"{identity['sweep_id']}/{identity['variant']}"
    parts = [identity["fingerprint"], hashlib.sha256(place.encode()).hexdigest()[:8], suffix]
    return "-".join(part for part in parts if part)


def short_name(name: str, length: int) -> str:
    """A name of at most `length` characters; a hash keeps the shortened ones apart."""
    if len(name) <= length:
        return name
    return f"{name[: length - 9]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def variant(name: str) -> str:
    """A variant's name in W&B's config. The filters of wandb-workspaces double each "="."""
    return name.replace("=", ":")


@dataclass(frozen=True)
class Cell:
    """A corpus, an encoding and a variant, within which operators are compared."""

    data: str
    encoding: str
    variant: str

    @classmethod
    def of(cls, identity: records.Record) -> "Cell":
        return cls(*(identity[axis] for axis in ("data", "encoding", "variant")))

    @property
    def setting(self) -> str:
        """What differs between the cells of a corpus."""
        return " ".join(filter(None, (self.encoding, self.variant.replace("__", " "))))

    def key(self, split: str, metric: str) -> str:
        """The name in W&B of a score that only runs of this cell have."""
        parts = (self.data, self.encoding, self.variant, f"{split}_{metric}")
        return "/".join(re.sub(r"[^\w-]", "_", part) for part in parts if part)

    def judged(self, split: str, scores: Mapping[str, float]) -> dict[str, float]:
        """The score by which a run is judged, under its name."""
        metric = records.judged_by(scores)
        return {self.key(split, metric): scores[metric]} if metric in scores else {}


def config(identity: records.Record) -> dict[str, Any]:
    """The run's settings with its labels in place of data.name, encoding.name and so on."""
    labels = {key: identity[key] for key in LABELS}
    settings = {k: v for k, v in identity["settings"].items() if k not in labels}
    return {**settings, **labels, "variant": variant(identity["variant"])}


def start(
    identity: records.Record,
    logger: LoggerConfig,
    folder: Path,
    suffix: str = "",
    settings: Mapping[str, Any] | None = None,
    **more: Any,
) -> "wandb.Run":
    """Start the run in W&B, or resume it where the server has it.

    W&B's own files are written to `folder`. It must not read the Git checkout: it would send
    uncommitted changes, and a token in the remote's address.
    """
    import wandb

    parts = [identity[part] for part in ("data", "encoding", "fusion")]
    cell = "/".join(filter(None, [*parts, identity["variant"]]))
    return wandb.init(
        project=logger.project,
        group=short_name(cell, 128),
        name=short_name(f"{cell}/{identity['seed']}", 128),
        tags=[short_name(tag, 64) for tag in (identity["sweep_id"], *parts, *logger.tags)],
        config=config(identity),
        id=run_id(identity, suffix),
        resume="allow",
        dir=folder,
        settings=wandb.Settings(
            disable_git=True,
            x_save_requirements=False,
            sagemaker_disable=True,  # SageMaker would give the run another id
            **(settings or {}),
        ),
        **more,
    )


def end_process() -> None:
    """End W&B's process after a failure, so that the next run starts a new one."""
    import wandb

    with suppress(Exception, SystemExit):  # it raises SystemExit where its process was killed
        wandb.teardown()


def rows(
    cell: Cell, history: Iterable[Mapping[str, float]], diagnostics: Iterable[Diagnostic]
) -> list[dict[str, float]]:
    """A row per evaluation: the learning curve, the metric by which the run is judged also under
    the name of its cell, and at the end of an epoch what position does inside the model."""
    inside: dict[int, dict[str, float]] = {}
    for row in diagnostics:
        name = f"diagnostics/{row.name}" + (f"_{row.by}_{row.low}" if row.by else "")
        inside.setdefault(row.epoch, {})[name] = row.value
    curves = []
    evaluations = list(history)
    ends = {int(at["epoch"]): int(at["step"]) for at in evaluations}  # the last of each epoch
    for at in evaluations:
        epoch, step = int(at["epoch"]), int(at["step"])
        curve = {k.replace("_", "/", 1): v for k, v in at.items() if k != "step"}
        measured = inside.get(epoch, {}) if step == ends[epoch] else {}
        own = cell.judged("val", {k.removeprefix("val/"): v for k, v in curve.items()})
        curves.append({STEP: step, **curve, **own, **measured})
    return curves


def mechanism(folder: Path) -> dict[str, float]:
    """The measurements of a finished run, without those by distance, by name and layer."""
    values = {}
    for row in measurements.read(folder).to_dict("records"):
        if row["name"] not in measurements.BY_DISTANCE:
            layer = "" if row["layer"] == measurements.WHOLE else f"_layer_{row['layer']}"
            values[f"{row['name']}{layer}"] = row["value"]
    return values


def log_rows(run: "wandb.Run", rows: Iterable[dict[str, float]], next_step: int) -> int:
    """Log the rows from `next_step` on; returns the first step that may be logged after them."""
    for row in rows:
        if row[STEP] >= next_step:
            run.log(row, step=int(row[STEP]), commit=True)
            next_step = int(row[STEP]) + 1
    return next_step


@dataclass(frozen=True)
class Finished:
    """A finished run's folder, its record and its rows."""

    folder: Path
    record: records.Record
    rows: list[dict[str, float]]
    diagnostics: list[Diagnostic]
    mechanism: dict[str, float] = field(default_factory=dict)  # without those by distance

    @classmethod
    def read(cls, folder: Path) -> "Finished":
        """Raises InputError where a file of the run is missing or differs from its digest."""
        record = records.read_result(folder / records.RESULT)
        for name in (records.HISTORY, records.DIAGNOSTICS, records.PREDICTIONS):
            if not records.is_whole(path := folder / name):
                raise InputError(f"{path}: missing or damaged; {records.RUN_AGAIN}")
        history = _history(folder / records.HISTORY)
        frame = records.read_diagnostics(folder)
        diagnostics = [Diagnostic(*row) for row in frame.itertuples(index=False, name=None)]
        # Those of the trained model are in the summary, as position/...
        inside = [row for row in diagnostics if not row.name.startswith("accuracy")]
        learning = rows(Cell.of(record), history.to_dict("records"), inside)  # type: ignore[arg-type]
        return cls(folder, record, learning, diagnostics, mechanism(folder))

    @property
    def last_step(self) -> int:
        """The `_step` of the charts, W&B's last row of the run."""
        return int(self.rows[-1][STEP]) + 1

    @property
    def summary(self) -> dict[str, Any]:
        """The last evaluation's values, and the record's over those of the same name."""
        own = ("best_evaluation", "evaluations", "best_epoch", "epochs", "parameters", "latency_ms")
        parts = {"val": "validation", "test": "test", "position": "position"}
        by_length = self.record.get("lengths", {}).items()
        warning = coverage_warning(identity.flatten(self.record))
        return {
            **self.rows[-1],
            **Cell.of(self.record).judged("val", self.record["validation"]),
            **Cell.of(self.record).judged("test", self.record["test"]),
            **{
                f"{at}/{k}": v
                for at, part in parts.items()
                for k, v in self.record.get(part, {}).items()
            },
            **{f"length/{n}/{k}": v for n, part in by_length for k, v in part.items()},
            **{f"mechanism/{name}": value for name, value in self.mechanism.items()},
            **{k: self.record[k] for k in own if k in self.record},  # older ones lack two
            **({"warning": warning} if warning else {}),
        }


def _history(path: Path) -> pd.DataFrame:
    with input_errors(f"{path}: not readable", records.RUN_AGAIN):
        history = records.read_history(path.parent)
        if not np.isfinite(history[["epoch", "step"]].to_numpy(float)).all():
            raise ValueError("has values that are not numbers")
    return history


def artifact_name(id_of_run: str) -> str:
    return f"result-{id_of_run}"


def complete(run: "wandb.Run", finished: Finished, next_step: int) -> None:
    """Log what a finished run has from `next_step` on, its charts, summary and result.json."""
    import wandb

    from posfuse.tracking.gate_plot import gate_plot  # imports matplotlib, which takes a second

    record = finished.record
    next_step = log_rows(run, finished.rows, next_step)
    if next_step <= finished.last_step:
        charts: dict[str, Any] = {}
        classes = dict.fromkeys(("label", "predicted"), "a whole number")
        path = finished.folder / records.PREDICTIONS
        predictions = untrusted.read_parquet(path, {}, classes)
        if "predicted" in predictions:  # of a classifier
            labels, predicted = (predictions[name].tolist() for name in ("label", "predicted"))
            charts["confusion_matrix"] = wandb.plot.confusion_matrix(
                None, labels, predicted, record["label_names"], "Test documents"
            )
        if image := gate_plot(finished.diagnostics, record["best_epoch"]):
            charts["gate"] = wandb.Image(image)
        last = finished.rows[-1][STEP]
        run.log({STEP: last, **charts}, step=finished.last_step, commit=True)
    run.config["commit"] = record["commit"]
    run.summary.update(finished.summary)
    artifact = wandb.Artifact(artifact_name(run.id), "result")
    artifact.add_file(str(finished.folder / records.RESULT))
    run.log_artifact(artifact)
