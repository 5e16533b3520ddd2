"""Writes and reads multirun.yaml of a sweep, which has the runs of its last command."""

from collections.abc import Mapping
from functools import cache
from itertools import islice, product
from math import prod
from pathlib import Path
from typing import Any

from filelock import FileLock
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, Override, RangeSweep
from omegaconf import OmegaConf

from posfuse.errors import Conflict, InputError, input_errors
from posfuse.runs.folders import folders_of, lies_in
from posfuse.runs.records import FAILURE, RESULT, read_failure, read_result, replacing
from posfuse.untrusted import read_yaml

MULTIRUN = "multirun.yaml"
MOST_RUNS = 100_000  # of a sweep; a range in a file may be larger than memory


def read_multirun(path: Path) -> tuple[Any, dict[str, list[str]]]:
    """The composed config in a multirun.yaml, and the values of each override of the sweep.

    The keys of the overrides are as in the command, with a leading + or ~ and a package. Raises
    InputError if the file is damaged.
    """
    fix = "run the sweep's command again to write it"
    with input_errors(f"{path}: not a sweep's settings", fix):
        config: Any = OmegaConf.create(read_yaml(path, is_interpolated=True))
        values = _values_of(config)
        if prod(map(len, values.values())) > MOST_RUNS:
            raise ValueError(f"more than {MOST_RUNS} runs")
        # What is read below; each raises an error for a part of another type.
        folders_of([[f"seed={seed}"] for seed in values.get("seed", [])] or [[]], config)
        [",".join(own) for own in _arms(config).values()]
        _primary(config)
        _to_come(config, values)
    return config, values


def write_multirun(config: Any) -> None:
    """Write multirun.yaml of the sweep with this composed config. Its runs may read the file now,
    and another command may write it."""
    sweep = Path(config.hydra.sweep.dir)
    sweep.mkdir(parents=True, exist_ok=True)
    with FileLock(sweep / f".{MULTIRUN}.lock"), replacing(sweep / MULTIRUN) as part:
        OmegaConf.save(config, part)


def _values_of(config: Any) -> dict[str, list[str]]:
    """The values of each override of a sweep. A ${...} in a value belongs to the run's config."""
    params = [f"{k}={v}" for k, v in (config.hydra.sweeper.get("params") or {}).items()]
    task: Any = OmegaConf.to_container(config.hydra.overrides.task, resolve=False)
    parsed = OverridesParser.create().parse_overrides([*params, *task])
    return {override.get_key_element(): _values(override) for override in parsed}


def _to_come(config: Any, values: Mapping[str, list[str]]) -> int:
    """The number of runs of the trials that a search has not proposed yet; 0 for a grid."""
    trials = len(values.get("arm", []))
    left = max(0, int(config.hydra.sweeper.get("n_trials") or 0) - trials)
    return min(left * prod(map(len, values.values())) // trials, MOST_RUNS) if trials else 0


def runs_to_come(sweep: Path) -> int:
    """The number of runs of the last command whose folders are not known yet, because a search will
    propose their values."""
    return _to_come(*read_multirun(sweep / MULTIRUN)) if (sweep / MULTIRUN).exists() else 0


def _arms(config: Any) -> dict[str, list[str]]:
    """The overrides of each arm."""
    return {name: list(own) for name, own in (config.hydra.sweeper.get("arms") or {}).items()}


def _primary(config: Any) -> tuple[str, ...]:
    """The operators in sweep.primary."""
    return tuple(map(str, (config.get("sweep") or {}).get("primary") or ()))


def _values(override: Override) -> list[str]:
    """The values as texts, not shuffled, and at most one more than MOST_RUNS."""
    if override.is_sweep_override():
        if isinstance(sweep := override.value(), ChoiceSweep | RangeSweep):
            sweep.shuffle = False  # would need all values at once
        return list(islice(override.sweep_string_iterator(), MOST_RUNS + 1))
    return [override.get_value_element_as_str()]


def folders_asked_for(sweep: Path) -> list[Path]:
    """The folders of the runs of the last command; none if multirun.yaml is missing."""
    if not (sweep / MULTIRUN).exists():
        return []
    return folders_of_sweep(read_multirun(sweep / MULTIRUN)[0], sweep)


def folders_of_sweep(config: Any, sweep: Path) -> list[Path]:
    """The folders of all runs of the sweep with this composed config."""
    overrides = _values_of(config).items()
    choices = [[f"{key}={value}" for value in values] for key, values in overrides]
    jobs = [with_arm(list(job), _arms(config)) for job in product(*choices)]
    return [sweep / folder for folder in folders_of(jobs, config)]


def common_overrides(sweep: Path) -> tuple[set[str], int]:
    """The overrides that all runs of the sweep's last command share, and the number of runs.

    Those of a search exclude the values that it proposes, because later trials have others.
    """
    cfg, overrides = read_multirun(sweep / MULTIRUN)
    common = {f"{key}={values[0]}" for key, values in overrides.items() if len(values) == 1}
    names = overrides.get("arm")
    if names and "n_trials" not in cfg.hydra.sweeper:
        common |= set.intersection(*(set(with_arm([f"arm={n}"], _arms(cfg))) for n in names))
    return common, prod(map(len, overrides.values())) + _to_come(cfg, overrides)


def with_arm(overrides: list[str], arms: Mapping[str, list[str]]) -> list[str]:
    """The overrides of a run, with `arm=NAME` replaced by the overrides of this arm.

    Raises InputError if the sweep has no such arm.
    """
    own: list[str] = []
    for override in overrides:
        key, _, name = override.partition("=")
        if key == "arm" and name not in arms:
            known = f"use one of {', '.join(arms)}" if arms else "add it there, or choose a study"
            raise InputError(f"arm: no arm {name!r} in hydra.sweeper.arms; {known}")
        own += arms[name] if key == "arm" else [override]
    return own


def primary_family(sweep: Path) -> tuple[str, ...]:
    """The operators in sweep.primary of the sweep's last command; none if the file is missing."""
    if not (sweep / MULTIRUN).exists():
        return ()
    return _primary(read_multirun(sweep / MULTIRUN)[0])


def check_is_current(folder: Path) -> None:
    """Raise InputError if the result in a run's folder does not belong to the run that was last
    asked for in this folder. posfuse train has compared the fingerprints.

    A later command of the sweep that does not ask for this folder does not matter.
    """
    if not (folder / FAILURE).exists():
        return
    failure = read_failure(folder / FAILURE)
    if failure["kind"] != Conflict.kind:
        return
    sweep = next((above for above in folder.parents if (above / MULTIRUN).exists()), None)
    if sweep is None or folder in _last_asked_for(sweep, (sweep / MULTIRUN).stat().st_mtime_ns):
        raise InputError(
            f"{folder}: left out, not the run that was last asked for: {failure['message']}"
        )


def asked_beside(folder: Path) -> list[Path]:
    """The folders of all runs of the sweep's last command, relative to the sweep's folder; none if
    the command did not ask for this run."""
    sweep = next((above for above in folder.parents if (above / MULTIRUN).exists()), None)
    if sweep is None:
        return []
    asked = _last_asked_for(sweep, (sweep / MULTIRUN).stat().st_mtime_ns)
    return [path.relative_to(sweep) for path in asked] if folder in asked else []


@cache
def _last_asked_for(sweep: Path, modified: int) -> frozenset[Path]:
    return frozenset(folders_asked_for(sweep))


def has_result(folder: Path) -> bool:
    """True if the folder has the result of the run that a sweep asked for, or a damaged result."""
    if not (folder / RESULT).exists():
        return False
    try:
        check_is_current(folder)
    except InputError:
        return False
    try:
        return lies_in(read_result(folder / RESULT), folder)
    except InputError:
        return True
