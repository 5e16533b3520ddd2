"""Reads the YAML file of a study and checks it. Nothing is composed or run."""

import math
import os
import re
from collections import Counter
from collections.abc import Sequence

from posfuse.config import CONF_DIR
from posfuse.errors import InputError
from posfuse.limits import check_name
from posfuse.process.arguments import check_protocol
from posfuse.process.config_folders import config_folder
from posfuse.runs.identity import is_neutral
from posfuse.runs.schemas import Problems, read_as, refuse
from posfuse.runs.seeds import MOST, seeds_of
from posfuse.statistics.power import seeds_needed
from posfuse.statistics.sequential import Looks
from posfuse.study.arm_sweep import NO_TEXT, is_group
from posfuse.study.given import is_of_launcher, is_set_by_study, study_file
from posfuse.study.looks import can_decide
from posfuse.study.repeats import FAR
from posfuse.study.spec import BEYOND, NULL_ARM, Evaluation, Hypothesis, Study, Tuning, Values

# The endings of the names of a study's sweeps. With repeats a sweep is NAME_r1_tune, so the name of
# another study must not end in _r1.
SWEEPS = re.compile(r"_(tune|test|timing|r\d+|r\d+_null)$")


def read_study(name: str, searchpath: Sequence[str] = ()) -> tuple[str, Study]:
    """The name and the content of a study: NAME, or a path to a file. Raises InputError, which
    names the file and the key.

    `searchpath` are absolute folders with the user's config files, in addition to those that the
    file names.
    """
    path = study_file(name, searchpath)
    study = read_as(Study, path)
    problems = Problems()
    if SWEEPS.search(path.stem):
        problems.append("the file's name: must not end in _tune, _test, _timing or _r1; rename it")
    problems.check(check_name, "the file's name", path.stem)
    own = [problems.check(config_folder, "searchpath", path.parent, f) for f in study.searchpath]
    study.searchpath = [*filter(None, own), *searchpath]
    _check_study(study, problems)
    if problems:
        refuse(str(path), problems)
    return path.stem, study


def _check_study(study: Study, problems: Problems) -> None:
    """Add the problems that the schema cannot express."""
    problems.check(_check_base, study)
    problems.check(_check_keys, "settings", study.settings, study)
    for name, values in study.arms.items():
        problems.check(check_name, "arms", name)
        if NO_TEXT.fullmatch(name):
            problems.append(f"arms.{name}: in YAML this is not a text; rename it")
        problems.check(_check_keys, f"arms.{name}", values, study)
    before = len(problems)
    tuning = problems.check(_check_tuning, study, study.tuning) if study.tuning else []
    problems.check(_check_null_arm, study)
    problems.check(_check_test, study.testing, tuning or [], study.units)
    if study.repeats > 1 and len(problems) == before:
        problems.check(_check_repeats, study)
    for i, h in enumerate(study.hypotheses):
        problems.check(_check_hypothesis, f"hypotheses[{i}]", h, study)
    names = Counter(h.name for h in study.hypotheses)
    problems += [f"hypotheses: two are named {n}; rename one" for n in names if names[n] > 1]
    if math.isnan(study.assumed.spread):
        problems.append("assumed: missing; add, for example, {difference: 2, spread: 4}")
    if not problems:
        problems.check(_check_solved, study)
        used = {arm for h in study.hypotheses for arm in h.weights}
        unused = [arm for arm in study.arms if arm not in used]
        problems += [f"arms.{a}: no hypothesis names it; remove the arm" for a in unused]


def _check_base(study: Study) -> None:
    places = [f"{folder}/{study.base}.yaml" for folder in (CONF_DIR, *study.searchpath)]
    if study.base and not any(map(os.path.isfile, places)):
        raise InputError(f"base: no file {places[0]}; name one, or remove base")


def _check_keys(place: str, values: Values, study: Study) -> None:
    for written, value in values.items():
        key = written.lstrip("+~")
        if is_set_by_study(key):
            raise InputError(f"{place}.{written}: a study sets this key itself; remove it")
        if is_of_launcher(key):
            raise InputError(f"{place}.{written}: give it on the command line instead")
        if is_neutral(key) and place != "settings":
            raise InputError(f"{place}.{written}: cannot change a result; put it into settings")
        if is_group(key, study.searchpath) and not isinstance(value, str | None):
            raise InputError(f"{place}.{written}: takes one name (got {value!r})")
        if key == "protocol":
            check_protocol(str(value or "null"), study.searchpath)


def _check_tuning(study: Study, tune: Tuning) -> list[int]:
    """Check the tuning, and return its seeds."""
    is_drawn = bool(tune.random)
    if bool(tune.grid) == is_drawn or (not is_drawn and (tune.trials or tune.method != "random")):
        raise InputError("tuning: give either grid, or random with trials")
    for key, given in tune.random.items():
        if given.least >= given.most:
            raise InputError(f"tuning.random.{key}: least must be below most")
    for key, values in tune.grid.items():
        if twice := [value for i, value in enumerate(values) if value in values[:i]]:
            raise InputError(f"tuning.grid.{key}: has {twice[0]!r} twice; remove one")
    trials = tune.trials if is_drawn else math.prod(map(len, tune.grid.values()))
    if not 2 <= trials <= MOST:
        raise InputError(f"tuning: {trials} trials per arm; give at least 2 and at most {MOST}")
    if len(study.trials()) < trials:
        raise InputError(
            f"tuning.random: has fewer than {trials} different values of four digits; widen a range"
        )
    arms = {f"arms.{name}": values for name, values in study.arms.items()}
    for place, own in {"settings": study.settings, **arms}.items():
        if both := [key for key in study.tuned if key in own]:
            raise InputError(f"tuning: {both[0]} is also set in {place}; remove one of the two")
    _check_keys("tuning", dict.fromkeys(study.tuned), study)
    seeds = seeds_of("tuning.seeds", tune.seeds)
    if bool(tune.finalists) != (tune.final_seeds is not None):
        raise InputError("tuning: give both finalists and final_seeds, or none of them")
    if not tune.finalists:
        return seeds
    if not 2 <= tune.finalists < trials:
        raise InputError(
            f"tuning.finalists: must be at least 2 and below the {trials} trials "
            f"(got {tune.finalists})"
        )
    finals = seeds_of("tuning.final_seeds", tune.final_seeds)
    if shared := sorted(set(seeds) & set(finals)):
        raise InputError(
            f"tuning.final_seeds: {shared[0]} is in tuning.seeds too; use another seed"
        )
    return seeds + finals


def _check_null_arm(study: Study) -> None:
    name = study.tuning.null_arm if study.tuning else ""
    if name and study.repeats == 1:
        raise InputError("tuning.null_arm: needs tuning.repeats of 2 or more; add it, such as 5")
    if name and name not in study.arms:
        known = ", ".join(study.arms)
        raise InputError(f"tuning.null_arm: no arm {name!r}; use one of {known}")
    own = study.arms.get(NULL_ARM)
    if own is not None and (name in ("", NULL_ARM) or own != study.arms[name]):
        raise InputError(f"arms.{NULL_ARM}: this name is for tuning.null_arm; rename the arm")


def _check_repeats(study: Study) -> None:
    """Check that each repeat gets an equal share of all seeds. Looks count repeats."""
    n = study.repeats
    keys = {"tuning.seeds": study.tuning_seeds, "testing.seeds": study.test_seeds}
    keys["tuning.final_seeds"] = study.final_seeds
    for key, seeds in keys.items():
        if len(seeds) % n:
            raise InputError(
                f"{key}: {len(seeds)} seeds cannot be shared equally by tuning.repeats={n}; give "
                f"{n * max(round(len(seeds) / n), 1)}"
            )
        if NULL_ARM in study.arms and max(seeds, default=0) >= FAR:
            raise InputError(
                f"{key}: seeds of a study with tuning.null_arm must be below {FAR:,}, because the "
                "null arm has these seeds and higher ones; use smaller seeds"
            )
    if study.testing.looks[-1] > n:
        raise InputError(
            f"testing.looks: the last look needs {study.testing.looks[-1]} repeats, but "
            f"tuning.repeats={n}; use looks up to {n}"
        )
    for i, h in enumerate(study.hypotheses):
        if not study.assumed_for(h).between:
            place = f"hypotheses[{i}]." if h.assumed else ""
            raise InputError(
                f"{place}assumed.between: missing; give the spread of a difference over repeats of "
                "tuning, to plan for"
            )


def _check_test(test: Evaluation, tuning: list[int], units: str) -> None:
    seeds, looks = seeds_of("testing.seeds", test.seeds), test.looks
    if shared := sorted(set(seeds) & set(tuning)):
        listed = ", ".join(map(str, shared[:5]))
        raise InputError(f"testing.seeds: {listed} are tuning seeds too; use fresh ones")
    if not looks or looks != sorted(set(looks)) or looks[0] < 2:
        raise InputError(
            f"testing.looks: must be ascending numbers of {units}, each at least 2 (got {looks})"
        )
    if len(seeds) < looks[-1]:
        raise InputError(
            f"testing.seeds: {len(seeds)} seeds, but the last look needs {looks[-1]}; add "
            "seeds, or lower the last look"
        )
    ends = [0.0, *test.spent, test.alpha]
    if test.spent and (
        len(test.spent) != len(looks)
        or ends != sorted(ends)
        or not math.isclose(test.spent[-1], test.alpha)
    ):
        raise InputError(
            f"testing.spent: must be the alpha spent up to each of the {len(looks)} looks, "
            f"ascending to {test.alpha:g} (got {test.spent})"
        )


def _check_hypothesis(place: str, h: Hypothesis, study: Study) -> None:
    check_name(f"{place}.name", h.name)
    check_name(f"{place}.family", h.family)
    if len(h.minus) not in (0, 2):
        raise InputError(f"{place}.minus: give two arms, whose difference is subtracted")
    for side in h.sides:
        if not isinstance(side, list) or not side or not all(isinstance(n, str) for n in side):
            raise InputError(f"{place}: {side!r} is not an arm; give a name or a list of names")
        for name in side:
            if name not in study.arms:
                raise InputError(f"{place}: no arm {name!r}; use one of {', '.join(study.arms)}")
    if unused := [name for name, weight in h.weights.items() if not weight]:
        raise InputError(f"{place}: {unused[0]} cancels out of the difference; name another arm")
    if h.outcome not in (study.metric, BEYOND):
        raise InputError(f"{place}.outcome: {h.outcome!r}; use {study.metric} or {BEYOND}")


def _check_solved(study: Study) -> None:
    """Check that the tests of solved runs can answer the hypotheses."""
    asked = {f"hypotheses[{i}]": h for i, h in enumerate(study.hypotheses) if h.solved is not None}
    if not asked:
        return
    if not study.measured.is_share:
        raise InputError(f"solved: {study.metric} is not in percent; remove solved")
    if study.repeats > 1:
        raise InputError(
            "solved: its tests compare seeds, but tuning.repeats compares repeats; remove one key"
        )
    for place, h in asked.items():
        _check_solved_hypothesis(place, h, study)


def _check_solved_hypothesis(place: str, h: Hypothesis, study: Study) -> None:
    is_own = h.assumed or study.solved is None  # other hypotheses may be about the metric
    key = f"{place}.assumed" if is_own else "assumed"
    d, spread = study.assumed_for(h).difference, study.assumed_for(h).spread
    if d >= 100 or not d * (100 - d) <= spread**2 <= 100**2 - d**2:
        raise InputError(
            f"{key}: differences of 100, 0 and -100 points with a mean of d={d:g} have a "
            f"spread from √(d (100 - d)) to √(100² - d²) (got {spread:g}); give, for "
            "example, {difference: 40, spread: 60}"
        )
    if h.solved is not None and h.solved <= 1:
        raise InputError(f"solved: must be in percent (got {h.solved:g}), for example 90")
    if not h.is_of_two_arms:
        raise InputError(
            f"{place}: the exact test of solved runs compares two arms; name one in `arm` and "
            "one in `than`, without `minus`, or set solved only in other hypotheses"
        )
    wanted = 0.0 if h.expects == "equivalent" else 100.0
    looks, alpha, family = study.looks, study.looks.alpha, len(study.families[h.family])
    if not any(can_decide(h, family, looks, look, wanted) for look in range(len(looks.seeds))):
        least = seeds_needed(lambda n: can_decide(h, family, Looks((n,), alpha), 0, wanted))
        enough = f"one look needs {least:.0f} or more"
        if math.isinf(least):
            enough = "no feasible number of seeds can; give a larger margin"
        raise InputError(
            f"{place}: {looks.seeds[-1]} seeds cannot decide the hypothesis by solved runs with "
            f"alpha={alpha:g}, {family} in its family and margin={h.margin:g}; {enough}"
        )
