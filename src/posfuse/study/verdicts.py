"""What the test seeds say about each hypothesis so far, and which runs the next look needs."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from posfuse.analysis.statistics.sequential import (
    AHEAD,
    BEHIND,
    EQUIVALENT,
    UNDECIDED,
    Decision,
    judge_family,
)
from posfuse.runs.records import Record
from posfuse.study.spec import Hypothesis, Study, seeds_of

SUPPORTED, REFUTED = "supported", "refuted"
# The verdict of each result, by what the hypothesis expects.
VERDICTS = {
    "greater": {AHEAD: SUPPORTED, BEHIND: REFUTED, EQUIVALENT: EQUIVALENT},
    "less": {AHEAD: REFUTED, BEHIND: SUPPORTED, EQUIVALENT: EQUIVALENT},
    "equivalent": {AHEAD: REFUTED, BEHIND: REFUTED, EQUIVALENT: SUPPORTED},
}


@dataclass(frozen=True)
class Verdict:
    hypothesis: Hypothesis
    decision: Decision | None  # None before the first look
    verdict: str  # supported, refuted, equivalent or undecided


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


def progress(study: Study, results: Mapping[tuple[str, int], Record | None]) -> Progress:
    """Judge all families look by look, as far as the records go.

    `results` are those of the test sweep by (arm, seed). A run that diverged counts as chance.
    """
    seeds, planned = seeds_of("testing.seeds", study.testing.seeds), study.looks
    accuracy, step = accuracies(results), resolution(results)
    found: dict[str, Decision] = {}
    made = {}
    open_: list[Hypothesis] = []
    for family, hypotheses in study.families.items():
        samples = {h.name: deltas(h, accuracy, seeds) for h in hypotheses}
        decisions, made[family] = judge_family(
            samples, {h.name: replace(h.margins, resolution=step) for h in hypotheses}, planned
        )
        found |= decisions
        if made[family] < len(planned.seeds):
            open_ += [
                h
                for h in hypotheses
                if h.name not in decisions or decisions[h.name].result == UNDECIDED
            ]
    looks = [made[h.family] for h in open_]
    n = planned.seeds[min(looks)] if looks else 0
    needed = {arm for h in open_ if made[h.family] == min(looks) for arm in h.arms}
    verdicts = [Verdict(h, found.get(h.name), _verdict(h, found)) for h in study.hypotheses]
    return Progress(verdicts, [arm for arm in study.arms if arm in needed], seeds[:n], made)


def _verdict(h: Hypothesis, found: Mapping[str, Decision]) -> str:
    result = found[h.name].result if h.name in found else UNDECIDED
    return VERDICTS[h.expects].get(result, UNDECIDED)


def accuracies(results: Mapping[tuple[str, int], Record | None]) -> dict[tuple[str, int], float]:
    """Test accuracy in percent by (arm, seed); chance for a run that diverged."""
    classes = [len(r["label_names"]) for r in results.values() if r and r.get("label_names")]
    chance = 100 / max(classes) if classes else 0.0
    return {
        key: chance if record is None else 100 * record["test"]["accuracy"]
        for key, record in results.items()
    }


def resolution(results: Mapping[tuple[str, int], Record | None]) -> float:
    """The points of one test document, in the smallest test split; NaN if no record has it."""
    sizes = [r["documents"]["test"] for r in results.values() if r and "documents" in r]
    return 100 / min(sizes) if sizes else np.nan


def deltas(
    h: Hypothesis, accuracy: Mapping[tuple[str, int], float], seeds: list[int]
) -> list[float]:
    """The hypothesis's paired differences in points, up to the first seed that an arm lacks."""
    found = []
    for seed in seeds:
        if any((arm, seed) not in accuracy for arm in h.arms):
            break
        values = [accuracy[arm, seed] for arm in h.arms]
        signs = [1, -1, -1, 1][: len(values)]
        found.append(round(float(np.dot(signs, values)), 9))  # differences of rounding are ties
    return found
