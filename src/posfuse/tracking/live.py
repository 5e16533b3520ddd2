"""A run's epochs in W&B while it trains: offline by default, on a server with WANDB_MODE=online.

A resumed run may repeat epochs since its last checkpoint. Online, the server's last row decides
which rows are new. Offline, a resumed run starts a new log with all epochs of its checkpoint and
removes the earlier log, so the run's folder holds one log with each epoch once.
"""

import logging
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posfuse.config import Config
from posfuse.errors import InputError
from posfuse.process import signals
from posfuse.runs import records
from posfuse.runs.hydra_errors import one_line
from posfuse.runs.records import Diagnostic
from posfuse.tracking import projection
from posfuse.tracking.places import prepare
from posfuse.tracking.projection import Cell

if TYPE_CHECKING:
    import wandb

LogRows = Callable[[Sequence[dict[str, float]], Sequence[Diagnostic]], None]
_log = logging.getLogger(__name__)


@contextmanager
def track(cfg: Config, folder: Path) -> Iterator[LogRows | None]:
    """Track one run in W&B; yields a function that logs the run's new epochs, or None with
    logger=none.

    The function takes all rows of the history and of the diagnostics so far. When the block ends
    without an error, the finished run's charts, summary and record are logged from its folder.
    Raises InputError if W&B cannot start.
    """
    if cfg.logger.name == "none":
        yield None
        return
    identity = records.identity(cfg, folder)  # its errors are not W&B's
    live = Live(start_run(cfg, folder, identity), Cell.of(identity))
    code = 1
    try:
        yield live.log_rows
        finished = projection.Finished.read(folder)
        live.attempt(lambda run: projection.complete(run, finished, live.next_step))
        code = 0
    except (KeyboardInterrupt, signals.Interrupted):
        live.attempt(lambda run: run.mark_preempting())
        code = signals.EXIT_STATUS
        raise
    finally:
        live.attempt(lambda run: run.finish(exit_code=code))


def start_run(cfg: Config, folder: Path, identity: records.Record) -> "wandb.Run":
    """The run in W&B; raises InputError if W&B refuses to start it."""
    prepare(Path(cfg.output_dir, cfg.sweep_id))
    os.environ.setdefault("MPLCONFIGDIR", str(Path(cfg.cache_dir, "matplotlib").absolute()))
    mode: Any = os.environ.setdefault("WANDB_MODE", "offline")
    if mode == "offline":
        for earlier in (folder / "wandb").glob("offline-run-*"):
            shutil.rmtree(earlier)
    try:
        return projection.start(identity, cfg.logger, folder, mode=mode)
    except Exception as error:  # W&B raises private types if its process was killed
        projection.end_process()
        raise InputError(
            f"W&B: {one_line(error).rstrip('.') or type(error).__name__}; set WANDB_MODE=offline "
            "to train without a server, or logger=none to train without W&B"
        ) from error


class Live:
    """A run in W&B. If W&B fails, training continues, because the records hold everything."""

    def __init__(self, run: "wandb.Run", cell: Cell) -> None:
        self.run: wandb.Run | None = run
        self.cell = cell
        self.next_step = run.starting_step  # above the server's last row; 0 offline

    def log_rows(
        self, history: Sequence[dict[str, float]], diagnostics: Sequence[Diagnostic]
    ) -> None:
        def log(run: "wandb.Run") -> None:
            rows = projection.rows(self.cell, history, diagnostics)
            self.next_step = projection.log_rows(run, rows, self.next_step)

        self.attempt(log)

    def attempt(self, act: Callable[["wandb.Run"], None]) -> None:
        """Call W&B; if it fails, warn and stop tracking this run."""
        if self.run is None:
            return
        try:
            act(self.run)
        except Exception as error:  # noqa: BLE001 - private types if its process was killed
            _log.warning(
                "W&B failed (%s); the run continues without it; upload it later with posfuse sync",
                one_line(error) or type(error).__name__,
            )
            self.run = None
            projection.end_process()
