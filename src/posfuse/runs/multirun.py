"""The runs of a sweep's last command, from its multirun.yaml."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice, product
from math import prod
from pathlib import Path
from typing import Any

from filelock import FileLock
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, Override, RangeSweep
from omegaconf import OmegaConf, read_write

from posfuse.errors import Conflict, InputError, input_errors
from posfuse.limits import NAME
from posfuse.runs.folders import AXES, folders_of, lies_in, with_file
from posfuse.runs.records import FAILURE, RESULT, read_failure, read_result, replacing
from posfuse.untrusted import read_yaml

MULTIRUN = "multirun.yaml"
ARMS, PARAMS, TRIALS = (f"hydra.sweeper.{key}" for key in ("arms", "params", "n_trials"))
NAMES, PRIMARY = (*(f"{axis}.name" for axis in AXES), "seed"), "sweep.primary"
# multirun.yaml has the resolved values of these keys. Its readers resolve no ${...}, because
# ${oc.env:NAME} in a stranger's file could name a secret.
RESOLVED = (ARMS, PARAMS, TRIALS, *NAMES, PRIMARY)
TASK = "hydra.overrides.task"  # the command's overrides; their ${...} belong to the runs' configs
MOST_RUNS = 100_000  # of a sweep; a range in a file may be larger than memory


@dataclass(frozen=True)
class Multirun:
    """The runs of a command; without its multirun.yaml there are none."""

    folders: list[str] = field(default_factory=list)  # of the runs, in the sweep's folder
    overrides: list[list[str]] = field(default_factory=list)  # of the runs
    to_come: int = 0  # runs of trials that a search has not proposed yet
    common: set[str] = field(default_factory=set)  # overrides of all runs, not those of arms
    primary: tuple[str, ...] = ()  # the operators in sweep.primary
    config: Any = None  # the names and the seed of the composed config


def read_multirun(sweep: Path) -> Multirun:
    """The runs of a sweep's last command. Raises InputError if multirun.yaml is damaged."""
    path = sweep / MULTIRUN
    if not path.exists():
        return Multirun()
    state = path.stat()  # two files that are written within a tick of the clock differ in st_ino
    return _read(path, state.st_mtime_ns, state.st_ino)


@lru_cache
def _read(path: Path, *version: int) -> Multirun:
    fix = "remove it, and run the command of the sweep or the study again"
    with input_errors(f"{path}: not a sweep's settings", fix):
        content = OmegaConf.create(read_yaml(path, is_interpolated=True))
        plain = OmegaConf.to_container(content, resolve=False)
        try:
            return _multirun({key: _value(plain, key) for key in (*RESOLVED, TASK)})
        except InputError as error:
            raise ValueError(str(error)) from error  # to name the file


def _value(plain: Any, key: str) -> Any:
    """The value of a key in nested tables; None without it. Raises an error of any type if a part
    is no table, and for a name with ${...}."""
    for part in key.split("."):
        plain = None if plain is None else plain.get(part)
    if key in NAMES and "${" in str(plain):
        raise ValueError(f"{key} has ${{...}}; write the value there instead")
    return plain


def multirun_of(config: Any) -> Multirun:
    """The runs of the sweep with this composed config. A ${...} in an override belongs to the run's
    config. Raises an error of any type if the config is not a sweep's."""
    task = OmegaConf.to_container(config.hydra.overrides.task, resolve=False)
    return _multirun({**_resolved(config), TASK: task})


def _resolved(config: Any) -> dict[str, Any]:
    """The values of RESOLVED in a composed config; None without a value."""
    values = {key: OmegaConf.select(config, key) for key in RESOLVED}
    return {k: OmegaConf.to_object(v) if OmegaConf.is_config(v) else v for k, v in values.items()}


def _multirun(values: Mapping[str, Any]) -> Multirun:
    """The runs, from plain values of RESOLVED and TASK."""
    arms = arms_of(values[ARMS] or {})
    params = [f"{k}={v}" for k, v in (values[PARAMS] or {}).items()]
    parsed = OverridesParser.create().parse_overrides([*params, *values[TASK]])
    of_keys = {override.get_key_element(): _values(override) for override in parsed}
    n = prod(map(len, of_keys.values()))
    if n > MOST_RUNS:
        raise InputError(f"more than {MOST_RUNS:,} runs; divide the sweep")
    choices = [[f"{key}={value}" for value in of_key] for key, of_key in of_keys.items()]
    jobs = [with_arm(list(job), arms) for job in product(*choices)]
    trials = of_keys.get("arm", [])
    left = max(0, int(values[TRIALS] or 0) - len(trials))
    config = OmegaConf.create()
    for key in NAMES:
        OmegaConf.update(config, key, values[key])
    return Multirun(
        folders_of(jobs, config),
        jobs,
        min(left * n // len(trials), MOST_RUNS) if trials else 0,
        {choice[0] for choice in choices if len(choice) == 1},
        tuple(name for name in map(str, values[PRIMARY] or ()) if NAME.fullmatch(name)),
        config,
    )


def _values(override: Override) -> list[str]:
    """The values as texts, not shuffled, and at most one more than MOST_RUNS."""
    if override.is_sweep_override():
        if isinstance(sweep := override.value(), ChoiceSweep | RangeSweep):
            sweep.shuffle = False  # would need all values at once
        return list(islice(override.sweep_string_iterator(), MOST_RUNS + 1))
    return [override.get_value_element_as_str()]


def write_multirun(config: Any) -> None:
    """Write multirun.yaml of the sweep with this composed config. Its runs may read the file now,
    and another command may write it."""
    sweep = Path(config.hydra.sweep.dir)
    sweep.mkdir(parents=True, exist_ok=True)
    written = config.copy()
    with read_write(written.hydra):
        for key, value in _resolved(config).items():
            if value is not None:
                OmegaConf.update(written, key, value, merge=False)
    with FileLock(sweep / f".{MULTIRUN}.lock"), replacing(sweep / MULTIRUN) as part:
        OmegaConf.save(written, part)


def arms_of(given: Mapping[Any, Any]) -> dict[str, list[str]]:
    """hydra.sweeper.arms. Raises InputError for an arm that is not a list of overrides."""
    arms = {}
    for name, own in given.items():
        is_list = isinstance(own, Sequence) and not isinstance(own, str)
        if not is_list or not all(isinstance(override, str) for override in own):
            raise InputError(
                f"hydra.sweeper.arms.{name}: must be a list of overrides, such as [fusion=concat], "
                f"or [] for none (got {own})"
            )
        arms[str(name)] = list(own)  # YAML reads 1 as a number
    return arms


def with_arm(overrides: list[str], arms: Mapping[str, list[str]]) -> list[str]:
    """The overrides of a run, with `arm=NAME` replaced by the overrides of this arm.

    Raises InputError if the sweep has no such arm.
    """
    own: list[str] = []
    for override in overrides:
        key, _, name = override.partition("=")
        if key == "arm" and name not in arms:
            known = "choose an experiment with arms, such as experiment=copy_reverse"
            known = f"use one of {', '.join(arms)}" if arms else known
            raise InputError(f"arm: no arm {name!r} in hydra.sweeper.arms; {known}")
        own += arms[name] if key == "arm" else [override]
    return own


def sweep_around(folder: Path) -> Path | None:
    """The absolute path of the sweep that contains a run's folder at the depth of `run_folder`;
    None if there is none."""
    parents = Path(os.path.abspath(folder)).parents[len(AXES) : len(AXES) + 2]
    return next((sweep for sweep in parents if (sweep / MULTIRUN).exists()), None)


def sweeps_at(folder: Path) -> list[Path]:
    """The folder if it is that of a sweep; otherwise the sweeps in the folder, and the sweep of
    which it is a part, such as the folder of a corpus."""
    if (folder / MULTIRUN).exists():
        return [folder]
    inside = with_file(MULTIRUN, folder)
    around = Path(os.path.abspath(folder)).parents[: len(AXES) + 1]
    return inside + [sweep for sweep in around if (sweep / MULTIRUN).exists()][:1]


def sweep_of(folder: Path) -> tuple[Multirun, str] | None:
    """The runs of the last command of the sweep that contains a run's folder, and the folder's path
    in the sweep; None if the folder is in no sweep."""
    sweep = sweep_around(folder)
    return (read_multirun(sweep), os.path.relpath(folder, sweep)) if sweep else None


def place_of(folder: Path, sweep: Path) -> tuple[str, set[str]]:
    """A run's place in the sweep's last command, such as "run 1 of 6: ", and the overrides that all
    runs of the command share. Both are empty if another command has replaced multirun.yaml."""
    asked, name = read_multirun(sweep), os.path.relpath(folder, sweep)
    if name not in asked.folders:
        return "", set()
    number = asked.folders.index(name) + 1
    return f"run {number} of {len(asked.folders) + asked.to_come}: ", asked.common


def conflict_of(folder: Path) -> str:
    """Why the result in a run's folder does not belong to the run that was last asked for in this
    folder; empty if it does. posfuse train has compared the fingerprints and the code.

    A later command of the sweep that does not ask for this folder does not matter.
    """
    failure = read_failure(folder)
    if failure is None or failure["kind"] != Conflict.kind:
        return ""
    sweep = sweep_of(folder)
    return failure["message"] if sweep is None or sweep[1] in sweep[0].folders else ""


def check_is_current(folder: Path) -> None:
    """Raise InputError if the result in a run's folder does not belong to the run that was last
    asked for in this folder."""
    if message := conflict_of(folder):
        raise InputError(
            f"{folder}: this result is not used, because the last command asked for another run "
            f"here: {message}; or remove {FAILURE} there to use this result"
        )


def has_result(folder: Path) -> bool:
    """True if the folder has the result of the run that a sweep asked for, or a damaged result."""
    if not (folder / RESULT).exists() or conflict_of(folder):
        return False
    try:
        return lies_in(read_result(folder / RESULT), folder)
    except InputError:
        return True
