"""The entry of one run: compose, build, fit, test, record."""

import logging
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import hydra
import lightning as L
import torch
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from lightning.pytorch.callbacks import Callback, EarlyStopping, ModelCheckpoint
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from posfuse import environment, records
from posfuse.classifier import Classifier
from posfuse.config import CONF_DIR, Config, build_parts, checked, one_line
from posfuse.data.module import TextDataModule
from posfuse.encoder import Encoder
from posfuse.errors import InputError
from posfuse.model import PositionClassifier, initialize
from posfuse.progress import progress_callbacks
from posfuse.sweep import RunFailed, record_failure, summary
from posfuse.tracking import tracker

log = logging.getLogger(__name__)


def train(cfg: Config, folder: Path) -> records.Record:
    """Do one run, unless its record is there already; returns the record."""
    label = f"{cfg.data.name} {cfg.encoding.name} {cfg.fusion['name']} seed={cfg.seed}"
    with records.sole_use(folder):
        if record := records.finished(folder, cfg):
            log.info("%s: done already, test accuracy %.4f", label, record["test"]["accuracy"])
            return record
        started = time.perf_counter()
        if cfg.trainer.threads is not None:
            torch.set_num_threads(cfg.trainer.threads)
        environment.reset_peak_memory()
        (folder / records.FAILURE).unlink(missing_ok=True)
        OmegaConf.save(OmegaConf.structured(cfg), folder / "config.yaml")

        data = TextDataModule(cfg.data, cfg.cache_dir, cfg.seed)
        classifier = build_classifier(cfg, data)
        run_id, settings = records.fingerprint(cfg), records.settings(cfg)
        with tracker(cfg, folder, run_id, settings) as logger:
            trainer = build_trainer(cfg, folder, logger)
            last = folder / "checkpoints" / "last.ckpt"
            setup_s = time.perf_counter() - started
            trainer.fit(classifier, data, ckpt_path=str(last) if last.exists() else None)
            if trainer.interrupted:
                raise KeyboardInterrupt
            fit_s = time.perf_counter() - started - setup_s
            best: Any = trainer.checkpoint_callbacks[0]
            weights = torch.load(folder / "checkpoints" / "best.ckpt", weights_only=True)
            classifier.load_state_dict(weights["state_dict"])
            test = trainer.test(classifier, data, verbose=False)[0]
        test_s = time.perf_counter() - started - setup_s - fit_s

        best_epoch = int(weights["epoch"])
        documents, tokens = _trained(data, cfg, trainer.current_epoch)
        record = {
            "schema": records.SCHEMA,
            "fingerprint": run_id,
            "sweep_id": cfg.sweep_id,
            "data": cfg.data.name,
            "encoding": cfg.encoding.name,
            "fusion": cfg.fusion["name"],
            "seed": cfg.seed,
            "variant": _variant(cfg, folder),
            "test": {k.removeprefix("test/"): v for k, v in test.items()},
            "validation": {"accuracy": float(best.best_model_score)},
            "best_epoch": best_epoch,
            "epochs": trainer.current_epoch,
            "parameters": sum(p.numel() for p in classifier.parameters()),
            "fusion_parameters": sum(p.numel() for p in classifier.model.fusion.parameters()),
            "documents": {s: len(d) for s, d in data.documents.items()},
            "truncated_share": data.truncated_share(),
            "unknown_share": data.store.unknown_share,
            "vocabulary_size": data.store.vocabulary_size,
            "label_names": data.store.label_names,
            "seconds": {"setup": setup_s, "fit": fit_s, "test": test_s},
            "documents_per_second": documents / fit_s,
            "tokens_per_second": tokens / fit_s,
            "peak_memory_bytes": environment.peak_memory(),
            "versions": environment.versions(),
            "commit": environment.commit(),
            "host": environment.host(),
            "settings": settings,
        }
        records.write_predictions(folder, classifier.predictions)
        records.write_json(folder / records.RESULT, record)
        last.unlink(missing_ok=True)  # only a resume needs it
        log.info(
            "%s: test accuracy %.4f, best epoch %d of %d, %.0f s, %.1f %% of documents cut",
            label, test["test/accuracy"], best_epoch + 1, trainer.current_epoch,
            time.perf_counter() - started, 100 * record["truncated_share"]["train"],
        )  # fmt: skip
        return record


def build_classifier(cfg: Config, data: TextDataModule) -> Classifier:
    """The network for this corpus, its initial values drawn from the run's seed."""
    fusion, table = build_parts(cfg)
    m = cfg.model
    n_classes = len(data.store.label_names)
    model = PositionClassifier(
        fusion,
        table,
        Encoder(m.d_model, m.n_heads, m.n_layers, m.d_ff, m.dropout, m.activation, m.norm_first),
        data.store.vocabulary_size,
        n_classes,
        m.token_scale,
        m.dropout,
    )
    initialize(model, cfg.seed)
    return Classifier(model, cfg.optim, n_classes, cfg.seed)


def build_trainer(cfg: Config, folder: Path, logger: Any) -> L.Trainer:
    """The Lightning trainer; the first checkpoint callback keeps the best epoch."""
    t = cfg.trainer
    _quiet()
    checkpoints = folder / "checkpoints"
    callbacks: list[Callback] = [
        ModelCheckpoint(
            checkpoints, "best", monitor="val/accuracy", mode="max", save_weights_only=True,
            enable_version_counter=False,
        ),
        ModelCheckpoint(checkpoints, "last", enable_version_counter=False),
        *progress_callbacks(t.progress),
    ]  # fmt: skip
    if t.patience is not None:
        callbacks.append(
            EarlyStopping("val/accuracy", t.min_delta, t.patience, mode="max", verbose=False)
        )
    return L.Trainer(
        accelerator=t.accelerator,
        devices=1,
        precision=t.precision,  # type: ignore[arg-type]
        max_epochs=t.max_epochs,
        gradient_clip_val=t.clip_norm,
        limit_train_batches=t.limit_batches,
        limit_val_batches=t.limit_batches,
        limit_test_batches=t.limit_batches,
        logger=logger if logger is not None else False,
        callbacks=callbacks,
        default_root_dir=folder,
        deterministic="warn",
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
        enable_model_summary=False,
        enable_progress_bar=any(type(c).__name__ == "RichProgressBar" for c in callbacks),
        log_every_n_steps=50,
    )


def _trained(data: TextDataModule, cfg: Config, epochs: int) -> tuple[int, int]:
    """Documents and tokens seen in training, over all epochs."""
    lengths = data.documents["train"].lengths
    if cfg.trainer.limit_batches is not None:
        lengths = lengths[: cfg.trainer.limit_batches * cfg.data.batch_size]
    return epochs * len(lengths), epochs * int(lengths.sum())


def _variant(cfg: Config, folder: Path) -> str:
    """What the run's folder says beyond data, encoding, fusion and seed; empty if nothing."""
    names = [cfg.data.name, cfg.encoding.name, cfg.fusion["name"]]
    parts = list(folder.parts)[:-1]
    return "" if parts[-3:] == names else parts[-1]


def _quiet() -> None:
    """Silence what Lightning says at every start and what does not concern the user."""
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    for text in (".*does not have many workers.*", ".*exists and is not empty.*",
                 ".*log_every_n_steps.*", ".*`isinstance\\(treespec, LeafSpec\\)`.*",
                 ".*has been trained.*max_epochs.*"):  # fmt: skip
        warnings.filterwarnings("ignore", text)


@hydra.main(version_base="1.3", config_path=str(CONF_DIR), config_name="train")
def job(config: DictConfig) -> float:
    """One Hydra job: a run in its folder. A failure is recorded, and a sweep goes on after it."""
    hydra_cfg = HydraConfig.get()
    folder = Path(hydra_cfg.runtime.output_dir)
    try:
        record = train(checked(config), folder)
    except Exception as error:
        failed = record_failure(error, folder, list(hydra_cfg.overrides.task))
        if hydra_cfg.mode == RunMode.RUN:
            sys.exit(f"error: {failed.args[0]}")
        raise failed from error
    accuracy: float = record["test"]["accuracy"]
    return accuracy


def main() -> None:
    """posfuse-train: exit status 0 when every run is done, 1 with one line a failure."""
    os.environ["HYDRA_FULL_ERROR"] = "1"  # let errors through to the one place that words them
    started = time.time()
    try:
        job()
    except RunFailed as error:
        sys.exit(summary(error, started))
    except (InputError, HydraException, OmegaConfBaseException) as error:
        sys.exit(f"error: {one_line(error)}")
    except OSError as error:
        sys.exit(f"error: {error.filename or 'disk'}: {error.strerror or error}; mend that and run "
                 "the same command again: finished runs are kept")  # fmt: skip


if __name__ == "__main__":
    main()
