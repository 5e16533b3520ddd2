"""The stages of a study: tune, freeze the plan, run fresh seeds up to each look, judge."""

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import product

import pandas as pd

from posfuse.errors import InputError
from posfuse.runs.folders import started_in
from posfuse.runs.identity import own_code
from posfuse.runs.proposals import Proposals, optuna_for
from posfuse.statistics.contrasts import UNDECIDED
from posfuse.study import plan as plans
from posfuse.study.arm_sweep import OUTPUT, ArmSweep
from posfuse.study.configurations import check_documents, compose
from posfuse.study.looks import Progress, progress
from posfuse.study.plan import Plan
from posfuse.study.repeats import parts_of, unit_of, units_of
from posfuse.study.run_table import finished_runs
from posfuse.study.spec import NULL_ARM, Study, Trials, Values

Say = Callable[[str], None]
Digests = dict[str, str]  # by arm; with repeats by `plans.in_part`
# The number of a trial, from 0, and its values in each arm -> the score of each arm; None to end
# the search here.
Score = Callable[[int, Trials], dict[str, float] | None]


class Stages:
    """The stages of one study. None of them repeats what is done."""

    def __init__(self, name: str, study: Study, extra: list[str], say: Say = print) -> None:
        """`extra` are overrides for posfuse train: a launcher, data.path. `say` prints a line."""
        self.name, self.study, self.extra, self.say = name, study, extra, say
        self.folder = OUTPUT / name
        self.plan_file = self.folder / plans.PLAN
        self.searched: dict[str, Trials] = {}  # the trials that Optuna proposed, by part

    def check_arms(self) -> dict[str, Values]:
        """The settings of each arm with the first trial. Raises InputError unless Hydra composes
        every arm, and the first arm with every trial. Raises as `check_documents`."""
        study, trials = self.study, self.study.trials() or {"": {}}
        first, of_first = next(iter(trials.values())), next(iter(study.arms.items()))
        arms = {arm: {**own, **first} for arm, own in study.arms.items() if arm != NULL_ARM}
        tuned = {f"{of_first[0]}.{t}": {**of_first[1], **values} for t, values in trials.items()}
        try:
            found = compose(study, arms, self.extra)
            compose(study, tuned, self.extra)
            check_documents(study, found, self.say)
        except InputError as error:
            raise InputError(f"study {self.name}: {error}") from None
        settings = {arm: own.settings for arm, own in found.items()}
        if NULL_ARM in study.arms:
            settings[NULL_ARM] = settings[study.tuning.null_arm]  # type: ignore[union-attr]
        return settings

    def tuning_sweeps(self) -> dict[str, ArmSweep]:
        """The tuning of each part of the study; empty without tuning."""
        parts = parts_of(self.study) if self.study.tuning else {}
        return {part: self.tuning_sweep(part, own) for part, own in parts.items()}

    def tuning_sweep(self, part: str, own: Study) -> ArmSweep:
        """The sweep of all trials of all arms of a part (with method=tpe the known trials). Raises
        InputError unless Hydra composes them."""
        trials = {arm: own.trials() for arm in own.arms}
        if own.is_searched:
            trials = self.searched.get(part) or self._search(part, own, may_run=False)
        return self._sweep_of(part, own, trials)

    def _sweep_of(self, part: str, own: Study, trials: Trials) -> ArmSweep:
        arms = {
            f"{arm}.{trial}": {**own.arms[arm], **values}
            for arm, of_arm in trials.items()
            for trial, values in of_arm.items()
        }
        configs = {arm: c.fingerprint for arm, c in compose(own, arms, self.extra).items()}
        return ArmSweep(own, self._name_of(part), "tune", arms, configs)

    def _name_of(self, part: str) -> str:
        """The name of the study, or of a part of it, in the names of its sweeps."""
        return f"{self.name}_{part}" if part else self.name

    def _search(self, part: str, own: Study, may_run: bool) -> Trials:
        """The trials of each arm that Optuna proposes. Those that are not done run, or end the
        search."""
        assert own.tuning is not None
        seeds, trials = own.tuning_seeds, own.tuning.trials

        def score(number: int, newest: Trials) -> dict[str, float] | None:
            sweep = self._sweep_of(part, own, newest)
            if len(sweep.results(sweep.arms, seeds)) < len(sweep.arms) * len(seeds):
                if not may_run:
                    return None
                self.say(f"tuning: trial {number + 1} of {trials}, for each arm")
                sweep.run(sweep.arms, seeds, self.extra)
            runs = finished_runs(own, {"": sweep})
            runs = runs[runs["seed"].isin(seeds)]
            return {arm: plans.scores_of(own, runs[runs["arm"] == arm]).item() for arm in newest}

        self.searched[part] = propose(own, score)
        return self.searched[part]

    def tune(self, part: str, own: Study) -> dict[str, plans.Choice]:
        """The chosen settings of each arm of a part. Runs all trials, then the finalists with their
        own seeds."""
        if own.tuning is None:
            return {arm: plans.Choice({}) for arm in own.arms}
        if own.is_searched:
            self._search(part, own, may_run=True)
        sweep, seeds = self.tuning_sweep(part, own), own.tuning_seeds
        self.say(f"tuning: {len(own.arms)} arms x {len(own.trials())} trials x {len(seeds)} seeds")
        sweep.run(sweep.arms, seeds, self.extra)
        if finals := own.final_seeds:
            trials = plans.finalists(own, finished_runs(own, {"": sweep}))
            self.say(f"tuning: {len(trials)} finalists x {len(finals)} seeds")
            sweep.run(trials, finals, self.extra)
        return plans.choose(own, sweep.values, finished_runs(own, {"": sweep}))

    def frozen_plan(self) -> Plan | None:
        """The plan of an earlier command, or None. Raises InputError if it no longer fits."""
        return plans.read_plan(self.study, self.folder, self.has_tested())

    def has_tested(self) -> bool:
        """True if any test run has started. The sweeps of any number of repeats count, because the
        number may have changed. The report counts too, because it shows results of test runs even
        after their folder is removed."""
        own = re.compile(rf"{re.escape(self.name)}(_r\d+(_null)?)?_test")
        sweeps = [folder for folder in OUTPUT.glob("*_test") if own.fullmatch(folder.name)]
        return (self.folder / "report/runs.csv").exists() or any(map(started_in, sweeps))

    def freeze(self) -> Plan:
        """The frozen plan. Tunes and writes it first if needed. Raises what `ArmSweep.run`
        raises."""
        plan = self.frozen_plan()
        if plan is not None and self._is_current(plan):
            return plan
        if self.plan_file.exists():
            self.say(
                f"{self.plan_file}: not of the current study, conf/, texts, own code or posfuse; a "
                "new plan replaces it"
            )
        self.check_arms()
        choices: dict[str, plans.Choice] = {}
        for part, own in parts_of(self.study).items():
            chosen = self.tune(part, own)
            choices |= {plans.in_part(part, arm): choice for arm, choice in chosen.items()}
        configs, code = self._identities(choices)
        plan = plans.freeze(self.study, choices, configs, self.folder, code)
        self._say_choices(plan)
        self.say(f"plan frozen in {self.plan_file}, digest {plan.digest[:16]}")
        return plan

    def _is_current(self, plan: Plan) -> bool:
        """True if the arms have the configs and the code of the plan. Otherwise the plan must be
        frozen again. Raises InputError if test seeds ran with those of the plan."""
        configs, code = self._identities(plan.choices)
        changed = [arm for arm in configs if configs[arm] != plan.configs.get(arm)]
        recoded = []
        if plan.code:
            recoded = [arm for arm in configs if code.get(arm) != plan.code.get(arm)]
        fix = "copy the study's file to a new name and give it fresh test seeds"
        if changed and self.has_tested():
            raise InputError(
                f"{self.plan_file}: the config of {', '.join(changed)} was changed after test "
                f"seeds ran; restore conf/, the texts and the version of posfuse, or {fix}"
            )
        if recoded and self.has_tested():
            raise InputError(
                f"{self.plan_file}: your own code of {', '.join(recoded)} was changed after test "
                f"seeds ran; restore it, or {fix}"
            )
        return not changed and not recoded

    def _identities(self, choices: dict[str, plans.Choice]) -> tuple[Digests, Digests]:
        """The fingerprint of each arm's config with its chosen settings, and the digest of the
        user's own code in it, as in plan.yaml."""
        configs, code = {}, {}
        for part, own in parts_of(self.study).items():
            of_part = compose(own, plans.with_choices(own, choices, part), self.extra)
            for arm, composed in of_part.items():
                name = plans.in_part(part, arm)
                configs[name] = composed.fingerprint
                if digest := own_code(composed.config).get("code"):
                    code[name] = digest
        return configs, code

    def _say_choices(self, plan: Plan) -> None:
        most_last = plan.study.convergence.most_last
        for arm, choice in plan.choices.items():
            if choice.values:
                values = ", ".join(f"{key}={value}" for key, value in choice.values.items())
                at_end = [f"{key} is the smallest or largest value tried" for key in choice.edges]
                unfinished = choice.last or 0.0
                last = [f"{100 * unfinished:.0f} % of runs were best at their last evaluation"]
                last *= unfinished > most_last
                self.say("; ".join([f"  {arm}: {values}", *at_end, *last]))

    def testing_sweeps(self, plan: Plan) -> dict[str, ArmSweep]:
        """Each arm with its chosen settings, by the part of the study."""
        return {
            part: ArmSweep(own.study, self._name_of(part), "test", own.arms(), own.configs, plan)
            for part, own in plan.parts().items()
        }

    def test_runs(self, plan: Plan) -> pd.DataFrame:
        """The test runs that are done. No two parts share a seed."""
        return finished_runs(plan.study, self.testing_sweeps(plan))

    def run(self) -> Iterator[tuple[Plan, Progress]]:
        """Run all stages that are not done yet. Gives the plan and the verdicts so far after each
        look, and once if all looks are made."""
        plan, study = self.freeze(), self.study
        state = progress(study, self.test_runs(plan))
        if state.is_finished:
            yield plan, state
        while not state.is_finished:
            n, sweeps = f"{state.next_look} {study.units}", self.testing_sweeps(plan)
            self.say(f"look at {n}: {', '.join(state.next_arms)}")
            for part, (arms, seeds) in runs_of(study, state.next_arms, state.next_look).items():
                sweeps[part].run(arms, seeds, self.extra)
            decided = {v.hypothesis.name for v in state.verdicts if v.verdict != UNDECIDED}
            state = progress(study, self.test_runs(plan))
            for v in state.verdicts:
                if v.decision and v.hypothesis.name not in decided:
                    self.say(
                        f"  {v.hypothesis.name}: {v.verdict} after {v.decision.n} {study.units}"
                    )
            yield plan, state

    def not_judged(self, plan: Plan, state: Progress) -> list[str]:
        """A line for each hypothesis whose next look lacks a run, because it failed or its record
        belongs to another run."""
        study, looks, lines = plan.study, plan.study.looks.seeds, []
        reasons: dict[tuple[str, int], str] = {}
        for sweep in self.testing_sweeps(plan).values():
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
                    f"{h.family}: no result of {n}, such as {arm} seed={seed} "
                    f"({reasons[arm, seed]})"
                )
        return lines


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
                raise InputError(f"arms.{arm}: tuning.random has no further values; widen a range")
            newest[arm] = {f"t{number:02}": values}
            tried[arm] |= newest[arm]
        if (scores := score(number, newest)) is None:
            break
        for arm, search in searches.items():
            search.tell(scores[arm])
    return tried


def runs_of(
    study: Study, arms: Iterable[str], units: int
) -> dict[str, tuple[list[str], list[int]]]:
    """The arms and the seeds of the first units, by the part of the study."""
    unit, wanted, runs = unit_of(study), units_of(study)[:units], {}
    for part, own in parts_of(study).items():
        named_arms = [arm for arm in arms if arm in own.arms]
        seeds = [seed for seed in own.test_seeds if unit[seed] in wanted]
        if named_arms and seeds:
            runs[part] = named_arms, seeds
    return runs
