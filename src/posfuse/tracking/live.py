"""Logs a run to W&B while it trains: offline by default, and to a server with WANDB_MODE=online.

A resumed run may repeat epochs since its last checkpoint. Online, rows after the server's last row
are new. Offline, a resumed run starts a new log with all epochs of its checkpoint and removes the
earlier log. So the run's folder has one log with each epoch once.
"""

import logging
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode

from posfuse.config import Config
from posfuse.errors import InputError
from posfuse.process import devices, environment, signals
from posfuse.runs import identity, records
from posfuse.runs.checks import task_of
from posfuse.runs.measurements import Diagnostic, LogRows, Rows
from posfuse.tracking import projection, server
from posfuse.tracking.projection import Cell, Finished

if TYPE_CHECKING:
    import wandb

# Without a limit W&B retries for hours at the end of a run if the server does not answer any more.
LIMIT: dict[str, Any] = {"finish_timeout": 600.0, "finish_timeout_raises": True}
_log = logging.getLogger(__name__)


@contextmanager
def track(cfg: Config, folder: Path) -> Iterator[LogRows | None]:
    """Track one run in W&B. Yields a function that logs the run's new epochs, or None with
    logger=none.

    The function takes all rows of the history, the diagnostics and the steps so far. When the block
    ends without an error, the finished run's charts, summary and files are logged from its folder.
    Raises InputError if W&B cannot start.
    """
    if cfg.logger.name == "none":
        yield None
        return
    # Before the block, because their errors are not W&B's.
    facts = records.identity(cfg, folder) | environment.origin(devices.device_of(cfg.trainer))
    facts |= identity.own_code(cfg) | {"started": records.now()}
    facts["task"] = {"metric": task_of(cfg).metric}
    run = start_run(cfg, folder, facts)
    live = Live(run, Cell.of(facts))
    if not run.offline and run.url:
        _log.info("W&B: %s", server.without_user(run.url))

    def complete(run: "wandb.Run") -> None:
        finished = Finished.read(folder, logger=cfg.logger)
        server.complete(run, finished, live.next_step)

    code = 1
    try:
        yield live.log_rows
        live.attempt(complete)
        code = 0
    except (KeyboardInterrupt, signals.Interrupted):
        live.attempt(lambda run: run.mark_preempting())
        code = signals.EXIT_STATUS
        raise
    finally:
        live.attempt(lambda run: run.finish(exit_code=code))


def is_of_agent() -> bool:
    """True if `wandb agent` has started this command for one run. The runs of a command with -m
    would all get the agent's id."""
    given = HydraConfig.initialized() and HydraConfig.get().mode == RunMode.RUN
    return given and "WANDB_SWEEP_ID" in os.environ


def start_run(cfg: Config, folder: Path, facts: records.Record) -> "wandb.Run":
    """Start the run in W&B. Raises InputError if W&B refuses."""
    of_agent = is_of_agent()
    server.prepare(Path(cfg.output_dir, cfg.sweep_id), of_agent)
    usual = "online" if of_agent else "offline"
    mode: Any = cfg.logger.mode or os.environ.setdefault("WANDB_MODE", usual)
    earlier = [*(folder / "wandb").glob("offline-run-*")]
    try:
        own = None if of_agent else projection.run_id(facts)
        settings = server.SETTINGS | LIMIT
        run = server.start(facts, cfg.logger, folder, own, settings, dir=folder, mode=mode)
    except Exception as error:  # W&B raises private types if its process was killed
        server.end_process()
        why = server.text_of(error)
        key = "WANDB_MODE" if why.startswith("mode: ") else "W&B"  # logger.mode was checked before
        raise InputError(  # logger.mode takes precedence over WANDB_MODE
            f"{key}: {why.removeprefix('mode: ')}; correct it, or set logger.mode=offline to train "
            "without a server, or logger=none to train without W&B"
        ) from error
    for log in earlier if run.offline else ():  # not before, because W&B may refuse to start
        shutil.rmtree(log)
    return run


class Live:
    """A run in W&B. If W&B fails, training continues, because the records contain everything."""

    def __init__(self, run: "wandb.Run", cell: Cell) -> None:
        self.run: wandb.Run | None = run
        self.cell = cell
        self.next_step = run.starting_step  # above the server's last row; 0 offline

    def log_rows(self, history: Rows, diagnostics: Sequence[Diagnostic], steps: Rows) -> None:
        def log(run: "wandb.Run") -> None:
            rows = projection.rows(self.cell, history, diagnostics, steps)
            self.next_step = server.log_rows(run, rows, self.next_step)

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
                server.text_of(error),
            )
            self.run = None
            server.end_process()
