"""From the config to the network and the trainer."""

import logging
import warnings
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import Callback, EarlyStopping, ModelCheckpoint, RichProgressBar
from lightning.pytorch.strategies import DDPStrategy

from posfuse.config import Config
from posfuse.data.datamodule import TextDataModule
from posfuse.errors import InputError
from posfuse.model.encoder import Encoder
from posfuse.model.network import PositionClassifier, copy_first_block, initialize, seed_from
from posfuse.runs.checks import build_parts
from posfuse.runs.fidelity import validation_seed
from posfuse.runs.records import BEST, LAST
from posfuse.training.checkpoints import WholeFiles
from posfuse.training.classifier import Classifier
from posfuse.training.progress import progress_callbacks

WAIT = timedelta(minutes=10)  # of a process of a run for the others

# What Lightning says at every start and what does not concern the user.
SILENCED = (
    ".*does not have many workers.*",
    ".*exists and is not empty.*",
    ".*log_every_n_steps.*",
    ".*LeafSpec.*",
    ".*is the same as the saved.*",
    ".*GPU available but not used.*",
    ".*`srun` command is available.*",
    ".*It is recommended to use `self.log.*",  # what is logged without is equal in all processes
    ".*ended before the epoch ended and your dataloader is not resumable.*",  # its sampler is
)


def build_data(cfg: Config) -> TextDataModule:
    """The run's corpus, its splits and the order of its batches as `cfg.fidelity` has them."""
    order = cfg.seed
    if cfg.fidelity.batch_order == "by_run":
        order = seed_from(cfg.seed, "batch order", cfg.encoding.name, cfg.fusion["name"])
    data = TextDataModule(cfg.data, cfg.cache_dir, order, validation_seed(cfg))
    for split, documents in data.documents.items():
        if len(documents) < cfg.trainer.devices:
            raise InputError(
                f"trainer.devices: {cfg.trainer.devices} processes have no document each, {split} "
                f"holds {len(documents)}; lower it"
            )
    return data


def build_network(cfg: Config, vocabulary_size: int, n_classes: int) -> PositionClassifier:
    """The network that `cfg` describes, its initial values not yet drawn."""
    fusion, table, position = build_parts(cfg)
    model = cfg.model
    encoder = Encoder(
        model.d_model,
        model.n_heads,
        model.n_layers,
        model.d_ff,
        model.dropout,
        model.activation,
        model.norm_first,
        model.attention_dropout,
        position,
    )
    before_head = model.dropout if model.head_dropout is None else model.head_dropout
    return PositionClassifier(
        fusion, table, encoder, vocabulary_size, n_classes, model.token_scale, before_head
    )


def build_classifier(cfg: Config, data: TextDataModule) -> Classifier:
    """The network for this corpus, its initial values drawn from the run's seed."""
    n_classes = len(data.store.label_names)
    network = build_network(cfg, data.store.vocabulary_size, n_classes)
    initialize(network, cfg.seed, shared_stream=cfg.fidelity.initial_values == "shared_stream")
    if cfg.fidelity.blocks == "copies":
        copy_first_block(network.encoder)
    if cfg.trainer.compile:
        network.compile(dynamic=True)  # one graph for batches of every length
    return Classifier(network, cfg.optim, n_classes, cfg.seed)


class ResumableEarlyStopping(EarlyStopping):
    """EarlyStopping that also holds for a run resumed after it had stopped, before its test."""

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self.wait_count >= self.patience:
            trainer.should_stop = True


class MovableCheckpoint(ModelCheckpoint):
    """ModelCheckpoint that knows its best epoch also where the sweep's folder was moved."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        def moved(value: Any) -> Any:
            if isinstance(value, dict):
                return {moved(key): score for key, score in value.items()}
            is_path = isinstance(value, str) and value.startswith(state_dict["dirpath"])
            return f"{self.dirpath}{value[len(state_dict['dirpath']) :]}" if is_path else value

        super().load_state_dict({key: moved(value) for key, value in state_dict.items()})


def build_trainer(cfg: Config, folder: Path, observers: Sequence[Callback]) -> L.Trainer:
    """The trainer of one run in `folder`: keeps the weights of the best epoch by validation
    accuracy (the first of equals), and of the last epoch all that a resume needs."""
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    for message in SILENCED:
        warnings.filterwarnings("ignore", message)
    t = cfg.trainer
    callbacks: list[Callback] = [
        *observers,
        MovableCheckpoint(
            (folder / BEST).parent,
            Path(BEST).stem,
            monitor="val/accuracy",
            mode="max",
            save_weights_only=True,
            enable_version_counter=False,
        ),
        MovableCheckpoint((folder / LAST).parent, Path(LAST).stem, enable_version_counter=False),
        *progress_callbacks(t.progress),
    ]
    if t.patience is not None:
        callbacks.append(
            ResumableEarlyStopping("val/accuracy", t.min_delta, t.patience, mode="max")
        )
    precision: Any = t.precision
    # What is allocated here is written before it is read; to fill it first is lost time.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    try:
        return L.Trainer(
            accelerator=t.accelerator,
            devices=t.devices,
            strategy=DDPStrategy(timeout=WAIT) if t.devices > 1 else "auto",
            precision=precision,
            max_epochs=t.max_epochs,
            gradient_clip_val=t.clip_norm,
            limit_train_batches=t.limit_batches,
            limit_val_batches=t.limit_batches,
            limit_test_batches=t.limit_batches,
            logger=False,
            callbacks=callbacks,
            # In a SLURM job it would take the job's tasks for devices, and requeue it by itself.
            plugins=[LightningEnvironment(), WholeFiles()],
            default_root_dir=folder,
            deterministic=True,
            num_sanity_val_steps=0,
            use_distributed_sampler=False,
            enable_model_summary=False,
            enable_progress_bar=any(isinstance(c, RichProgressBar) for c in callbacks),
        )
    except MisconfigurationException as error:
        raise InputError(f"trainer.accelerator: {error} Use trainer.accelerator=cpu") from error
