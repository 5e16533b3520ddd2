"""The entry of one run: compose, build, fit, test, record."""

import contextlib
import logging
import math
import os
import sys
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from posfuse import records, request
from posfuse.checks import checked
from posfuse.config import CONF_DIR, Config, one_line
from posfuse.errors import InputError
from posfuse.sweep import RunFailed, message_of, record_failure

log = logging.getLogger(__name__)


def train(cfg: Config, folder: Path) -> records.Record:
    """Do one run in `folder`, unless its record is there already; returns the record."""
    label = f"{cfg.data.name} {cfg.encoding.name} {cfg.fusion['name']} seed={cfg.seed}"
    with records.sole_use(folder):
        if record := records.finished(folder, cfg):
            log.info("%s: done already, test accuracy %.4f", label, record["test"]["accuracy"])
            return record
        (folder / records.FAILURE).unlink(missing_ok=True)
        OmegaConf.save(OmegaConf.structured(cfg), folder / "config.yaml")
        from posfuse.run import run  # seconds of imports that a finished run does not need

        record = run(cfg, folder)
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
    """One Hydra job: a run in its folder; the test accuracy, NaN if it failed.

    A sweep goes on after a failure; `sweep.NameFailures` ends it with status 1.
    """
    logging.raiseExceptions = False  # a disk too full for train.log is told once, as the failure
    hydra_cfg = HydraConfig.get()
    folder = Path(hydra_cfg.runtime.output_dir)
    overrides = list(hydra_cfg.overrides.task)
    cfg = None
    try:
        cfg = checked(config)
        asked = request.digest(request.basis(hydra_cfg.runtime.config_sources), overrides)
        record = train(cfg, folder)
        request.remember(folder, asked, cfg, record)
        accuracy: float = record["test"]["accuracy"]
        return accuracy
    except Exception as error:  # noqa: BLE001 - whatever it is, the other runs go on
        message = message_of(error, folder)
    if hydra_cfg.mode == RunMode.RUN:
        with contextlib.suppress(RunFailed):
            record_failure(message, folder, overrides, in_config=cfg is None)
        sys.exit(f"error: {message}")
    record_failure(message, folder, overrides, in_config=cfg is None)
    return math.nan


def main() -> None:
    """posfuse-train: exit status 0 when every run is done, else 1 with a line for each failure."""
    os.environ["HYDRA_FULL_ERROR"] = "1"  # let errors through to the one place that words them
    try:
        job()
    except (RunFailed, InputError, HydraException, OmegaConfBaseException) as error:
        sys.exit(f"error: {one_line(error)}")
    except ValueError as error:  # Hydra's own, of a group that is given no name
        sys.exit(f"error: {one_line(error)}; a group takes one of its names, as fusion=add")
    except OSError as error:
        place = error.filename or "disk"
        sys.exit(f"error: {message_of(error, Path(place))}")


if __name__ == "__main__":
    main()
