"""One run from its config to its record: build, fit, test, record."""

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import lightning as L
import pandas as pd
import torch
from lightning.pytorch.callbacks import Callback, LambdaCallback

from posfuse.config import Config
from posfuse.data.corpora import length_split
from posfuse.data.datamodule import TextDataModule, sliding_split
from posfuse.model.network import Backbone
from posfuse.process import environment, signals
from posfuse.process.distributed import rank
from posfuse.runs import measurements, records
from posfuse.runs.coverage import coverage_warning
from posfuse.runs.measurements import Measurement
from posfuse.runs.records import Diagnostic, Record
from posfuse.training import masked_pretraining
from posfuse.training.build import build_backbone, build_data, build_module, build_trainer
from posfuse.training.checkpoints import Checkpoints, read_checkpoint
from posfuse.training.diagnostics import Diagnostics
from posfuse.training.history import History
from posfuse.training.memory_limit import MemoryLimit
from posfuse.training.module import TestedModule, TrainingModule
from posfuse.training.progress import Stopwatch
from posfuse.training.replicas import replicas
from posfuse.training.use_of_position import UseOfPosition

LogRows = Callable[[list[dict[str, float]], list[Diagnostic]], None]
log = logging.getLogger(__name__)
warn = cache(log.warning)  # once in a process


@dataclass
class Observers:
    """The callbacks whose observations a run records."""

    stopwatch: Stopwatch
    history: History
    diagnostics: Diagnostics | None = None  # pretraining has none
    use: UseOfPosition | None = None
    log_rows: LogRows | None = None

    def callbacks(self) -> list[Callback]:
        collecting = (self.stopwatch, self.history, self.diagnostics, self.use)
        logging_ = LambdaCallback(on_train_epoch_end=lambda *_: self.log())
        return [*filter(None, collecting), logging_]

    def log(self) -> None:
        """Give `log_rows` all rows so far."""
        if self.log_rows and self.diagnostics:
            self.log_rows(self.history.rows, self.diagnostics.rows)


@dataclass(frozen=True)
class Fitted:
    """What `fit` leaves beside the module, which has the weights of the best evaluation."""

    trainer: L.Trainer
    state: Checkpoints
    limit: MemoryLimit
    best_turn: int  # from 0
    validation: dict[str, float]  # the metrics of the best evaluation


class Tested(NamedTuple):
    """The results of a test split."""

    metrics: dict[str, float]
    predictions: pd.DataFrame


@dataclass(frozen=True)
class Outcome:
    """What `test` measures."""

    test: Tested
    lengths: dict[int, Tested]  # by the length of data.test_lengths
    sliding: dict[int, Tested]  # the same, and data.max_len, with overlapping windows
    latency_ms: float
    measurements: list[Measurement]
    seconds: dict[str, float]  # of setup, fit and test
    seen: dict[str, int]  # documents and tokens that training has read


@environment.denormals_flushed()
def run(cfg: Config, folder: Path, log_rows: LogRows | None = None) -> Record:
    """Train, or resume from the last checkpoint, test, and write all of the run's files.

    `log_rows(history rows, diagnostics rows)` is called after each evaluation with all rows so far.
    Only the process with rank 0 writes; the others return an empty record.
    """
    started, identity = records.now(), records.identity(cfg, folder)
    set_process(cfg)
    backbone = build_backbone(cfg)  # a wrong value is refused here, before any data is loaded
    first = pretrain(cfg) if cfg.pretrain.name != "none" else None
    stopwatch = Stopwatch()
    data, module = build(cfg, backbone, first)
    if rank() == 0 and (line := coverage_warning(records.flatten({**identity, **data.facts()}))):
        warn(line)
    observers = Observers(stopwatch, History(cfg.trainer.evaluations), Diagnostics(data))
    observers.use = UseOfPosition(data) if cfg.trainer.mechanism else None
    observers.log_rows = log_rows
    with replicas(cfg, folder):
        fitted = fit(cfg, folder, data, module, observers, started)
        outcome = test(cfg, data, module, observers, fitted)
    if rank() > 0:
        return {}
    return record(folder, identity, data, module, observers, fitted, outcome, first)


def set_process(cfg: Config) -> None:
    """Set the threads and the memory of this process for a run."""
    if cfg.trainer.threads is not None:
        torch.set_num_threads(cfg.trainer.threads)
    if cfg.trainer.precision.startswith("bf16") and environment.do_without_broken_amx():
        warn("bfloat16 is slower than float32 here: this machine's matrix units do not work")
    environment.keep_memory()
    environment.reset_peak_memory()


def pretrain(cfg: Config) -> Path:
    """The folder of the pretraining that a run's config asks for. If it is not there, this process
    makes it, or resumes it, while others that need it wait.

    Raises Interrupted after a signal, and the errors of a run.
    """
    cfg = masked_pretraining.first_phase(cfg)
    with masked_pretraining.sole_use(cfg) as folder:
        if not masked_pretraining.is_finished(folder):
            observers = Observers(Stopwatch(), History())
            data = build_data(cfg)
            module = masked_pretraining.build(cfg, data)
            resumes = " resumes" if (folder / records.LAST).exists() else ""
            log.info("pretraining%s: %s", resumes, folder)
            fitted = fit(cfg, folder, data, module, observers)
            signals.check("; pretraining is saved")
            records.write_table(folder / records.HISTORY, pd.DataFrame(observers.history.rows))
            seconds = sum(observers.stopwatch.seconds().values())
            masked_pretraining.write(cfg, folder, fitted.validation, fitted.best_turn + 1, seconds)
    return folder


def build(
    cfg: Config, backbone: Backbone, first: Path | None
) -> tuple[TextDataModule, TestedModule]:
    """The data of a run, and its module with the initial values. `host` is that of `load_host`,
    `first` the folder of `pretrain`."""
    data = build_data(cfg)
    module = build_module(cfg, data, backbone)
    if first:
        masked_pretraining.load(module.model, first)
    return data, module


def fit(
    cfg: Config,
    folder: Path,
    data: TextDataModule,
    module: TrainingModule,
    observers: Observers,
    started: str = "",
) -> Fitted:
    """Train the module, or resume its training from the last checkpoint in `folder`, and give it
    the weights of its best evaluation.

    Raises Interrupted after a signal, OutOfMemory, and Diverged for a loss that is not finite.
    """
    last, identity = folder / records.LAST, records.fingerprint(cfg)
    state = Checkpoints(last, 60 * cfg.trainer.checkpoint_minutes, identity, started)
    limit = MemoryLimit(cfg.data, module.batch_key)
    trainer = build_trainer(cfg, folder, [*observers.callbacks(), state, limit])
    observers.stopwatch.begin("fit")
    with limit.explained():
        start = last if last.exists() else None
        trainer.fit(module, data, ckpt_path=start, weights_only=True)
    best = read_checkpoint(folder / records.BEST)
    module.load_state_dict(best["state_dict"])
    validation = observers.history.validation(best["epoch"])
    if not math.isfinite(validation["loss"]):
        raise module.divergence(best["global_step"])
    return Fitted(trainer, state, limit, best["epoch"], validation)


def test(
    cfg: Config, data: TextDataModule, module: TestedModule, observers: Observers, fitted: Fitted
) -> Outcome:
    """Test the trained module on every test split. Raises OutOfMemory."""
    observers.stopwatch.begin("test")

    def tested(split: str) -> Tested:
        data.tested = split
        logged = fitted.trainer.test(module, data, verbose=False)[0]
        metrics = {name.removeprefix("test/"): float(value) for name, value in logged.items()}
        return Tested(*module.tested(metrics, data.documents[split]))

    with fitted.limit.explained():
        whole = tested("test")
        latency_ms, measured = module.latency_ms, module.measurements()
        lengths = {n: tested(length_split(n)) for n in cfg.data.test_lengths}
        sliding = {
            n: tested(sliding_split(n))
            for n in (cfg.data.max_len, *cfg.data.test_lengths)
            if sliding_split(n) in data.documents
        }
    seconds, seen = observers.stopwatch.seconds(), module.seen_by_all()
    return Outcome(whole, lengths, sliding, latency_ms, measured, seconds, seen)


def record(
    folder: Path,
    identity: Record,
    data: TextDataModule,
    module: TestedModule,
    observers: Observers,
    fitted: Fitted,
    outcome: Outcome,
    first: Path | None,
) -> Record:
    """Write the files of a run that is trained and tested, the record last; returns the record."""
    diagnostics, use = observers.diagnostics, observers.use
    assert diagnostics is not None
    evaluations, turns = observers.history.evaluations, fitted.trainer.current_epoch
    best_epoch = evaluations.epoch(fitted.best_turn)
    lengths = {
        str(n): {**split.metrics, "documents": len(split.predictions)}
        for n, split in outcome.lengths.items()
    }
    content = {
        **identity,
        "started": fitted.state.started,
        "test": outcome.test.metrics,
        "validation": fitted.validation,
        "pretrain": masked_pretraining.facts(first) if first else {},
        "lengths": lengths,
        "sliding": {str(n): split.metrics for n, split in outcome.sliding.items()},
        "best_evaluation": fitted.best_turn + 1,
        "evaluations": turns,
        "best_epoch": best_epoch,
        "epochs": evaluations.epoch(turns - 1),  # early stopping may leave the last one incomplete
        "parameters": sum(p.numel() for p in module.parameters()),
        "fusion_parameters": sum(p.numel() for p in module.model.fusion.parameters()),
        **data.facts(),
        "latency_ms": outcome.latency_ms,
        "position": diagnostics.worth,
        "mechanism": {"documents": use.documents} if use and use.rows else {},
        **environment.facts(outcome.seconds, outcome.seen),
    }
    optional = ("pretrain", "lengths", "sliding", "position", "mechanism")
    content = {key: value for key, value in content.items() if value or key not in optional}
    tables = {
        records.HISTORY: pd.DataFrame(observers.history.rows),
        records.DIAGNOSTICS: records.table_of(
            Diagnostic, [*diagnostics.rows, *diagnostics.worth_rows(best_epoch)]
        ),
        records.PREDICTIONS: outcome.test.predictions,
    }
    if measured := [*outcome.measurements, *(use.rows if use else [])]:
        tables[records.MECHANISM] = measurements.frame(measured)
    if outcome.lengths:
        tables[records.BY_LENGTH] = pd.concat(
            [split.predictions.assign(test_length=n) for n, split in outcome.lengths.items()]
        )
    for name, table in tables.items():
        records.write_table(folder / name, table)
    fitted.state.check(fitted.trainer)  # a signal since its last step
    records.write_result(folder, content)
    for name in (records.LAST, records.PROGRESS):  # a finished run needs neither
        (folder / name).unlink(missing_ok=True)
    return content
