"""The entry of one run: compose, build, fit, test, record."""

import contextlib
import logging
import math
import os
import signal
import sys
from pathlib import Path

import hydra
from hydra.conf import HydraConf
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from posfuse.config import CONF_DIR, Config, one_line
from posfuse.data.corpora import do_without_hub
from posfuse.errors import HubUnreachable, InputError
from posfuse.imports import import_run
from posfuse.process import signals
from posfuse.process.signals import Preempted
from posfuse.runs import records, refusals, request
from posfuse.runs.checks import checked
from posfuse.streams import failure_of_stdout
from posfuse.sweeps.failures import RunFailed, kind_of, message_of, record_failure
from posfuse.tracking.live import tracked

log = logging.getLogger(__name__)


def train(cfg: Config, folder: Path) -> records.Record:
    """Do one run in `folder`, unless its record is there already; returns the record."""
    label = f"{cfg.data.name} {cfg.encoding.name} {cfg.fusion['name']} seed={cfg.seed}"
    with records.sole_use(folder):
        if record := records.finished(folder, cfg):
            log.info("%s: done already, test accuracy %.4f", label, record["test"]["accuracy"])
            return record
        for name in (records.FAILURE, records.RESULT):  # a result whose other files are damaged
            (folder / name).unlink(missing_ok=True)
        OmegaConf.save(OmegaConf.structured(cfg), folder / "config.yaml")
        with signals.signals_later():  # raised into an import, Preempted may get lost
            run = import_run(tracked=cfg.logger.name == "wandb")  # a finished run does not need it
        with tracked(cfg, folder) as log_rows:
            record = run(cfg, folder, log_rows)
        (folder / records.FAILURE).unlink(missing_ok=True)  # of a sweep that found this one at work
        log.info(
            "%s: test accuracy %.4f, best epoch %d of %d, %.0f s%s",
            label,
            record["test"]["accuracy"],
            record["best_epoch"],
            record["epochs"],
            sum(record["seconds"].values()),
            _cut(record["truncated_share"]["train"]),
        )
        return record


def _cut(share: float) -> str:
    return f", {share:.1%} of the documents cut at max_len" if share else ""


@hydra.main(version_base="1.3", config_path=str(CONF_DIR), config_name="train")
def job(config: DictConfig) -> float:
    """One Hydra job: a run in its folder; the test accuracy, NaN if it failed."""
    signals.end_with_parent(signal.SIGTERM)
    hydra_cfg = HydraConfig.get()
    if hydra_cfg.mode == RunMode.RUN:
        with signals.ending():
            return attempt(config, hydra_cfg)
    accuracy = attempt(config, hydra_cfg)
    signals.end_with_parent(signal.SIGKILL)  # between runs there is nothing to keep
    return accuracy


def attempt(config: DictConfig, hydra_cfg: HydraConf) -> float:
    """A run, its failure recorded and said: a sweep goes on, and `sweep.Ending` ends it."""
    logging.raiseExceptions = False  # a disk too full for train.log is told once, as the failure
    folder = Path(hydra_cfg.runtime.output_dir)
    sweep = None if hydra_cfg.mode == RunMode.RUN else Path(hydra_cfg.sweep.dir)
    overrides = list(hydra_cfg.overrides.task)
    cfg = None
    try:
        signals.fail_if_told()
        cfg = checked(config)
        asked = request.digest(request.basis(hydra_cfg.runtime.config_sources), overrides)
        record = train(cfg, folder)
        request.remember(folder, asked, cfg, record)
        accuracy: float = record["test"]["accuracy"]
        return accuracy
    except Preempted as stop:
        record_failure(str(stop), folder, overrides, "preempted")
        if not signals.is_worker():
            raise
    except Exception as error:  # noqa: BLE001 - whatever it is, the other runs go on
        message, kind = message_of(error, folder), kind_of(error) if cfg else "config"
        if sweep is None:
            with contextlib.suppress(RunFailed):
                record_failure(message, folder, overrides, kind)
            sys.exit(f"error: {message}")
        if isinstance(error, HubUnreachable):
            do_without_hub()  # the next command asks again
        record_failure(message, folder, overrides, kind, sweep)
    return math.nan


def main() -> None:
    """The runs; a mistake is said in a line, runs that failed in one each, and the status is 1."""
    wants_traceback = os.environ.get("HYDRA_FULL_ERROR") == "1"
    os.environ["HYDRA_FULL_ERROR"] = "1"  # let errors through to the one place that words them
    try:
        job()
    except (RunFailed, InputError) as error:
        sys.exit(f"error: {one_line(error)}")
    except (HydraException, OmegaConfBaseException) as error:
        sys.exit(f"error: {refusals.of_no_keys(error) or one_line(error)}")
    except (YAMLError, UnicodeDecodeError) as error:
        sys.exit(f"error: {refusals.of_file(error)}")
    except BrokenPipeError:
        raise  # of stdout: posfuse.streams
    except OSError as error:
        place = error.filename or "disk"
        line = f"error: {message_of(error, Path(place))}"
        sys.exit((None if error.filename else failure_of_stdout("\n")) or line)
    except ValueError as error:
        is_group = "group override" in str(error)  # Hydra's words for one that is given no name
        cure = "; a group takes one of its names, as fusion=add" if is_group else ""
        sys.exit(f"error: {one_line(error)}{cure}")
    except Exception as error:
        if wants_traceback:
            raise
        sys.exit(f"error: {refusals.of_hydra(error)}")
