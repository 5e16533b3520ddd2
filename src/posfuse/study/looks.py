"""What the test seeds say about each hypothesis so far, and which runs the next look needs."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from posfuse.statistics.comparisons import POWER, seeds_for_equivalence
from posfuse.statistics.contrasts import Contrast
from posfuse.statistics.decisions import ANSWERS, UNDECIDED
from posfuse.statistics.paired import decision_power, seeds_needed, spread_limit
from posfuse.statistics.sequential import Decision, judge_family
from posfuse.study.all_seeds import AllSeeds, over_all_seeds
from posfuse.study.scores import Results, outcomes, resolution
from posfuse.study.spec import Hypothesis, Study


@dataclass(frozen=True)
class Verdict:
    hypothesis: Hypothesis
    decision: Decision | None  # None before the first look
    verdict: str  # supported, refuted, equivalent or undecided
    seeds: tuple[float, float] | None = None  # `seeds_to_decide`, after the last look
    all_seeds: AllSeeds | None = None  # if more seeds ran than the look that decided has


@dataclass(frozen=True)
class Progress:
    """The state of the test stage, computed from the records alone."""

    verdicts: list[Verdict]  # in the order of the study
    next_arms: list[str]  # that the next look needs; empty if the study is finished
    next_seeds: list[int]
    looks: dict[str, int]  # made by each family

    @property
    def is_finished(self) -> bool:
        return not self.next_arms


def progress(study: Study, results: Results) -> Progress:
    """Judge all families look by look, as far as the records go.

    `results` are those of the test sweep by (arm, seed). A run that diverged counts as
    guessing.
    """
    seeds, planned = study.test_seeds, study.looks
    metric = study.measured
    by_outcome = {h.outcome: outcomes(results, metric, h.outcome) for h in study.hypotheses}
    found: dict[str, Decision] = {}
    made = {}
    open_: list[Hypothesis] = []
    for family, hypotheses in study.families.items():
        samples = {h.name: deltas(h, by_outcome[h.outcome], seeds) for h in hypotheses}
        margins = {
            h.name: replace(h.margins, resolution=resolution(results, h.weights, metric))
            for h in hypotheses
        }
        decisions, made[family] = judge_family(samples, margins, planned)
        found |= decisions
        if made[family] < len(planned.seeds):
            open_ += [
                h
                for h in hypotheses
                if h.name not in decisions or decisions[h.name].result == UNDECIDED
            ]
    looks = [made[h.family] for h in open_]
    n = planned.seeds[min(looks)] if looks else 0
    needed = {arm for h in open_ if made[h.family] == min(looks) for arm in h.weights}
    verdicts = []
    for h in study.hypotheses:
        verdict, more = _verdict(h, found), None
        if verdict == UNDECIDED and made[h.family] == len(planned.seeds):
            sample = deltas(h, by_outcome[h.outcome], seeds)[: planned.seeds[-1]]
            level = planned.alpha / len(study.families[h.family])
            step = resolution(results, h.weights, metric)
            more = seeds_to_decide(h, sample, level, step)
        verdicts.append(Verdict(h, found.get(h.name), verdict, more))
    for i, v in enumerate(verdicts):
        if v.decision and v.verdict != UNDECIDED:
            sample = deltas(v.hypothesis, by_outcome[v.hypothesis.outcome], seeds)
            verdicts[i] = replace(v, all_seeds=over_all_seeds(sample, v.decision.n))
    return Progress(verdicts, [arm for arm in study.arms if arm in needed], seeds[:n], made)


def seeds_to_decide(
    h: Hypothesis, sample: list[float], level: float, resolution: float = np.nan
) -> tuple[float, float]:
    """The fewest seeds of a new study with one look that decides with a chance of 80 %: if the true
    difference is the mean of the sample, and equivalence if it is 0.

    Both are planned for the upper limit of the spread. `level` is the strictest of Holm's,
    `resolution` that of paired.py. Infinite if no number of seeds suffices; NaN without a spread.
    """
    std, mean = spread_limit(sample, resolution), float(np.mean(sample))
    if not std > 0:
        return np.nan, np.nan
    margin, beyond = h.margins.equivalence, h.margins.beyond
    as_measured = seeds_needed(lambda n: decision_power(mean, std, n, margin, beyond, level), POWER)
    return as_measured, seeds_for_equivalence(std, margin, 0.0, level)


def _verdict(h: Hypothesis, found: Mapping[str, Decision]) -> str:
    result = found[h.name].result if h.name in found else UNDECIDED
    return ANSWERS[h.expects].get(result, UNDECIDED)


def deltas(h: Hypothesis, values: Mapping[tuple[str, int], float], seeds: list[int]) -> list[float]:
    """The hypothesis's paired differences, up to the first seed that an arm lacks."""
    outcomes = pd.DataFrame({arm: _by_seed(values, arm) for arm in h.weights}, index=seeds)
    found = contrast_of(h).differences(outcomes).reindex(seeds)
    whole = int(found.notna().cumprod().sum())
    return [round(value, 9) for value in found[:whole]]  # differences of rounding are ties


def contrast_of(h: Hypothesis) -> Contrast:
    return Contrast(h.weights, h.expects, h.margin, h.family)


def _by_seed(values: Mapping[tuple[str, int], float], arm: str) -> "pd.Series[float]":
    found = {seed: value for (name, seed), value in values.items() if name == arm}
    return pd.Series(found, dtype=float)
