"""One run from its config to its record: build, fit, test, record."""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import lightning as L
import pandas as pd
import torch
from lightning.pytorch.callbacks import Callback, LambdaCallback

from posfuse.config import Config
from posfuse.data.corpora import SPLITS
from posfuse.data.datamodule import TextDataModule
from posfuse.model.network import Backbone
from posfuse.process import environment, signals
from posfuse.process.distributed import rank
from posfuse.runs import identity, records
from posfuse.runs.coverage import coverage_warning, repetition
from posfuse.runs.measurements import Measurement
from posfuse.runs.records import Diagnostic, Record
from posfuse.training import masked_pretraining
from posfuse.training.build import build_backbone, build_data, build_module, build_trainer
from posfuse.training.checkpoints import Checkpoints, read_checkpoint
from posfuse.training.memory_limit import explaining
from posfuse.training.module import TrainingModule
from posfuse.training.observers import Diagnostics, History
from posfuse.training.progress import Stopwatch, progress_callbacks
from posfuse.training.replicas import replicas

Rows = list[dict[str, float]]
LogRows = Callable[[Rows, list[Diagnostic], Rows], None]
log = logging.getLogger(__name__)
warn = cache(log.warning)  # once per process


@dataclass(frozen=True)
class Fitted:
    """The result of `fit` besides the module, which has the weights of the best evaluation."""

    trainer: L.Trainer
    history: History
    state: Checkpoints
    best_turn: int  # from 0
    validation: dict[str, float]  # the metrics of the best evaluation


class Tested(NamedTuple):
    """The results of a test split."""

    metrics: dict[str, float]
    predictions: pd.DataFrame
    latency_ms: float
    measurements: list[Measurement]


@environment.flushing_denormals()
def run(cfg: Config, folder: Path, log_rows: LogRows | None = None) -> Record:
    """Train (or resume from the last checkpoint), test, and write all files of the run.

    `log_rows(history rows, diagnostics rows, steps)` is called after each evaluation, and after
    every logger.every_steps steps, with all rows so far.
    Only the process with rank 0 writes; the others return an empty record.
    """
    started, facts = records.now(), records.identity(cfg, folder)
    facts |= identity.own_code(cfg)
    set_process(cfg)
    backbone = build_backbone(cfg)  # refuses a wrong value before any data is loaded
    if pretrained := pretrain(cfg):
        facts["pretrain"] = masked_pretraining.facts(pretrained)
    stopwatch = Stopwatch()
    data, module = build(cfg, backbone, pretrained)
    facts |= data.facts()
    if rank() == 0:
        flat = identity.flatten(facts)
        for line in filter(None, (coverage_warning(flat), repetition(flat))):
            warn(line)
    history = History(data.evaluations, cfg.logger.every_steps)
    diagnostics = Diagnostics(data, cfg.trainer.mechanism)
    observers: list[Callback] = [diagnostics]
    if log_rows:
        log_all = lambda *_: log_rows(history.rows, diagnostics.rows, history.steps)  # noqa: E731
        history.on_row = log_all
        observers.append(LambdaCallback(on_train_epoch_end=log_all))
    with replicas(cfg, folder):
        stopwatch.begin("fit")
        fitted = fit(cfg, folder, data, module, history, stopwatch, observers, started)
        stopwatch.begin("test")
        tested = test(data, module, fitted)
        facts |= environment.facts(stopwatch.seconds(), module.seen_by_all())
    if rank() > 0:
        return {}
    return record(folder, facts, module, diagnostics, fitted, tested)


def set_process(cfg: Config) -> None:
    """Set the threads and the memory of this process for a run."""
    if cfg.trainer.threads is not None:
        torch.set_num_threads(cfg.trainer.threads)
    if cfg.trainer.precision.startswith("bf16") and environment.do_without_broken_amx():
        warn("bfloat16 is slower than float32 here: this machine's matrix units do not work")
    environment.keep_memory()
    environment.reset_peak_memory()


def pretrain(cfg: Config) -> Path | None:
    """The folder of the run's pretraining, or None. If it is missing or incomplete, this process
    makes or resumes it, and other processes wait.

    Raises Interrupted after a signal, and the errors of a run.
    """
    if cfg.pretrain.name == "none":
        return None
    cfg = masked_pretraining.first_phase(cfg)
    with masked_pretraining.sole_use(cfg) as folder:
        if not masked_pretraining.has_result(folder):
            stopwatch, history = Stopwatch(), History()
            data = build_data(cfg, masked_pretraining.MaskedWords(cfg))
            module = build_module(cfg, data)
            resumes = " resumes" if (folder / records.LAST).exists() else ""
            log.info("pretraining%s: %s", resumes, folder)
            stopwatch.begin("fit")
            fitted = fit(cfg, folder, data, module, history, stopwatch)
            signals.check("; pretraining is saved")
            seconds, epoch = sum(stopwatch.seconds().values()), fitted.best_turn + 1
            records.write_table(folder / records.HISTORY, pd.DataFrame(history.rows))
            masked_pretraining.write(cfg, folder, fitted.validation, epoch, seconds)
    return folder


def build(cfg: Config, backbone: Backbone, pretrained: Path | None) -> tuple[TextDataModule, Any]:
    """The data of a run, and the module of its task with the initial values. `pretrained` is the
    result of `pretrain`."""
    data = build_data(cfg)
    module = build_module(cfg, data, backbone)
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
    started: str = "",
) -> Fitted:
    """Train the module, or resume its training from the last checkpoint in `folder`, and load the
    weights of its best evaluation.

    Raises Interrupted after a signal, OutOfMemory, and Diverged for a loss that is not finite.
    """
    last, own = folder / records.LAST, identity.fingerprint(cfg)
    state = Checkpoints(last, 60 * cfg.trainer.checkpoint_minutes, own, started)
    progress = progress_callbacks(cfg.trainer.progress, folder, data.evaluations, stopwatch)
    callbacks = [history, stopwatch, *observers, state, *progress]
    trainer = build_trainer(cfg, folder, callbacks)
    with explaining(module, cfg.data):
        start = last if last.exists() else None
        trainer.fit(module, data, ckpt_path=start, weights_only=True)
    best = read_checkpoint(folder / records.BEST)
    module.load_state_dict(best["state_dict"])
    validation = history.validation(best["epoch"])
    if not math.isfinite(validation["loss"]):
        raise module.divergence(best["global_step"])
    return Fitted(trainer, history, state, best["epoch"], validation)


def test(data: TextDataModule, module: TrainingModule, fitted: Fitted) -> dict[str, Tested]:
    """The results of the trained module on each test split, by its name. Raises OutOfMemory."""
    tested = {}
    with explaining(module, data.cfg):
        for split in ("test", *(name for name in data.documents if name not in SPLITS)):
            data.tested = split
            logged = fitted.trainer.test(module, data, verbose=False)[0]
            metrics = {name.removeprefix("test/"): float(value) for name, value in logged.items()}
            results = module.results(metrics, data.documents[split])
            tested[split] = Tested(*results, module.latency_ms, module.measurements())
    return tested


def record(
    folder: Path,
    facts: Record,
    module: TrainingModule,
    diagnostics: Diagnostics,
    fitted: Fitted,
    tested: dict[str, Tested],
) -> Record:
    """Write the files of a trained and tested run, the record last. Returns the record.

    `facts` are the record's entries about its identity, its data and its costs.
    """
    evaluations, turns = fitted.history.evaluations, fitted.trainer.current_epoch
    best_epoch = evaluations.epoch(fitted.best_turn)
    test = tested["test"]
    further: dict[str, dict[str, Tested]] = {}  # by kind and length
    for split, results in tested.items():
        kind, is_further, length = split.partition("@")
        if is_further:
            further.setdefault(kind, {})[length] = results
    lengths = further.pop("test", {})
    content = {
        **facts,
        "started": fitted.state.started,
        "test": test.metrics,
        "validation": fitted.validation,
        **{kind: {n: t.metrics for n, t in own.items()} for kind, own in further.items()},
        "best_evaluation": fitted.best_turn + 1,
        "evaluations": turns,
        "best_epoch": best_epoch,
        # Early stopping may leave the last epoch incomplete.
        "epochs": evaluations.epoch(turns - 1),
        "parameters": sum(p.numel() for p in module.parameters()),
        "fusion_parameters": sum(p.numel() for p in module.model.fusion.parameters()),
        "latency_ms": test.latency_ms,
    }
    all_diagnostics = [*diagnostics.rows, *diagnostics.worth_rows(best_epoch)]
    tables = {
        records.HISTORY: pd.DataFrame(fitted.history.rows),
        records.DIAGNOSTICS: records.table_of(Diagnostic, all_diagnostics),
        records.PREDICTIONS: test.predictions,
    }
    if fitted.history.steps:
        tables[records.STEPS] = pd.DataFrame(fitted.history.steps)
    if diagnostics.worth:
        content["position"] = diagnostics.worth
    if diagnostics.measurements:
        content["mechanism"] = {"documents": diagnostics.measured_documents}
    if every := [*test.measurements, *diagnostics.measurements]:
        tables[records.MECHANISM] = records.table_of(Measurement, every)
    if lengths:
        content["lengths"] = {
            n: {**t.metrics, "documents": len(t.predictions)} for n, t in lengths.items()
        }
        tables[records.BY_LENGTH] = pd.concat(
            [t.predictions.assign(test_length=int(n)) for n, t in lengths.items()]
        )
    for name, table in tables.items():
        records.write_table(folder / name, table)
    fitted.state.check(fitted.trainer)  # a signal since its last step
    records.write_result(folder, content)
    for name in (records.LAST, records.PROGRESS):  # a finished run needs neither
        (folder / name).unlink(missing_ok=True)
    return content
