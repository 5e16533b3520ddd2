"""Cautions: limits of a verdict that no interval contains, or that violate the t-test.

A caution changes no verdict. docs/report.md explains each of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from posfuse.evidence.collect import CELL, GROUP, by_settings, naming_columns
from posfuse.evidence.metric import Metric, classes_of
from posfuse.statistics.cells import APART, convergence
from posfuse.statistics.comparisons import PLACEBO, Criteria
from posfuse.statistics.own_best import KEYS, OwnBest

# A caution in words -> the arms of the verdict that it concerns; empty: all arms.
Cautions = dict[str, list[str]]

FEWEST = 8  # seeds
FEW = f"fewer than {FEWEST} seeds"
FEW_VALUES = f"n is below {FEWEST}"  # if n does not count seeds
ONE_SPLIT = "all seeds share one data split, and no interval contains its noise"
ONE_TEST = "all seeds share the test documents, and no interval contains their noise"
TUNED = "tuned once, and no interval contains the noise of tuning"
CHANCE = "close to guessing"
GUESSED = "guessing reaches the limit of a solved run"
GROUPS = "runs in two groups, which makes a t-interval unreliable"
LAST = "still improving in most runs"
EDGE = "best value at the edge of those tried"
# The order of rows in the table of cautions:
ORDER = (FEW, FEW_VALUES, ONE_SPLIT, ONE_TEST, TUNED, CHANCE, GUESSED, GROUPS, LAST, EDGE)

NEAR = 1 / 20  # close to guessing: fraction of the way from guessing to the best possible value
LEVEL = 0.01  # fraction of arms with normal values that are mistaken for two groups
DRAWS, MOST = 4000, 100  # samples of normal values; largest number of values of a judged arm
MOST_LAST = 0.5  # largest fraction of runs that are best at their last evaluation


@dataclass(frozen=True)
class Arm:
    """The facts about one arm of a verdict. A missing fact gives no caution."""

    values: Sequence[float] = ()  # the outcome by seed
    guess: float = np.nan  # the outcome of guessing
    perfect: float = 100.0  # the best possible outcome
    settings: Mapping[str, Any] = field(default_factory=dict)  # of its runs, by key
    documents: float = np.nan  # of the test split
    last: float = 0.0  # the fraction of runs whose best evaluation was the last one
    is_tuned: bool = False
    is_at_edge: bool = False  # a tuned value is the smallest or the largest tried value


def cautions(
    arms: Mapping[str, Arm], n: int, most_last: float = MOST_LAST, few: str = FEW,
    solved: float | None = None,
) -> Cautions:  # fmt: skip
    """The cautions of a verdict of n seeds, from its arms by name. With `solved` it
    is about solved runs: it has no t-test, so two groups of runs do not matter."""
    found: Cautions = {few: []} if n < FEWEST else {}

    def of(arm: Arm) -> dict[str, bool]:
        way = abs(arm.perfect - (0.0 if np.isnan(arm.guess) else arm.guess))
        return {
            ONE_SPLIT: shared(arm) == ONE_SPLIT,
            ONE_TEST: shared(arm) == ONE_TEST,
            TUNED: arm.is_tuned,
            CHANCE: is_close_to_guessing(arm),
            GUESSED: solved is not None and arm.guess >= solved,
            GROUPS: solved is None and in_two_groups(arm.values, APART * way),
            LAST: arm.last > most_last,
            EDGE: arm.is_at_edge,
        }

    by_arm = {name: of(arm) for name, arm in arms.items()}
    for text in ORDER[2:]:
        concerned = [name for name, each in by_arm.items() if each[text]]
        if concerned:
            is_of_all = len(concerned) == len(arms) and text not in (CHANCE, GUESSED, GROUPS)
            found[text] = [] if is_of_all else concerned
    return found


def shared(arm: Arm) -> str:
    """ONE_SPLIT or ONE_TEST if the runs of an arm share them; empty if each seed draws its own
    documents, or if the settings are unknown."""
    settings = arm.settings
    if "data.split_seed" not in settings:
        return ""
    if settings["data.split_seed"] != "seed":
        by_seed = settings.get("fidelity.validation_split") == "by_seed"
        return ONE_TEST if by_seed else ONE_SPLIT
    # A corpus with this argument draws its test documents, and data.limit is a sample of them; of a
    # text for language models it is the beginning.
    is_drawn = settings.get("data.corpus.split_seed") == "seed"
    limit = settings.get("data.limit")
    is_text = settings.get("task.name") == "language_model"
    is_sample = pd.notna(limit) and not is_text and not arm.documents < float(limit)
    return "" if is_drawn or is_sample else ONE_TEST


def is_close_to_guessing(arm: Arm) -> bool:
    """True if the mean is at most NEAR of the way from guessing to the best possible outcome."""
    if not len(arm.values):
        return False
    return bool((np.mean(arm.values) - arm.guess) / (arm.perfect - arm.guess) <= NEAR)


def in_two_groups(values: ArrayLike, least: float = 0.0) -> bool:
    """True if the values are in two groups whose means differ by at least `least`.

    The distance of two groups is the variance between them divided by the variance within them. It
    must exceed a limit for some size of the lower group. Normal values exceed any of the limits in
    LEVEL of samples. So one run that fails can be a group.
    """
    outcomes = np.sort(np.asarray(values, dtype=float))
    if len(outcomes) > MOST:  # a sample at equal distances has the groups of all
        outcomes = outcomes[np.linspace(0, len(outcomes) - 1, MOST).round().astype(int)]
    if len(outcomes) < 3 or not np.ptp(outcomes):
        return False
    excess = separations(outcomes[None])[0] / _limits(len(outcomes))
    low, high = np.split(outcomes, [int(excess.argmax()) + 1])
    return bool(excess.max() > 1 and high.mean() - low.mean() >= least)


def separations(ordered: NDArray[np.float64]) -> NDArray[np.float64]:
    """For each row (N, n) of ascending values and each size from 1 to n - 1 of the lower group:
    the variance between the groups divided by that within them, (N, n - 1)."""
    n = ordered.shape[1]
    centred = ordered - ordered.mean(axis=1, keepdims=True)
    size = np.arange(1, n)
    between = centred.cumsum(axis=1)[:, :-1] ** 2 * n / (size * (n - size))
    within = (centred**2).sum(axis=1, keepdims=True) - between
    with np.errstate(divide="ignore"):  # infinite if each group has one value
        return np.asarray(between / np.maximum(within, 0.0))


@cache
def _limits(n: int) -> NDArray[np.float64]:
    """The limit of each size, (n - 1,), from simulated normal values."""
    draws = np.random.default_rng(0).normal(size=(DRAWS, n))
    ratios = separations(np.sort(draws, axis=1))
    usual = np.quantile(ratios, 1 - LEVEL, axis=0)
    return np.asarray(usual * np.quantile((ratios / usual).max(axis=1), 1 - LEVEL))


def sentence(own: Cautions) -> str:
    """The cautions of a verdict in one line."""
    return "; ".join(f"{text} ({', '.join(arms)})" if arms else text for text, arms in own.items())


def of_comparisons(
    comparisons: pd.DataFrame, best: OwnBest, runs: pd.DataFrame, criteria: Criteria
) -> dict[str, Cautions]:
    """The cautions of each comparison of a sweep, by its name. `comparisons` are rows of `compare`;
    those at the operators' best values replace some of them. `runs` are rows of `collect`."""
    rows = [*best.best.to_dict("records"), *best.others(comparisons).to_dict("records")]
    untuned = by_settings(runs, criteria.metric, *KEYS.values())["variant"]
    of_groups = _arms(runs.assign(variant=untuned), GROUP, criteria.metric)
    arms = _arms(runs, CELL, criteria.metric)
    by_name: dict[str, Cautions] = {}
    every = {}  # the arms of each comparison
    shown = len(naming_columns(runs))
    for row in rows:
        if row["role"] == PLACEBO:
            continue
        own, where = {}, (row["data"], row["encoding"])
        for of, fusion in (("", row["fusion"]), ("baseline_", criteria.baseline)):
            cell = (*where, fusion, row[f"{of}variant"])
            # The runs of a row of `best` are not those of one cell.
            if f"{of}at" in row:
                arm = replace(of_groups[*where, row["variant"]], last=0.0)
            else:
                arm = arms[cell]
            own[" ".join(filter(None, cell[:shown]))] = replace(
                arm,
                values=row[f"{of}scores"],
                is_tuned=row.get(f"{of}choices", 1) > 1,
                is_at_edge=any(row.get(f"{of}{key}_edge", False) for key in KEYS),
            )
        name = next(iter(own))
        by_name[name], every[name] = cautions(own, row["n"]), list(own)
    # A caution that names arms names all of them, because comparisons share arms.
    named = {text for each in by_name.values() for text, some in each.items() if some}
    return {
        name: {text: some or every[name] * (text in named) for text, some in each.items()}
        for name, each in by_name.items()
    }


def _arms(runs: pd.DataFrame, by: list[str], metric: Metric) -> dict[tuple[str, ...], Arm]:
    """The facts that the runs with equal `by` share, from the first of them."""
    guesses = metric.guesses(classes_of(runs))
    trained = convergence(runs).groupby(by)[["last", "n"]].sum()
    last = (trained["last"] / trained["n"]).to_dict()
    arms = {}
    for key, group in runs.groupby(by, sort=False):
        run = group.iloc[0].dropna()
        arms[tuple(map(str, key))] = Arm(
            guess=guesses[run["data"]],
            perfect=metric.perfect,
            settings={k.removeprefix("settings."): run[k] for k in map(str, run.index)},
            documents=run.get("documents.test", np.nan),
            last=last.get(key, 0.0),
        )
    return arms
