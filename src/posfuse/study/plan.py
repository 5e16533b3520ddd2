"""The frozen plan: the study, each arm's chosen settings, and a digest of both. It also decides
which records are results of its runs.

plan.yaml is written once, before any test seed runs. The digest identifies it, including its time.
After a test seed has run, a changed study, a changed file of conf/ and changed code of the user's
own classes are refused.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from pydantic import TypeAdapter

from posfuse.errors import InputError, input_errors
from posfuse.runs import identity, records
from posfuse.runs.identity import fingerprint_of
from posfuse.runs.records import Record
from posfuse.seals import digest_of
from posfuse.study.repeats import parts_of
from posfuse.study.scores import best_was_last, guesses
from posfuse.study.spec import Study, Values
from posfuse.untrusted import LARGEST_PLAN, read_yaml

PLAN = "plan.yaml"
HEADER = "# Written before any test seed ran. Do not edit: posfuse study checks the digest.\n"


@dataclass(frozen=True)
class Choice:
    """The result of tuning for one arm."""

    values: Values  # the chosen value of each tuned key; empty without tuning
    validation: float | None = None  # mean of the metric over the seeds that chose
    # Keys whose value is the smallest or the largest.
    edges: list[str] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)  # of all trials on tuning.seeds
    last: float | None = None  # share of the trial's runs whose best evaluation was the last


@dataclass(frozen=True)
class Plan:
    """A frozen plan: the study, the chosen settings of each arm, and a digest."""

    study: Study
    choices: dict[str, Choice]  # by arm; with repeats by `in_part`
    configs: dict[str, str]  # likewise: the fingerprint of the arm's composed config
    digest: str
    frozen: str = ""  # the time in UTC; plans of earlier versions lack it
    numerics: int = identity.NUMERICS  # of the version that froze it
    # Likewise: the digest of the user's own code. Plans of earlier versions, and arms without such
    # code, lack it.
    code: dict[str, str] = field(default_factory=dict)

    def arms(self) -> dict[str, Values]:
        """The overrides of each arm, including its chosen values. With repeats, only for
        `parts`."""
        return with_choices(self.study, self.choices)

    def parts(self) -> dict[str, "Plan"]:
        """The plans of `parts_of` the study."""
        if self.study.repeats == 1:
            return {"": self}
        return {
            part: replace(
                self,
                study=own,
                choices={arm: self.choices[in_part(part, arm)] for arm in own.arms},
                configs={arm: self.configs[in_part(part, arm)] for arm in own.arms},
                code={
                    arm: self.code[in_part(part, arm)]
                    for arm in own.arms
                    if in_part(part, arm) in self.code
                },
            )
            for part, own in parts_of(self.study).items()
        }


def in_part(part: str, arm: str) -> str:
    """The name of an arm of a part of the study in plan.yaml."""
    return f"{part}.{arm}" if part else arm


def with_choices(study: Study, choices: Mapping[str, Choice], part: str = "") -> dict[str, Values]:
    """The overrides of each arm of a part, including its chosen values."""
    return {arm: {**own, **choices[in_part(part, arm)].values} for arm, own in study.arms.items()}


def choose(study: Study, values: Mapping[str, Values], runs: pd.DataFrame) -> dict[str, Choice]:
    """For each arm the trial with the best mean validation result over `tuning.seeds`, or the
    finalist with the best mean over `tuning.final_seeds`; of equal ones the first.

    `values` and `runs` are those of the tuning's sweep: the overrides of each arm and trial, and
    the rows of `finished_runs`. A trial with a run that diverged is not chosen. Raises InputError
    if no trial of an arm is left.
    """
    again = finalists(study, runs) if study.final_seeds else []
    choices = {}
    for arm in study.arms:
        tried = _of_seeds(runs, arm, study.tuning_seeds)
        trials = {
            trial: {key: values[f"{arm}.{trial}"][key] for key in study.tuned}
            for trial in tried["trial"].unique()
        }
        final = tried
        if study.final_seeds:
            final = _of_seeds(runs, arm, study.final_seeds)
            final = final[(arm + "." + final["trial"]).isin(again)]
        ((best, score),) = _best(study, final, 1).items()
        edges = [key for key, value in trials[best].items() if is_edge(trials, key, value)]
        last = best_was_last(final[final["trial"] == best])
        choices[arm] = Choice(trials[best], score, edges, scores_of(study, tried).tolist(), last)
    return choices


def finalists(study: Study, runs: pd.DataFrame) -> list[str]:
    """The arms and trials that run again, such as add.t00: of each arm the trials with the best
    means over `tuning.seeds`. If too many trials diverged, there are fewer than
    `tuning.finalists`. Raises as `choose`."""
    assert study.tuning is not None
    names = []
    for arm in study.arms:
        best = _best(study, _of_seeds(runs, arm, study.tuning_seeds), study.tuning.finalists)
        names += [f"{arm}.{trial}" for trial in best]
    return names


def _of_seeds(runs: pd.DataFrame, arm: str, seeds: list[int]) -> pd.DataFrame:
    return runs[(runs["arm"] == arm) & runs["seed"].isin(seeds)]


def _best(study: Study, runs: pd.DataFrame, number: int) -> dict[str, float]:
    """The best trials of an arm and their scores, best first; of equal ones the earlier one is
    first. Trials with a run that diverged are left out."""
    left = scores_of(study, runs).drop(runs.loc[runs["diverged"], "trial"].unique())
    if left.empty:
        raise InputError(
            f"arms.{runs['arm'].iloc[0]}: every trial diverged; lower optim.lr in tuning"
        )
    best: dict[str, float] = {}
    while len(left) and len(best) < number:
        trial = left.index[study.measured.first_best(left)]
        best[trial] = float(left.pop(trial))
    return best


def scores_of(study: Study, runs: pd.DataFrame) -> "pd.Series[float]":
    """The mean validation result of each trial of an arm. A run that diverged counts as
    guessing."""
    guess = runs["arm"].map(guesses(runs, study.measured))
    values = runs[f"validation_{study.metric}"].astype(float).mask(runs["diverged"], guess)
    return values.groupby(runs["trial"], sort=False).mean()


def is_edge(trials: Mapping[str, Values], key: str, value: Any) -> bool:
    """True if a chosen number is the smallest or the largest tried number. False if a trial has a
    name such as sqrt_d, whose place among the numbers is not known."""
    tried = [_number(trial[key]) for trial in trials.values()]
    numbers = [number for number in tried if number is not None]
    if len(numbers) < len(tried) or len(set(numbers)) == 1:
        return False
    return _number(value) in (min(numbers), max(numbers))


def _number(value: Any) -> Fraction | None:
    """A number, or a fraction as the config allows it ("1/8"); None for anything else."""
    try:
        return Fraction(str(value))
    except (ValueError, ZeroDivisionError):
        return None


def freeze(
    study: Study,
    choices: dict[str, Choice],
    configs: dict[str, str],
    folder: Path,
    code: dict[str, str] | None = None,
) -> Plan:
    """Write plan.yaml. Its digest covers the study, the choices, each arm's composed config and the
    user's own code in it, and the time."""
    frozen, code = records.now(), code or {}
    content = {
        "numerics": identity.NUMERICS,
        "frozen": frozen,
        "choices": {arm: asdict(choice) for arm, choice in choices.items()},
        "configs": configs,
        **({"code": code} if code else {}),
        "study": _content(study),
    }
    digest = digest_of(content)
    folder.mkdir(parents=True, exist_ok=True)
    with records.replacing(folder / PLAN) as part:
        text = yaml.safe_dump({"digest": digest, **content}, sort_keys=False, allow_unicode=True)
        part.write_text(HEADER + text, encoding="utf-8")
    return Plan(study, choices, configs, digest, frozen, code=code)


def _content(study: Study) -> dict[str, Any]:
    """The study without its search path, because the fingerprints depend on the content of its
    files."""
    return {key: value for key, value in asdict(study).items() if key != "searchpath"}


def read_plan(study: Study, folder: Path, has_tested: bool) -> Plan | None:
    """The frozen plan, or None if there is none or the study was changed before any test seed ran.
    Raises InputError if plan.yaml is damaged, or if the study was changed afterwards."""
    path = folder / PLAN
    if not path.exists():
        if has_tested:
            raise InputError(
                f"{path}: missing, but test seeds ran; restore it from a copy, or rename the study"
            )
        return None
    frozen = load_plan(path)
    changed = identity.differing(_content(study), _content(frozen.study))
    if not changed and frozen.numerics == identity.NUMERICS:
        return replace(frozen, study=study)
    if not has_tested:
        return None
    if not changed:
        raise InputError(
            f"{path}: frozen by a version of posfuse with other numbers; use that version, or copy "
            "the study to a new name and give it fresh test seeds"
        )
    raise InputError(
        f"{path}: the study was changed after test seeds ran ({', '.join(changed)}); restore its "
        "file, or copy it to a new name and give it fresh test seeds"
    )


def load_plan(path: Path) -> Plan:
    """The plan in a plan.yaml. Raises InputError if the file is damaged or was edited."""
    with input_errors(f"{path}: contains no plan", "restore it from a copy"):
        content = yaml.safe_load(read_yaml(path, most=LARGEST_PLAN))
        digest = content.pop("digest")
        is_whole = digest == digest_of(content)
        content["choices"] = {arm: Choice(**own) for arm, own in content["choices"].items()}
        content["study"] = TypeAdapter(Study).validate_python(content["study"])
        plan = Plan(**content, digest=digest)
    if not is_whole:
        raise InputError(f"{path}: was edited: its digest does not match; restore it from a copy")
    return plan


PRECISION = "trainer.precision"
APART = timedelta(minutes=10)  # allowed difference between the clocks of two machines


def refusal(record: Record, seed: int, config: str, plan: Plan | None = None) -> str:
    """Why a record does not belong to an arm's run with this seed; empty if it does. `config` is
    the fingerprint of the arm's config with seed 0. A test run has its `plan` and starts after it
    was frozen; records of earlier versions lack both keys."""
    own = record.get("settings") or {}
    if record["fingerprint"] != fingerprint_of(own):
        return "its fingerprint does not fit its settings, or is that of another version"
    as_asked = [{**own, "seed": 0}]
    if PRECISION in own:  # a record has the precision that `fastest` has chosen
        as_asked.append({**own, "seed": 0, PRECISION: "fastest"})
    if own.get("seed") != seed or config not in map(fingerprint_of, as_asked):
        return "has another configuration than the arm"
    if plan is None:
        return ""
    if record.get("plan", plan.digest) != plan.digest:
        return f"belongs to another plan, with digest {str(record['plan'])[:16]}"
    if plan.frozen and "started" in record:
        earliest = (datetime.fromisoformat(plan.frozen) - APART).isoformat()
        if str(record["started"]) < earliest:  # both as `records.now` writes them
            return f"started at {record['started']}, before the plan was frozen at {plan.frozen}"
    return ""


def provenance(plan: Plan, runs: pd.DataFrame) -> str:
    """Sentences about the order of the plan and its test runs."""
    if not plan.frozen:
        return "The time at which this plan was frozen is not recorded."
    stated = runs.loc[~runs["diverged"]].reindex(columns=["plan", "started"])
    known = stated.dropna()["started"]
    early = sum(started < plan.frozen for started in known)
    counts = {
        "Test runs of this plan that started after that time": len(known) - early,
        "Test runs that started up to 10 minutes earlier by their machine's clock": early,
        "Test runs that name no plan or no time of their start": len(stated) - len(known),
    }
    lines = [f"{what}: {n}." for what, n in counts.items() if n]
    return " ".join([f"Frozen at {plan.frozen}.", *lines])
