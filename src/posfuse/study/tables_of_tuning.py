"""Tables about tuning: its budget, the agreement of repeated tunings, and the noise of tuning."""

from functools import partial
from typing import Any

import pandas as pd

from posfuse.report.sections import own_values
from posfuse.report.table import Column, Table, table_of, unsigned
from posfuse.statistics.budget import FEWEST, best_by_budget
from posfuse.statistics.nested import components
from posfuse.study.plan import Plan
from posfuse.study.repeats import seeds_of_unit, units_of
from posfuse.study.scores import outcomes
from posfuse.study.tables_of_arms import guess_text


def budget_table(plan: Plan) -> Table | None:
    """Expected validation result by the number of trials. None with fewer than FEWEST, and for
    trials that depend on earlier ones, because the formula is for random draws."""
    metric = plan.study.measured
    if plan.study.is_searched:
        return None
    rows = [
        {"arm": arm, "expected": best_by_budget(choice.scores, metric).tolist()}
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
        seeds = [seeds_of_unit(study, arm, unit) for unit in units_of(study)]
        column = values.get(arm, pd.Series(dtype=float))
        tested = [of for own in seeds if (of := column.reindex(own)).notna().all()]
        if len(tested) < 2:
            continue
        found = components(tested)
        chosen = [own.choices[arm].values for own in plan.parts().values() if arm in own.choices]
        ranges = {key: _range([c[key] for c in chosen]) for key in chosen[0]}
        rows.append({"arm": arm, "n": len(tested), **ranges, **vars(found)})
    if not rows:
        return None
    number = partial(unsigned, digits=metric.digits)
    keys = list(next(iter(plan.choices.values())).values)
    ranges_of_keys: list[Column] = [(key, str, key) for key in keys]
    return table_of(
        pd.DataFrame(rows),
        [
            ("repeats", str, "n"),
            *ranges_of_keys,
            ("between repeats", number, "between"),
            ("within", number, "within"),
            ("share between", _share, "share", "low", "high"),
        ],
        keys=["arm"],
        name="tuning_noise",
        title="How far the tunings agree",
        caption=f"The values that the repeats chose, and the standard deviation of test "
        f"{metric.title} between repeats (tuning) and within them (seeds), in {metric.unit}. "
        "Share: of the variance of one run that lies between repeats, with its exact 95 % interval "
        "for normal values.",
    )


def _range(values: list[Any]) -> str:
    """The smallest and the largest number, or the different values."""
    if all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
        ends = f"{min(values):.3g}", f"{max(values):.3g}"
        return ends[0] if ends[0] == ends[1] else " to ".join(ends)
    return ", ".join(dict.fromkeys(map(str, values)))


def _share(share: float, low: float, high: float) -> str:
    if pd.isna(share):
        return ""
    return f"{100 * share:.0f} % ({100 * low:.0f} to {100 * high:.0f})"
