"""A study as its YAML file defines it: arms, tuning, test seeds, looks and hypotheses."""

import itertools
import math
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from posfuse.analysis.statistics.sequential import Looks, Margins
from posfuse.config import CONF_DIR, LARGEST_SEED, check_name, is_neutral
from posfuse.errors import InputError
from posfuse.runs.typed_yaml import read_typed

EXPECTED = ("greater", "less", "equivalent")
SET_BY_STUDY = ("seed", "experiment", "arm")
Values = dict[str, Any]  # overrides by key


@dataclass
class Range:
    """Values that are drawn at random, uniformly on a logarithmic scale."""

    least: float = math.nan
    most: float = math.nan


@dataclass
class Tuning:
    """How each arm's settings are chosen: every arm gets the same trials."""

    grid: dict[str, list[Any]] = field(default_factory=dict)  # every combination is a trial
    random: dict[str, Range] = field(default_factory=dict)  # or: so many random draws
    trials: int = 0  # the number of random draws
    seeds: Any = None  # "100-102" or a list; validation accuracy on them chooses


@dataclass
class Evaluation:
    """The fresh seeds, and when they are looked at."""

    seeds: Any = None  # "0-23" or a list
    looks: list[int] = field(default_factory=list)  # seeds per arm at each look
    alpha: float = 0.05  # of each family of hypotheses
    spent: list[float] = field(default_factory=list)  # alpha up to each look; O'Brien-Fleming


@dataclass
class Hypothesis:
    """A statement about the paired difference arm - than, in points of test accuracy."""

    name: str = "???"
    text: str = "???"
    arm: str = "???"
    than: str = "???"
    placebo: list[str] = field(default_factory=list)  # two arms: their difference is subtracted
    expects: str = "???"  # greater, less or equivalent
    margin: float = 1.0  # a difference within +-margin does not matter
    family: str = "primary"

    @property
    def arms(self) -> list[str]:
        """All arms whose runs the hypothesis needs."""
        return [self.arm, self.than, *self.placebo]

    @property
    def margins(self) -> Margins:
        """Equivalence is refuted only by a difference beyond the margin."""
        return Margins(self.margin, self.margin if self.expects == "equivalent" else 0.0)


@dataclass
class Convergence:
    """When an arm counts as trained to its end."""

    most_last: float = 0.5  # share of runs whose best evaluation may be their last one


@dataclass
class Assumed:
    """A true difference and its spread over seeds, in points, for the power of the plan."""

    difference: float = math.nan
    spread: float = math.nan


@dataclass
class Study:
    question: str = "???"
    base: str = ""  # a file of conf/ that all runs start from, such as quickstart
    settings: Values = field(default_factory=dict)  # overrides of all runs
    arms: dict[str, Values] = field(default_factory=dict)  # overrides of each arm
    tuning: Tuning | None = None
    testing: Evaluation = field(default_factory=Evaluation)
    hypotheses: list[Hypothesis] = field(default_factory=list)
    convergence: Convergence = field(default_factory=Convergence)
    assumed: Assumed = field(default_factory=Assumed)

    @property
    def looks(self) -> Looks:
        shares = tuple(spent / self.testing.alpha for spent in self.testing.spent)
        return Looks(tuple(self.testing.looks), self.testing.alpha, shares)

    @property
    def families(self) -> dict[str, list[Hypothesis]]:
        """The hypotheses by family, in the order of the file."""
        names = dict.fromkeys(h.family for h in self.hypotheses)
        return {name: [h for h in self.hypotheses if h.family == name] for name in names}

    def trials(self) -> dict[str, Values]:
        """The values of each trial by its name, t00 and so on; empty without tuning."""
        if self.tuning is None:
            return {}
        if self.tuning.random:
            draw = np.random.default_rng(0)
            rows = [
                [
                    float(f"{math.exp(draw.uniform(math.log(r.least), math.log(r.most))):.4g}")
                    for r in self.tuning.random.values()
                ]
                for _ in range(self.tuning.trials)
            ]
            keys = list(self.tuning.random)
        else:
            keys = list(self.tuning.grid)
            rows = [list(values) for values in itertools.product(*self.tuning.grid.values())]
        return {f"t{i:02}": dict(zip(keys, row, strict=True)) for i, row in enumerate(rows)}


def read_study(name: str) -> tuple[str, Study]:
    """The name and the content of a study: NAME for conf/study/NAME.yaml, or a path to a file.

    Raises InputError, which names the file and the key.
    """
    path = Path(name)
    if path.suffix not in (".yaml", ".yml"):
        path = CONF_DIR / "study" / f"{name}.yaml"
        if not path.exists():
            known = [p.stem for p in sorted(path.parent.glob("*.yaml"))]
            listed = ", ".join([*known, "a YAML file"])
            raise InputError(f"{name}: no such study; use one of {listed}")
    nested = (Tuning, Range, Evaluation, Hypothesis, Convergence, Assumed)
    study: Study = read_typed(path, Study, *nested)
    try:
        check_name("the file's name", path.stem)
        _check(study)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return path.stem, study


def seeds_of(key: str, given: Any) -> list[int]:
    """Seeds from "0-7", "3" or a list; raises InputError for anything else."""
    if isinstance(given, str) and (ends := re.fullmatch(r"(\d+)-(\d+)", given.strip())):
        given = list(range(int(ends[1]), int(ends[2]) + 1))
    found = given if isinstance(given, list) else [given]
    found = [int(s) if isinstance(s, str) and s.isdecimal() else s for s in found]
    if not found or not all(type(s) is int and 0 <= s <= LARGEST_SEED for s in found):
        raise InputError(f"{key}: must be seeds such as 0-7 or [0, 1, 2] (got {given!r})")
    if len(set(found)) < len(found):
        raise InputError(f"{key}: seed {Counter(found).most_common(1)[0][0]} is given twice")
    return found


def _check(study: Study) -> None:
    if len(study.arms) < 2:
        raise InputError("arms: needs at least two, such as add: {fusion: add}")
    for name, values in study.arms.items():
        check_name("arms", name)
        _check_keys(f"arms.{name}", values)
    _check_keys("settings", study.settings)
    for one, other in itertools.combinations(study.arms, 2):
        if study.arms[one] == study.arms[other]:
            raise InputError(f"arms.{other}: is the same as arms.{one}; remove one")
    tuning = _check_tuning(study) if study.tuning else []
    _check_test(study.testing, tuning)
    if not study.hypotheses:
        raise InputError("hypotheses: none; a study tests at least one")
    for h in study.hypotheses:
        _check_hypothesis(h, study)
    names = Counter(h.name for h in study.hypotheses)
    if twice := [name for name, n in names.items() if n > 1]:
        raise InputError(f"hypotheses: two are named {twice[0]}; rename one")
    if not 0 <= study.convergence.most_last <= 1:
        raise InputError("convergence.most_last: must be a share between 0 and 1")
    if not (0 < study.assumed.spread < math.inf and 0 < study.assumed.difference < math.inf):
        raise InputError("assumed: give the difference and the spread to plan for, both above 0")


def _check_keys(place: str, values: Values) -> None:
    for key in values:
        if key in SET_BY_STUDY or key.startswith("hydra") or is_neutral(key):
            raise InputError(f"{place}.{key}: a study sets this key itself; remove it")


def _check_tuning(study: Study) -> list[int]:
    """The tuning seeds."""
    tune = study.tuning
    assert tune is not None
    if bool(tune.grid) == bool(tune.random):
        raise InputError("tuning: give either grid or random")
    if not tune.random and tune.trials:
        raise InputError("tuning.trials: is for random draws; a grid has one trial a combination")
    for key, values in tune.grid.items():
        if len(set(map(str, values))) < len(values) or not values:
            raise InputError(f"tuning.grid.{key}: needs different values (got {values})")
    for key, given in tune.random.items():
        if not 0 < given.least < given.most < math.inf:
            raise InputError(f"tuning.random.{key}: needs 0 < least < most")
    if len(study.trials()) < 2:
        raise InputError(
            "tuning: one trial per arm leaves no choice; add values, or move them to settings"
        )
    keys = [*tune.grid, *tune.random]
    arms = {f"arms.{name}": values for name, values in study.arms.items()}
    for place, own in {"settings": study.settings, **arms}.items():
        if both := [key for key in keys if key in own]:
            raise InputError(f"tuning: {both[0]} is also set in {place}; remove one of the two")
    _check_keys("tuning", dict.fromkeys(keys))
    return seeds_of("tuning.seeds", tune.seeds)


def _check_test(test: Evaluation, tuning: list[int]) -> None:
    if test.seeds is None:
        raise InputError("testing.seeds: missing; give fresh seeds, such as 0-23")
    seeds, looks = seeds_of("testing.seeds", test.seeds), test.looks
    if shared := sorted(set(seeds) & set(tuning)):
        listed = ", ".join(map(str, shared[:5]))
        raise InputError(f"testing.seeds: {listed} are tuning seeds too; use fresh ones")
    if not looks or looks != sorted(set(looks)) or looks[0] < 2:
        raise InputError(
            f"testing.looks: must be ascending numbers of seeds from 2 on (got {looks})"
        )
    if len(seeds) < looks[-1]:
        raise InputError(f"testing.seeds: {len(seeds)} seeds, but the last look needs {looks[-1]}")
    if not 0 < test.alpha < 0.5:
        raise InputError(f"testing.alpha: must be above 0 and below 0.5 (got {test.alpha:g})")
    if test.spent and (
        len(test.spent) != len(looks)
        or test.spent != sorted(test.spent)
        or test.spent[0] < 0
        or not math.isclose(test.spent[-1], test.alpha)
        or not all(map(math.isfinite, test.spent))
    ):
        raise InputError(
            f"testing.spent: must be the alpha spent up to each of the {len(looks)} looks, "
            f"ascending to {test.alpha:g} (got {test.spent})"
        )


def _check_hypothesis(h: Hypothesis, study: Study) -> None:
    place = f"hypotheses: {h.name}"
    for arm in h.arms:
        if arm not in study.arms:
            raise InputError(f"{place}: no arm {arm!r}; use one of {', '.join(study.arms)}")
    if h.arm == h.than:
        raise InputError(f"{place}: compares {h.arm} with itself; name another arm with `than`")
    if h.placebo and (len(set(h.placebo)) != 2 or h.placebo == [h.arm, h.than]):
        raise InputError(f"{place}: placebo: give two other arms, that of `arm` and that of `than`")
    if h.expects not in EXPECTED:
        raise InputError(f"{place}: expects {h.expects!r}; use one of {', '.join(EXPECTED)}")
    if not 0 < h.margin < math.inf:
        raise InputError(f"{place}: margin: must be points above 0 (got {h.margin:g})")
