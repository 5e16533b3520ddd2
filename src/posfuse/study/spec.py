"""A study as its YAML file defines it: arms, tuning, test seeds, looks and hypotheses."""

import itertools
import math
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
from pydantic import Field, WithJsonSchema

from posfuse.evidence.metric import METRICS, Metric
from posfuse.runs.proposals import AGAIN, round_value
from posfuse.runs.schemas import Strict, one_of, requiring
from posfuse.runs.seeds import seeds_of
from posfuse.statistics.sequential import Looks, Margins

EXPECTED = ("greater", "less", "equivalent")
NULL_ARM = "null_arm"  # the name of the arm that repeats another arm
METHODS = ("random", "tpe")  # methods of drawing values from ranges
BEYOND = "beyond"  # the outcome of a hypothesis, if it is not its study's metric
Values = dict[str, Any]  # overrides by key
Trials = dict[str, dict[str, Values]]  # of each arm, by the trial's name
Grid = dict[str, Annotated[list[Any], Field(min_length=2)]]
Arms = Annotated[dict[str, Values], Field(min_length=2)]
# Seeds such as "0-23", 3 or a list. An arm, or a list of arms whose outcomes are averaged.
Seeds = Annotated[
    Any, WithJsonSchema({"type": ["string", "integer", "array"], "items": {"type": "integer"}})
]
Side = Annotated[Any, WithJsonSchema({"type": ["string", "array"], "items": {"type": "string"}})]
Positive = Annotated[float, Field(gt=0)]


def about(meaning: str, **limits: Any) -> Any:
    """The description of a key for editors, and its limits."""
    return Field(description=meaning, **limits)


@dataclass
class Range(Strict):
    """Values that are drawn at random, uniformly on a logarithmic scale."""

    least: Positive
    most: Positive


@dataclass
class Tuning(Strict):
    """How each arm's settings are chosen. Every arm gets the same trials. With method=tpe Optuna
    proposes the same number of trials from the arm's own results."""

    grid: Annotated[Grid, about("every combination is a trial")] = field(default_factory=dict)
    random: Annotated[dict[str, Range], about("ranges to draw from, in place of grid")] = field(
        default_factory=dict
    )
    trials: Annotated[int, about("number of draws from the ranges", ge=0)] = 0
    method: Annotated[str, one_of(METHODS)] = "random"
    seeds: Annotated[Seeds, about("seeds whose validation results choose a trial")] = None
    finalists: Annotated[int, about("number of trials that run again", ge=0)] = 0
    final_seeds: Annotated[Seeds, about("seeds that choose among the finalists")] = None
    draw: Annotated[int, about("another number gives other random trials", ge=0)] = 0
    repeats: Annotated[int, about("tunings of each arm, each with a share of all seeds", ge=1)] = 1
    null_arm: Annotated[str, about("an arm to tune again and compare with itself")] = ""


@dataclass
class Evaluation(Strict):
    """The fresh seeds and the looks."""

    __pydantic_config__ = requiring("seeds", "looks")
    seeds: Annotated[Seeds, about("test seeds; none may be a tuning seed")] = None
    looks: Annotated[
        list[int], about("numbers of seeds per arm at the looks, or of repeats", max_length=50)
    ] = field(default_factory=list)
    alpha: Annotated[float, about("error rate of each family", gt=0, lt=0.5)] = 0.05
    spent: Annotated[list[float], about("alpha spent up to each look; empty: O'Brien-Fleming")] = (
        field(default_factory=list)
    )


@dataclass
class Assumed(Strict):
    """A true difference and its spread over seeds, for the power of the plan."""

    difference: Positive
    spread: Positive
    between: Annotated[float, about("the spread over repeats of tuning", ge=0)] = 0.0


@dataclass
class Hypothesis(Strict):
    """A statement about the paired difference arm - than, in the unit of the study's metric."""

    name: str
    text: str
    arm: Annotated[Side, about("an arm, or a list of arms to average")]
    than: Annotated[Side, about("the arm to compare with")]
    expects: Annotated[str, one_of(EXPECTED)]
    minus: Annotated[list[Side], about("two arms, whose difference is subtracted")] = field(
        default_factory=list
    )
    margin: Annotated[
        float | None,
        about(
            "largest difference that does not matter; default: 1 point, or 0.01 bits per byte",
            gt=0,
            le=100,
        ),
    ] = None  # None until its study is made
    family: Annotated[str, about("hypotheses that share alpha")] = "primary"
    outcome: Annotated[
        str, about("the metric (default), or beyond: its mean beyond the trained length")
    ] = ""
    solved: Annotated[float | None, about("percent, in place of the study's", gt=0, le=100)] = None
    assumed: Annotated[Assumed | None, about("in place of the study's")] = None

    @property
    def sides(self) -> list[list[str]]:
        """The arms of `arm`, of `than`, and of both entries of `minus`."""
        return [[s] if isinstance(s, str) else s for s in (self.arm, self.than, *self.minus)]

    @property
    def weights(self) -> dict[str, float]:
        """The weight of each arm's outcome in the difference."""
        weights: dict[str, float] = {}
        for sign, arms in zip((1, -1, -1, 1), self.sides, strict=False):
            for arm in arms:
                weights[arm] = weights.get(arm, 0.0) + sign / len(arms)
        return weights

    @property
    def is_of_two_arms(self) -> bool:
        """True for one arm minus another, as the tests of solved runs need it."""
        return sorted(self.weights.values()) == [-1, 1]

    @property
    def operands(self) -> tuple[str, str]:
        """The two sides of the difference, such as a and b, or (a - b) and (c - d)."""
        names = [a[0] if len(a) == 1 else f"mean({', '.join(a)})" for a in self.sides]
        if self.minus:
            return f"({names[0]} - {names[1]})", f"({names[2]} - {names[3]})"
        return names[0], names[1]

    @property
    def of_lengths(self) -> str:
        return " beyond the trained length" * (self.outcome == BEYOND)

    @property
    def where(self) -> str:
        of_runs = "" if self.solved is None else " in the share of solved runs"
        return of_runs + self.of_lengths

    @property
    def difference(self) -> str:
        """The difference in words, such as (a - b) - (c - d)."""
        return " - ".join(self.operands) + self.where

    @property
    def margins(self) -> Margins:
        """The limits of the decision. Only a difference beyond the margin refutes equivalence."""
        assert self.margin is not None
        beyond = self.margin if self.expects == "equivalent" else 0.0
        return Margins(self.margin, beyond, of_shares=self.solved is not None)


@dataclass
class Convergence(Strict):
    """The limit for the caution that an arm was still improving."""

    most_last: Annotated[
        float, about("largest share of runs whose best evaluation was the last", ge=0, le=1)
    ] = 0.5


@dataclass
class Study(Strict):
    __pydantic_config__ = requiring("question", "arms", "testing", "hypotheses", "assumed")
    question: str
    metric: Annotated[str, one_of(METRICS)] = "accuracy"
    solved: Annotated[
        float | None, about("lowest test result, in percent, of a solved run", gt=0, le=100)
    ] = None
    base: Annotated[str, about("a file of conf/ that all runs start from")] = ""
    searchpath: Annotated[list[str], about("folders with config files of your own")] = field(
        default_factory=list
    )
    settings: Annotated[Values, about("overrides of all runs")] = field(default_factory=dict)
    arms: Annotated[Arms, about("overrides of each arm")] = field(default_factory=dict)
    tuning: Tuning | None = None
    testing: Evaluation = field(default_factory=Evaluation)
    hypotheses: Annotated[list[Hypothesis], Field(min_length=1)] = field(default_factory=list)
    convergence: Convergence = field(default_factory=Convergence)
    assumed: Assumed = field(default_factory=lambda: Assumed(math.nan, math.nan))

    def __post_init__(self) -> None:
        for h in self.hypotheses:
            if h.margin is None:
                h.margin = 1.0 if self.measured.is_share else self.measured.margin
        if self.tuning and self.tuning.null_arm in self.arms and NULL_ARM not in self.arms:
            self.arms[NULL_ARM] = dict(self.arms[self.tuning.null_arm])
            self.hypotheses.append(
                Hypothesis(
                    NULL_ARM, "An arm that is tuned twice is equal to itself.", NULL_ARM,
                    self.tuning.null_arm, expects="equivalent", family="control",
                    margin=max(h.margins.equivalence for h in self.hypotheses),
                )
            )  # fmt: skip
        for h in self.hypotheses:
            h.outcome = h.outcome or self.metric
            h.solved = self.solved if h.solved is None else h.solved

    @property
    def repeats(self) -> int:
        """The number of times that every arm is tuned and tested; 1 without tuning."""
        return self.tuning.repeats if self.tuning else 1

    @property
    def units(self) -> str:
        """The units of the tests: "seeds" or "repeats"."""
        return "seeds" if self.repeats == 1 else "repeats"

    @property
    def seeds_of_units(self) -> int:
        """The test seeds of a unit of each arm."""
        return 1 if self.repeats == 1 else len(self.test_seeds) // self.repeats

    def assumed_for(self, h: Hypothesis) -> Assumed:
        return h.assumed or self.assumed

    def expected_spread(self, h: Hypothesis) -> float:
        """The standard deviation of a hypothesis's differences over units.

        For a difference of two arms it consists of the assumed spread of tuning, which a repeat's
        seeds do not reduce, and of the spread of the mean over its seeds. The noise of all arms is
        taken as equal and independent: a difference of differences has sqrt(2) times as much, the
        difference of means over k arms 1 / sqrt(k) of it.
        """
        assumed = self.assumed_for(h)
        between = assumed.between if self.repeats > 1 else 0.0
        of_two_arms = math.hypot(between, assumed.spread / math.sqrt(self.seeds_of_units))
        return round(of_two_arms * math.sqrt(sum(w * w for w in h.weights.values()) / 2), 9)

    @property
    def measured(self) -> Metric:
        return METRICS[self.metric]

    @property
    def overrides(self) -> Arms:
        """The overrides of each arm, with those of all runs."""
        return {arm: {**self.settings, **own} for arm, own in self.arms.items()}

    def corpus(self, arm: str) -> str:
        """The `data` of an arm; empty for the default one."""
        return str(self.overrides[arm].get("data", ""))

    def varied_overrides(self, arm: str) -> Values:
        """The overrides of an arm that not all arms of its corpus have."""
        of_corpus = [own for o, own in self.overrides.items() if self.corpus(o) == self.corpus(arm)]
        return {
            key: value
            for key, value in self.overrides[arm].items()
            if any(own.get(key) != value for own in of_corpus)
        }

    @property
    def looks(self) -> Looks:
        shares = tuple(spent / self.testing.alpha for spent in self.testing.spent)
        return Looks(tuple(self.testing.looks), self.testing.alpha, shares)

    @property
    def tested_beyond(self) -> set[str]:
        """The arms that need a test beyond their trained length."""
        return {arm for h in self.hypotheses if h.outcome == BEYOND for arm in h.weights}

    @property
    def families(self) -> dict[str, list[Hypothesis]]:
        """The hypotheses by family, in the order of the file."""
        names = dict.fromkeys(h.family for h in self.hypotheses)
        return {name: [h for h in self.hypotheses if h.family == name] for name in names}

    @property
    def tuning_seeds(self) -> list[int]:
        """The seeds of all trials; empty without tuning."""
        return seeds_of("tuning.seeds", self.tuning.seeds) if self.tuning else []

    @property
    def final_seeds(self) -> list[int]:
        """The seeds of the finalists; empty without finalists."""
        if self.tuning is None or not self.tuning.finalists:
            return []
        return seeds_of("tuning.final_seeds", self.tuning.final_seeds)

    @property
    def test_seeds(self) -> list[int]:
        """The seeds of testing, all looks included."""
        return seeds_of("testing.seeds", self.testing.seeds)

    @property
    def tuned(self) -> list[str]:
        """The keys that tuning chooses."""
        return [*self.tuning.grid, *self.tuning.random] if self.tuning else []

    @property
    def is_searched(self) -> bool:
        return self.tuning is not None and self.tuning.method == "tpe"

    def trials(self) -> dict[str, Values]:
        """The values of each trial by its name, t00 and so on; empty without tuning. With
        method=tpe they are random draws, as many as Optuna will propose for each arm."""
        if self.tuning is None:
            return {}
        if self.tuning.random:
            draw = np.random.default_rng(self.tuning.draw)
            drawn: dict[tuple[Any, ...], None] = {}  # two trials with the same values are one run
            for _ in range(AGAIN * self.tuning.trials):
                if len(drawn) == self.tuning.trials:
                    break
                row = (
                    round_value(math.exp(draw.uniform(math.log(r.least), math.log(r.most))))
                    for r in self.tuning.random.values()
                )
                drawn[tuple(row)] = None
            rows = list(drawn)
        else:
            rows = [*itertools.product(*self.tuning.grid.values())]
        return {f"t{i:02}": dict(zip(self.tuned, row, strict=True)) for i, row in enumerate(rows)}
