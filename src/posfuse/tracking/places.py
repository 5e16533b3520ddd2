"""Sets and removes W&B's environment variables, and names the project."""

import logging
import os
from pathlib import Path

from posfuse.config import LoggerConfig

# Without these W&B writes into the home or the current directory. WANDB_CONFIG_DIR is not set,
# because `wandb login` stores the server's address there.
PLACES = ("WANDB_DATA_DIR", "WANDB_CACHE_DIR", "WANDB_DIR")
# `wandb agent` or a shell sets them. With them all runs of a process would have one id.
IDENTITY = (
    "WANDB_RUN_ID", "WANDB_SWEEP_ID", "WANDB_SWEEP_PARAM_PATH", "WANDB_LAUNCH", "WANDB_RESUME",
    "WANDB_RESUME_FROM", "WANDB_FORK_FROM",
)  # fmt: skip
# Attributes of a run that posfuse sets. W&B would ignore these variables without a warning.
ATTRIBUTES = ("WANDB_NAME", "WANDB_RUN_GROUP", "WANDB_JOB_TYPE", "WANDB_TAGS")
_log = logging.getLogger(__name__)
_set: dict[str, str] = {}  # set by `prepare`; the next sweep of the process may change them


def prepare(sweep: Path, of_agent: bool = False) -> None:
    """Set W&B's environment variables, except variables that the user has set. W&B's files go to
    the sweep's folder, and it prints nothing and sends no error reports. Variables that would give
    a run another id are removed, with a warning, unless the run is one of W&B's agent. Variables
    with a run's name, group, job type and tags are removed too, because posfuse sets these."""
    if not of_agent:
        _ignore(IDENTITY, "a run's id in W&B follows from its config and its sweep")
    _ignore(
        ATTRIBUTES,
        "a run's name and group follow from its config; for the others use "
        "logger.job_type and logger.tags",
    )
    for variable in PLACES:
        if os.environ.get(variable) in (None, _set.get(variable)):
            os.environ[variable] = _set[variable] = str(sweep.resolve() / ".wandb")
    os.environ.setdefault("WANDB_SILENT", "true")
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # otherwise offline runs send them too
    if os.environ.get("WANDB_MODE") == "":
        del os.environ["WANDB_MODE"]  # W&B refuses an empty value


def _ignore(names: tuple[str, ...], why: str) -> None:
    """Remove these variables, with a warning if any is set."""
    if ignored := [name for name in names if os.environ.pop(name, None)]:
        _log.warning("%s: ignored; %s", ", ".join(ignored), why)


def project_of(logger: LoggerConfig) -> str:
    return logger.project or os.environ.get("WANDB_PROJECT") or "posfuse"
