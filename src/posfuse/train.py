"""The entry of one run: compose, build, fit, test, record."""

import contextlib
import logging
import math
import os
import sys
import time
from pathlib import Path

import hydra
import torch
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from posfuse import environment, records
from posfuse.build import BEST, LAST, build_classifier, build_data, build_trainer
from posfuse.checks import checked
from posfuse.config import CONF_DIR, Config, one_line
from posfuse.diagnostics import Diagnostics
from posfuse.errors import InputError
from posfuse.history import History
from posfuse.sweep import RunFailed, message_of, record_failure
from posfuse.tracking import tracker

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
        record = _run(cfg, folder)
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


def _run(cfg: Config, folder: Path) -> records.Record:
    times = [time.perf_counter()]
    if cfg.trainer.threads is not None:
        torch.set_num_threads(cfg.trainer.threads)
    environment.reset_peak_memory()

    data = build_data(cfg)
    classifier = build_classifier(cfg, data)
    history, diagnostics = History(), Diagnostics(data)
    last = folder / LAST
    with tracker(cfg, folder) as logger:
        trainer = build_trainer(cfg, folder, logger, [history, diagnostics])
        times.append(time.perf_counter())
        trainer.fit(classifier, data, ckpt_path=last if last.exists() else None, weights_only=True)
        if trainer.interrupted:
            raise KeyboardInterrupt
        times.append(time.perf_counter())
        best = torch.load(folder / BEST, map_location="cpu", weights_only=True)
        classifier.load_state_dict(best["state_dict"])
        validation = trainer.validate(classifier, data, verbose=False)[0]
        test = trainer.test(classifier, data, verbose=False)[0]
        times.append(time.perf_counter())

    record = {
        **records.identity(cfg, folder),
        "test": {name.removeprefix("test/"): value for name, value in test.items()},
        "validation": {name.removeprefix("val/"): value for name, value in validation.items()},
        "best_epoch": best["epoch"] + 1,  # counted from 1, as `epochs` is
        "epochs": trainer.current_epoch,
        "parameters": sum(p.numel() for p in classifier.parameters()),
        "fusion_parameters": sum(p.numel() for p in classifier.model.fusion.parameters()),
        **data.facts(),
        "latency_ms": classifier.latency_ms,
        "position": diagnostics.worth,
        **environment.facts(times, classifier.seen),
    }
    records.write_history(folder, history.rows)
    rows = [*diagnostics.rows, *diagnostics.worth_rows(record["best_epoch"])]
    records.write_diagnostics(folder, rows)
    records.write_predictions(folder, classifier.predictions, data.store.splits["test"].lengths)
    records.write_json(folder / records.RESULT, record)
    last.unlink(missing_ok=True)  # only a resume needs it
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
    cfg = None
    try:
        cfg = checked(config)
        accuracy: float = train(cfg, folder)["test"]["accuracy"]
        return accuracy
    except Exception as error:  # noqa: BLE001 - whatever it is, the other runs go on
        message = message_of(error, folder)
    overrides = list(hydra_cfg.overrides.task)
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
