"""The checks of host=transformers: what its folder decides, and what it cannot do."""

from dataclasses import fields

from posfuse.config import Config, VocabularyConfig, is_pretrained
from posfuse.data.corpora import is_task
from posfuse.data.pretrained_folder import pretrained_files
from posfuse.errors import InputError

HOST_TABLE = "posfuse.model.pretrained_host.HostTable"
# Of ModelConfig: what the folder decides.
DECIDED = (
    "d_model", "n_heads", "n_layers", "d_ff", "activation", "norm_first", "dropout",
    "attention_dropout",
)  # fmt: skip


def check_host(cfg: Config) -> None:
    """Raise InputError, which names the key and the fix, for what does not fit the host."""
    if is_pretrained(cfg):
        _check_folder(cfg)
        _check_model(cfg)
        _check_data(cfg)
    else:
        _check_own(cfg)


def _check_own(cfg: Config) -> None:
    model = cfg.model
    for name in DECIDED:
        if getattr(model, name) is None and name != "attention_dropout":
            raise InputError(
                f"model.{name}: null is for host=transformers; give a value, or use model=small"
            )
    assert model.d_model is not None
    assert model.n_heads is not None
    if model.d_model % model.n_heads:
        fitting = [str(n) for n in range(1, model.d_model + 1) if model.d_model % n == 0]
        raise InputError(
            f"model.n_heads: must divide model.d_model={model.d_model} (got {model.n_heads}); use "
            f"one of {', '.join(fitting)}"
        )
    if cfg.host.path is not None:
        raise InputError(f"host.path: is read with host=transformers alone (got {cfg.host.path})")
    if cfg.encoding.table.get("_target_") == HOST_TABLE:
        raise InputError(
            f"encoding={cfg.encoding.name}: is the position table of a pretrained model; set "
            "host=transformers host.path=FOLDER, or use another encoding"
        )


def _check_folder(cfg: Config) -> None:
    if cfg.host.path is None:
        raise InputError(
            "host.path: no pretrained model given; name its folder with host.path=FOLDER"
        )
    pretrained_files(cfg.host.path)


def _check_model(cfg: Config) -> None:
    for name in DECIDED:
        if (value := getattr(cfg.model, name)) is not None:
            raise InputError(
                f"model.{name}: host=transformers takes it from {cfg.host.path} (got {value}); "
                "use model=pretrained without this key"
            )
    if isinstance(cfg.model.token_scale, str):
        raise InputError(
            "model.token_scale: must be a number with host=transformers, whose embeddings have a "
            f"scale of their own (got {cfg.model.token_scale}); use 1"
        )
    if cfg.model.head_dropout is None:
        raise InputError(
            "model.head_dropout: must be a number with host=transformers; use "
            "model.head_dropout=0.1"
        )
    if cfg.encoding.attention:
        raise InputError(
            f"encoding={cfg.encoding.name}: acts inside attention, which belongs to the pretrained "
            "model; use host, sinusoidal, learned, fourier or none"
        )
    if cfg.pretrain.name != "none":
        raise InputError(
            f"pretrain={cfg.pretrain.name}: the model of host=transformers is pretrained already; "
            "use pretrain=none"
        )
    if cfg.trainer.compile:
        raise InputError(
            "trainer.compile: compiles the encoder of host=own alone; use trainer.compile=false"
        )
    if cfg.fidelity.blocks != "independent":
        raise InputError(
            f"fidelity.blocks: {cfg.fidelity.blocks}, but host=transformers has pretrained blocks; "
            "use fidelity.blocks=independent"
        )


def _check_data(cfg: Config) -> None:
    data = cfg.data
    own = (data.corpus or {}) if data.path is None else {}
    if is_task(data) or "lengths" in own:
        raise InputError(
            f"data={data.name}: its strings of symbols need a vocabulary of their own, and "
            "host=transformers reads texts; use texts, or host=own"
        )
    for field in fields(VocabularyConfig):
        if (value := getattr(data.vocabulary, field.name)) != field.default:
            raise InputError(
                f"data.vocabulary.{field.name}: host=transformers has the tokenizer of "
                f"{cfg.host.path} (got {value}); remove this key, or use other data"
            )
