"""Where the paper and its authors' notebooks differ: what runs under the paper's names.

`cfg.fidelity` has an option for every difference, docs/fidelity.md explains them. Swapped here, at
the checks, is what an operator's or encoding's name stands for: config.yaml shows what really
runs, and reading it back changes nothing. The other options act where their values are used.
"""

from typing import Any

from posfuse.config import Config, FidelityConfig
from posfuse.errors import InputError

LINEAR_START = "_linear_start"  # of the name of a gate that starts as nn.Linear does

# What the notebooks have; rope_features and relative_table are their rope and relative by another
# name, which the experiment table3 uses. Their gates start as nn.Linear does under either name.
ENCODINGS = ("sinusoidal", "learned", "rope", "relative", "rope_features", "relative_table")
OPERATORS = (
    "add", "concat", "mul", "mlp", "gate_scalar", "gate_feature", "gate_mlp",
    *(f"gate_{kind}{LINEAR_START}" for kind in ("scalar", "feature", "mlp")),
)  # fmt: skip

# By the key that is swapped and the option, which has the name of the encoding or of the operator
# without its start: the option's value that swaps, the class that the YAML file names, the class
# that runs instead.
SWAPS = {
    "fusion": {
        "gate_scalar": (
            "feature",
            "posfuse.model.fusion.GateScalar",
            "posfuse.model.fusion.GateFeature",
        ),
        "gate_mlp": ("mlp", "posfuse.model.fusion.GateMLP", "posfuse.model.fusion.MLP"),
    },
    "encoding.table": {
        "rope": (
            "table",
            "posfuse.model.encoding.Sinusoidal",
            "posfuse.model.encoding.RopeFeatures",
        ),
        "relative": (
            "table",
            "posfuse.model.encoding.Sinusoidal",
            "posfuse.model.encoding.RelativeTable",
        ),
    },
}

# Arguments of the operators' classes, and the option that sets each.
GATES = ("GateScalar", "GateFeature", "GateCNN", "GateMLP")
ARGUMENTS = {
    **{f"posfuse.model.fusion.{name}": {"start": "gate_start"} for name in GATES},
    "posfuse.model.fusion.Concat": {"bias": "concat_bias"},
    "posfuse.model.fusion.MLP": {"activation": "mlp_activation", "biases": "mlp_biases"},
}

# What the YAML files of these have inside attention.
ATTENTION = {
    "rope": {"_target_": "posfuse.model.attention_encoding.Rotary"},
    "relative": {"_target_": "posfuse.model.attention_encoding.RelativeKeys", "clip": 16},
}


def apply_fidelity(cfg: Config) -> None:
    """Make the operator and the encoding in `cfg` what `cfg.fidelity` says they are, in place;
    applied again it changes nothing. Raises InputError for what the notebooks do not have, if
    asked to, and where the class to swap is one of the user's own."""
    fusion, encoding = cfg.fusion["name"], cfg.encoding.name
    if cfg.fidelity.notebook_parts_only:
        for key, name, known in (("encoding", encoding, ENCODINGS), ("fusion", fusion, OPERATORS)):
            if name not in known:
                raise InputError(
                    f"{key}={name}: not in the authors' notebooks; with fidelity=notebook use one "
                    f"of {', '.join(known)}"
                )
    _swap(cfg, "fusion", fusion, cfg.fusion)
    _set_arguments(cfg)
    if _swap(cfg, "encoding.table", encoding, cfg.encoding.table):
        if cfg.encoding.attention not in ({}, ATTENTION[encoding]):
            raise InputError(
                f"encoding.attention: {cfg.encoding.attention}, but fidelity.{encoding}=table puts "
                "nothing inside attention; leave one of the two out"
            )
        cfg.encoding.attention = {}


def _swap(cfg: Config, key: str, name: str, node: dict[str, Any]) -> bool:
    """Put the class that the option of this name asks for into the node, if it asks for any."""
    option = name.removesuffix(LINEAR_START)
    if option not in SWAPS[key]:
        return False
    value, named, runs = SWAPS[key][option]
    if getattr(cfg.fidelity, option) != value:
        return False
    target = node.get("_target_")
    if target not in (named, runs):
        raise InputError(
            f"{key}._target_: {target}, but fidelity.{option}={value} puts {runs} there; give one "
            "of the two"
        )
    node["_target_"] = runs
    for argument in ARGUMENTS.get(named, {}).keys() - ARGUMENTS.get(runs, {}).keys():
        node.pop(argument, None)  # the class that runs has no such argument
    return True


def _set_arguments(cfg: Config) -> None:
    """Set the operator's arguments that are null in its YAML file. Raises InputError where one that
    is given contradicts an option that is not at its default."""
    own = ARGUMENTS.get(str(cfg.fusion.get("_target_")), {})
    for argument, option in own.items():
        value, default = (getattr(group, option) for group in (cfg.fidelity, FidelityConfig()))
        given = cfg.fusion.get(argument)
        if given is None:
            cfg.fusion[argument] = value
        elif value != default and given != value:
            raise InputError(
                f"fusion.{argument}: {given}, but fidelity.{option}={value} sets it; give one of "
                "the two"
            )
    for argument in {name for names in ARGUMENTS.values() for name in names} - own.keys():
        if cfg.fusion.get(argument, "") is None:  # of the YAML file, but the class is another
            del cfg.fusion[argument]


def validation_seed(cfg: Config) -> int:
    """The seed that decides which training documents become the validation split."""
    by_seed = cfg.fidelity.validation_split == "by_seed"
    return cfg.seed if by_seed else cfg.data.split_seed
