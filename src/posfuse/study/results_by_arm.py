"""Tables of a study's arms: results, results by test length, bags of words, and tuning."""

from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from posfuse.evidence.metric import Metric
from posfuse.report import table
from posfuse.report.sections import own_values
from posfuse.report.sections.own_values import EDGE
from posfuse.report.table import Column, Table, table_of
from posfuse.statistics import paired as st
from posfuse.statistics.budget import FEWEST, expected_best
from posfuse.statistics.nested import components
from posfuse.study.arm_figures import chosen
from posfuse.study.plan import Plan
from posfuse.study.repeats import unit_of
from posfuse.study.scores import best_was_last, by_test_length, outcomes
from posfuse.study.spec import BEYOND, Study

STRINGS = ("data.corpus.", "data.max_len", "data.limit")  # keys that change a task's strings


def arms_table(plan: Plan, runs: pd.DataFrame) -> Table:
    """The chosen settings of each arm, and its test results."""
    metric, has_repeats = plan.study.measured, plan.study.repeats > 1
    parts = [(place, own, arm) for place, own in plan.parts().items() for arm in own.choices]
    if has_repeats:  # the repeats of an arm are below each other
        parts.sort(key=lambda part: list(plan.study.arms).index(part[2]))
    has_beyond = any(h.outcome == BEYOND for h in plan.study.hypotheses)
    by_outcome = {"": outcomes(runs, metric), "beyond_": outcomes(runs, metric, BEYOND)}
    rows = []
    for place, own, arm in parts:
        choice, seeds = own.choices[arm], own.study.test_seeds
        done = runs[(runs["arm"] == arm) & runs["seed"].isin(seeds)]
        chosen = [f"{k}={v}{EDGE if k in choice.edges else ''}" for k, v in choice.values.items()]
        row = {
            "arm": arm,
            "repeat": place,
            "chosen": " ".join(chosen),
            "validation": np.nan if choice.validation is None else choice.validation,
        }
        for name, frame in by_outcome.items():
            values = frame.get(arm, pd.Series(dtype=float)).reindex(seeds).dropna()
            row |= {f"{name}n": len(values), f"{name}mean": values.mean()}
            row[f"{name}std"] = st.spread(values)
        rows.append(row | {"diverged": done["diverged"].sum(), "last": best_was_last(done)})
    most = plan.study.convergence.most_last
    tuned: list[Column] = []
    choice_caption = ""
    if any(choice.values for choice in plan.choices.values()):
        tuned = [("chosen", str, "chosen"), ("validation", metric.number, "validation")]
        choice_caption = (
            f"The choice and its validation {metric.title} come from the tuning seeds alone. "
            f"{EDGE} the value is the smallest or the largest that was tried, so a better one may "
            "lie beyond. "
        )
    cell = partial(table.over_seeds, digits=metric.digits)
    longer: list[Column] = []
    if has_beyond:
        longer = [("beyond", cell, "beyond_mean", "beyond_std", "beyond_n")]
        choice_caption += f"Beyond: mean {metric.title} beyond the trained length. "
    return table_of(
        pd.DataFrame(rows),
        [
            *tuned,
            (f"test {metric.title}", cell, "mean", "std", "n"),
            *longer,
            ("diverged", table.count, "diverged"),
            ("best was last", partial(_share, most), "last"),
        ],
        keys=["arm", *["repeat"] * has_repeats],
        name="arms",
        title="Arms",
        caption=f"{_capital(metric.level)}: mean ± standard deviation over test seeds, number of "
        f"seeds in brackets. {choice_caption}A run that diverged counts as {guess_text(metric)}. "
        "Best was last: share of test runs whose best evaluation was their last one; * is above "
        f"{100 * most:g} %, so the arm may not have converged.",
    )


def lengths_table(runs: pd.DataFrame, metric: Metric) -> Table | None:
    """Results by test length of each arm; None without data.test_lengths."""
    frame = by_test_length(runs, metric)
    if frame.empty:
        return None
    cell, parts = partial(table.over_seeds, digits=metric.digits), {}
    for n, rows in frame.groupby("test_length"):
        of_arms = rows.groupby("arm").agg(
            n=("value", "size"), mean=("value", pd.Series.mean), std=("value", st.spread)
        )
        parts[n] = of_arms.add_prefix(f"{n} ")
    arms = runs["arm"].drop_duplicates()
    return table_of(
        pd.concat(parts.values(), axis=1).reindex(arms[arms.isin(frame["arm"])]).reset_index(),
        [(str(n), cell, f"{n} mean", f"{n} std", f"{n} n") for n in parts],
        keys=["arm"],
        name="lengths",
        title=f"{metric.heading} by test length",
        caption=f"{_capital(metric.level)} by the length of the test documents in tokens: mean ± "
        "standard deviation over test seeds, number of seeds in brackets. If no test has "
        "the length data.max_len, its column shows the ordinary test split. Runs that diverged "
        "are left out.",
    )


def bags_table(study: Study, runs: pd.DataFrame) -> Table | None:
    """The accuracies of the bags of words by task; None if no run has them. `runs` are rows of
    `run_table`."""
    if "bag_of_words" not in runs:
        return None
    tested = runs[runs["bag_of_words"].notna()]
    corpora = chosen("data", study, runs)
    tasks = {arm: _task(study, arm, corpora[arm]) for arm in study.arms}
    tested = tested.assign(task=tested["arm"].map(tasks))
    rows = tested.drop_duplicates(["task", "seed"]).groupby("task", sort=False)
    return table_of(
        rows[["bag_of_words", "bag_with_ends"]].mean().reset_index(),
        [
            ("bag of words", "{:.2f}".format, "bag_of_words"),
            ("with first and last symbol", "{:.2f}".format, "bag_with_ends"),
        ],
        keys=["task"],
        name="bags",
        title="Bags of words",
        caption="Test accuracy in %, mean over the test seeds' strings, of logistic regression on "
        "TF-IDF: without position, and with the pair of the first and the last symbol as a word.",
    )


def _task(study: Study, arm: str, corpus: str) -> str:
    """An arm's task, with the settings of its strings in which arms of the task differ."""
    chosen = [
        f"{key.rpartition('.')[2]}={value}"
        for key, value in study.varied_overrides(arm).items()
        if key.startswith(STRINGS)
    ]
    return " ".join([corpus, *chosen])


def _share(most: float, share: float) -> str:
    return f"{100 * share:.0f} %{' *' * (share > most)}"


def guess_text(metric: Metric) -> str:
    """The words for the value of a run that diverged."""
    if metric.has_classes:
        return "chance"
    return f"{metric.guess:g} {'%' if metric.is_share else metric.unit}"


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def budget_table(plan: Plan) -> Table | None:
    """Expected validation result by the number of trials. None with fewer than FEWEST, and for
    trials that depend on earlier ones, because the formula is for random draws."""
    metric = plan.study.measured
    if plan.study.is_searched:
        return None
    rows = [
        {"arm": arm, "expected": expected_best(choice.scores, metric).tolist()}
        for arm, choice in plan.choices.items()
        if len(choice.scores) >= FEWEST
    ]
    more = (
        f"A trial with a run that diverged counts with {guess_text(metric)} for this run, and is "
        "not chosen. Arms that are still rising need more trials."
    )
    return own_values.budget_table(pd.DataFrame(rows), metric, more) if rows else None


def tuning_table(plan: Plan, runs: pd.DataFrame) -> Table | None:
    """A row for each arm: the range of its chosen values over repeats, and the spread of its test
    results between repeats and within them; None without repeats, or before two are tested."""
    study = plan.study
    if study.repeats == 1:
        return None
    metric, values, rows = study.measured, outcomes(runs, study.measured), []
    for arm in study.arms:
        column = values.get(arm, pd.Series(dtype=float)).dropna()
        units = column.groupby(column.index.map(unit_of(study)))
        tested = [own for _, own in units if len(own) == study.seeds_of_units]
        if len(tested) < 2:
            continue
        chosen = [own.choices[arm].values for own in plan.parts().values() if arm in own.choices]
        ranges = {key: _range([c[key] for c in chosen]) for key in chosen[0]}
        rows.append({"arm": arm, "n": len(tested), **ranges, **components(tested)})
    if not rows:
        return None
    keys = list(next(iter(plan.choices.values())).values)
    ranges_of_keys: list[Column] = [(key, str, key) for key in keys]
    return table_of(
        pd.DataFrame(rows),
        [
            ("repeats", str, "n"),
            *ranges_of_keys,
            ("between repeats", metric.number, "between"),
            ("within", metric.number, "within"),
            ("share between", _share_between, "share", "low", "high"),
        ],
        keys=["arm"],
        name="tuning_noise",
        title="Noise of tuning",
        caption=f"The values that the repeats chose, and the standard deviation of test "
        f"{metric.title} between repeats (tuning) and within them (seeds), in {metric.unit}. "
        "Share: the fraction of a run's variance that lies between repeats, with its exact 95 % "
        "interval for normal values.",
    )


def _range(values: list[Any]) -> str:
    """The smallest and the largest number, or the different values."""
    if all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
        ends = f"{min(values):.3g}", f"{max(values):.3g}"
        return ends[0] if ends[0] == ends[1] else " to ".join(ends)
    return ", ".join(dict.fromkeys(map(str, values)))


def _share_between(share: float, low: float, high: float) -> str:
    return f"{100 * share:.0f} % ({100 * low:.0f} to {100 * high:.0f})"
