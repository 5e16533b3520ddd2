"""The same numbers to Weights & Biases, offline unless WANDB_MODE says otherwise.

Each epoch is one row, its `_step` the number of training steps done. Lightning's own logger counts
rows instead, so after a resume it logs the epochs since the checkpoint a second time.
"""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lightning as L
from lightning.pytorch.callbacks import Callback

from posfuse.config import Config
from posfuse.errors import InputError, TrainingError
from posfuse.process import signals
from posfuse.process.signals import Interrupted
from posfuse.runs import records
from posfuse.runs.hydra_errors import one_line
from posfuse.runs.records import STEP
from posfuse.training.diagnostics import Diagnostics
from posfuse.training.history import History

if TYPE_CHECKING:
    import wandb

MODES = ("offline", "online", "shared", "disabled", "dryrun", "run")  # of WANDB_MODE


class Tracker(Callback):
    """Logs every epoch that `history` and `diagnostics` hold once, and at the end the result.

    `held` are the steps of the rows that W&B has from before a resume: those are not logged again,
    and those that were lost, since W&B writes a moment later than it is told, are.
    """

    def __init__(
        self, run: "wandb.Run", held: set[int], history: History, diagnostics: Diagnostics
    ) -> None:
        self.run, self.held = run, held
        self.history, self.diagnostics = history, diagnostics
        run.define_metric(STEP)
        run.define_metric("*", step_metric=STEP, step_sync=True)

    def on_train_start(self, trainer: L.Trainer, module: Any) -> None:
        """W&B's summary of a resumed run begins empty, and in the end the last one counts."""
        if self.history.rows:
            steps = int(trainer.num_training_batches)
            self.run.summary.update(self._row(len(self.history.rows), steps))

    def on_train_epoch_end(self, trainer: L.Trainer, module: Any) -> None:
        self.log_epochs(int(trainer.num_training_batches))

    def log_epochs(self, steps: int) -> None:
        """The rows of all epochs so far, of so many training steps each."""
        for epoch in range(1, len(self.history.rows) + 1):
            if epoch * steps not in self.held:
                self._log(epoch * steps, self._row(epoch, steps))

    def log_result(
        self, record: records.Record, predictions: list[dict[str, Any]], steps: int
    ) -> None:
        """The whole summary, and what is no number: gates, confusion matrix, record."""
        import wandb

        from posfuse.tracking.gate_plot import gate_plot

        self.log_epochs(steps)
        epochs = len(self.history.rows)
        labels, predicted = (
            [int(x) for batch in predictions for x in batch[k]] for k in ("label", "predicted")
        )
        names = record["label_names"]
        matrix = wandb.plot.confusion_matrix(None, labels, predicted, names, "Test documents")
        image = gate_plot(self.diagnostics.rows, record["best_epoch"])
        gate = {"gate": wandb.Image(image)} if image else {}
        after = epochs * steps + 1  # a row of its own, behind the last epoch's
        if after in self.held:
            self.run.summary.update({"confusion_matrix_table": matrix.table, **gate})
        else:
            self._log(after, {STEP: epochs * steps, "confusion_matrix": matrix, **gate})
        self.run.summary.update(
            {
                **self._row(epochs, steps),
                **{f"val/{name}": value for name, value in record["validation"].items()},
                **{f"test/{name}": value for name, value in record["test"].items()},
                **{f"position/{name}": value for name, value in record["position"].items()},
                **{k: record[k] for k in ("best_epoch", "epochs", "parameters", "latency_ms")},
            }
        )
        artifact = wandb.Artifact(f"result-{self.run.id}", "result")
        with artifact.new_file(records.RESULT) as file:
            file.write(records.as_json(record))
        self.run.log_artifact(artifact)

    def _row(self, epoch: int, steps: int) -> dict[str, float]:
        curve = {k.replace("_", "/", 1): v for k, v in self.history.rows[epoch - 1].items()}
        of_epoch = [row for row in self.diagnostics.rows if row.epoch == epoch]
        values = {
            f"diagnostics/{row.name}" + (f"_{row.by}_{row.low}" if row.by else ""): row.value
            for row in of_epoch
        }
        return {STEP: epoch * steps, **curve, **values}

    def _log(self, step: int, row: dict[str, Any]) -> None:
        self.run.log(row, step=step, commit=True)
        self.held.add(step)


def run_id(identity: records.Record) -> str:
    """Of the fingerprint, and of the place: two sweeps may hold one and the same run."""
    place = f"{identity['sweep_id']}/{identity['variant']}"
    return f"{identity['fingerprint']}-{hashlib.sha256(place.encode()).hexdigest()[:8]}"


def fitting(name: str, length: int) -> str:
    """A name as long as W&B takes it; of what is longer a hash keeps the rest apart."""
    if len(name) <= length:
        return name
    return f"{name[: length - 9]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def checkout() -> dict[str, Any]:
    """W&B's settings for the commit and the remote that it would find by itself, so that it sends
    neither what was changed since nor a token in the remote's address."""
    import wandb
    from wandb.sdk.lib.gitlib import GitRepo

    from posfuse.tracking.server import without_user

    if wandb.setup().settings.disable_git:
        return {}
    found = GitRepo()
    remote = without_user(found.remote_url or "") or None
    return {"disable_git": True, "git_commit": found.last_commit, "git_remote_url": remote}


@contextmanager
def tracker(
    cfg: Config, folder: Path, history: History, diagnostics: Diagnostics
) -> Iterator[Tracker | None]:
    """The run's W&B, finished in all cases; None with logger=none.

    What W&B writes lies in the run's folder, the rest of it in the sweep's. The run's id is a
    function of what is run, so an interrupted run goes on where it stopped.
    """
    if cfg.logger.name == "none":
        yield None
        return
    import wandb

    from posfuse.tracking.logs import keep_files_in, read, segments

    keep_files_in(Path(cfg.output_dir, cfg.sweep_id))
    os.environ.setdefault("MPLCONFIGDIR", str(Path(cfg.cache_dir, "matplotlib").absolute()))
    os.environ.setdefault("WANDB_SILENT", "true")
    if not os.environ.get("WANDB_MODE"):
        os.environ["WANDB_MODE"] = "offline"  # W&B refuses an empty one
    mode: Any = os.environ["WANDB_MODE"]
    if mode not in MODES:
        raise InputError(
            f"WANDB_MODE={mode} is none of {', '.join(MODES)}; WANDB_MODE=offline needs no server, "
            "logger=none no W&B"
        )
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # else an offline run sends telemetry
    identity = records.identity(cfg, folder)
    labels = {k: identity[k] for k in ("data", "encoding", "fusion", "seed", "sweep_id", "variant")}
    parts = [labels[part] for part in ("data", "encoding", "fusion")]
    cell = "/".join([*parts, labels["variant"]] if labels["variant"] else parts)
    own = run_id(identity)
    earlier = [part for log in segments(folder) if (part := read(log)).run_id == own]
    with _service():
        try:
            run = wandb.init(
                project=cfg.logger.project,
                group=fitting(cell, 128),
                name=fitting(f"{cell}/{labels['seed']}", 128),
                tags=[fitting(tag, 64) for tag in (cfg.sweep_id, *parts, *cfg.logger.tags)],
                config={
                    **{k: v for k, v in identity["settings"].items() if k not in labels},
                    **labels,
                },
                id=own,
                resume="allow",
                dir=folder,
                mode=mode,
                reinit="finish_previous",
                settings=wandb.Settings(
                    x_save_requirements=False, x_transaction_log_flush_interval=0.25, **checkout()
                ),
            )
        except (wandb.Error, ValueError) as error:  # the latter of its settings' types
            raise InputError(
                f"W&B: {one_line(error)}; WANDB_MODE=offline needs no server, logger=none no W&B"
            ) from error
        # The server says itself what it has, and what was logged offline before it has not.
        offline = {row["_step"] for part in earlier for row in part.rows}
        held = offline if run.offline else set(range(run.starting_step))
        code = 1
        try:
            yield Tracker(run, held, history, diagnostics)
            code = 0
        except Interrupted:
            run.mark_preempting()
            code = signals.EXIT_STATUS
            raise
        finally:
            run.finish(exit_code=code)


@contextmanager
def _service() -> Iterator[None]:
    """Where the process ends that writes for W&B, this run fails with a word for it, and the next
    one gets a new one."""
    import wandb
    from wandb.sdk.mailbox import HandleAbandonedError, MailboxClosedError

    lost = (ConnectionResetError, HandleAbandonedError, MailboxClosedError)
    try:
        yield
    except lost as error:
        with suppress(*lost, SystemExit):  # which it raises for the process's status
            wandb.teardown()
        raise TrainingError(
            "W&B: its own process, wandb-core, was killed, and memory may have run out; run again "
            "to go on from the last checkpoint, with logger=none for no W&B"
        ) from error
