"""Shows a run in W&B through its public API: its id, name, config and rows.

A row of W&B's history is an evaluation or a row of `steps.csv`. Its `_step` is the number of
training steps done. Tables and charts are one more row at the end. W&B appends rows in the order of
`_step` and cannot change a row, so only rows after its last `_step` are logged.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posfuse.config import LoggerConfig
from posfuse.runs import records
from posfuse.runs.folders import AXES, other_overrides
from posfuse.runs.measurements import Diagnostic
from posfuse.runs.multirun import Multirun, sweep_of
from posfuse.tracking.places import project_of

if TYPE_CHECKING:  # wandb takes half a second to import, and runs with logger=none do not need it
    import wandb

STEP = "trainer/global_step"  # the axis of learning curves
ANY_SETTING = "any_setting"  # the variant in the name of a score of all variants
LABELS = (*AXES, "seed", "sweep_id", "variant")
# W&B must not send uncommitted changes, or a token in the address of a Git remote.
SETTINGS: dict[str, Any] = {
    "disable_git": True,
    "x_save_requirements": False,
    "sagemaker_disable": True,  # SageMaker would give the run another id
}
# Of a finished run: the machine and the output of this process are not the run's.
AFTERWARDS = {**SETTINGS, "x_disable_stats": True, "console": "off"}


def run_id(identity: records.Record, suffix: str = "") -> str:
    """W&B's id of a run, from its fingerprint, the code of the user's operator, and its place,
    because two sweeps may have the same run."""
    place = f"{identity['sweep_id']}/{identity['variant']}{identity.get('code', '')}"
    parts = [identity["fingerprint"], short_digest(place), suffix]
    return "-".join(part for part in parts if part)


def short_digest(text: str) -> str:
    """The first 8 hex digits of the SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def short_name(name: str, length: int) -> str:
    """A name of at most `length` characters. A digest makes shortened names unique."""
    if len(name) <= length:
        return name
    return f"{name[: length - 9]}-{short_digest(name)}"


def variant(name: str) -> str:
    """A variant's name in W&B's config. The filters of wandb-workspaces double each "="."""
    return name.replace("=", ":")


@dataclass(frozen=True)
class Cell:
    """A corpus, an encoding and a variant, within which operators are compared."""

    data: str
    encoding: str
    variant: str
    metric: str  # of its task

    @classmethod
    def of(cls, identity: records.Record) -> "Cell":
        own = {axis: identity[axis] for axis in ("data", "encoding", "variant")}
        return cls(**own, metric=identity["task"]["metric"])

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
    return {**settings, **keys, **labels, "variant": variant(identity["variant"])}


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


def start(
    identity: records.Record,
    logger: LoggerConfig,
    folder: Path,
    id_of_run: str | None,
    settings: Mapping[str, Any] = SETTINGS,
    **more: Any,
) -> "wandb.Run":
    """Start the run in W&B, or resume it if the server has it. Without an id W&B uses the id of its
    agent. `more` has the mode, and `dir`, the folder for W&B's files."""
    import wandb

    names = [identity[axis] for axis in AXES]
    cell = "/".join(filter(None, [*names, identity["variant"]]))
    run = wandb.init(
        project=project_of(logger),
        entity=logger.entity,
        group=short_name(cell, 128),
        job_type=logger.job_type,
        name=display_name(identity, folder),
        notes=logger.notes or None,
        tags=[short_name(tag, 64) for tag in (identity["sweep_id"], *names, *logger.tags)],
        config=config(identity),
        id=id_of_run,
        resume="allow" if id_of_run else None,
        settings=wandb.Settings(**settings),
        **more,
    )
    # Otherwise W&B would put the last value of every metric into the summary, which has the best
    # evaluation. An evaluation within an epoch has no diagnostics.
    for metrics in ("diagnostics/*", "step/*"):
        run.define_metric(metrics, summary="none")
    return run


def end_process() -> None:
    """End W&B's process after a failure, so that the next run starts a new one."""
    import wandb

    with suppress(Exception, SystemExit):  # it raises SystemExit if its process was killed
        wandb.teardown()


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


def log_rows(run: "wandb.Run", rows: Iterable[dict[str, float]], next_step: int) -> int:
    """Log the rows from `next_step` on. Returns the first step that may be logged after them."""
    for row in rows:
        if row[STEP] >= next_step:
            run.log(row, step=int(row[STEP]), commit=True)
            next_step = int(row[STEP]) + 1
    return next_step
