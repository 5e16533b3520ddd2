"""posfuse train: `main` calls `job` (one Hydra job), `train` (one run in its folder) and `run`."""

import contextlib
import logging
import math
import os
import re
import shlex
import sys
import textwrap
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import hydra
from hydra.conf import HydraConf
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig

from posfuse.config import CONF_DIR, Config
from posfuse.data.corpora import use_only_hub_cache
from posfuse.errors import HubUnreachable, InputError, TrainingError, lacks_memory
from posfuse.process import signals
from posfuse.process.arguments import file_options, overrides_first, shell_line
from posfuse.process.config_folders import check_config_folders
from posfuse.process.devices import device_of
from posfuse.runs import configs, hydra_errors, records
from posfuse.runs.checks import checked, task_of
from posfuse.runs.folders import other_overrides
from posfuse.runs.hydra_errors import one_line
from posfuse.runs.multirun import place_of
from posfuse.sweeps.failures import message_of, record_failure, report
from posfuse.sweeps.skipping import done_line, label_of, score_of

log = logging.getLogger(__name__)
DEFAULT = "training the default, a small model on BBC News: under a minute on two idle cores"
LANGUAGE_MODEL = "a text from the model: posfuse sample %s --prompt TEXT"


def main() -> None:
    """Train one run, or a sweep with -m. Raises InputError if Hydra refuses the command line.

    Failures of runs are printed on stderr; a sweep also lists the failed runs at its end.
    """
    if {"-h", "--help"} & {*sys.argv[1:]}:
        print(help_text(), end="")
        others = [a for a in sys.argv[1:] if a not in ("-h", "--help", "-m", "--multirun")]
        sys.argv[1:] = ["--cfg", "job", *others]  # Hydra prints the config
    signals.install()
    logging.raiseExceptions = False  # a closed stdout or a full disk causes no traceback
    wants_traceback = os.environ.get("HYDRA_FULL_ERROR") == "1"
    os.environ["HYDRA_FULL_ERROR"] = "1"  # makes Hydra raise its errors; they are formatted below
    try:
        sys.argv[1:] = overrides_first(sys.argv[1:])
        check_config_folders(sys.argv[1:])
        job()
    except InputError as error:
        raise InputError(one_line(error)) from error
    except Exception as error:
        is_files = isinstance(error, OSError) and not isinstance(error, HydraException)
        if wants_traceback or (is_files and not lacks_memory(error)):
            raise
        raise InputError(hydra_errors.line_of(error)) from error


def help_text() -> str:
    """The help of the command, with the groups of conf/. Hydra's own help takes a second longer."""
    lines = []
    own = [f.name for f in CONF_DIR.iterdir() if f.is_dir() and f.name not in ("hydra", "study")]
    for group in [*sorted(own), "hydra/launcher", "hydra/sweeper"]:
        if choices := ", ".join(sorted(path.stem for path in (CONF_DIR / group).glob("*.yaml"))):
            start = f"  {group:<16}"
            lines.append(textwrap.fill(start + choices, 80, subsequent_indent=" " * len(start)))
    text = files("posfuse").joinpath("train_help.txt").read_text(encoding="utf-8")
    return text.replace("GROUPS", "\n".join(lines))


@hydra.main(version_base="1.3", config_path=str(CONF_DIR), config_name="train")
def job(config: DictConfig) -> float:
    """One Hydra job. Returns the validation metric that selects the best checkpoint, for sweepers
    that search, or NaN if the run failed.

    A failure is written to the run's folder, except if a single run is refused before it starts
    or fails beside a result, because the result may be that of a sweep. After a failure a sweep
    continues, and a single run exits.
    """
    logging.raiseExceptions = False  # as in `main`; this may be another process
    hydra_cfg = HydraConfig.get()
    check_is_one_run(hydra_cfg)
    folder = Path(hydra_cfg.runtime.output_dir)
    overrides = list(hydra_cfg.overrides.task)
    is_single, cfg = hydra_cfg.mode == RunMode.RUN, None
    try:
        signals.check(" before training started")
        cfg = checked(config)
        signals.check(" before training started")
        from posfuse.process import precision  # imports torch; a refusal does not need it

        if cfg.trainer.precision == precision.FASTEST and precision.stored(cfg) is None:
            device_of(cfg.trainer)  # only a machine with the device may choose the precision
        cfg.trainer.precision = precision.precision_of(cfg)  # for config.yaml and the record
        if is_single and not overrides:
            log.info(DEFAULT)
        own, place = other_overrides(overrides), ""
        if not is_single:
            place, common = place_of(folder, Path(hydra_cfg.sweep.dir))
            own = [override for override in own if override not in common]
        record = train(cfg, folder, own, place)
        if is_single:
            advice = f"other settings, for example in a sweep: {sweep_like(overrides)}"
            if cfg.task.name == "language_model":
                advice = LANGUAGE_MODEL % shlex.quote(str(folder))
            log.info("results: %s; next: %s", folder, advice)
        return score_of(cfg, record)
    except signals.Interrupted as stop:
        if not (folder / records.RESULT).exists():  # else it may replace a recorded conflict
            record_failure(str(stop), folder, overrides, records.INTERRUPTED)
        if not signals.is_worker():
            raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a user's code may even call exit()
        message = message_of(error, folder)
        kind = getattr(error, "kind", TrainingError.kind) if cfg else "config"
        if is_single:
            has_started = kind != "config" or (folder / configs.CONFIG).exists()
            if has_started and not (folder / records.RESULT).exists():
                with contextlib.suppress(InputError):
                    record_failure(message, folder, overrides, kind, cfg)
            sys.exit(f"error: {message}")
        if isinstance(error, HubUnreachable):
            use_only_hub_cache()  # for the rest of this sweep
        record_failure(message, folder, overrides, kind, cfg)
        if not signals.is_worker():
            report(folder, Path(hydra_cfg.sweep.dir), config.sweep.fail_fast)
    return math.nan


def sweep_like(overrides: Sequence[str]) -> str:
    """A command for a sweep with the overrides of a run, but over two operators and three seeds."""
    swept, hydra_cfg = ("fusion", "seed", "sweep_id"), HydraConfig.get()
    kept = [o for o in overrides if re.split(r"[.=]", o.lstrip("+~"))[0] not in swept]
    fusion = hydra_cfg.runtime.choices.get("fusion", "add")  # a run may set its keys without a file
    grid = [f"fusion=add,{'concat' if fusion == 'add' else fusion}", "seed=0,1,2", "sweep_id=mine"]
    options = file_options(sys.argv[1:], hydra_cfg.overrides.hydra)
    return shell_line(["posfuse", "train", "-m", *kept, *grid, *options], bool(options))


def check_is_one_run(hydra_cfg: HydraConf) -> None:
    """Exit if a config file lists a grid and -m is missing (hydra.mode=RUN allows one run of it),
    if a group has a list, whose files Hydra would merge, or if the command sets the folder of a
    run, which has the names of its parts."""
    if any(override.startswith("hydra.run.dir=") for override in hydra_cfg.overrides.hydra):
        sys.exit("error: hydra.run.dir: set output_dir=FOLDER and sweep_id=NAME instead")
    for override in hydra_cfg.overrides.task:
        group, _, value = override.lstrip("+").partition("=")
        if value.startswith("[") and (CONF_DIR / group).is_dir():
            sys.exit(
                f"error: {override}: must be one file of conf/{group}; for several runs use -m"
            )
    grid = hydra_cfg.sweeper.get("params")
    if grid and hydra_cfg.mode == RunMode.RUN and "hydra.mode=RUN" not in sys.argv:
        name = hydra_cfg.runtime.choices.get("experiment")
        sys.exit(
            f"error: {f'experiment={name}' if name else 'hydra.sweeper.params'}: this is a sweep "
            f"over {', '.join(grid)}; add -m, as in posfuse train -m"
        )


def train(cfg: Config, folder: Path, own: Sequence[str] = (), place: str = "") -> records.Record:
    """Train one run in `folder` and return its record; a finished run is skipped.

    The run's label has its `own` overrides, which vary within the sweep. `place` is its place in
    the sweep, such as "run 1 of 6: ".
    """
    from posfuse.tracking.live import track  # these import torch, as in `job`
    from posfuse.training.run import run

    label = label_of(cfg, own)
    with records.sole_use(folder), signals.handling():
        record = records.finished_record(folder, cfg)
        (folder / records.FAILURE).unlink(missing_ok=True)  # of an earlier command
        if record:
            log.info("%s", done_line(cfg, own, record))
            return record
        device_of(cfg.trainer)  # a finished run needs no device
        (folder / records.RESULT).unlink(missing_ok=True)  # its other files are damaged
        configs.write_config(folder, cfg)
        resumes = ", resuming from its last checkpoint" * (folder / records.LAST).exists()
        if place or resumes:
            log.info("%s%s%s", place, label, resumes)
        with track(cfg, folder) as log_rows:
            record = run(cfg, folder, log_rows)
        # In the meantime another sweep may have recorded that this run was busy.
        (folder / records.FAILURE).unlink(missing_ok=True)
        log.info("%s", result_line(cfg, label, record))
        return record


def result_line(cfg: Config, label: str, record: records.Record) -> str:
    """The test results of a run in one line: its metric, and trainer.monitor if it is another and
    tested, which a task of the user's own may leave out."""
    task, cut = task_of(cfg), record["truncated_share"]["train"]
    names = dict.fromkeys((task.metric, task.monitor[0].removeprefix("val/")))
    test = {name: record["test"][name] for name in names if name in record["test"]}
    parts = [f"{name.replace('_', ' ')} {value:.4f}" for name, value in test.items()]
    by_length = record.get("lengths", {}).items()
    parts[1:1] = [f"{of[task.metric]:.4f} at length {n}" for n, of in by_length]
    unit = "evaluation" if cfg.trainer.evaluations > 1 else "epoch"
    parts.append(f"best {unit} {record[f'best_{unit}']} of {record[f'{unit}s']}")
    parts.append(f"{sum(record['seconds'].values()):.0f} s")
    parts += [f"{cut:.1%} of the documents cut at max_len"] * (cut > 0)
    return f"{label}: test {', '.join(parts)}"
