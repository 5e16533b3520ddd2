"""The stages of a study: tune, freeze the plan, run fresh seeds up to each look, judge."""

import re
from collections.abc import Callable, Iterable
from itertools import product

import pandas as pd

from posfuse.errors import InputError
from posfuse.runs.folders import started_in
from posfuse.runs.proposals import Proposals, optuna_for
from posfuse.statistics.contrasts import UNDECIDED
from posfuse.study import plan as plans
from posfuse.study.arm_sweep import OUTPUT, ArmSweep
from posfuse.study.configurations import check_documents, compose
from posfuse.study.looks import Progress, progress
from posfuse.study.plan import Plan
from posfuse.study.repeats import part_of, parts_of, units_of
from posfuse.study.run_table import finished_runs
from posfuse.study.spec import NULL_ARM, Study, Trials, Values

Say = Callable[[str], None]
AfterLook = Callable[[Plan, Progress], object]
# The newest trial of each arm -> the score of each arm; None to end the search here.
Score = Callable[[Trials], dict[str, float] | None]


def tuning_sweeps(name: str, study: Study, extra: list[str]) -> dict[str, ArmSweep]:
    """The tuning of each part of the study; empty without tuning."""
    parts = parts_of(study).items() if study.tuning else ()
    return {part: tuning_sweep(sweep_name(name, part), own, extra) for part, own in parts}


def tuning_sweep(name: str, study: Study, extra: list[str]) -> ArmSweep:
    """The sweep of all trials of all arms (with method=tpe the known trials). Raises InputError
    unless Hydra composes them."""
    if study.is_searched and not study.tried:
        _search(name, study, extra)
    return _sweep_of(name, study, extra, {arm: study.trials(arm) for arm in study.arms})


def _sweep_of(name: str, study: Study, extra: list[str], trials: Trials) -> ArmSweep:
    arms = {
        f"{arm}.{trial}": {**study.arms[arm], **values}
        for arm, own in trials.items()
        for trial, values in own.items()
    }
    configs = {arm: own.fingerprint for arm, own in compose(study, arms, extra).items()}
    return ArmSweep(study, name, "tune", arms, configs)


def _search(name: str, study: Study, extra: list[str], say: Say | None = None) -> None:
    """Let Optuna propose the trials of each arm, and run those that are not done. Without `say`
    nothing runs, and the search ends at the first missing run."""
    assert study.tuning is not None
    seeds, trials = study.tuning_seeds, study.tuning.trials

    def score(newest: Trials) -> dict[str, float] | None:
        sweep = _sweep_of(name, study, extra, newest)
        if len(sweep.results(sweep.arms, seeds)) < len(sweep.arms) * len(seeds):
            if say is None:
                return None
            (trial,) = {trial for own in newest.values() for trial in own}
            n = int(trial.removeprefix("t")) + 1
            say(f"tuning: trial {n} of {trials}, for each arm")
            sweep.run(sweep.arms, seeds, extra)
        runs = finished_runs(study, {"": sweep})
        runs = runs[runs["seed"].isin(seeds)]
        return {arm: plans.scores_of(study, runs[runs["arm"] == arm]).item() for arm in newest}

    study.tried |= propose(study, score)


def propose(study: Study, score: Score) -> Trials:
    """The trials of each arm, which Optuna proposes one after another, up to the first one without
    a score. Raises InputError without Optuna."""
    assert study.tuning is not None
    optuna = optuna_for("tuning.method: tpe")
    ranges = {
        key: optuna.distributions.FloatDistribution(r.least, r.most, log=True)
        for key, r in study.tuning.random.items()
    }
    direction = "minimize" if study.measured.lower_is_better else "maximize"
    searches = {arm: Proposals(optuna, ranges, direction, study.tuning.draw) for arm in study.arms}
    tried: Trials = {arm: {} for arm in study.arms}
    for number in range(study.tuning.trials):
        newest: Trials = {}
        for arm, search in searches.items():
            if (values := search.ask()) is None:
                raise InputError(f"arms.{arm}: no other values in tuning.random; widen a range")
            newest[arm] = {f"t{number:02}": values}
            tried[arm] |= newest[arm]
        if (scores := score(newest)) is None:
            break
        for arm, search in searches.items():
            search.tell(scores[arm])
    return tried


def finalist_arms(study: Study, runs: pd.DataFrame) -> list[str]:
    """The arms of the tuning sweep that run again with the final seeds."""
    finalists = plans.finalists(study, runs)
    return [f"{arm}.{trial}" for arm, trials in finalists.items() for trial in trials]


def sweep_name(name: str, part: str) -> str:
    """The name of a study, or of a part of it, in the names of its sweeps."""
    return f"{name}_{part}" if part else name


def testing_sweeps(name: str, plan: Plan) -> dict[str, ArmSweep]:
    """Each arm with its chosen settings, by the part of the study."""
    return {
        part: ArmSweep(own.study, sweep_name(name, part), "test", own.arms(), own.configs, plan)
        for part, own in plan.parts().items()
    }


def test_runs(name: str, plan: Plan) -> pd.DataFrame:
    """The test runs that are done. No two parts share a seed."""
    return finished_runs(plan.study, testing_sweeps(name, plan))


def frozen_plan(name: str, study: Study) -> Plan | None:
    """The plan of an earlier command, or None. Raises InputError if it no longer fits."""
    return plans.read_plan(study, OUTPUT / name, has_tested(name))


def has_tested(name: str) -> bool:
    """True if any test run has started. The sweeps of any number of repeats count, because the
    number may have changed."""
    own = re.compile(rf"{re.escape(name)}(_r\d+(_null)?)?_test")
    sweeps = [folder for folder in OUTPUT.glob("*_test") if own.fullmatch(folder.name)]
    return any(map(started_in, sweeps))


def check_arms(name: str, study: Study, extra: list[str], say: Say = print) -> dict[str, Values]:
    """The settings of each arm with the first trial. Raises InputError unless Hydra composes every
    arm, and the first arm with every trial. Raises as `check_documents`."""
    trials = study.trials() or {"": {}}
    first, of_first = next(iter(trials.values())), next(iter(study.arms.items()))
    arms = {arm: {**own, **first} for arm, own in study.arms.items() if arm != NULL_ARM}
    tuned = {f"{of_first[0]}.{t}": {**of_first[1], **values} for t, values in trials.items()}
    try:
        found = compose(study, arms, extra)
        compose(study, tuned, extra)
        check_documents(study, found, say)
    except InputError as error:
        raise InputError(f"study {name}: {error}") from None
    settings = {arm: own.settings for arm, own in found.items()}
    if NULL_ARM in study.arms:
        settings[NULL_ARM] = settings[study.tuning.null_arm]  # type: ignore[union-attr]
    return settings


def runs_of(
    study: Study, arms: Iterable[str], units: int
) -> dict[str, tuple[list[str], list[int]]]:
    """The arms and the seeds of the first units, by the part of the study."""
    if study.repeats == 1:
        return {"": (list(arms), study.test_seeds[:units])}
    wanted = {part_of(unit, arm) for unit in units_of(study)[:units] for arm in study.arms}
    runs = {}
    for part, own in parts_of(study).items():
        if part in wanted and (named_arms := [arm for arm in arms if arm in own.arms]):
            runs[part] = named_arms, own.test_seeds
    return runs


def not_judged(name: str, plan: Plan, state: Progress) -> list[str]:
    """A line for each hypothesis whose next look lacks a run, because it failed or its record
    belongs to another run."""
    study, looks, lines = plan.study, plan.study.looks.seeds, []
    reasons: dict[tuple[str, int], str] = {}
    for sweep in testing_sweeps(name, plan).values():
        reasons |= sweep.reasons(sweep.arms, sweep.seeds)
    for v in state.verdicts:
        h, made = v.hypothesis, state.looks[v.hypothesis.family]
        if v.verdict != UNDECIDED or made == len(looks):
            continue
        runs = runs_of(study, h.weights, looks[made]).values()
        asked = [key for arms, seeds in runs for key in product(arms, seeds)]
        if missing := [key for key in asked if key in reasons]:
            (arm, seed), n = missing[0], f"{len(missing)} run{'s' * (len(missing) > 1)}"
            lines.append(
                f"{h.name}: not judged at {looks[made]} {study.units}, like the rest of family "
                f"{h.family}: no result of {n}, such as {arm} seed={seed} ({reasons[arm, seed]})"
            )
    return lines


def freeze(name: str, study: Study, extra: list[str], say: Say) -> Plan:
    """The frozen plan. Tunes and writes it first if needed. `extra` are overrides for posfuse
    train: a launcher, data.path. Raises what `ArmSweep.run` raises."""
    plan = frozen_plan(name, study)
    if plan is not None and _has_its_configs(name, plan, extra):
        return plan
    if (path := OUTPUT / name / plans.PLAN).exists():
        say(f"{path}: not of the current study, conf/, texts or posfuse; a new plan replaces it")
    check_arms(name, study, extra, say)
    return _tune(name, study, extra, say)


def run(
    name: str, study: Study, extra: list[str], say: Say, after_look: AfterLook
) -> tuple[Plan, Progress]:
    """Run all stages that are not done yet, and return the plan and the final verdicts.
    `after_look` is called with the verdicts so far after each look but the last one."""
    plan = freeze(name, study, extra, say)
    state = progress(study, test_runs(name, plan))
    while not state.is_finished:
        n, sweeps = f"{state.next_look} {study.units}", testing_sweeps(name, plan)
        say(f"look at {n}: {', '.join(state.next_arms)}")
        for part, (arms, seeds) in runs_of(study, state.next_arms, state.next_look).items():
            sweeps[part].run(arms, seeds, extra)
        decided = {v.hypothesis.name for v in state.verdicts if v.verdict != UNDECIDED}
        state = progress(study, test_runs(name, plan))
        for v in state.verdicts:
            if v.decision and v.hypothesis.name not in decided:
                say(f"  {v.hypothesis.name}: {v.verdict} after {v.decision.n} {study.units}")
        if not state.is_finished:
            after_look(plan, state)
    return plan, state


def _has_its_configs(name: str, plan: Plan, extra: list[str]) -> bool:
    """True if the arms' configs are those of the plan. Otherwise the plan must be frozen again.
    Raises InputError if test seeds ran with other configs."""
    frozen, configs = plan.configs, _configs(plan.study, plan.choices, extra)
    changed = [arm for arm in configs | frozen if configs.get(arm) != frozen.get(arm)]
    if changed and has_tested(name):
        raise InputError(
            f"{OUTPUT / name / plans.PLAN}: the config of {', '.join(changed)} was changed after "
            "test seeds ran; restore conf/, the texts and the version of posfuse, or copy the "
            "study's file to a new name and give it fresh test seeds"
        )
    return not changed


def _configs(study: Study, choices: dict[str, plans.Choice], extra: list[str]) -> dict[str, str]:
    """The fingerprint of each arm's config with its chosen settings, as in plan.yaml."""
    configs: dict[str, str] = {}
    for part, own in parts_of(study).items():
        of_part = compose(own, plans.with_choices(own, choices, part), extra)
        configs |= {plans.in_part(part, arm): c.fingerprint for arm, c in of_part.items()}
    return configs


def _tune(name: str, study: Study, extra: list[str], say: Say) -> Plan:
    """Tune every arm, in each repeat, and write the chosen settings into plan.yaml."""
    choices: dict[str, plans.Choice] = {}
    for part, own in parts_of(study).items():
        of_part = sweep_name(name, part)
        runs = _tuning_runs(of_part, own, extra, say) if study.tuning else pd.DataFrame()
        chosen = plans.choose(own, runs)
        choices |= {plans.in_part(part, arm): choice for arm, choice in chosen.items()}
    plan = plans.freeze(study, choices, _configs(study, choices, extra), OUTPUT / name)
    for arm, choice in plan.choices.items():
        if choice.values:
            values = ", ".join(f"{key}={value}" for key, value in choice.values.items())
            at_end = [f"{key} is the smallest or largest value tried" for key in choice.edges]
            unfinished = choice.last or 0.0
            last = [f"{100 * unfinished:.0f} % of runs were best at their last evaluation"]
            last *= unfinished > study.convergence.most_last
            say("; ".join([f"  {arm}: {values}", *at_end, *last]))
    say(f"plan frozen in {OUTPUT / name / plans.PLAN}, digest {plan.digest[:16]}")
    return plan


def _tuning_runs(name: str, study: Study, extra: list[str], say: Say) -> pd.DataFrame:
    """Run all trials, then the finalists with their own seeds."""
    if study.is_searched:
        _search(name, study, extra, say)
    sweep, seeds = tuning_sweep(name, study, extra), study.tuning_seeds
    say(f"tuning: {len(study.arms)} arms x {len(study.trials())} trials x {len(seeds)} seeds")
    sweep.run(sweep.arms, seeds, extra)
    if finals := study.final_seeds:
        trials = finalist_arms(study, finished_runs(study, {"": sweep}))
        say(f"tuning: {len(trials)} finalists x {len(finals)} seeds")
        sweep.run(trials, finals, extra)
    return finished_runs(study, {"": sweep})
