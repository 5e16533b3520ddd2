"""The multirun.yaml of a sweep: which runs its last command asked for."""

from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from posfuse.errors import InputError

MULTIRUN = "multirun.yaml"


def read_multirun(path: Path) -> tuple[Any, dict[str, list[str]]]:
    """The composed config in a multirun.yaml, and the values of each override of the sweep.

    The keys of the overrides are as in the command, with a leading + or ~ and a package. Raises
    InputError if the file is damaged.
    """
    try:
        config: Any = OmegaConf.load(path)
        params = [f"{k}={v}" for k, v in (config.hydra.sweeper.get("params") or {}).items()]
        parsed = OverridesParser.create().parse_overrides([*params, *config.hydra.overrides.task])
        values = {override.get_key_element(): _values(override) for override in parsed}
        for seed in values.get("seed", []):
            int(seed)
        return config, values
    except (OSError, ValueError, AttributeError, TypeError, YAMLError, OmegaConfBaseException,
            HydraException) as error:  # fmt: skip
        reason = " ".join(str(error).split())[:80]
        raise InputError(
            f"{path}: not a sweep's settings ({reason}); run the sweep's command again to write it"
        ) from error


def _values(override: Override) -> list[str]:
    if override.is_sweep_override():
        return list(override.sweep_string_iterator())
    return [override.get_value_element_as_str()]
