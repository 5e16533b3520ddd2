"""The composed configs of a study's arms: checked before anything runs, and part of the plan."""

import tempfile
from collections.abc import Iterable, Mapping
from copy import deepcopy
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from posfuse.analysis.evidence.metric import ACCURACY, BITS_PER_BYTE, EXACT_MATCH, GREEDY_ACCURACY
from posfuse.config import CONF_DIR, Config, DataConfig, models_language, run_folder
from posfuse.errors import InputError
from posfuse.runs.checks import checked
from posfuse.runs.hydra_errors import one_line
from posfuse.runs.records import differing, fingerprint_of, settings
from posfuse.study.spec import Study, Values
from posfuse.study.sweeps import Sweep


def _check_lengths(data: DataConfig) -> None:
    if not data.test_lengths or max(data.test_lengths) <= data.max_len:
        raise InputError(
            f"data.test_lengths: needs a length above data.max_len={data.max_len} for a hypothesis "
            f"with outcome: beyond (got {data.test_lengths})"
        )


def _check_metric(name: str, cfg: Config) -> None:
    """The study's metric must be one that the arm's records have."""
    known = [ACCURACY.name]
    if models_language(cfg):
        answers = [EXACT_MATCH.name, GREEDY_ACCURACY.name]
        known += [BITS_PER_BYTE.name] if cfg.data.vocabulary.unit == "bytes" else answers
    if name not in known:
        raise InputError(
            f"metric: {cfg.data.name} with task={cfg.task.name} has no {name}; use "
            f"{' or '.join(known)}"
        )


def fingerprints(study: Study, arms: Mapping[str, Values], extra: list[str]) -> dict[str, str]:
    """The fingerprint of each arm's `composed` config."""
    return {arm: fingerprint_of(own) for arm, own in composed(study, arms, extra).items()}


def composed(study: Study, arms: Mapping[str, Values], extra: list[str]) -> dict[str, Values]:
    """The `settings` of each arm's composed config, with seed 0 in all of them.

    `arms` are the overrides of each arm, or of each arm and trial. `extra` are the user's
    overrides; data.path among them counts by its texts. Raises InputError, which names the arm, if
    its config is refused, is that of another arm, or has the same folder as another arm's.
    """
    found: dict[str, Values] = {}
    identities: dict[str, str] = {}  # the arm of each fingerprint
    folders: dict[str, tuple[str, Config]] = {}  # the arm of each folder of runs
    with tempfile.TemporaryDirectory() as place:
        sweep = Sweep(study, "check", "test", arms, {})
        common = [*sweep.write_experiment(Path(place), arms, [0], extra), "seed=0"]
        config_of = _Composed(common)
        for arm, own in sweep.arms.items():
            try:
                config = checked(config_of(own))
                _check_metric(study.metric, config)
                if arm in study.tested_beyond:
                    _check_lengths(config.data)
                flat = settings(config)
            except RecursionError as error:
                raise InputError(f"base: {study.base} includes itself; remove base") from error
            except (HydraException, OmegaConfBaseException, ValueError, InputError) as error:
                raise InputError(f"arms.{arm}: {one_line(error)}") from error
            if (other := identities.setdefault(fingerprint_of(flat), arm)) != arm:
                raise InputError(f"arms.{arm}: has the same config as arms.{other}; remove one")
            names = config.data.name, config.encoding.name, config.fusion["name"]
            folder = run_folder(*names, 0, own)
            if folder in folders:
                raise InputError(_same_folder(arm, config, *folders[folder]))
            found[arm], folders[folder] = flat, (arm, config)
    return found


class _Composed:
    """Composes configs that have overrides in common.

    Hydra takes 0.15 s to compose one. Keys that choose no file are set in a copy of a config that
    has the same files.
    """

    def __init__(self, common: list[str]) -> None:
        self.common = common
        self.by_files: dict[tuple[str, ...], DictConfig] = {}

    def __call__(self, own: list[str]) -> DictConfig:
        parsed = OverridesParser.create().parse_overrides(own)
        values = {o.key_or_group: o.value() for o in parsed if _is_plain(o)}
        files = tuple(str(o.input_line) for o in parsed if not _is_plain(o))
        if files not in self.by_files:
            self.by_files[files] = self._compose(files)
        config = deepcopy(self.by_files[files])
        try:
            for key, value in values.items():
                OmegaConf.update(config, key, value, merge=True)
        except OmegaConfBaseException:
            return self._compose(own)  # Hydra's own error
        return config

    def _compose(self, own: Iterable[str]) -> DictConfig:
        with initialize_config_dir(str(CONF_DIR), version_base="1.3"):
            return compose("train", [*self.common, *own])


def _is_plain(override: Override) -> bool:
    """Whether an override sets the value of a key: groups have no dot in their names."""
    is_change = override.type == OverrideType.CHANGE and override.package is None
    return is_change and "." in override.key_or_group


def _same_folder(arm: str, config: Config, other: str, theirs: Config) -> str:
    """What two arms with one folder differ in, and how to tell their folders apart."""
    (key, *_) = differing(settings(config), settings(theirs))
    group = key.partition(".")[0]
    name = f"{group if group in ('encoding', 'fusion') else 'data'}.name"
    value = Path(str(config.data.path)).name if key == "data.path" else arm
    return (
        f"arms.{arm}: its runs would have the same folder as those of arms.{other}, because the "
        f"folder's name leaves out {key}; set another {name} in one of them, such as "
        f"{name}: {value}"
    )
