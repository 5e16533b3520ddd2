"""Composes the configs of many runs. Hydra composes each choice of config files only once."""

import pickle
from functools import cache
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.types import RunMode
from omegaconf import DictConfig, open_dict

PLAIN = ("seed", "sweep_id", "output_dir", "cache_dir")  # keys without a dot that set a value


class Composer(ConfigLoaderImpl):
    """Composes like the loader that it is made from.

    Hydra takes 0.15 s to compose a config. So this class keeps one config for each choice of files,
    and Hydra's function sets the other overrides in a copy of it.
    """

    def __init__(self, loader: ConfigLoader) -> None:
        super().__init__(loader.get_search_path())
        self.by_files: dict[tuple[Any, ...], bytes] = {}  # pickled: a tenth of the memory and time

    def __getstate__(self) -> dict[str, Any]:
        """The state without the configs, because a worker process gets the composer with each
        run."""
        return {**vars(self), "by_files": {}}

    def load_configuration(
        self,
        config_name: str | None,
        overrides: list[str],
        run_mode: RunMode,
        from_shell: bool = True,
        validate_sweep_overrides: bool = True,
    ) -> DictConfig:
        """As Hydra's method, with its errors."""
        parsed = [_parse(override) for override in overrides]
        files = [str(o.input_line) for o in parsed if not _is_value(o)]
        key = (config_name, run_mode, *files)
        if key not in self.by_files:
            composed = super().load_configuration(
                config_name, files, run_mode, from_shell, validate_sweep_overrides
            )
            self.by_files[key] = pickle.dumps(composed)
        config: DictConfig = pickle.loads(self.by_files[key])
        self._apply_overrides_to_config(list(filter(_is_value, parsed)), config)
        config.hydra.overrides.task = [o.input_line for o in parsed if not o.is_hydra_override()]
        return config

    def without_hydra(self, config_name: str, overrides: list[str]) -> DictConfig:
        """As Hydra's `compose`: a config without its part `hydra`."""
        config = self.load_configuration(config_name, overrides, RunMode.RUN, from_shell=False)
        with open_dict(config):
            del config["hydra"]
        return config


def _is_value(override: Override) -> bool:
    """True if an override sets a key of posfuse to one value. Others may choose a file."""
    if override.package or override.is_hydra_override() or override.is_sweep_override():
        return False
    key = override.key_or_group
    return ("." in key and "/" not in key) or key in PLAIN or isinstance(override.value(), dict)


@cache
def _parse(override: str) -> Override:
    (parsed,) = OverridesParser.create().parse_overrides([override])
    return parsed
