"""The checks of a config that run before any data is loaded: what its types cannot say."""

import dataclasses
import importlib
import inspect
import pkgutil
import traceback
from fractions import Fraction
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from posfuse.config import Config, check_folder, check_name, one_line
from posfuse.errors import InputError, lacks_memory
from posfuse.process import precision
from posfuse.runs.fidelity import apply_fidelity

HUB = "posfuse.data.corpora.hub"
MOST_TOKENS = 2**20  # a position table has max_len rows: 256 MB with model.d_model=64
MOST_THREADS = 1024  # far more than that fail to start, and the error then names something else


def checked(config: DictConfig) -> Config:
    """The composed config as dataclasses; raises InputError that names the key and the cure."""
    _check_keys("", config, Config)
    cfg = OmegaConf.to_object(config)
    assert isinstance(cfg, Config)
    names = {
        "data.name": cfg.data.name,
        "encoding.name": cfg.encoding.name,
        "fusion.name": cfg.fusion.get("name"),
        "sweep_id": cfg.sweep_id,
    }
    for key, name in names.items():
        if not isinstance(name, str):  # fusion is an untyped dict
            raise InputError(f"{key}: {name!r} is not a text; give a name, as {key}=my_name")
        check_name(key, name)
    check_folder("cache_dir", cfg.cache_dir)
    _check_ranges(cfg)
    cfg.model.token_scale = _token_scale(cfg.model.token_scale)
    apply_fidelity(cfg)
    if cfg.data.path == "":
        raise InputError("data.path: '' is empty; name a folder with data.path=FOLDER")
    if cfg.data.path is None and cfg.data.corpus is None:
        raise InputError("data.path: no corpus given; name a folder with data.path=FOLDER")
    _check_path(cfg)
    if cfg.data.corpus is not None:
        _check_arguments("data.corpus", cfg.data.corpus, given=())
    _check_arguments("encoding.table", cfg.encoding.table, given=("d_model", "max_len"))
    if cfg.encoding.attention:
        given = ("d_model", "n_heads", "max_len")
        _check_arguments("encoding.attention", cfg.encoding.attention, given)
    fusion = {k: v for k, v in cfg.fusion.items() if k != "name"}
    _check_arguments("fusion", fusion, given=("d_model",))
    from posfuse.process.environment import denormals_flushed  # imports torch, as the parts do

    with denormals_flushed():  # a table may start the threads that the run uses too
        build_parts(cfg)  # a value that an operator refuses fails here, before any data is loaded
    if cfg.trainer.precision == precision.FASTEST:  # config.yaml and the record say what runs
        sweep = Path(cfg.output_dir, cfg.sweep_id)
        chosen = precision.fastest(cfg.trainer.accelerator, cfg.model.d_model, sweep)
        cfg.trainer.precision = chosen
    return cfg


def build_parts(cfg: Config) -> tuple[Any, Any, Any]:
    """The fusion operator, the position table (None: the operator uses none) and the encoding
    inside attention (None: nothing) that the config names."""
    d_model, max_len = cfg.model.d_model, cfg.data.max_len
    try:
        fusion = _built(cfg.fusion, d_model=d_model)
        table = cfg.encoding.table if fusion.uses_table else {}
        return (
            fusion,
            _built(table, d_model=d_model, max_len=max_len),
            _built(
                cfg.encoding.attention, d_model=d_model, n_heads=cfg.model.n_heads, max_len=max_len
            ),
        )
    except ValueError as error:
        pair = f"encoding={cfg.encoding.name} fusion={cfg.fusion['name']}"
        raise InputError(f"{pair}: {error}") from error


def _built(node: dict[str, Any], **given: Any) -> Any:
    if not node:
        return None
    options = {k: v for k, v in node.items() if k not in ("name", "_target_")}
    return pkgutil.resolve_name(node["_target_"])(**given, **options)


def _check_path(cfg: Config) -> None:
    """Refuse a folder of texts for a corpus that is not read from one: it would bear its name."""
    target = cfg.data.corpus and cfg.data.corpus.get("_target_")
    if cfg.data.path is not None and target not in (None, HUB):
        raise InputError(
            f"data.path: {cfg.data.name} is made by {target}, which reads no folder; for your own "
            "texts use data=folder data.name=NAME"
        )


def _check_keys(prefix: str, node: Any, schema: Any) -> None:
    """Refuse what "+key=value" adds: Hydra lets it past the schema."""
    allowed = {f.name: f.type for f in dataclasses.fields(schema)}
    for key in node:
        if key not in allowed:
            raise InputError(f"{prefix}{key}: unknown key; use one of {', '.join(allowed)}")
        if dataclasses.is_dataclass(allowed[key]):
            _check_keys(f"{prefix}{key}.", node[key], allowed[key])


def _check_ranges(cfg: Config) -> None:
    model, data, trainer, fidelity = cfg.model, cfg.data, cfg.trainer, cfg.fidelity
    positive = {
        "model.d_model": model.d_model,
        "model.n_heads": model.n_heads,
        "model.n_layers": model.n_layers,
        "model.d_ff": model.d_ff,
        "data.max_len": data.max_len,
        "data.batch_size": data.batch_size,
        "data.eval_batch_size": data.eval_batch_size,
        "data.pool_batches": data.pool_batches,
        "data.limit": data.limit,
        "data.vocabulary.min_count": data.vocabulary.min_count,
        "optim.lr": cfg.optim.lr,
        "trainer.max_epochs": trainer.max_epochs,
        "trainer.clip_norm": trainer.clip_norm,
        "trainer.patience": trainer.patience,
        "trainer.threads": trainer.threads,
        "trainer.devices": trainer.devices,
        "trainer.limit_batches": trainer.limit_batches,
        "trainer.checkpoint_minutes": trainer.checkpoint_minutes,
    }
    for key, value in positive.items():
        if value is not None and not 0 < value < float("inf"):
            raise InputError(f"{key}: {value} is not positive; use a number above 0")
    for key, count, most in (
        ("data.max_len", data.max_len, MOST_TOKENS),
        ("trainer.threads", trainer.threads, MOST_THREADS),
    ):
        if count is not None and count > most:
            raise InputError(f"{key}: {count} is too large; use at most {most}")
    not_negative = {
        "seed": cfg.seed,
        "data.split_seed": data.split_seed,
        "optim.weight_decay": cfg.optim.weight_decay,
        "trainer.min_delta": trainer.min_delta,
    }
    for key, value in not_negative.items():
        if not 0 <= value < float("inf"):
            raise InputError(f"{key}: {value} is below 0; use 0 or more")
    if cfg.seed > 2**32 - 1 or data.split_seed > 2**32 - 1:
        raise InputError("seed: use at most 4294967295, the same holds for data.split_seed")
    if model.d_model % model.n_heads:
        fitting = [n for n in range(1, model.d_model + 1) if model.d_model % n == 0]
        raise InputError(
            f"model.n_heads: {model.n_heads} does not divide model.d_model={model.d_model}; "
            f"use one of {', '.join(map(str, fitting))}"
        )
    for key, value in {
        "dropout": model.dropout,
        "attention_dropout": model.attention_dropout,
        "head_dropout": model.head_dropout,
    }.items():
        if value is not None and not 0 <= value < 1:
            raise InputError(f"model.{key}: {value} is not a share; use 0 up to below 1")
    if not 0 < data.validation_fraction < 1:
        raise InputError(f"data.validation_fraction: {data.validation_fraction}; use 0 < f < 1")
    if data.vocabulary.max_size < 3:
        raise InputError("data.vocabulary.max_size: use 3 or more: <pad>, <unk> and a word")
    choices = {
        "model.activation": (model.activation, ("gelu", "relu")),
        "optim.name": (cfg.optim.name, ("adam", "adamw")),
        "logger.name": (cfg.logger.name, ("none", "wandb")),
        "fidelity.initial_values": (fidelity.initial_values, ("by_name", "shared_stream")),
        "fidelity.blocks": (fidelity.blocks, ("copies", "independent")),
        "fidelity.batch_order": (fidelity.batch_order, ("by_run", "by_seed")),
        "fidelity.validation_split": (fidelity.validation_split, ("by_seed", "fixed")),
        "fidelity.gate_scalar": (fidelity.gate_scalar, ("feature", "scalar")),
        "fidelity.gate_mlp": (fidelity.gate_mlp, ("gate", "mlp")),
        "fidelity.mlp_activation": (fidelity.mlp_activation, ("gelu", "relu")),
        "fidelity.mlp_biases": (fidelity.mlp_biases, ("linear", "zero")),
        "fidelity.gate_start": (fidelity.gate_start, ("half", "linear")),
        "fidelity.rope": (fidelity.rope, ("attention", "table")),
        "fidelity.relative": (fidelity.relative, ("attention", "table")),
        "data.vocabulary.source": (data.vocabulary.source, ("all", "train")),
        "data.vocabulary.unit": (data.vocabulary.unit, ("bytes", "words")),
        "trainer.progress": (trainer.progress, ("auto", "bar", "lines", "none")),
        "trainer.accelerator": (trainer.accelerator, ("auto", "cpu", "gpu", "cuda", "mps")),
        "trainer.precision": (
            trainer.precision,
            (precision.FLOAT32, precision.BFLOAT16, precision.FASTEST),
        ),
    }
    for key, (choice, allowed) in choices.items():
        if choice not in allowed:
            raise InputError(f"{key}: {choice!r} is unknown; use one of {', '.join(allowed)}")


def _token_scale(value: Any) -> float | str:
    if value in ("sqrt_d", "learned"):
        return str(value)
    try:
        scale = float(Fraction(str(value)))
    except (ValueError, ZeroDivisionError, OverflowError):
        scale = 0.0
    if not 1e-6 <= scale <= 1e6:
        raise InputError(
            f"model.token_scale: {value!r} is no scale that leaves the tokens to be read; use "
            "sqrt_d, learned, or a number from 1e-6 to 1e6"
        )
    return scale


def _check_arguments(key: str, node: dict[str, Any], given: tuple[str, ...]) -> None:
    """Check a node with a `_target_` against the signature of what it names."""
    target = node.get("_target_")
    if target is None:
        raise InputError(f"{key}._target_: missing; give the import path of the class or function")
    try:
        parameters = inspect.signature(_resolved(str(target))).parameters
    except (Exception, SystemExit) as error:  # what a user's module raises while it is imported
        if lacks_memory(error):
            raise
        raise InputError(
            f"{key}._target_: cannot import {target!r} ({_raised(error)}); give the path of a "
            "class or function that Python can import"
        ) from error
    if lacking := [name for name in given if name not in parameters]:
        raise InputError(
            f"{key}._target_: {target} takes no {', '.join(lacking)}; give one of the kind that "
            f"{key} stands for"
        )
    arguments = {name: p for name, p in parameters.items() if name not in given}
    names = [name for name in node if name != "_target_"]
    for name in names:
        if name not in arguments:
            allowed = ", ".join(arguments) or "no options"
            raise InputError(f"{key}.{name}: unknown; {target} takes {allowed}")
    for name, p in arguments.items():
        if name not in node and p.default is inspect.Parameter.empty:
            raise InputError(f"{key}.{name}: missing; {target} needs it")
    fields = [(name, p.annotation) for name, p in arguments.items() if name in node]
    try:  # OmegaConf checks the types just as it does for the rest of the schema
        OmegaConf.structured(dataclasses.make_dataclass("_", fields)(**{n: node[n] for n in names}))
    except OmegaConfBaseException as error:
        raise InputError(f"{key}: {one_line(error)}") from error


def _resolved(target: str) -> Any:
    try:
        return pkgutil.resolve_name(target)
    except AttributeError:
        # It takes a module of a package that fails while it is imported for an absent attribute.
        importlib.import_module(target.rpartition(".")[0])
        raise


def _raised(error: BaseException) -> str:
    """An error of an import in one line, with the line of the imported module that raised it."""
    machinery = (__file__, pkgutil.__file__, inspect.__file__, importlib.__file__)
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if f.filename not in machinery and not f.filename.startswith("<")]
    place = f", {own[-1].filename} line {own[-1].lineno}" if own else ""
    return f"{type(error).__name__}: {' '.join(str(error).split())}{place}"
