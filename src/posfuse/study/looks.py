"""The decisions about each hypothesis so far, and the runs that the next look needs.

A look that decides early has a large difference, so its estimate is too large on average.
`AllSeeds` is the difference over all seeds, if seeds ran later for other hypotheses.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from posfuse.statistics import shares
from posfuse.statistics.contrasts import ANSWERS, UNDECIDED, differences
from posfuse.statistics.paired import spread_limit, t_interval
from posfuse.statistics.power import seeds_for_decision, seeds_for_equivalence
from posfuse.statistics.sequential import Decision, Looks, decide_at, judge_family
from posfuse.study.repeats import by_unit, units_of
from posfuse.study.scores import outcomes, resolution
from posfuse.study.spec import Hypothesis, Study


@dataclass(frozen=True)
class AllSeeds:
    """The mean difference over all seeds, with its 95 % interval."""

    n: int
    mean: float
    low: float  # of the 95 % interval
    high: float


@dataclass(frozen=True)
class Solved:
    """The accuracy of solved runs, which their share does not show, over the seeds of a
    decision."""

    arm: int  # number of solved runs of `arm`
    than: int
    both: AllSeeds  # the difference of results over the seeds that both solve


@dataclass(frozen=True)
class HypothesisVerdict:
    """The verdict on a hypothesis at the look that decided it, or at the last look so far."""

    hypothesis: Hypothesis
    decision: Decision | None  # None before the first look
    verdict: str  # supported, refuted, equivalent or undecided
    seeds: tuple[float, float] | None = None  # `seeds_to_decide`, after the last look
    all_seeds: AllSeeds | None = None  # if more seeds ran than at the look that decided
    units: str = "seeds"  # or repeats; the units of the decision
    solved: Solved | None = None  # if the hypothesis is about solved runs
    differences: Sequence[float] = ()  # of all units so far, in their order

    @property
    def shown(self) -> AllSeeds | Decision | None:
        """The difference that answer and figure show: over all seeds, as soon as the hypothesis is
        decided."""
        return self.all_seeds or self.decision

    @property
    def counted(self) -> str:
        """The number of units of the shown difference, such as "16, decided at 8"."""
        if self.decision is None:
            return ""
        n = self.decision.n
        return f"{self.all_seeds.n}, decided at {n}" if self.all_seeds else f"{n}"


@dataclass(frozen=True)
class Progress:
    """The state of the test stage, computed only from the records."""

    verdicts: list[HypothesisVerdict]  # in the order of the study
    next_arms: list[str]  # arms that the next look needs; empty if the study is finished
    next_look: int  # the number of its units: seeds, or repeats of tuning
    looks: dict[str, int]  # made by each family

    @property
    def is_finished(self) -> bool:
        return not self.next_arms


def progress(study: Study, runs: pd.DataFrame) -> Progress:
    """Judge all families look by look, with all test runs that are done.

    `runs` are rows of `finished_runs` or of runs.csv. A run that diverged counts as guessing. With
    repeats of tuning, the differences are differences of their means.
    """
    planned, metric, units = study.looks, study.measured, units_of(study)
    samples, margins = {}, {}
    for h in study.hypotheses:
        values = by_unit(study, outcomes(runs, metric, h.outcome, h.solved))
        samples[h.name] = deltas(h, values, units)
        step = resolution(runs, h.weights, metric, h.outcome)
        margins[h.name] = replace(h.margins, resolution=step)
    decisions: dict[str, Decision] = {}
    made = {}
    for family, hypotheses in study.families.items():
        own = {h.name: samples[h.name] for h in hypotheses}
        judged, made[family] = judge_family(own, margins, planned)
        decisions |= judged
    verdicts, needed = [], []
    for h in study.hypotheses:
        decision, sample, step = decisions.get(h.name), samples[h.name], margins[h.name].resolution
        result = decision.result if decision else UNDECIDED
        verdict = ANSWERS[h.expects].get(result, UNDECIDED)
        more = every = solved = None
        if verdict == UNDECIDED and made[h.family] < len(planned.seeds):
            needed.append(h)
        elif verdict == UNDECIDED:
            level = planned.alpha / len(study.families[h.family])
            more = seeds_to_decide(h, sample[: planned.seeds[-1]], level, step)
        if decision:
            solved = solved_runs(study, h, runs, decision.n)
            if verdict != UNDECIDED and len(sample) > decision.n:
                ends = t_interval(sample, resolution=step)
                if h.solved is not None:
                    ends = shares.difference_interval(sample)
                every = AllSeeds(len(sample), float(np.mean(sample)), *ends)
        verdicts.append(
            HypothesisVerdict(h, decision, verdict, more, every, study.units, solved, sample)
        )
    next_look = min((made[h.family] for h in needed), default=None)
    arms = {arm for h in needed if made[h.family] == next_look for arm in h.weights}
    n = 0 if next_look is None else planned.seeds[next_look]
    return Progress(verdicts, [arm for arm in study.arms if arm in arms], n, made)


def solved_runs(study: Study, h: Hypothesis, runs: pd.DataFrame, n: int) -> Solved | None:
    """The solved runs of the first n seeds; None if the hypothesis is about all runs."""
    if h.solved is None:
        return None
    arms, seeds = list(h.weights), study.test_seeds[:n]
    values, solved = (
        outcomes(runs, study.measured, h.outcome, own).loc[seeds, arms] for own in (None, h.solved)
    )
    both = differences(h.weights, values[(solved > 0).all(axis=1)]).to_numpy()
    mean = float(both.mean()) if len(both) else np.nan
    of_arm, of_than = map(int, (solved > 0).sum())
    return Solved(of_arm, of_than, AllSeeds(len(both), mean, *t_interval(both)))


def can_decide(h: Hypothesis, family: int, looks: Looks, look: int, difference: float) -> bool:
    """True if a look decides a hypothesis about solved runs in a family of this size, if all seeds
    have this difference: 100 if only one arm solves its runs, 0 if both solve the same runs."""
    clearest = np.full(looks.seeds[look], difference)
    return decide_at(clearest, h.margins, looks, look, (family, family)).result != UNDECIDED


def seeds_to_decide(
    h: Hypothesis, sample: list[float], level: float, resolution: float = np.nan
) -> tuple[float, float]:
    """The fewest seeds of a new study with one look that decides with a chance of 80 %: if the true
    difference is the mean of the sample, and equivalence if it is 0.

    Both are planned for the upper limit of the spread, or of the share of seeds that one arm alone
    solves. `level` is the strictest of Holm's levels. Infinite if no number is enough; NaN without
    a spread.
    """
    if h.solved is not None:
        either = shares.share_interval(int(np.count_nonzero(sample)), len(sample), 0.6)[1]
        tests = h.margins.equivalence, h.margins.beyond, level
        half, mean = either / 2, float(np.mean(sample)) / 200
        as_measured = shares.seeds_to_decide(half + mean, half - mean, *tests)
        return as_measured, shares.seeds_to_decide(half, half, *tests)
    std, mean = spread_limit(sample, resolution), float(np.mean(sample))
    margin, beyond = h.margins.equivalence, h.margins.beyond
    as_measured = seeds_for_decision(mean, std, margin, level, beyond)
    return as_measured, seeds_for_equivalence(std, margin, 0.0, level)


def deltas(h: Hypothesis, values: pd.DataFrame, units: list[int]) -> list[float]:
    """The hypothesis's paired differences, up to the first unit that an arm lacks."""
    of_units = differences(h.weights, values).reindex(units)
    # Without the last digits of sums, which vary. Coarser rounding would look like a spread.
    return of_units[: int(of_units.notna().cumprod().sum())].round(12).tolist()
