"""Cautions about the verdicts of a study, and cautions that are known from its plan."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from posfuse.statistics.cautions import (
    FEW,
    FEW_VALUES,
    FEWEST,
    Arm,
    Cautions,
    cautions,
    sentence,
)
from posfuse.study.looks import Progress
from posfuse.study.plan import Plan
from posfuse.study.repeats import unit_of, units_of
from posfuse.study.run_table import RECORD
from posfuse.study.scores import best_was_last, guesses, outcomes
from posfuse.study.spec import Study


def of_verdicts(plan: Plan, state: Progress, runs: pd.DataFrame) -> dict[str, Cautions]:
    """The cautions of each judged hypothesis, by its name. `runs` are test runs as for
    `progress`."""
    study, metric = plan.study, plan.study.measured
    by_chance = guesses(runs, metric)
    parts, by_name = plan.parts().values(), {}
    for v in state.verdicts:
        if v.decision is None:
            continue
        h, units = v.hypothesis, units_of(study)[: v.decision.n]
        seeds = [seed for seed, unit in unit_of(study).items() if unit in units]
        values, arms = outcomes(runs, metric, h.outcome), {}
        for name in h.weights:
            choices = [own.choices[name] for own in parts if name in own.choices]
            own = runs[(runs["arm"] == name) & runs["seed"].isin(seeds)]
            records = own.get(RECORD, pd.Series()).dropna()
            arms[name] = Arm(
                values=values[name].reindex(seeds).dropna().tolist(),
                guess=by_chance[name],
                perfect=metric.perfect,
                settings=records.iloc[0].get("settings", {}) if len(records) else {},
                documents=own["test_documents"].min(),
                last=best_was_last(own),
                is_tuned=study.tuning is not None and study.repeats == 1,
                is_at_edge=any(choice.edges for choice in choices),
            )
        by_name[h.name] = cautions(
            arms, v.decision.n, study.convergence.most_last, few(study), h.solved
        )
    return by_name


def of_plan(study: Study, settings: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The cautions that need no run, one line each. `settings` has the settings of each arm."""
    is_tuned = study.tuning is not None and study.repeats == 1
    arms = {arm: Arm(settings=settings[arm], is_tuned=is_tuned) for arm in study.arms}
    early = [n for n in study.looks.seeds if n < FEWEST]
    found = cautions(arms, min(early, default=FEWEST), few=few(study))
    if early:
        found[few(study)] = [f"looks at {', '.join(map(str, early))}"]
    return [f"caution: {sentence({text: names})}" for text, names in found.items()]


def few(study: Study) -> str:
    """The caution about few seeds, or about few repeats of tuning."""
    return FEW if study.repeats == 1 else FEW_VALUES
