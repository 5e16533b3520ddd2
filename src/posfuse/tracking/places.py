"""Where W&B's files are: those of a run in the run's folder, all others in the sweep's."""

import os
from pathlib import Path

# Without these W&B writes into the home or the current directory. WANDB_CONFIG_DIR is left alone:
# `wandb login` stores the server's address there, and posfuse only reads it.
PLACES = ("WANDB_DATA_DIR", "WANDB_CACHE_DIR", "WANDB_DIR")
_set: dict[str, str] = {}  # by `prepare`, so that the next sweep of the process may change it


def prepare(sweep: Path) -> None:
    """Set W&B's environment variables, except those that the user has set: its files go to the
    sweep's folder, it prints nothing, and it sends no error reports."""
    for variable in PLACES:
        if os.environ.get(variable) in (None, _set.get(variable)):
            os.environ[variable] = _set[variable] = str(sweep.resolve() / ".wandb")
    os.environ.setdefault("WANDB_SILENT", "true")
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # else offline runs send them too
    if os.environ.get("WANDB_MODE") == "":
        del os.environ["WANDB_MODE"]  # W&B refuses an empty value


def logs(folder: Path) -> list[Path]:
    """W&B's own folder of each run below `folder`, by path; offline and online runs."""
    found = (*folder.rglob("wandb/offline-run-*"), *folder.rglob("wandb/run-*"))
    return sorted(path for path in found if path.is_dir())
