"""One run from its config to its record: build, fit, test, record.

Apart from the entry, since torch and Lightning take seconds to import and what is done needs
neither.
"""

import time
from pathlib import Path

import torch

from posfuse import environment, records
from posfuse.build import BEST, LAST, build_classifier, build_data, build_trainer
from posfuse.config import Config
from posfuse.diagnostics import Diagnostics
from posfuse.history import History
from posfuse.tracking import tracker


def run(cfg: Config, folder: Path) -> records.Record:
    """Train, or go on from the last checkpoint, test, and write all of the run's files."""
    times = [time.perf_counter()]
    if cfg.trainer.threads is not None:
        torch.set_num_threads(cfg.trainer.threads)
    environment.keep_memory()
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
