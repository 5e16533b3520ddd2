"""The typed schema of conf/, and the checks that run before any data is loaded.

Hydra merges every file of conf/ and every override into these dataclasses, so a misspelt key or
a value of the wrong type fails at once; `checked` adds what types cannot say.
"""

import dataclasses
import hashlib
import inspect
import pkgutil
import re
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from posfuse.errors import InputError

# conf/ lies inside the installed package; in a checkout it lies at the top.
_PACKAGE = Path(__file__).resolve().parent
CONF_DIR = next(p for p in (_PACKAGE / "conf", _PACKAGE.parents[1] / "conf") if p.is_dir())

# Keys that cannot change a number: neither the fingerprint nor the folder's name holds them.
# The data's, encoding's and fusion's names are labels: what they stand for is in the other keys.
NEUTRAL_KEYS = ("sweep_id", "output_dir", "cache_dir", "logger", "trainer.progress", "experiment")


@dataclass
class VocabularyConfig:
    max_size: int = 50_000  # entries at most, <pad> and <unk> included
    min_count: int = 2  # occurrences a word needs
    source: str = "train"  # train: counted on the training split; all: on every split


@dataclass
class DataConfig:
    name: str = "???"  # names the corpus in folders and tables
    corpus: dict[str, Any] | None = None  # _target_ and arguments of the corpus function
    path: str | None = None  # a local folder of train|validation|test.(parquet|csv|jsonl)
    drop_empty: bool = False  # leave out documents without text instead of refusing them
    split_seed: int = 0  # fixes the splits; the run's seed never does
    validation_fraction: float = 0.1  # taken from train where there is no validation split
    limit: int | None = None  # documents a split at most, a stratified sample
    vocabulary: VocabularyConfig = field(default_factory=VocabularyConfig)
    max_len: int = 512  # tokens; what is longer is cut
    batch_size: int = 64  # documents
    eval_batch_size: int = 256  # documents
    pool_batches: int = 50  # batches of one shuffled pool, inside which lengths are sorted


@dataclass
class EncodingConfig:
    name: str = "???"
    table: dict[str, Any] = field(default_factory=dict)  # _target_ and arguments of the table
    attention: dict[str, Any] = field(default_factory=dict)  # of what attention does; {}: nothing


@dataclass
class ModelConfig:
    d_model: int = 64  # features of a token
    n_heads: int = 4  # attention heads; divides d_model
    n_layers: int = 2  # blocks
    d_ff: int = 128  # hidden features of the feed-forward part
    activation: str = "gelu"  # gelu or relu
    norm_first: bool = False  # pre-norm instead of post-norm
    dropout: float = 0.1  # after attention, in the feed-forward part and before the head
    attention_dropout: float | None = None  # of attention's weights; null: as dropout
    token_scale: Any = "sqrt_d"  # embeddings times this: sqrt_d, learned, a number or a fraction


@dataclass
class OptimConfig:
    name: str = "adamw"  # adamw or adam
    lr: float = 3e-4
    weight_decay: float = 0.0


@dataclass
class TrainerConfig:
    max_epochs: int = 10
    clip_norm: float | None = 1.0  # gradients' norm at most; null: no clipping
    patience: int | None = None  # epochs without a better validation accuracy; null: never stop
    min_delta: float = 1e-4  # what counts as better, a fraction of accuracy
    accelerator: str = "auto"  # auto, cpu, gpu, mps
    precision: str = "32-true"  # 32-true, bf16-mixed, 16-mixed
    threads: int | None = None  # CPU threads of a run; null: torch's own choice
    limit_batches: int | None = None  # batches a split at most, for a trial
    progress: str = "auto"  # bar, lines, none; auto: bar where a person watches, else lines


@dataclass
class LoggerConfig:
    name: str = "wandb"  # wandb or none
    project: str = "posfuse"
    tags: list[str] = field(default_factory=list)


@dataclass
class Config:
    seed: int = 0  # initial values, batch order and dropout
    sweep_id: str = "default"  # the sweep's folder in output_dir
    output_dir: str = "multirun"
    cache_dir: str = "multirun/.cache"  # token ids, shared by all sweeps
    data: DataConfig = field(default_factory=DataConfig)
    encoding: EncodingConfig = field(default_factory=EncodingConfig)
    fusion: dict[str, Any] = field(default_factory=dict)  # name, _target_ and arguments
    model: ModelConfig = field(default_factory=ModelConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    logger: LoggerConfig = field(default_factory=LoggerConfig)


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
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.\-]*", str(name)):
            raise InputError(f"{key}: the name {name!r} becomes a folder; use letters, digits, _.-")
    _check_ranges(cfg)
    cfg.model.token_scale = _token_scale(cfg.model.token_scale)
    if cfg.data.path is None and cfg.data.corpus is None:
        raise InputError("data.path: no corpus given; name a folder with data.path=FOLDER")
    if cfg.data.corpus is not None:
        _check_arguments("data.corpus", cfg.data.corpus, given=())
    _check_arguments("encoding.table", cfg.encoding.table, given=("d_model", "max_len"))
    if cfg.encoding.attention:
        given = ("d_model", "n_heads", "max_len")
        _check_arguments("encoding.attention", cfg.encoding.attention, given)
    fusion = {k: v for k, v in cfg.fusion.items() if k != "name"}
    _check_arguments("fusion", fusion, given=("d_model",))
    build_parts(cfg)  # a value that an operator refuses fails here, before any data is loaded
    return cfg


def build_parts(cfg: Config) -> tuple[Any, Any, Any]:
    """The fusion operator, the position table and the encoding inside attention (None: nothing)
    that the config names."""
    d_model, max_len = cfg.model.d_model, cfg.data.max_len
    try:
        return (
            _built(cfg.fusion, d_model=d_model),
            _built(cfg.encoding.table, d_model=d_model, max_len=max_len),
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


def _check_keys(prefix: str, node: Any, schema: Any) -> None:
    """Refuse what "+key=value" adds: Hydra lets it past the schema."""
    allowed = {f.name: f.type for f in dataclasses.fields(schema)}
    for key in node:
        if key not in allowed:
            raise InputError(f"{prefix}{key}: unknown key; use one of {', '.join(allowed)}")
        if dataclasses.is_dataclass(allowed[key]):
            _check_keys(f"{prefix}{key}.", node[key], allowed[key])


def _check_ranges(cfg: Config) -> None:
    model, data, trainer = cfg.model, cfg.data, cfg.trainer
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
        "trainer.limit_batches": trainer.limit_batches,
    }
    for key, value in positive.items():
        if value is not None and not 0 < value < float("inf"):
            raise InputError(f"{key}: {value} is not positive; use a number above 0")
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
        "data.vocabulary.source": (data.vocabulary.source, ("all", "train")),
        "trainer.progress": (trainer.progress, ("auto", "bar", "lines", "none")),
        "trainer.accelerator": (trainer.accelerator, ("auto", "cpu", "gpu", "cuda", "mps")),
        "trainer.precision": (
            trainer.precision,
            ("32-true", "64-true", "bf16-mixed", "16-mixed", "bf16-true"),
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
    if not scale > 0:
        raise InputError(f"model.token_scale: {value!r}; use sqrt_d, learned, or a number above 0")
    return scale


def _check_arguments(key: str, node: dict[str, Any], given: tuple[str, ...]) -> None:
    """Check a node with a `_target_` against the signature of what it names."""
    target = node.get("_target_")
    if target is None:
        raise InputError(f"{key}._target_: missing; give the import path of the class or function")
    try:
        function = pkgutil.resolve_name(str(target))
        parameters = inspect.signature(function).parameters
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise InputError(
            f"{key}._target_: cannot import {target!r} ({error}); give the path of a class or "
            "function that Python can import"
        ) from error
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


def one_line(error: BaseException, *schemas: Any) -> str:
    """Hydra's and OmegaConf's messages of several lines as one, the key in front; `schemas` are
    dataclasses beside those of this file."""
    text = str(error)
    if isinstance(error.__cause__, OmegaConfBaseException):  # it names the key, its error does not
        text = str(error.__cause__)
    key = re.search(r"full_key: (\S+)", text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if key:
        lines = [line for line in lines if not re.match(r"(full_key|\w+_type|hydra)\b", line)]
    message = " ".join(lines)
    message = re.sub(r"\s*Config search path:.*", "", message)
    message = re.sub(r"In '[^']*': (\w+ raised while composing config: ?)?", "", message)
    if key and (unknown := re.search(r"Key '[^']+' (?:not in|is not in) '?(\w+)'?", message)):
        fields = _fields_of(unknown[1], schemas)
        known = f"use one of {', '.join(fields)}" if fields else "posfuse-train --cfg job shows all"
        return f"{key[1]}: unknown key; {known}"
    where = key[1] if key else getattr(error, "override", None)  # Hydra's parser keeps the latter
    return f"{where}: {message}" if where and where not in message else message


def _fields_of(class_name: str, schemas: tuple[Any, ...]) -> list[str]:
    schema = {s.__name__: s for s in schemas}.get(class_name, globals().get(class_name))
    return [f.name for f in dataclasses.fields(schema)] if dataclasses.is_dataclass(schema) else []


def run_folder(data: str, encoding: str, fusion: str, seed: int, overrides: list[str]) -> str:
    """Where a run lies in its sweep's folder: data/encoding/fusion[/other overrides]/seed=n.

    The other overrides are spelt in letters that every file system takes; where that loses
    something, or they are long, a hash of them keeps two different runs apart.
    """
    own = sorted(o for o in overrides if not _in_path_already(o))
    text = "__".join(own)
    plain = re.sub(r"[^A-Za-z0-9._=+\-]+", "-", text)[:80].strip(".-")
    if plain != text:
        plain += "-" + hashlib.sha256(text.encode()).hexdigest()[:8]
    return "/".join(part for part in (data, encoding, fusion, plain, f"seed={seed}") if part)


def _in_path_already(override: str) -> bool:
    key = override.lstrip("+~").split("=")[0]
    named = ("data", "encoding", "fusion", "seed", "data.name", "encoding.name", "fusion.name")
    hydra = key.startswith(("hydra.", "hydra/"))
    return hydra or key in named or any(key == k or key.startswith(f"{k}.") for k in NEUTRAL_KEYS)


def _run_folder(data: str, encoding: str, fusion: str, seed: int, overrides: Any) -> str:
    return run_folder(data, encoding, fusion, seed, list(overrides))


def register() -> None:
    """Make the schema and the folder's resolver known to Hydra; safe to call again."""
    ConfigStore.instance().store(name="schema", node=Config)
    OmegaConf.register_new_resolver("posfuse.run_folder", _run_folder, replace=True)


register()
