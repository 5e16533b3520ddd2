"""A study's arms as tables and figures: results, the ratio of token to position, results by test
length, bags of words, and tuning."""

from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import ticker
from matplotlib.figure import Figure

from posfuse.evidence.metric import Metric
from posfuse.report import table
from posfuse.report.figures import plot, style, svg
from posfuse.report.sections import own_values
from posfuse.report.sections.by_test_length import chance_of, results_by_length
from posfuse.report.sections.own_values import EDGE
from posfuse.report.table import Column, Table, table_of
from posfuse.statistics import paired as st
from posfuse.statistics.budget import FEWEST, expected_best
from posfuse.statistics.nested import components
from posfuse.study.plan import Plan
from posfuse.study.repeats import unit_of
from posfuse.study.scores import best_was_last, by_test_length, outcomes
from posfuse.study.spec import BEYOND, Study

USUAL = {"data": "", "fusion": "add"}  # if neither the study nor its runs name it
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
    corpora = _chosen("data", study, runs)
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


@style.styled
def ratios(runs: pd.DataFrame, study: Study) -> Figure:
    """The metric against the ratio of token to position; one mark per run, in a panel per corpus.

    An operator has one shape and colour, hollow for arms with a further choice, such as
    model.fused_norm=layer. Arms that differ only in numbers look the same. Tuning runs are paler.
    """
    metric, operators = study.measured, _chosen("fusion", study, runs)
    kinds = {arm: (operators[arm], _further_choices(study, arm)) for arm in study.arms}
    corpus, kind = runs["arm"].map(_chosen("data", study, runs)), runs["arm"].map(kinds.get)
    named = corpus if corpus.nunique() > 1 else ""
    rows = runs.assign(data=named, encoding="", variant="")
    caption = (
        f"test {metric.level} against the norm of the token's part of the fused vector divided by "
        "that of the position's part, in the last whole epoch; mark: one run; pale: tuning; "
        "hollow: the operator with the named setting"
    )
    figure, panels = plot.panel_figure(rows, caption, (5.0, 3.0), most=2)
    for part, (axis,) in panels:
        for (operator, choices), own in part.groupby(kind, sort=False):
            looks = style.look(operator)
            for run in own.to_dict("records"):
                value = run[f"test_{metric.name}"]
                (point,) = axis.plot(
                    run["norm_ratio"], value, linestyle="none", marker=looks.marker,
                    color=looks.color, markerfacecolor="none" if choices else looks.color,
                    alpha=0.3 if run["stage"] == "tuning" else 0.9,
                )  # fmt: skip
                names = [run.get("repeat"), run["arm"], run.get("trial")]
                name = " ".join(name for name in names if isinstance(name, str) and name)
                svg.mark(point, f"{name} seed={run['seed']}: {metric.number(value)}")
            point.set_label(style.short(f"{operator} {choices}".rstrip(), 36))  # once in the legend
        axis.set_xlabel("norm of the token / norm of the position")
        axis.set_ylabel(f"test {metric.axis}")
        axis.set_xscale("log")
        low, high = axis.get_xlim()
        steps = (1, 2, 5) if high < 1000 * low else (1,)  # a wide range has no room for more
        axis.xaxis.set_major_locator(ticker.LogLocator(subs=steps, numticks=7))
        axis.xaxis.set_major_formatter(lambda ratio, _: f"{ratio:g}")
        axis.xaxis.set_minor_locator(ticker.NullLocator())
        axis.legend(
            fontsize=style.SMALL - 1, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0)
        )
    return figure


def lengths(runs: pd.DataFrame, study: Study) -> Figure:
    """The metric against test length, in a panel per corpus; one line per arm, with its band. A
    line has its operator's name if there are several corpora and no two arms of a corpus differ
    only in numbers; otherwise its arm's name."""
    metric = study.measured
    corpus, operators = _chosen("data", study, runs), _chosen("fusion", study, runs)
    names = {arm: f"{operators[arm]} {_further_choices(study, arm)}".rstrip() for arm in operators}
    different = {(corpus[arm], name) for arm, name in names.items()}
    if len(set(corpus.values())) == 1 or len(different) < len(names):
        names = {arm: arm for arm in names}
    rows = by_test_length(runs, metric)
    rows = rows.assign(
        data=rows["arm"].map(corpus), encoding="", variant="", fusion=rows["arm"].map(names)
    ).sort_values("test_length")
    return results_by_length(rows, chance_of(rows.groupby("data")["classes"].max(), metric), metric)


def _chosen(group: str, study: Study, runs: pd.DataFrame) -> dict[str, str]:
    """The `data` or `fusion` of each arm: as the study names it, otherwise as the arm's last run
    does, because the study's base may set it."""
    chosen = dict.fromkeys(study.arms, USUAL[group])
    if group in runs:  # the runs.csv of earlier versions lacks it
        known = runs.dropna(subset=[group])
        chosen |= dict(zip(known["arm"], known[group], strict=True))
    return chosen | {arm: str(o[group]) for arm, o in study.overrides.items() if group in o}


def _further_choices(study: Study, arm: str) -> str:
    """In words the choices of an arm beside its operator that not all arms of its corpus have,
    without numbers."""
    chosen = [
        f"{key.rpartition('.')[2]}={value}"
        for key, value in study.varied_overrides(arm).items()
        if key not in ("fusion", "data", "data.name", "data.path")
        and type(value) not in (int, float)
    ]
    return ", ".join(chosen)
