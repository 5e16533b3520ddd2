"""One run from its config to its record: build, fit, test, record."""

import logging
import math
from collections.abc import Callable
from functools import cache
from pathlib import Path

import lightning as L
import pandas as pd
import torch
from lightning.pytorch.callbacks import Callback, LambdaCallback

from posfuse.config import Config
from posfuse.data.corpora import length_split
from posfuse.data.datamodule import TextDataModule, sliding_split
from posfuse.errors import OutOfMemory
from posfuse.process import environment
from posfuse.process.distributed import rank
from posfuse.runs import measurements, records
from posfuse.runs.coverage import coverage_warning
from posfuse.runs.records import Diagnostic
from posfuse.training.build import build_data, build_module, build_parts, build_trainer
from posfuse.training.checkpoints import Checkpoints, read_checkpoint
from posfuse.training.diagnostics import Diagnostics
from posfuse.training.history import History
from posfuse.training.hosts import load_host
from posfuse.training.mechanism import Mechanism
from posfuse.training.memory_limit import MemoryLimit
from posfuse.training.module import TestedModule
from posfuse.training.pretraining import facts, load_pretrained, pretrained
from posfuse.training.progress import Stopwatch
from posfuse.training.replicas import replicas

LogRows = Callable[[list[dict[str, float]], list[Diagnostic]], None]
_warn = cache(logging.getLogger(__name__).warning)  # once in a process


@environment.denormals_flushed()
def run(cfg: Config, folder: Path, log_rows: LogRows | None = None) -> records.Record:
    """Train, or resume from the last checkpoint, test, and write all of the run's files.

    `log_rows(history rows, diagnostics rows)` is called after each evaluation with all rows so far.
    """
    started = records.now()
    if cfg.trainer.threads is not None:
        torch.set_num_threads(cfg.trainer.threads)
    if cfg.trainer.precision.startswith("bf16") and environment.do_without_broken_amx():
        _warn("bfloat16 is slower than float32 here: this machine's matrix units do not work")
    environment.keep_memory()
    environment.reset_peak_memory()

    # Only for its errors: a value that an operator refuses fails before any data is loaded. The
    # network, which builds the parts again, needs the size of the corpus's vocabulary.
    host = load_host(cfg)
    build_parts(cfg, host)
    first = pretrained(cfg) if cfg.pretrain.name != "none" else None
    stopwatch = Stopwatch()
    data = build_data(cfg)
    known = records.flatten({**records.identity(cfg, folder), **data.facts()})
    if rank() == 0 and (line := coverage_warning(known)):
        _warn(line)
    module = build_module(cfg, data, host)
    if first:
        load_pretrained(module.model, first)
    per_epoch = cfg.trainer.evaluations
    history, diagnostics = History(per_epoch), Diagnostics(data)
    last = folder / records.LAST
    minutes, identity = cfg.trainer.checkpoint_minutes, records.fingerprint(cfg)
    state = Checkpoints(last, 60 * minutes, identity, started)
    limit, mechanism = MemoryLimit(cfg.data), Mechanism(data)
    with replicas(cfg, folder):
        observers: list[Callback] = [history, diagnostics, state, limit, stopwatch]
        if cfg.trainer.mechanism:
            observers.append(mechanism)
        if log_rows:
            epoch_log = LambdaCallback(
                on_train_epoch_end=lambda *_: log_rows(history.rows, diagnostics.rows)
            )
            observers.append(epoch_log)
        trainer = build_trainer(cfg, folder, observers)
        start = last if last.exists() else None
        stopwatch.begin("fit")
        try:
            trainer.fit(module, data, ckpt_path=start, weights_only=True)
            stopwatch.begin("test")
            best = read_checkpoint(folder / records.BEST)
            module.load_state_dict(best["state_dict"])
            validation = history.validation(best["epoch"])
            if not math.isfinite(validation["loss"]):
                raise module.divergence(best["global_step"])
            test, predictions = _tested(trainer, module, data, "test")
            latency_ms, measured = module.latency_ms, module.measurements()
            by_length = {
                length: _tested(trainer, module, data, length_split(length))
                for length in cfg.data.test_lengths
            }
            sliding = {
                length: _tested(trainer, module, data, sliding_split(length))[0]
                for length in (cfg.data.max_len, *cfg.data.test_lengths)
                if sliding_split(length) in data.documents
            }
        except (RuntimeError, MemoryError) as error:
            if limit.advice is None:
                raise
            raise OutOfMemory(limit.advice) from error
        seconds = stopwatch.seconds()
        seen = module.seen_by_all()
    if rank() > 0:
        return {}  # the first process of the run writes

    lengths = {
        str(length): {**metrics, "documents": len(frame)}
        for length, (metrics, frame) in by_length.items()
    }
    record = {
        **records.identity(cfg, folder),
        "started": state.started,
        "test": test,
        "validation": validation,
        **({"pretrain": facts(first)} if first else {}),
        **({"lengths": lengths} if lengths else {}),
        **({"sliding": {str(n): found for n, found in sliding.items()}} if sliding else {}),
        # Counted from 1. Each evaluation ends one of the trainer's epochs; early stopping may leave
        # the last epoch incomplete.
        "best_evaluation": best["epoch"] + 1,
        "evaluations": trainer.current_epoch,
        "best_epoch": best["epoch"] // per_epoch + 1,
        "epochs": -(-trainer.current_epoch // per_epoch),
        "parameters": sum(p.numel() for p in module.parameters()),
        "fusion_parameters": sum(p.numel() for p in module.model.fusion.parameters()),
        **data.facts(),
        "latency_ms": latency_ms,
        **({"position": diagnostics.worth} if diagnostics.worth else {}),
        **({"mechanism": {"documents": mechanism.documents}} if mechanism.rows else {}),
        **environment.facts(seconds, seen),
    }
    records.write_history(folder, history.rows)
    rows = [*diagnostics.rows, *diagnostics.worth_rows(record["best_epoch"])]
    records.write_diagnostics(folder, rows)
    if measured := [*measured, *mechanism.rows]:
        measurements.write(folder, measured)
    records.write_predictions(folder, records.PREDICTIONS, predictions)
    if by_length:
        found = [frame.assign(test_length=length) for length, (_, frame) in by_length.items()]
        records.write_predictions(folder, records.BY_LENGTH, pd.concat(found))
    state.check(trainer)  # since its last step
    records.write_result(folder, record)
    for file in (last, folder / records.PROGRESS):  # a finished run needs neither
        file.unlink(missing_ok=True)
    return record


def _tested(
    trainer: L.Trainer, module: TestedModule, data: TextDataModule, split: str
) -> tuple[dict[str, float], pd.DataFrame]:
    """The metrics of the trained model on a test split, and its predictions."""
    data.tested = split
    logged = trainer.test(module, data, verbose=False)[0]
    metrics = {name.removeprefix("test/"): float(value) for name, value in logged.items()}
    return module.tested(metrics, data.documents[split])
