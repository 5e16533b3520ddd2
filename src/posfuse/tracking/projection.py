"""What W&B shows of a run, from its record and files: its id, name, config, rows, summary, charts.

A row of W&B's history is an evaluation or a row of `steps.csv`. Its `_step` is the number of
training steps done. Tables and charts are one more row at the end.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from posfuse import seals, untrusted
from posfuse.config import LoggerConfig
from posfuse.errors import InputError, input_errors
from posfuse.runs import configs, measurements, records
from posfuse.runs.coverage import coverage_warning
from posfuse.runs.folders import AXES, other_overrides
from posfuse.runs.identity import flatten
from posfuse.runs.measurements import Diagnostic
from posfuse.runs.multirun import Multirun, sweep_of

STEP = "trainer/global_step"  # the axis of learning curves
ANY_SETTING = "any_setting"  # the variant in the name of a score of all variants
LABELS = (*AXES, "seed", "sweep_id", "variant")
GATES, CONFUSION = "mean gate by position (1: token alone)", "test documents"
COSTS = ("documents_per_second", "tokens_per_second", "peak_memory_bytes", "latency_ms")


def run_id(identity: records.Record, suffix: str = "") -> str:
    """W&B's id of a run, from its fingerprint, the code of the user's operator, and its place,
    because two sweeps may have the same run."""
    place = f"{identity['sweep_id']}/{identity['variant']}{identity.get('code', '')}"
    parts = [identity["fingerprint"], seals.short_digest(place), suffix]
    return "-".join(part for part in parts if part)


def short_name(name: str, length: int) -> str:
    """A name of at most `length` characters. A digest makes shortened names unique."""
    if len(name) <= length:
        return name
    return f"{name[: length - 9]}-{seals.short_digest(name)}"


@dataclass(frozen=True)
class Cell:
    """A corpus, an encoding and a variant, within which operators are compared."""

    data: str
    encoding: str
    variant: str
    metric: str  # of its task

    @classmethod
    def of(cls, identity: records.Record) -> "Cell":
        data, encoding, metric = identity["data"], identity["encoding"], identity["task"]["metric"]
        return cls(data, encoding, identity["variant"], metric)

    @property
    def with_any_setting(self) -> "Cell":
        """The cell's corpus and encoding with all variants. Its score has a name of its own."""
        return replace(self, variant=ANY_SETTING)

    @property
    def setting(self) -> str:
        """The settings that differ between the cells of a corpus."""
        return " ".join(filter(None, (self.encoding, self.variant.replace("__", " "))))

    def key(self, split: str) -> str:
        """The name in W&B of a split's score, which only runs of this cell have."""
        parts = (self.data, self.encoding, self.variant, f"{split}_{self.metric}")
        return "/".join(plain(part) for part in parts if part)

    def score(self, split: str, scores: Mapping[str, float]) -> dict[str, float]:
        """The score of a run by its task's metric, with the metric's name."""
        score = scores.get(self.metric)
        return {} if score is None else {self.key(split): score}


def plain(name: str) -> str:
    """A name for a key of W&B."""
    return re.sub(r"[^\w-]", "_", name)


def confusion_key(data: str) -> str:
    """The name in W&B of the confusion matrix of a corpus. A chart adds up the tables of one name,
    so each corpus has a name."""
    return f"confusion_matrix_{plain(data)}"


def config(identity: records.Record) -> dict[str, Any]:
    """The run's settings, with labels in place of data.name, encoding.name and so on, and its
    commit, machine and start. Labels have no dot, because panels may not find a key with a dot."""
    labels = {key: identity[key] for key in LABELS}
    settings = {k: v for k, v in identity["settings"].items() if k not in labels}
    host = identity.get("host", {})
    keys = {"lr": settings.get("optim.lr"), "token_scale": settings.get("model.token_scale")}
    keys |= {"host": host.get("name"), "device": host.get("device")}
    keys |= {key: identity.get(key) for key in ("commit", "code", "started")}
    # A filter of wandb-workspaces doubles each "=".
    return {**settings, **keys, **labels, "variant": identity["variant"].replace("=", ":")}


def display_name(identity: records.Record, folder: Path) -> str:
    """The settings that vary in the run's sweep, and the seed: "gate_scalar token_scale=1 s0"."""
    names = [identity[axis] for axis in AXES]
    varied, same = list(filter(None, identity["variant"].split("__"))), set()
    sweep, place = sweep_of(folder) or (Multirun(), "")
    if place in sweep.folders:
        own = sweep.overrides[sweep.folders.index(place)]
        varied = [o.lstrip("+~") for o in other_overrides(own) if o not in sweep.common]
        cells = (set(path.split("/")[: len(AXES)]) for path in sweep.folders)
        same = set.intersection(*cells) - {identity["fusion"]}
    keys = [override.partition("=") for override in varied]
    short = [f"{key.rpartition('.')[2]}{equals}{value}" for key, equals, value in keys]
    shown = [name for name in names if name not in same]
    return short_name(" ".join([*shown, *short, f"s{identity['seed']}"]), 128)


def rows(
    cell: Cell,
    history: Iterable[Mapping[str, float]],
    diagnostics: Iterable[Diagnostic],
    steps: Iterable[Mapping[str, float]] = (),
) -> list[dict[str, float]]:
    """A row per evaluation and per row of `steps`, in order. An evaluation has the learning curve,
    the task's metric also under the name of its cell, and at the end of an epoch the diagnostics
    over all tokens. Diagnostics by position or frequency are in a table."""
    inside: dict[int, dict[str, float]] = {}
    for row in diagnostics:
        if row.by in ("", "layer"):
            name = f"diagnostics/{row.name}" + (f"_{row.by}_{row.low}" if row.by else "")
            inside.setdefault(row.epoch, {})[name] = row.value
    by_step: dict[int, dict[str, float]] = {}
    for at in steps:
        step = int(at["step"])
        by_step[step] = {STEP: step, "step/loss": at["train_loss"], "step/lr": at["lr"]}
    evaluations = list(history)
    ends = {int(at["epoch"]): int(at["step"]) for at in evaluations}  # the last of each epoch
    for at in evaluations:
        epoch, step = int(at["epoch"]), int(at["step"])
        curve = {k.replace("_", "/", 1): v for k, v in at.items() if k != "step"}
        measured = inside.get(epoch, {}) if step == ends[epoch] else {}
        own = cell.score("val", {k.removeprefix("val/"): v for k, v in curve.items()})
        by_step[step] = {STEP: step, **curve, **own, **measured, **by_step.get(step, {})}
    return [by_step[step] for step in sorted(by_step)]


@dataclass(frozen=True)
class Finished:
    """A finished run: its folder, its id in W&B, and what its files contain."""

    folder: Path
    id: str
    record: records.Record
    logger: LoggerConfig
    rows: list[dict[str, float]]
    diagnostics: list[Diagnostic]

    @classmethod
    def read(cls, folder: Path, suffix: str = "", logger: LoggerConfig | None = None) -> "Finished":
        """Read a finished run. `suffix` is added to its id. Without `logger` its config.yaml is
        read. Raises InputError if a file is missing or differs from its digest."""
        record = records.read_placed(folder / records.RESULT)
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
        logger = logger or configs.read_config(folder).logger
        return cls(folder, run_id(record, suffix), record, logger, learning, diagnostics)

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
        warning = coverage_warning(flatten(self.record))
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


def _read_rows(folder: Path, name: str) -> list[dict[str, float]]:
    with input_errors(f"{folder / name}: not readable", records.RUN_AGAIN):
        table = measurements.read_history(folder, name)
        counts = table[[column for column in ("epoch", "step") if column in table]]
        if not np.isfinite(counts.to_numpy(float)).all():
            raise ValueError("has values that are not numbers")
    rows: list[Any] = table.to_dict("records")
    return rows
