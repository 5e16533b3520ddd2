"""Checks of values of the config that do not fit together."""

from collections.abc import Iterator
from dataclasses import asdict, fields
from typing import Any

from posfuse.config import Config, DataConfig, SplitsConfig, VocabularyConfig, is_pretrained
from posfuse.data.corpora import is_task
from posfuse.data.pretrained_folder import pretrained_files
from posfuse.errors import InputError
from posfuse.runs.identity import HUB, flatten

Needs = dict[str, tuple[Any, str]]  # key -> the only value that fits, and the reason
HOST_TABLE = "posfuse.model.pretrained_host.HostTable"
WHOLE_ANSWERS = {f"posfuse.data.causal_tasks.{name}" for name in ("copy", "reverse")}
SHUFFLED = "_shuffled"  # end of the name of a corpus with data.word_order=shuffled
# The fields of ModelConfig that the folder of a pretrained model determines.
DECIDED = (
    "d_model", "n_heads", "n_layers", "d_ff", "activation", "norm_first", "dropout",
    "attention_dropout",
)  # fmt: skip


def check_combinations(cfg: Config) -> None:
    """Raise InputError, which names the key and the fix, for a value that does not fit another
    value."""
    if is_pretrained(cfg):
        if cfg.host.path is None:
            raise InputError(
                "host.path: no pretrained model given; name its folder with host.path=FOLDER"
            )
        pretrained_files(cfg.host.path)
    for part, needs in _needs(cfg):
        require(cfg, part, needs)
    if is_pretrained(cfg):
        _check_pretrained(cfg)
    else:
        _check_own(cfg)
    _check_lengths(cfg.data)
    if cfg.data.name.endswith(SHUFFLED) != (cfg.data.word_order == "shuffled"):
        fix = f"data.name={cfg.data.name}{SHUFFLED}"
        if cfg.data.word_order == "original":
            fix = "data.word_order=shuffled, or another name"
        raise InputError(
            f"data.name: must end in {SHUFFLED} if and only if data.word_order=shuffled, because "
            f"tables must not mix two corpora (got {cfg.data.name} with data.word_order="
            f"{cfg.data.word_order}); set {fix}"
        )


def require(cfg: Config, part: str, needs: Needs) -> None:
    """Raise InputError for a key of `needs` whose value is not the one that `part` needs."""
    given = flatten(asdict(cfg))
    for key, (value, why) in needs.items():
        if given.get(key, value) != value:
            shown = {"None": "null", "False": "false", "": "empty"}.get(str(value), value)
            got = given[key] if str(given[key]).isprintable() else repr(given[key])
            raise InputError(f"{key}: must be {shown} with {part}, because {why} (got {got})")


def _needs(cfg: Config) -> Iterator[tuple[str, Needs]]:
    """Settings of this config, each with the keys for which it allows only one value."""
    data, of_data = cfg.data, f"data={cfg.data.name}"
    corpus = (data.corpus or {}) if data.path is None else {}
    if "lengths" in corpus or is_task(data):
        own = {"data.vocabulary.file": None, "data.vocabulary.unit": "words", "host.name": "own"}
        yield of_data, {key: (value, "its tokens are its symbols") for key, value in own.items()}
        yield of_data, {"data.word_order": ("original", "only texts can be shuffled")}
        if is_task(data):
            both = (data.test_lengths, "data.test_lengths sets it")
            yield of_data, {"data.corpus.test_lengths": both}
        else:
            why = "it has no documents longer than data.max_len"
            yield of_data, {"data.test_lengths": ([], why)}
    if corpus and corpus.get("_target_") != HUB:
        usual = vars(SplitsConfig()).items()
        yield of_data, {f"data.splits.{k}": (v, "it makes its own splits") for k, v in usual}
    vocabulary = {f"data.vocabulary.{f.name}": f.default for f in fields(VocabularyConfig)}
    if data.vocabulary.file is not None:
        why = f"{data.vocabulary.file} is the vocabulary; set this value, or remove the file"
        ignored = ("max_size", "min_count", "source", "unit")
        keys = [f"data.vocabulary.{name}" for name in ignored]
        yield "data.vocabulary.file", {key: (vocabulary[key], why) for key in keys}
    if cfg.task.name == "classification":
        yield "task=classification", {"task.output": ("untied", "only a language model reads it")}
    if data.targets == "values" and corpus.get("_target_") in WHOLE_ANSWERS:
        yield of_data, {"data.targets": ("answers", "its answers have no keys and values")}
    if cfg.pretrain.name != "none":
        why = "pretraining works on one device"
        yield f"pretrain={cfg.pretrain.name}", {"trainer.devices": (1, why)}
    if cfg.optim.schedule == "constant":
        why = "only a linear or cosine schedule has an end"
        yield "optim.schedule=constant", {"optim.end_factor": (0.0, why)}
    if not is_pretrained(cfg):
        yield "host=own", {"host.path": (None, "only host=transformers reads it")}
        return
    fix = "use model=pretrained, and no protocol or experiment that sets it"
    why = f"{cfg.host.path} decides it; {fix}"
    decided: Needs = {f"model.{name}": (None, why) for name in DECIDED}
    why = f"{cfg.host.path} decides it; set trainer.precision=fastest without speed=fast"
    yield "host=transformers", decided | {"model.attention_dropout": (None, why)}
    needs: Needs = {k: (value, "it has its own tokenizer") for k, value in vocabulary.items()}
    needs |= {
        "data.word_order": ("original", "shuffling would move its special tokens"),
        "pretrain.name": ("none", "its model is pretrained already"),
        "trainer.compile": (False, "only the encoder of host=own can be compiled"),
        "fidelity.blocks": ("independent", "its blocks are pretrained"),
    }
    yield "host=transformers", needs


def _check_pretrained(cfg: Config) -> None:
    for key in ("token_scale", "head_dropout"):
        if not isinstance(value := getattr(cfg.model, key), int | float):
            raise InputError(
                f"model.{key}: must be a number with host=transformers, because its model has a "
                f"scale and a dropout of its own (got {value})"
            )
    if cfg.encoding.attention:
        raise InputError(
            f"encoding={cfg.encoding.name}: acts inside attention, which belongs to the pretrained "
            "model; use host, sinusoidal, learned, fourier or none"
        )


def _check_own(cfg: Config) -> None:
    model: Any = cfg.model
    for name in DECIDED:
        if getattr(model, name) is None and name != "attention_dropout":
            raise InputError(
                f"model.{name}: null is for host=transformers; give a value, or use model=small"
            )
    if model.d_model % model.n_heads:
        fitting = [str(n) for n in range(1, 129) if model.d_model % n == 0]
        raise InputError(
            f"model.n_heads: must divide model.d_model={model.d_model} (got {model.n_heads}); use "
            f"one of {', '.join(fitting)}"
        )
    if cfg.encoding.table.get("_target_") == HOST_TABLE:
        raise InputError(
            f"encoding={cfg.encoding.name}: is the position table of a pretrained model; set "
            "host=transformers host.path=FOLDER, or use another encoding"
        )


def _check_lengths(data: DataConfig) -> None:
    lengths = data.test_lengths
    if lengths != sorted(set(lengths)):
        raise InputError(
            f"data.test_lengths: must ascend, each length once (got {lengths}); use "
            f"{sorted(set(lengths))}"
        )
    generated = (data.corpus or {}).get("lengths") if data.path is None else None
    is_list = isinstance(generated, list) and all(type(n) is int for n in generated)
    if generated is not None and not is_list:  # a corpus of one's own may lack the annotation
        raise InputError(
            f"data.corpus.lengths: must be a list of whole numbers (got {generated}); for example "
            f"[2,{data.max_len}]"
        )
    if generated:
        longest, below = max(generated), "" if is_task(data) else " or below"
        if longest > data.max_len or (longest < data.max_len and not below):
            raise InputError(
                f"data.corpus.lengths: must end at data.max_len={data.max_len}{below} (got "
                f"{generated}), because the cut part determines the label; set both keys"
            )
    elif lengths and not is_task(data) and min(lengths) <= data.max_len:
        raise InputError(
            f"data.test_lengths: must be above data.max_len={data.max_len}, where texts are cut "
            f"(got {min(lengths)}); use larger lengths, or lower data.max_len"
        )
