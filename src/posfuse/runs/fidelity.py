"""Replaces operators and encodings by the classes of the authors' notebooks.

`cfg.fidelity` has an option for every difference; docs/fidelity.md explains them. This module
replaces classes and arguments when a config is checked, so config.yaml shows the classes that run.
The other options act where their values are used.
"""

from typing import Any

from posfuse.config import Config, FidelityConfig
from posfuse.data.own_code import is_own
from posfuse.errors import InputError

LINEAR_START = "_linear_start"  # end of the name of a gate that starts as nn.Linear

# The parts of the notebooks. rope_features and relative_table are the notebooks' rope and relative;
# the experiment table3 uses these names. Gates start as nn.Linear with both names.
ENCODINGS = ("sinusoidal", "learned", "rope", "relative", "rope_features", "relative_table")
OPERATORS = (
    "add", "concat", "mul", "mlp", "gate_scalar", "gate_feature", "gate_mlp",
    *(f"gate_{kind}{LINEAR_START}" for kind in ("scalar", "feature", "mlp")),
)  # fmt: skip

# key of the config -> option -> (value that swaps, class in the YAML file, class that runs). An
# option has the name of its encoding, or of its operator without the suffix for the start.
FUSION, ENCODING = "posfuse.model.fusion", "posfuse.model.encoding"
SWAPS = {
    "fusion": {
        "gate_scalar": ("feature", f"{FUSION}.GateScalar", f"{FUSION}.GateFeature"),
        "gate_mlp": ("mlp", f"{FUSION}.GateMLP", f"{FUSION}.MLP"),
    },
    "encoding.table": {
        "rope": ("table", f"{ENCODING}.Sinusoidal", f"{ENCODING}.RopeFeatures"),
        "relative": ("table", f"{ENCODING}.Sinusoidal", f"{ENCODING}.RelativeTable"),
    },
}

# class -> argument -> the option that sets it.
GATES = ("GateScalar", "GateFeature", "GateCNN", "GateMLP")
ARGUMENTS = {
    **{f"{FUSION}.{name}": {"start": "gate_start"} for name in GATES},
    f"{FUSION}.Concat": {"bias": "concat_bias"},
    f"{FUSION}.MLP": {"activation": "mlp_activation", "biases": "mlp_biases"},
}

# The attention part in the YAML files of these encodings.
ATTENTION = {
    "rope": {"_target_": "posfuse.model.attention_encoding.Rotary"},
    "relative": {"_target_": "posfuse.model.attention_encoding.RelativeKeys", "clip": 16},
}


def apply_fidelity(cfg: Config) -> None:
    """Replace the operator and the encoding in `cfg` by `cfg.fidelity`, in place. A second call
    changes nothing.

    Raises InputError with notebook_parts_only for parts that the notebooks do not have, and if an
    option would replace a class or an argument that the user has set.
    """
    fusion, encoding = cfg.fusion["name"], cfg.encoding.name
    if cfg.fidelity.notebook_parts_only:
        for key, name, known in (("encoding", encoding, ENCODINGS), ("fusion", fusion, OPERATORS)):
            if name not in known:
                raise InputError(
                    f"{key}={name}: not in the authors' notebooks; with fidelity=notebook use one "
                    f"of {', '.join(known)}"
                )
    _swap(cfg, "fusion", fusion.removesuffix(LINEAR_START), cfg.fusion)
    _set_arguments(cfg)
    if _swap(cfg, "encoding.table", encoding, cfg.encoding.table):
        if cfg.encoding.attention not in ({}, ATTENTION[encoding]):
            raise InputError(
                f"encoding.attention: {cfg.encoding.attention}, but fidelity.{encoding}=table "
                "removes the part inside attention; set only one of the two"
            )
        cfg.encoding.attention = {}


def _swap(cfg: Config, key: str, option: str, node: dict[str, Any]) -> bool:
    """Replace the class in the node if the option of this name requires it. Returns True if it
    did."""
    if option not in SWAPS[key]:
        return False
    value, named, runs = SWAPS[key][option]
    if getattr(cfg.fidelity, option) != value:
        return False
    target = node.get("_target_")
    if target not in (named, runs):
        raise InputError(
            f"{key}._target_: {target}, but fidelity.{option}={value} sets {runs}; set only one of "
            "the two"
        )
    node["_target_"] = runs
    for argument in ARGUMENTS.get(named, {}).keys() - ARGUMENTS.get(runs, {}).keys():
        node.pop(argument, None)  # the new class lacks this argument
    return True


def _set_arguments(cfg: Config) -> None:
    """Set the operator's arguments that are null in its YAML file. Raises InputError if another
    value contradicts an option that is not at its default."""
    target = str(cfg.fusion.get("_target_"))
    own = ARGUMENTS.get(target, {})
    for argument, option in own.items():
        value, default = (getattr(group, option) for group in (cfg.fidelity, FidelityConfig()))
        given = cfg.fusion.get(argument)
        if given is None:
            cfg.fusion[argument] = value
        elif value != default and given != value:
            raise InputError(
                f"fusion.{argument}: {given}, but fidelity.{option}={value} sets it too; set "
                "only one of the two"
            )
    if is_own(target):  # a null of its YAML file is a value
        return
    for argument in {name for names in ARGUMENTS.values() for name in names} - own.keys():
        if cfg.fusion.get(argument, "") is None:  # from the YAML file of another class
            del cfg.fusion[argument]
