"""Builds the data, the network and the trainer from the config."""

import logging
import pkgutil
import warnings
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.pytorch.callbacks import Callback, RichProgressBar
from lightning.pytorch.strategies import DDPStrategy

from posfuse.config import Config, is_pretrained, longest, seed_of
from posfuse.data.corpora import is_task
from posfuse.data.datamodule import TextDataModule
from posfuse.data.evaluations import Evaluations
from posfuse.data.token_store import open_store
from posfuse.errors import ConfigError, InputError
from posfuse.model.encoder import Encoder
from posfuse.model.language_model import looks_ahead
from posfuse.model.network import (
    Backbone,
    check_merge,
    copy_first_block,
    initialize,
    learned_scalars,
    seed_from,
)
from posfuse.model.positions import PositionSampler
from posfuse.model.pretrained_host import Host, HostTable
from posfuse.process import signals
from posfuse.runs import identity
from posfuse.runs.checks import task_of
from posfuse.runs.records import BEST, LAST
from posfuse.runs.seeds import validation_seed, with_split_seed
from posfuse.training.checkpoints import MovableCheckpoint, ResumableEarlyStopping, WholeFiles
from posfuse.training.hosts import load_host
from posfuse.training.task import Task

WAIT = timedelta(minutes=10)  # for the other processes of a run


def build_data(cfg: Config, task: Task | None = None) -> TextDataModule:
    """The data of a task (default: the run's task): corpus, splits and order of batches.
    `cfg.fidelity` sets the last two.

    Raises InputError if a split has fewer documents than the run has processes, if an epoch has
    fewer batches than evaluations, or if the vocabulary lacks symbols of a generated task."""
    task, corpus = task or task_of(cfg), with_split_seed(cfg)
    store = open_store(
        corpus,
        cfg.cache_dir,
        validation_seed(cfg),
        poll=signals.check,
        pretrained=cfg.host.path,
        labelled=task.needs_labels,
    )
    if is_task(corpus) and any(store.unknown_share.values()):
        raise InputError(
            f"data.vocabulary: lacks symbols of {corpus.name}, and with them labels; remove "
            "data.vocabulary.max_size and data.vocabulary.min_count"
        )
    order = seed_of(cfg, "order")
    if cfg.fidelity.batch_order == "by_run":
        order = seed_from(order, "batch order", cfg.encoding.name, cfg.fusion["name"])
    trainer = cfg.trainer
    data = TextDataModule(
        task, corpus, store, order, Evaluations(trainer.evaluations), trainer.limit_batches
    )
    for split, documents in data.documents.items():
        if len(documents) < trainer.devices:
            raise InputError(
                f"trainer.devices: {split} has {len(documents)} documents for {trainer.devices} "
                "processes; use fewer devices"
            )
    batches = -(-len(data.documents["train"]) // (cfg.data.batch_size * trainer.devices))
    batches = min(batches, trainer.limit_batches or batches)
    if trainer.evaluations > batches:
        raise InputError(
            f"trainer.evaluations: {trainer.evaluations}, but an epoch has {batches} batches; use "
            f"{batches} or fewer"
        )
    return data


def build_parts(cfg: Config, host: Host | None = None) -> tuple[Any, Any, Any]:
    """The config's fusion operator, position table (None if the operator uses none) and encoding
    inside attention (or None). `host` is the result of `load_host`.

    Raises ConfigError for a value that one of them refuses, or if their positions end before the
    longest document.
    """
    reach = longest(cfg.data)
    model: Any = cfg.model  # with a host its sizes are null
    d_model: int = host.d_model if host else model.d_model
    is_random = cfg.encoding.positions == "randomized"
    if is_random and cfg.encoding.range < reach:
        raise ConfigError(
            f"encoding.range: {cfg.encoding.range}, but documents have up to {reach} tokens; use "
            f"encoding.range={reach} or more"
        )
    sizes = {"d_model": d_model, "max_len": cfg.encoding.range if is_random else reach}
    try:
        fusion = _make(cfg.fusion, d_model=d_model)
        check_merge(fusion)
        table = _make(cfg.encoding.table, **sizes) if fusion.uses_table else None
        attention = None
        if cfg.encoding.attention:
            attention = _make(cfg.encoding.attention, n_heads=model.n_heads, **sizes)
        for part in filter(None, (fusion, table, attention)):
            learned_scalars(part)  # for its error
    except ValueError as error:
        raise ConfigError(f"{_names(cfg)}: {error}") from error
    is_beyond = reach > cfg.data.max_len and not is_random
    if is_beyond and any(p.trained_length_only for p in (table, attention) if p is not None):
        raise ConfigError(
            f"encoding={cfg.encoding.name}: its rows end at data.max_len={cfg.data.max_len}, but "
            f"data.test_lengths asks for {reach}; use encoding.positions=randomized or another "
            "encoding"
        )
    if host and isinstance(table, HostTable):
        if table.max_len > len(host.rows):
            raise ConfigError(
                f"encoding.range: {table.max_len}, but {cfg.host.path} has positions for "
                f"{len(host.rows)} tokens; use encoding.range={len(host.rows)} or another encoding"
            )
        table.take(host.rows)
    return fusion, table, attention


def _names(cfg: Config) -> str:
    return f"encoding={cfg.encoding.name} fusion={cfg.fusion['name']}"


def _make(node: dict[str, Any], **sizes: int) -> Any:
    options = {k: v for k, v in node.items() if k not in ("name", "_target_")}
    return pkgutil.resolve_name(node["_target_"])(**sizes, **options)


def build_backbone(cfg: Config) -> Backbone:
    """The parts of a network that do not depend on its task, without their initial values.

    Raises InputError as `load_host` and ConfigError as `build_parts`.
    """
    host = load_host(cfg)
    fusion, table, position = build_parts(cfg, host)
    model: Any = cfg.model  # what is null here is the host's: runs.combinations
    encoder = host.encoder if host else Encoder(
        d_model=model.d_model, n_heads=model.n_heads, n_layers=model.n_layers, d_ff=model.d_ff,
        dropout=model.dropout, attention_dropout=model.attention_dropout,
        activation=model.activation, norm_first=model.norm_first,
        position=position, causal=task_of(cfg).causal,
    )  # fmt: skip
    is_random = cfg.encoding.positions == "randomized"
    seed = seed_from(seed_of(cfg, "dropout"), "positions")  # of the positions outside training
    sampler = PositionSampler(cfg.encoding.range if is_random else None, seed)
    return Backbone(
        fusion,
        table,
        encoder,
        token_scale=model.token_scale,
        fused_norm=model.fused_norm,
        sampler=sampler,
        embedding=host.embedding if host else None,
    )


def build_network(cfg: Config, vocabulary_size: int, n_classes: int) -> Any:
    """The network of the run's task, without its initial values."""
    return task_of(cfg).network(build_backbone(cfg), vocabulary_size, n_classes)


def build_module(cfg: Config, data: TextDataModule, backbone: Backbone | None = None) -> Any:
    """The module of the data's task with its initial values. `backbone` is the result of
    `build_backbone`; only this module may use it. Raises ConfigError if a task with causal
    attention gets an encoding or operator that lets a token see later ones."""
    backbone = backbone or build_backbone(cfg)
    store = data.store
    network = data.task.network(backbone, store.vocabulary_size, len(store.label_names))
    shared_stream = cfg.fidelity.initial_values == "shared_stream"
    pretrained = (network.embedding, network.encoder) if is_pretrained(cfg) else ()
    initialize(network, seed_of(cfg, "init"), shared_stream, pretrained)
    if cfg.fidelity.blocks == "copies":
        copy_first_block(network.encoder)
    if data.task.causal and looks_ahead(network, longest(cfg.data)):
        raise ConfigError(
            f"{_names(cfg)}: cannot be causal (a later token changes what is predicted earlier); "
            "use other ones with task=language_model"
        )
    if cfg.trainer.compile:
        network.compile(dynamic=True)  # one graph for batches of every length
    return data.task.module(network)


def build_trainer(cfg: Config, folder: Path, observers: Sequence[Callback]) -> L.Trainer:
    """The trainer of one run in `folder`. It saves the weights of the best evaluation by
    trainer.monitor (the first one if equal), and after each evaluation the state for a resume."""
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    # Lightning's warnings are for programmers. The user's settings have been checked.
    warnings.filterwarnings("ignore", module="lightning")
    t, evaluations = cfg.trainer, Evaluations(cfg.trainer.evaluations)
    monitor, mode = task_of(cfg).monitor
    best: dict[str, Any] = {"monitor": monitor, "mode": mode, "save_weights_only": True}
    callbacks: list[Callback] = [
        *observers,
        MovableCheckpoint(folder / BEST, **best),
        MovableCheckpoint(folder / LAST),
    ]
    if t.patience is not None:
        # A loss that is not finite is not a gain, but it does not end the run at once.
        stopping = ResumableEarlyStopping(
            monitor, t.min_delta, t.patience, mode=mode, check_finite=False
        )
        callbacks.append(stopping)
    # Every tensor is written before it is read, so it need not be filled.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    return L.Trainer(
        accelerator=t.accelerator,
        devices=t.devices,
        strategy=DDPStrategy(timeout=WAIT) if t.devices > 1 else "auto",
        precision=t.precision,  # type: ignore[arg-type]
        max_epochs=evaluations.turns(t.max_epochs),
        reload_dataloaders_every_n_epochs=int(evaluations.per_epoch > 1),
        accumulate_grad_batches=t.accumulate,
        gradient_clip_val=t.clip_norm,
        limit_train_batches=t.limit_batches,
        limit_val_batches=t.limit_batches,
        limit_test_batches=t.limit_batches,
        logger=False,
        callbacks=callbacks,
        # Lightning's SLURM plugin would use the job's tasks as devices and requeue the job.
        plugins=[LightningEnvironment(), WholeFiles(identity.owner(cfg))],
        default_root_dir=folder,
        deterministic=True,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
        enable_model_summary=False,
        enable_progress_bar=any(isinstance(c, RichProgressBar) for c in callbacks),
    )
