"""The typed schema of conf/.

Hydra merges every file of conf/ and every override into these dataclasses. So a misspelt key or a
value of the wrong type is an error at once. Each field states its meaning and its limits
(limits.py), and docs/config.md is generated from both.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore

from posfuse.limits import check_folder, check_name, check_project, check_tags, one_of, option

# conf/ lies inside the installed package; in a checkout it lies at the top.
_PACKAGE = Path(__file__).resolve().parent
CONF_DIR = next(p for p in (_PACKAGE / "conf", _PACKAGE.parents[1] / "conf") if p.is_dir())

# The kinds of task with a name; another kind has a `_target_`.
TASKS = {
    "classification": "posfuse.training.task.Classification",
    "language_model": "posfuse.training.task.language_model",
}

MOST_TOKENS = 2**20  # a position table has max_len rows: 256 MB with model.d_model=64
MOST_THREADS = 1024  # far larger numbers fail with a misleading error
LARGEST_SEED = 2**32 - 1


@dataclass
class VocabularyConfig:
    max_size: int = option(50_000, "entries, including <pad> and <unk>", least=3)
    min_count: int = option(2, "occurrences below which a word or character is unknown", least=1)
    source: str = one_of("splits whose words are counted", "train", "all")
    unit: str = one_of(
        "kind of tokens; with bytes max_size, min_count and source have no effect",
        "words", "characters", "bytes",
    )  # fmt: skip
    ending: str = option("", "characters after each document, for a language model")
    file: str | None = option(
        None, "your tokenizer.json, in place of max_size, min_count, source and unit"
    )


@dataclass
class SplitsConfig:
    """The names of a corpus's splits: of their files without the ending, or on the hub."""

    train: str = option("train", "the training split")
    validation: str | None = option(
        None, "the validation split; null: validation, in a folder also val, valid or dev"
    )
    test: str = option("test", "the test split")


@dataclass
class DataConfig:
    name: str = option("???", "name of the corpus in folders and tables", check=check_name)
    corpus: dict[str, Any] | None = option(None, "`_target_` of the corpus, and its arguments")
    path: str | None = option(
        None, "folder of your texts; for a language model also a .txt file", check=check_folder
    )
    text: str = option("text", "column of the texts")
    labels: str = option("label", "column of the classes")
    splits: SplitsConfig = field(default_factory=SplitsConfig)
    drop_empty: bool = option(False, "drop documents without text instead of refusing them")
    split_seed: int | str = option(
        0, "seed of the splits; seed: the run's seed", choices=("seed",), least=0, most=LARGEST_SEED
    )
    validation_fraction: float = option(
        0.1, "fraction of train for a missing validation split, and test split of a .txt file",
        above=0, below=1,
    )  # fmt: skip
    validation_stratified: bool = option(True, "draw this fraction with the class proportions")
    limit: int | None = option(
        None, "documents per split, stratified; of a .txt file the first lines; null: all", least=1
    )
    vocabulary: VocabularyConfig = field(default_factory=VocabularyConfig)
    max_len: int = option(512, "tokens, after which a document is cut", least=1, most=MOST_TOKENS)
    test_lengths: list[int] = option(
        list, "tokens; each length is a further test split: strings of this length, or texts "
        "longer than max_len, cut at this length", least=1, most=MOST_TOKENS,
    )  # fmt: skip
    word_order: str = one_of(
        "shuffled: the tokens of each document are in a fixed random order", "original", "shuffled"
    )
    targets: str = one_of(
        "tokens that a language model predicts; answers: those after the bar; values: every "
        "second token after the bar",
        "all", "answers", "values",
    )  # fmt: skip
    batch_size: int = option(64, "documents per training batch", least=1)
    eval_batch_size: int = option(256, "documents per evaluation batch", least=1)
    pool_batches: int = option(
        50, "batches per pool; a pool is a random set of documents, sorted by length", least=1
    )


@dataclass
class TaskConfig:
    name: str = option(
        "classification", "classification, language_model, or another with _target_",
        check=check_name,
    )  # fmt: skip
    _target_: str | None = option(None, "class of the task; null: the class that name stands for")
    output: str = one_of(
        "last layer of a language model; tied: the matrix of the embeddings", "untied", "tied"
    )
    class_weights: str = one_of(
        "balanced: the training loss weights classes by inverse frequency", "none", "balanced"
    )


@dataclass
class PretrainConfig:
    """Pretraining of the encoder on the training texts."""

    name: str = one_of("masked: predict masked tokens of the training texts", "none", "masked")
    max_epochs: int = option(10, "epochs of pretraining", least=1)
    lr: float = option(1e-3, "learning rate of pretraining", above=0)
    batch_size: int = option(64, "documents per batch of pretraining", least=1)
    share: float = option(0.15, "fraction of tokens to mask", above=0, most=1)


@dataclass
class HostConfig:
    """The Transformer that contains the operator."""

    name: str = one_of(
        "own: the model of model.*; transformers: the model in host.path", "own", "transformers"
    )
    path: str | None = option(
        None, "folder with config.json, weights and tokenizer.json", check=check_folder
    )


@dataclass
class EncodingConfig:
    name: str = option("???", "name of the encoding in folders and tables", check=check_name)
    table: dict[str, Any] = option(dict, "`_target_` and arguments of the table to fuse")
    attention: dict[str, Any] = option(dict, "`_target_` and arguments of the part in attention")
    positions: str = one_of(
        "contiguous: 0, 1, 2, ...; randomized: at each step a random subset of encoding.range",
        "contiguous", "randomized",
    )  # fmt: skip
    range: int = option(2048, "the largest randomized position + 1", least=1, most=MOST_TOKENS)


@dataclass
class ModelConfig:
    """With host=transformers, null keys of conf/model/pretrained.yaml come from the folder."""

    d_model: int | None = option(64, "features per token", least=1)
    n_heads: int | None = option(4, "attention heads; must divide d_model", least=1)
    n_layers: int | None = option(2, "encoder blocks", least=1)
    d_ff: int | None = option(128, "hidden features of the feed-forward layers", least=1)
    activation: str | None = one_of("activation of the feed-forward layers", "gelu", "relu")
    norm_first: bool | None = option(False, "pre-norm instead of post-norm")
    dropout: float | None = option(
        0.1, "dropout after attention, in feed-forward layers and before the head", least=0, below=1
    )
    attention_dropout: float | None = option(
        None, "dropout of the attention weights; null: dropout", least=0, below=1
    )
    head_dropout: float | None = option(None, "before the head; null: dropout", least=0, below=1)
    token_scale: Any = option(
        "sqrt_d", "factor of the token embeddings; a fraction such as 1/8 is allowed",
        choices=("sqrt_d", "learned"), least=1e-6, most=1e6,
    )  # fmt: skip
    fused_norm: str = one_of("layer: LayerNorm between fusion and encoder", "none", "layer")


@dataclass
class OptimConfig:
    name: str = one_of("optimizer", "adamw", "adam")
    lr: float = option(3e-4, "learning rate", above=0)
    weight_decay: float = option(0.0, "weight decay", least=0)
    weight_decay_of: str = one_of(
        "parameters with weight decay; matrices: those of two or more dimensions", "all", "matrices"
    )
    schedule: str = one_of("the learning rate after the warm-up", "constant", "linear", "cosine")
    warmup: int = option(0, "steps in which the learning rate rises linearly to optim.lr", least=0)
    end_factor: float = option(
        0.0, "final learning rate of a linear or cosine schedule, relative to optim.lr",
        least=0, most=1,
    )  # fmt: skip
    scalar_lr_factor: float = option(
        1.0, "learning-rate factor of learned scalars: token scale, alpha, gate biases, scalars of "
        "kerple and fire", above=0,
    )  # fmt: skip


@dataclass
class TrainerConfig:
    max_epochs: int = option(10, "largest number of epochs", least=1)
    accumulate: int = option(1, "batches per step of the optimizer", least=1)
    clip_norm: float | None = option(1.0, "largest gradient norm; null: no limit", above=0)
    monitor: str = one_of(
        "validation metric that selects the best checkpoint; metric: that of the task",
        "accuracy", "macro_f1", "loss", "metric",
    )  # fmt: skip
    evaluations: int = option(1, "evaluations per epoch, evenly spaced", least=1)
    patience: int | None = option(
        None, "evaluations without a gain before training stops; null: never", least=1
    )
    min_delta: float = option(1e-4, "smallest gain of trainer.monitor", least=0)
    accelerator: str = one_of("device type", "auto", "cpu", "gpu", "cuda")
    devices: int = option(1, "processes; each gets data.batch_size documents per batch", least=1)
    precision: str = one_of(
        "fastest: the faster of the two on this machine", "32-true", "bf16-mixed", "fastest"
    )
    threads: int | None = option(
        None, "CPU threads; null: torch decides", least=1, most=MOST_THREADS
    )
    compile: bool = option(
        False, "use torch.compile: a slow start, little gain on a CPU; needs a C++ compiler"
    )
    limit_batches: int | None = option(None, "batches per split, for a trial; null: all", least=1)
    checkpoint_minutes: float = option(10.0, "minutes between saves within an epoch", above=0)
    mechanism: bool = option(True, "measure how the trained model uses position")
    progress: str = one_of(
        "auto: bar in a terminal, otherwise lines; none with the launcher parallel or ray",
        "auto", "bar", "lines", "none",
    )  # fmt: skip


@dataclass
class FidelityConfig:
    """Choices of the paper (the first ones) and of the authors' notebooks. See docs/fidelity.md."""

    initial_values: str = one_of(
        "random streams: one per module, or one for all modules", "by_name", "shared_stream"
    )
    blocks: str = one_of("initial values of the blocks; copies: equal", "independent", "copies")
    batch_order: str = one_of("by_run: depends on encoding and fusion too", "by_seed", "by_run")
    validation_split: str = one_of(
        "fixed: drawn by data.split_seed; by_seed: by the run's seed", "fixed", "by_seed"
    )
    gate_scalar: str = one_of("gates per token: one, or one per feature", "scalar", "feature")
    gate_mlp: str = one_of("output of the MLP of gate_mlp: the gate, or H", "gate", "mlp")
    concat_bias: bool = option(False, "add a bias to the projection of [E; P]")
    mlp_activation: str = one_of("activation of the operator mlp", "gelu", "relu")
    mlp_biases: str = one_of("initial biases of mlp; linear: as nn.Linear", "zero", "linear")
    gate_start: str = one_of("initial gates: near 0.5; linear: as nn.Linear", "half", "linear")
    rope: str = one_of("rope as a rotation in attention, or as a table", "attention", "table")
    relative: str = one_of("relative as keys in attention, or as a table", "attention", "table")
    notebook_parts_only: bool = option(False, "refuse parts that the notebooks do not have")


@dataclass
class LoggerConfig:
    name: str = one_of("where a run is logged", "wandb", "none")
    project: str | None = option(
        None, "W&B project; null: WANDB_PROJECT, otherwise posfuse", check=check_project
    )
    entity: str | None = option(
        None, "W&B user or team; null: WANDB_ENTITY, otherwise that of the API key"
    )
    mode: str | None = option(
        None, "where W&B logs; null: WANDB_MODE, otherwise offline", choices=("offline", "online")
    )
    tags: list[str] = option(list, "W&B tags", check=check_tags)
    notes: str = option("", "W&B notes")
    job_type: str = option("train", "W&B job type; a study sets tune or test")
    artifacts: list[str] = option(
        lambda: ["result"], "files that W&B receives as artifacts",
        choices=("result", "predictions", "model"),
    )  # fmt: skip
    every_steps: int = option(50, "steps between two values of loss and learning rate", least=1)


@dataclass
class SweepConfig:
    fail_fast: bool = option(False, "stop the sweep at the first failure; otherwise run the others")
    primary: list[str] = option(
        list, "operators whose differences are adjusted together by Holm's method; empty: all"
    )
    plan: str = option("", "digest of the study's plan, for its test runs")


@dataclass
class SeedsConfig:
    """Sources of randomness of a run. A number fixes a source; null follows `seed`."""

    init: int | None = option(None, "initial values; null: seed", least=0, most=LARGEST_SEED)
    order: int | None = option(None, "order of batches; null: seed", least=0, most=LARGEST_SEED)
    dropout: int | None = option(
        None, "dropout masks and randomized positions; null: seed", least=0, most=LARGEST_SEED
    )


@dataclass
class Config:
    seed: int = option(0, "seed of initial values, batches and dropout", least=0, most=LARGEST_SEED)
    sweep_id: str = option("default", "the sweep's folder in output_dir", check=check_name)
    output_dir: str = option("multirun", "folder of all sweeps", check=check_folder)
    cache_dir: str = option(
        "multirun/.cache", "folder of token ids and pretrained models", check=check_folder
    )
    seeds: SeedsConfig = field(default_factory=SeedsConfig)
    task: TaskConfig = field(default_factory=TaskConfig)
    pretrain: PretrainConfig = field(default_factory=PretrainConfig)
    data: DataConfig = field(default_factory=DataConfig)
    host: HostConfig = field(default_factory=HostConfig)
    encoding: EncodingConfig = field(default_factory=EncodingConfig)
    fusion: dict[str, Any] = option(dict, "name, `_target_` and arguments of the operator")
    model: ModelConfig = field(default_factory=ModelConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    fidelity: FidelityConfig = field(default_factory=FidelityConfig)
    logger: LoggerConfig = field(default_factory=LoggerConfig)
    sweep: SweepConfig = field(default_factory=SweepConfig)


def seed_of(cfg: Config, source: str) -> int:
    """The seed of a source of randomness. `source` is a field of `SeedsConfig`."""
    own: int | None = getattr(cfg.seeds, source)
    return cfg.seed if own is None else own


def is_pretrained(cfg: Config) -> bool:
    """True if the operator is put into a pretrained model."""
    return cfg.host.name == "transformers"


def longest(data: DataConfig) -> int:
    """Tokens of the longest document that a model of this config reads."""
    return max([data.max_len, *data.test_lengths])


ConfigStore.instance().store(name="schema", node=Config)
