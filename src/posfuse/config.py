"""The typed schema of conf/, and the folder of a run.

Hydra merges every file of conf/ and every override into these dataclasses, so a misspelt key or
a value of the wrong type fails at once; checks.py adds what types cannot say.
"""

import dataclasses
import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.errors import OverrideParseException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from posfuse.errors import InputError

# conf/ lies inside the installed package; in a checkout it lies at the top.
_PACKAGE = Path(__file__).resolve().parent
CONF_DIR = next(p for p in (_PACKAGE / "conf", _PACKAGE.parents[1] / "conf") if p.is_dir())

# Keys that cannot change a number: neither the fingerprint nor the folder's name holds them.
# The data's, encoding's and fusion's names are labels: what they stand for is in the other keys.
NEUTRAL_KEYS = (
    "sweep_id", "output_dir", "cache_dir", "logger", "trainer.progress", "experiment",
    "trainer.checkpoint_minutes", "fidelity.notebook_parts_only", "sweep",
)  # fmt: skip

# The names of data, encoding, fusion and sweep become folders, and texts of tables and pages.
NAMES = ("data.name", "encoding.name", "fusion.name", "sweep_id")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]*")
LETTERS = "use letters (A-Z, a-z), digits, _.-"
VARIANT_LETTERS = r"A-Za-z0-9._=+\-"  # of the folder that names a run's other overrides

# What Hydra's parser says of an override that is not of its grammar: names of its tokens.
GRAMMAR = re.compile("LexerNoViableAlt|mismatched input|extraneous input|no viable|missing .+ at")


@dataclass
class VocabularyConfig:
    max_size: int = 50_000  # entries at most, <pad> and <unk> included
    min_count: int = 2  # occurrences a word needs
    source: str = "train"  # train: counted on the training split; all: on every split
    unit: str = "words"  # words; bytes: of UTF-8, and the three keys above do not matter


@dataclass
class DataConfig:
    name: str = "???"  # names the corpus in folders and tables
    corpus: dict[str, Any] | None = None  # _target_ and arguments of the corpus function
    path: str | None = None  # a local folder of train|validation|test.(parquet|csv|jsonl)
    drop_empty: bool = False  # leave out documents without text instead of refusing them
    split_seed: int = 0  # fixes the splits; the run's seed never does
    validation_fraction: float = 0.1  # taken from train where there is no validation split
    validation_stratified: bool = True  # what is taken has every class in proportion; false: any
    limit: int | None = None  # documents a split at most, a stratified sample
    vocabulary: VocabularyConfig = field(default_factory=VocabularyConfig)
    max_len: int = 512  # tokens, 2**20 at most; what is longer is cut
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
    head_dropout: float | None = None  # before the head; null: as dropout
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
    devices: int = 1  # of the machine, a process each; a step has batch_size documents on each
    precision: str = "32-true"  # 32-true, bf16-mixed; fastest: whichever is faster here
    threads: int | None = None  # CPU threads of a run, 1024 at most; null: torch's own choice
    compile: bool = False  # by torch.compile: a minute at the start, less a step; needs a compiler
    limit_batches: int | None = None  # batches a split at most, for a trial
    checkpoint_minutes: float = 10.0  # between two of the run's state inside an epoch, at most
    progress: str = "auto"  # bar, lines, none; auto: bar where a person watches, else lines


@dataclass
class FidelityConfig:
    """Where the paper and its notebooks differ, the paper first; docs/fidelity.md says more."""

    initial_values: str = "by_name"  # a generator a module; shared_stream: one for all, in turn
    blocks: str = "independent"  # the encoder's at the start; copies: all equal the first
    batch_order: str = "by_seed"  # of the seed alone; by_run: of seed, encoding and fusion
    validation_split: str = "fixed"  # taken from train by data.split_seed; by_seed: by the run's
    gate_scalar: str = "scalar"  # one gate a position; feature: d of them
    gate_mlp: str = "gate"  # an MLP's gate; mlp: the MLP's output, no gate
    concat_bias: bool = False  # of the projection of [E; P]; true: with one
    mlp_activation: str = "gelu"  # of the operator mlp's hidden layer; relu
    mlp_biases: str = "zero"  # of the operator mlp at the start; linear: as nn.Linear starts them
    gate_start: str = "half"  # gates start near 0.5; linear: as nn.Linear starts, many near 0 or 1
    rope: str = "attention"  # turned queries and keys; table: an absolute table
    relative: str = "attention"  # relative keys; table: an absolute table, learned
    notebook_parts_only: bool = False  # refuse encodings and operators the notebooks do not have


@dataclass
class LoggerConfig:
    name: str = "wandb"  # wandb or none
    project: str = "posfuse"
    tags: list[str] = field(default_factory=list)


@dataclass
class SweepConfig:
    fail_fast: bool = False  # end the sweep at the first failure; else the other runs go on


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
    fidelity: FidelityConfig = field(default_factory=FidelityConfig)
    logger: LoggerConfig = field(default_factory=LoggerConfig)
    sweep: SweepConfig = field(default_factory=SweepConfig)


def one_line(error: BaseException, *schemas: Any) -> str:
    """Hydra's and OmegaConf's messages of several lines as one, the key in front; `schemas` are
    dataclasses beside those of this file."""
    if isinstance(error, OverrideParseException) and GRAMMAR.search(error.message):
        name_key, _, name = error.override.partition("=")
        if name_key in NAMES and name:
            return f"{name_key}: the name {name!r} becomes a folder; {LETTERS}"
        return (
            f"{error.override}: not an override that Hydra can read; write key=value or "
            "key=value,value, and put quotes around other characters, as in 'key=\"a:b\"'"
        )
    text = str(error)
    if refused := re.match(r"InputError raised while resolving interpolation: (.*)", text):
        return refused[1]
    if isinstance(error.__cause__, OmegaConfBaseException):  # it names the key, its error does not
        text = str(error.__cause__)
    key = re.search(r"full_key: (\S+)", text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if key:
        lines = [line for line in lines if not re.match(r"(full_key|\w+_type|hydra)\b", line)]
    message = " ".join(lines)
    message = re.sub(r"\s*See https://hydra.cc\S* for details", "", message)
    message = re.sub(r"\s*Config search path:.*", "", message)
    message = re.sub(r"^field '(\S+)' is not Optional$", r"\1: null is no value; give one", message)
    message = re.sub(r"In '[^']*': (\w+ raised while composing config: ?)?", "", message)
    if extra := re.search(r"Error in call to target .* argument '(\w+)'", message):
        return f"{key[1]}.{extra[1]}: unknown key; remove it" if key else message
    if key and (unknown := re.search(r"Key '[^']+' (?:not in|is not in) '?(\w+)'?", message)):
        fields = _fields_of(unknown[1], schemas)
        known = f"use one of {', '.join(fields)}" if fields else "posfuse-train --cfg job shows all"
        return f"{key[1]}: unknown key; {known}"
    where = key[1] if key else getattr(error, "override", None)  # Hydra's parser keeps the latter
    return f"{where}: {message}" if where and where not in message else message


def _fields_of(class_name: str, schemas: tuple[Any, ...]) -> list[str]:
    schema = {s.__name__: s for s in schemas}.get(class_name, globals().get(class_name))
    return [f.name for f in dataclasses.fields(schema)] if dataclasses.is_dataclass(schema) else []


def check_name(key: str, name: str) -> None:
    """Raise InputError unless `name` can be the name of a folder everywhere."""
    if not NAME.fullmatch(name):
        raise InputError(f"{key}: the name {name!r} becomes a folder; {LETTERS}")


def check_folder(key: str, folder: str) -> None:
    """Raise InputError for an empty name and for the root of the file system: an unset variable
    of the shell gives either."""
    place = Path(folder).resolve()
    if not folder.strip() or place == Path(place.anchor):
        what = "the root of the file system" if folder.strip() else "empty"
        raise InputError(f"{key}: {folder!r} is {what}; name a folder with {key}=FOLDER")


def sweep_folder(output_dir: str, sweep_id: str) -> str:
    """The folder of a sweep. Hydra makes it before any run starts, so its parts are checked here;
    raises InputError."""
    check_folder("output_dir", output_dir)
    check_name("sweep_id", sweep_id)
    return f"{output_dir}/{sweep_id}"


def run_folder(data: str, encoding: str, fusion: str, seed: int, overrides: list[str]) -> str:
    """Where a run lies in its sweep's folder: data/encoding/fusion[/other overrides]/seed=n.

    The other overrides are spelt in letters that every file system takes; where that loses
    something, or they are long, a hash of them keeps two different runs apart.
    """
    own = sorted(o for o in overrides if not _in_path_already(o))
    text = "__".join(own)
    plain = re.sub(f"[^{VARIANT_LETTERS}]+", "-", text)[:80].strip(".-")
    if plain != text:
        plain += "-" + hashlib.sha256(text.encode()).hexdigest()[:8]
    return "/".join(part for part in (data, encoding, fusion, plain, f"seed={seed}") if part)


def _in_path_already(override: str) -> bool:
    key = override.lstrip("+~").split("=")[0]
    # data.path is told by data's name: where the files lie makes no other run, what they hold does,
    # and the record's settings have its digest.
    named = (
        "data", "encoding", "fusion", "seed", "data.name", "encoding.name", "fusion.name",
        "data.path",
    )  # fmt: skip
    hydra = key.startswith(("hydra.", "hydra/"))
    return hydra or key in named or any(key == k or key.startswith(f"{k}.") for k in NEUTRAL_KEYS)


def _run_folder(data: str, encoding: str, fusion: Any, seed: int, overrides: Any) -> str:
    # fusion.name can be anything here; checks.py refuses what is not a text.
    return run_folder(data, encoding, str(fusion), seed, list(overrides))


def _on_arxiv(data: str, there: str, elsewhere: str) -> str:
    return there if data == "arxiv" else elsewhere


def register() -> None:
    """Make the schema and the resolvers known to Hydra; safe to call again."""
    ConfigStore.instance().store(name="schema", node=Config)
    OmegaConf.register_new_resolver("posfuse.sweep_folder", sweep_folder, replace=True)
    OmegaConf.register_new_resolver("posfuse.run_folder", _run_folder, replace=True)
    OmegaConf.register_new_resolver("posfuse.on_arxiv", _on_arxiv, replace=True)


register()
