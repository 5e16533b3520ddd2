"""One run from its config to its record: build, fit, test, record."""

import gc
import json
import logging
import math
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

import lightning as L
import pandas as pd
import torch
from lightning.pytorch.callbacks import Callback

from posfuse.config import Config, DataConfig, seed_of
from posfuse.data.corpora import SPLITS
from posfuse.data.datamodule import TextDataModule
from posfuse.data.locks import lock
from posfuse.errors import InputError, OutOfMemory, TrainingError, lacks_memory
from posfuse.model.network import Backbone
from posfuse.process import environment, signals
from posfuse.process.devices import device_of
from posfuse.process.distributed import rank
from posfuse.process.threads import keeping_threads, set_threads
from posfuse.runs import identity, measurements, records
from posfuse.runs.configs import read_config
from posfuse.runs.coverage import coverage_warning, repetition
from posfuse.runs.measurements import LogRows
from posfuse.runs.records import Record
from posfuse.seals import is_whole
from posfuse.training import masked_pretraining
from posfuse.training.build import build_backbone, build_data, build_module, build_trainer
from posfuse.training.checkpoints import Checkpoints, read_checkpoint
from posfuse.training.module import TrainingModule
from posfuse.training.observers import Diagnostics, History
from posfuse.training.optimizer import check_warmup
from posfuse.training.part_checks import check_parts
from posfuse.training.progress import Stopwatch, progress_callbacks
from posfuse.training.recording import Tested, record
from posfuse.training.replicas import replicas

OTHER_SPLIT = re.compile(r"(test|sliding)@[1-9]\d*")  # a test at another length
log = logging.getLogger(__name__)
warn = cache(log.warning)  # once per process


@keeping_threads()
@environment.flushing_denormals()
def run(cfg: Config, folder: Path, log_rows: LogRows | None = None) -> Record:
    """Train (or resume from the last checkpoint), test, and write all files of the run.

    `log_rows(history rows, diagnostics rows, steps)` is called after each evaluation, and after
    every logger.every_steps steps, with all rows so far.
    Only the process with rank 0 writes; the others return an empty record. Raises Interrupted after
    a signal, InputError for a config or data that cannot be used, and TrainingError.
    """
    started, facts = records.now(), records.identity(cfg, folder) | identity.own_code(cfg)
    set_threads(cfg.trainer)
    set_process(cfg)
    device = device_of(cfg.trainer)
    facts |= environment.origin(device)  # now, because the checkout and the packages may change
    backbone = build_backbone(cfg)  # refuses a wrong value before any data is loaded
    if pretrained := pretrain(cfg):
        facts["pretrain"] = masked_pretraining.facts(pretrained)
        set_process(cfg)  # resets the peak memory: another run may have done the pretraining
    stopwatch = Stopwatch()
    data, module = build(cfg, backbone, pretrained)
    if pretrained and identity.fingerprint(cfg) != facts["fingerprint"]:
        raise InputError(f"data={cfg.data.name}: its texts changed during pretraining; run again")
    facts |= data.facts() | {"task": {"metric": data.task.metric}}
    if rank() == 0:
        flat = identity.flatten(facts)
        for line in filter(None, (coverage_warning(flat), repetition(flat))):
            warn(line)
    diagnostics = Diagnostics(data, cfg.trainer.mechanism)
    history = History(data.evaluations, cfg.logger.every_steps, started)
    if log_rows:
        history.on_row = lambda: log_rows(history.rows, diagnostics.rows, history.steps)
    with replicas(cfg, folder):
        stopwatch.begin("fit")
        trainer = fit(cfg, folder, data, module, history, stopwatch, [diagnostics])
        stopwatch.begin("test")
        tested = test(trainer, data, module)
        facts |= environment.costs(stopwatch.seconds(), module.seen_by_all(), device)
    if rank() > 0:
        return {}
    return record(folder, facts, trainer, module, history, diagnostics, tested)


def set_process(cfg: Config) -> None:
    """Set the memory and torch's seed of this process for a run."""
    torch.manual_seed(seed_of(cfg, "init"))  # a user's class may draw values in its constructor
    if cfg.trainer.precision.startswith("bf16") and environment.do_without_broken_amx():
        warn("bfloat16 is slower than float32 here: this machine's matrix units do not work")
    if not gc.get_freeze_count():
        gc.freeze()  # skip the objects of modules: a collection takes milliseconds, not 0.25 s
    gc.collect()  # frees an earlier run of this process, whose objects refer to each other
    environment.keep_memory()
    environment.return_memory()
    environment.reset_peak_memory()


def pretrain(cfg: Config) -> Path | None:
    """The folder of the run's pretraining, or None. If it is missing or incomplete, this process
    makes or resumes it, and other processes wait.

    Raises Interrupted after a signal, and the errors of a run. The config of the second
    phase, `cfg`, is checked first, because pretraining may take hours.
    """
    if cfg.pretrain.name == "none":
        return None
    second, cfg = cfg, masked_pretraining.first_phase(cfg)
    own = identity.owner(cfg)
    folder = Path(cfg.cache_dir, "pretrained", "-".join(own.values()))
    if is_pretrained(folder):  # needs no lock, which another user's folder may not allow
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    with lock(folder / ".lock", partial(signals.check, " before pretraining")):
        if is_pretrained(folder):
            return folder
        check(second)
        stopwatch, history = Stopwatch(), History()
        data = build_data(cfg, masked_pretraining.MaskedWords(cfg))
        module = build_module(cfg, data)
        resumes = " resumes" if (folder / records.LAST).exists() else ""
        log.info("pretraining%s: %s", resumes, folder)
        stopwatch.begin("fit")
        fit(cfg, folder, data, module, history, stopwatch)
        signals.check("; pretraining is saved")
        measurements.write_table(folder / records.HISTORY, pd.DataFrame(history.rows))
        content = {
            **own,
            "settings": identity.settings(cfg),
            **history.validation(),
            "epochs": len(history.rows),
            "seconds": sum(stopwatch.seconds().values()),
        }
        records.write_result(folder, content)
        (folder / records.LAST).unlink(missing_ok=True)
    return folder


def is_pretrained(folder: Path) -> bool:
    """True if a pretraining in this folder is finished."""
    return all(is_whole(folder / name) for name in (records.RESULT, records.BEST))


def check(cfg: Config) -> None:
    """Raise the errors that a run on one device would raise before its first step."""
    data, _ = build(cfg, build_backbone(cfg), None)
    steps = cfg.trainer.max_epochs * data.steps_of_epoch(cfg.trainer.accumulate)
    check_warmup(cfg.optim, steps)


def build(cfg: Config, backbone: Backbone, pretrained: Path | None) -> tuple[TextDataModule, Any]:
    """The data of a run, and the module of its task with the initial values. `pretrained` is the
    result of `pretrain`. Raises InputError as `build_data`, and for a split with another name than
    the record may have."""
    data = build_data(cfg)
    for split in data.documents.keys() - {*SPLITS}:
        if not OTHER_SPLIT.fullmatch(split):
            raise InputError(
                f"task: the split {split!r} of its documents is not train, validation, test, "
                "test@LENGTH or sliding@LENGTH; rename it"
            )
    module = build_module(cfg, data, backbone)
    check_parts(cfg, module.model)
    if pretrained:
        masked_pretraining.load(module.model, pretrained)
    return data, module


def fit(
    cfg: Config,
    folder: Path,
    data: TextDataModule,
    module: TrainingModule,
    history: History,
    stopwatch: Stopwatch,
    observers: Sequence[Callback] = (),
) -> L.Trainer:
    """Train the module, or resume its training from the last checkpoint in `folder`, and load the
    weights of its best evaluation.

    Raises Interrupted after a signal, OutOfMemory, and Diverged for a loss that is not finite.
    """
    last = folder / records.LAST
    state = Checkpoints(last, 60 * cfg.trainer.checkpoint_minutes, identity.owner(cfg))
    progress = progress_callbacks(cfg.trainer.progress, folder, stopwatch)
    callbacks = [*observers, history, stopwatch, state, *progress]
    trainer = build_trainer(cfg, folder, callbacks)
    with explaining(module, cfg.data):
        start = last if last.exists() else None
        trainer.fit(module, data, ckpt_path=start, weights_only=True)
    best = read_checkpoint(folder / records.BEST)
    module.load_state_dict(best["state_dict"])
    history.best = best["epoch"]
    if not math.isfinite(history.validation()["loss"]):
        raise module.divergence(best["global_step"])
    return trainer


def test(trainer: L.Trainer, data: TextDataModule, module: TrainingModule) -> dict[str, Tested]:
    """The results of the trained module on each test split, by its name. Raises OutOfMemory."""
    tested = {}
    with explaining(module, data.cfg):
        for split in ("test", *(name for name in data.documents if name not in SPLITS)):
            data.tested = split
            logged = trainer.test(module, data, verbose=False)[0]
            metrics = {name.removeprefix("test/"): float(value) for name, value in logged.items()}
            results = module.results(metrics, data.documents[split])
            tested[split] = Tested(*results, module.latency_ms, module.measurements())
    return tested


@contextmanager
def explaining(module: Any, data: DataConfig) -> Iterator[None]:
    """Raise OutOfMemory, which names the batch size to try, if memory runs out in the block that
    trains or tests this module."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not lacks_memory(error):
            raise
        key, size = "data.eval_batch_size", data.eval_batch_size
        if module.training:  # Lightning leaves the mode as it was when the error came
            key, size = module.batch_key, data.batch_size
        fix = f"try {key}={size // 2}" if size > 1 else "lower data.max_len or the model's size"
        raise OutOfMemory(
            f"out of memory at step {module.global_step} with {key}={size}; {fix}"
        ) from error


def main() -> None:
    """PID FOLDER: the command of each further process of a run on several devices. It trains the
    run of a folder's config.yaml until the process PID ends. An error for the user is written to
    stdout, and rank 0 raises it."""
    signals.exit_with_parent(int(sys.argv[1]))
    signals.launcher = "replicas"
    with os.fdopen(os.dup(1), "w") as failure:
        os.dup2(2, 1)  # stderr is train.log, where prints belong
        folder = Path(sys.argv[2])
        try:
            cfg = read_config(folder)
            cfg.logger.name, cfg.trainer.progress = "none", "none"
            run(cfg, folder)
        except (InputError, TrainingError) as error:
            json.dump([type(error).__name__, str(error)], failure)
            sys.exit(1)


if __name__ == "__main__":
    main()
