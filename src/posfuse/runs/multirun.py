"""The multirun.yaml of a sweep: which runs its last command asked for."""

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from posfuse.config import run_folder
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
            int(seed.strip("'\""))
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


def asked(sweep: Path) -> list[Path]:
    """The folders of the runs in multirun.yaml; none if the file is missing."""
    if not (sweep / MULTIRUN).exists():
        return []
    cfg, overrides = read_multirun(sweep / MULTIRUN)
    choices = [[f"{key}={value}" for value in values] for key, values in overrides.items()]
    arms = cfg.hydra.sweeper.get("arms") or {}
    return [sweep / folder_of(with_arm(list(job), arms), cfg) for job in product(*choices)]


def with_arm(overrides: list[str], arms: Mapping[str, list[str]]) -> list[str]:
    """The overrides of a run with those of its arm in the place of `arm=NAME`, if there is one.

    Raises InputError if the sweep has no such arm.
    """
    found: list[str] = []
    for override in overrides:
        key, _, name = override.partition("=")
        if key == "arm" and name not in arms:
            known = f"use one of {', '.join(arms)}" if arms else "add it there, or choose a study"
            raise InputError(f"arm: no arm {name!r} in hydra.sweeper.arms; {known}")
        found += arms[name] if key == "arm" else [override]
    return found


def primary_family(sweep: Path) -> tuple[str, ...]:
    """The operators in sweep.primary of the sweep's last command; none if the file is missing."""
    if not (sweep / MULTIRUN).exists():
        return ()
    cfg, _ = read_multirun(sweep / MULTIRUN)
    return tuple(map(str, OmegaConf.select(cfg, "sweep.primary", default=())))


def folder_of(overrides: list[str], cfg: Any) -> str:
    """The folder of the run with these overrides, relative to its sweep."""
    given = dict(override.lstrip("+").split("=", 1) for override in overrides if "=" in override)

    def value(name: str, group: str) -> str:
        found = given.get(name) or given.get(group) or str(OmegaConf.select(cfg, name))
        return found.strip("'\"")

    data, encoding, fusion = (value(f"{a}.name", a) for a in ("data", "encoding", "fusion"))
    return run_folder(data, encoding, fusion, int(value("seed", "seed")), overrides)
