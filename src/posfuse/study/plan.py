"""The frozen plan: the study, each arm's chosen settings, and a digest of both.

plan.yaml is written once, before any test seed runs. The digest identifies it: a study that was
changed after test seeds ran has another digest and is refused.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from posfuse.errors import InputError
from posfuse.runs import records
from posfuse.runs.records import Record
from posfuse.study.spec import Study, Values, seeds_of

PLAN = "plan.yaml"
HEADER = "# Written before any test seed ran. Do not edit: posfuse-study checks the digest.\n"


@dataclass(frozen=True)
class Choice:
    """What tuning chose for one arm."""

    values: Values  # the chosen value of each tuned key; empty without tuning
    validation: float | None = None  # the trial's mean accuracy on validation, in percent
    edges: list[str] = field(default_factory=list)  # keys whose value is at the end of its grid
    scores: list[float] = field(default_factory=list)  # of all trials, in percent
    last: float | None = None  # share of the trial's runs whose best evaluation was the last


@dataclass(frozen=True)
class Plan:
    study: Study
    choices: dict[str, Choice]  # by arm
    digest: str

    def arms(self) -> dict[str, Values]:
        """The overrides of each arm, its chosen values included."""
        return {
            arm: {**values, **self.choices[arm].values} for arm, values in self.study.arms.items()
        }


def choose(study: Study, results: Mapping[tuple[str, int], Record | None]) -> dict[str, Choice]:
    """For each arm the trial with the highest mean validation accuracy; the first of equals.

    `results` are the records of the tuning runs by (trial's arm, seed), None for a run that
    diverged; a trial with such a run is not chosen. Raises InputError if no trial of an arm is
    left.
    """
    trials = study.trials()
    if study.tuning is None:
        return {arm: Choice({}) for arm in study.arms}
    seeds = seeds_of("tuning.seeds", study.tuning.seeds)
    found = {}
    for arm in study.arms:
        runs = {t: [results[trial_name(arm, t), s] for s in seeds] for t in trials}
        complete = {t: [r for r in own if r is not None] for t, own in runs.items()}
        scores = {
            t: 100 * float(np.mean([r["validation"]["accuracy"] for r in own]))
            for t, own in complete.items()
            if len(own) == len(seeds)
        }
        if not scores:
            raise InputError(f"arms.{arm}: every trial diverged; lower optim.lr in tuning")
        best = max(scores, key=lambda t: scores[t])
        edges = [key for key, value in trials[best].items() if is_edge(study, key, value)]
        last = float(np.mean([best_was_last(r) for r in complete[best]]))
        found[arm] = Choice(trials[best], scores[best], edges, list(scores.values()), last)
    return found


def trial_name(arm: str, trial: str) -> str:
    """The name of an arm of the tuning sweep."""
    return f"{arm}.{trial}"


def best_was_last(record: Record) -> bool:
    """Whether a run's best evaluation was its last one, so that it may not have converged."""
    if "evaluations" in record:
        return bool(record["best_evaluation"] == record["evaluations"])
    return bool(record["best_epoch"] == record["epochs"])


def is_edge(study: Study, key: str, value: Any) -> bool:
    """Whether a chosen number is the smallest or the largest of those tried."""
    numbers = [v for v in (t[key] for t in study.trials().values()) if _is_number(v)]
    return _is_number(value) and len(set(numbers)) > 1 and value in (min(numbers), max(numbers))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def digest_of(study: Study, choices: Mapping[str, Choice]) -> str:
    """64 hex digits of the study, the choices and the version of the numbers."""
    content = [records.NUMERICS, asdict(study), {arm: asdict(c) for arm, c in choices.items()}]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def freeze(study: Study, choices: dict[str, Choice], folder: Path) -> Plan:
    """Write plan.yaml."""
    plan = Plan(study, choices, digest_of(study, choices))
    content = {
        "digest": plan.digest,
        "numerics": records.NUMERICS,
        "choices": {arm: asdict(choice) for arm, choice in choices.items()},
        "study": asdict(study),
    }
    folder.mkdir(parents=True, exist_ok=True)
    with records.replacing(folder / PLAN) as part:
        text = HEADER + yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
        part.write_text(text, encoding="utf-8")
    return plan


def read_plan(study: Study, folder: Path, has_tested: bool) -> Plan | None:
    """The frozen plan; None if there is none, or if the study was changed before any test seed
    ran.

    Raises InputError if plan.yaml is damaged, or if the study was changed afterwards.
    """
    path = folder / PLAN
    if not path.exists():
        if has_tested:
            raise InputError(f"{path}: missing, but test seeds ran; restore it from a copy")
        return None
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        choices = {arm: Choice(**choice) for arm, choice in content["choices"].items()}
        frozen, numerics, digest = content["study"], content["numerics"], content["digest"]
    except (OSError, UnicodeDecodeError, yaml.YAMLError, LookupError, TypeError,
            AttributeError) as error:  # fmt: skip
        reason = " ".join(str(error).split())
        raise InputError(f"{path}: cannot be read ({reason}); restore it from a copy") from error
    same = json.loads(json.dumps(asdict(study))) == frozen and numerics == records.NUMERICS
    if same and digest == digest_of(study, choices):
        return Plan(study, choices, digest)
    if same:
        raise InputError(f"{path}: was edited: its digest does not fit; restore it from a copy")
    if not has_tested:
        return None
    own = asdict(study)
    changed = ", ".join(key for key in own if own[key] != frozen.get(key)) or "posfuse's numerics"
    raise InputError(
        f"{path}: the study was changed after test seeds ran ({changed}); restore its file, or "
        "copy it to a new name and give it fresh test seeds"
    )
