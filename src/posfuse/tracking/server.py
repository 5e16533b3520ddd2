"""Calls W&B: its variables, a run's start, rows and end, its projects, and errors in one line.

W&B appends rows in the order of `_step` and cannot change a row, so only rows after its last
`_step` are logged.
"""

import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from posfuse import seals
from posfuse.config import LoggerConfig
from posfuse.errors import InputError, input_errors
from posfuse.runs import records
from posfuse.runs.folders import AXES
from posfuse.tracking import projection
from posfuse.tracking.projection import STEP, Finished, short_name

if TYPE_CHECKING:  # wandb takes half a second to import, and runs with logger=none do not need it
    import wandb

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
ARTIFACTS = {  # the files of each of logger.artifacts; a run may lack some
    "result": (records.RESULT,),
    "predictions": (records.PREDICTIONS, records.BY_LENGTH),
    "model": (records.BEST,),
}
# W&B must not send uncommitted changes, or a token in the address of a Git remote.
SETTINGS: dict[str, Any] = {
    "disable_git": True,
    "x_save_requirements": False,
    "sagemaker_disable": True,  # SageMaker would give the run another id
}
# Of a finished run: the machine and the output of this process are not the run's.
AFTERWARDS = {**SETTINGS, "x_disable_stats": True, "console": "off"}
PAGE = 50  # runs per request
_log = logging.getLogger(__name__)
_set: dict[str, str] = {}  # set by `prepare`; the next sweep of the process may change them


def prepare(sweep: Path, of_agent: bool = False) -> None:
    """Set W&B's environment variables, except those that the user has set: its files go to the
    sweep's folder, and it prints nothing and sends no error reports. Remove those of a run's
    identity, unless the run is one of W&B's agent, and of its attributes."""
    if not of_agent:
        _ignore(IDENTITY, "a run's id in W&B follows from its config and its sweep")
    others = "for the others use logger.job_type and logger.tags"
    _ignore(ATTRIBUTES, f"a run's name and group follow from its config; {others}")
    for variable in PLACES:
        if os.environ.get(variable) in (None, _set.get(variable)):
            os.environ[variable] = _set[variable] = str(sweep.resolve() / ".wandb")
    os.environ.setdefault("WANDB_SILENT", "true")
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # otherwise offline runs send them too
    if os.environ.get("WANDB_MODE") == "":
        del os.environ["WANDB_MODE"]  # W&B refuses an empty value


def _ignore(names: tuple[str, ...], why: str) -> None:
    if ignored := [name for name in names if os.environ.pop(name, None)]:
        _log.warning("%s: ignored; %s", ", ".join(ignored), why)


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
    group = "/".join(filter(None, [identity["sweep_id"], *names, identity["variant"]]))
    run = wandb.init(
        project=project_of(logger),
        entity=logger.entity,
        group=short_name(group, 128),
        job_type=logger.job_type,
        name=projection.display_name(identity, folder),
        notes=logger.notes or None,
        tags=[short_name(tag, 64) for tag in (identity["sweep_id"], *names, *logger.tags)],
        config=projection.config(identity),
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


def log_rows(run: "wandb.Run", rows: Iterable[dict[str, float]], next_step: int) -> int:
    """Log the rows from `next_step` on. Returns the first step that may be logged after them."""
    for row in rows:
        if row[STEP] >= next_step:
            run.log(row, step=int(row[STEP]), commit=True)
            next_step = int(row[STEP]) + 1
    return next_step


def complete(run: "wandb.Run", finished: Finished, next_step: int) -> None:
    """Log a finished run from `next_step` on, with its charts, config, summary and files. Raises
    InputError for a damaged file."""
    import wandb

    next_step = log_rows(run, finished.rows, next_step)
    if next_step <= finished.last_step:
        last = finished.rows[-1][STEP]
        run.log({STEP: last, **projection.charts(finished)}, step=finished.last_step, commit=True)
    # A run may be resumed on another machine, or with another commit.
    settings = projection.config(finished.record)
    run.config.update(settings, allow_val_change=True)  # type: ignore[no-untyped-call]
    run.summary.update(finished.summary)
    for kind in finished.logger.artifacts:
        artifact = wandb.Artifact(f"{kind}-{run.id}", kind)
        for path in (finished.folder / name for name in ARTIFACTS[kind]):
            if path.exists():
                with input_errors(f"{path}: cannot be uploaded", records.RUN_AGAIN):
                    seals.check_whole(path)
                artifact.add_file(str(path))
        run.log_artifact(artifact)


def without_user(url: str) -> str:
    """An address without the name, password or token in front of its host."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def base_url() -> str:
    """The server's address, which may contain a token. Raises InputError if W&B refuses a
    setting."""
    import wandb

    try:
        return str(wandb.setup().settings.base_url)
    except (ValueError, wandb.Error) as error:  # the second one for a project's name
        raise InputError(f"W&B: {text_of(error)}; fix or unset that WANDB_ variable") from error


def address() -> str:
    return without_user(base_url())


def connect() -> "wandb.Api":
    """W&B's public API. Raises InputError without a key. In a terminal W&B asks for one."""
    import wandb

    url = base_url()
    with errors_in_one_line():
        return wandb.Api({"base_url": url})


def project_of(logger: LoggerConfig) -> str:
    return logger.project or os.environ.get("WANDB_PROJECT") or "posfuse"


def place_of(logger: LoggerConfig, api: "wandb.Api") -> tuple[str, str]:
    """The user or team that owns a run, and the run's project. Raises InputError if neither the
    config nor the key names a user or team."""
    entity = logger.entity or api.settings["entity"] or api.default_entity
    if not entity:
        raise InputError(f"{address()}: the key has no user or team; set WANDB_ENTITY")
    return str(entity), project_of(logger)


def project_url(api: "wandb.Api", entity: str, project: str) -> str | None:
    """The project's web page, or None if the server has no such project."""
    pages = {each.name: str(each.url) for each in api.projects(entity)}
    return without_user(pages[project]).removesuffix("/workspace") if project in pages else None


def runs_of(api: "wandb.Api", entity: str, project: str, ids: Sequence[str]) -> dict[str, Any]:
    """The runs with these ids that the server has in a project, by id."""
    held: dict[str, Any] = {}
    for at in range(0, len(ids), PAGE):
        wanted = {"name": {"$in": list(ids[at : at + PAGE])}}
        held |= {run.id: run for run in api.runs(f"{entity}/{project}", wanted, per_page=PAGE)}
    return held


def text_of(error: Exception) -> str:
    """The message of an error of W&B in one line, without a token in an address."""
    text = str(error)
    if isinstance(error, ValidationError):  # of its settings; the text has several lines
        first = error.errors()[0]
        text = ": ".join(map(str, (*first["loc"], first["msg"])))
    text = re.sub(r"(\w://)[^/\s@]*@", r"\1", text)
    return " ".join(text.split()).rstrip(".") or type(error).__name__


@contextmanager
def errors_in_one_line() -> Iterator[None]:
    """Raise every error of W&B's API as an InputError, because some of their types are private.
    Errors of files pass unchanged."""
    try:
        yield
    except Exception as error:
        if isinstance(error, InputError) or getattr(error, "filename", None):
            raise
        line = f"{address()}: {text_of(error)}; check WANDB_API_KEY and the network, retry"
        raise InputError(line) from error
