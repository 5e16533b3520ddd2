"""Tables of the tuned keys: every operator at every value, and each at its best one."""

from functools import partial

import pandas as pd

from posfuse.analysis.evidence.metric import Metric
from posfuse.analysis.statistics.budget import budgets
from posfuse.analysis.statistics.comparisons import Criteria
from posfuse.analysis.statistics.own_best import KEYS, OwnBest, chosen_by, keys_of
from posfuse.analysis.tables.paired_tables import (
    N,
    outside_family,
    to_baseline,
    verdict_columns,
)
from posfuse.analysis.tables.table import (
    Column,
    Row,
    Table,
    by_fusion,
    if_many,
    interval,
    over_seeds,
    signed,
    table_of,
)

MARK = "*"  # an operator's own best values
EDGE = "‡"  # a best value at the end of those tried
AT_EDGE = (
    f"{EDGE} the best value is the smallest or largest that the operator was run with, so a value "
    "beyond may be better. "
)
BIAS = (
    "Such a choice favours an operator that has more values near its best one; docs/statistics.md "
    "gives the size of this bias, and --select-seeds removes it. "
)
WORDS = {"scale": "scale", "lr": "learning rate"}


def own_best_tables(found: OwnBest, criteria: Criteria) -> list[Table]:
    """The tables that have rows."""
    best = [best_table(found, criteria)] if len(found.best) else []
    by_budget = budgets(found.cells, criteria.metric)
    more = [budget_table(by_budget, criteria.metric)] if len(by_budget) else []
    return [*best, by_value_table(found, criteria), *more] if len(found.cells) else best


def best_table(found: OwnBest, criteria: Criteria) -> Table:
    """Does an operator beat the baseline at the baseline's own best values?"""
    best, keys, base, metric = found.best, found.keys, criteria.baseline, criteria.metric
    signs = partial(signed, digits=metric.digits)
    several = if_many(best, "encoding")  # a single one is in the title: the table is wide
    encoding = "" if several else f", encoding {best['encoding'].iloc[0]}"
    columns: list[Column] = [(key, _value, key, f"{key}_edge") for key in keys]
    for key in keys:
        heading = f"{base}'s" if len(keys) == 1 else f"{base}'s {key}"
        columns.append((heading, _value, f"baseline_{key}", f"baseline_{key}_edge"))
    columns.append(N)
    at_paper = ""
    if "scale" in keys:
        columns += [
            ("at sqrt_d", signs, "paper_mean"),
            ("95 % t", partial(interval, digits=metric.digits), "paper_low", "paper_high"),
        ]
        others = ", each at its best learning rate there" if len(keys) > 1 else ""
        at_paper = f"at sqrt_d: both operators at the paper's scale{others}. "
    columns += verdict_columns(metric, "at best")
    chosen = chosen_by(best, criteria)
    bias = BIAS if "the same seeds" in chosen else ""
    edges = any(best[f"{of}{key}_edge"].any() for key in keys for of in ("", "baseline_"))
    return table_of(
        best,
        columns,
        ["data", *several, *if_many(best, "variant"), "fusion"],
        name=f"best_{'_'.join(keys)}",
        title=f"At each operator's own best {_words(keys)}{encoding}",
        caption=f"{to_baseline(criteria)}, paired by seed, with its 95 % t "
        f"interval. {at_paper}at best: each operator at the {keys_of(best)} with its {metric.best} "
        f"mean validation {metric.title} ({chosen}). n, the p-values (Holm-adjusted over this "
        "table) and the verdict belong to the difference at best. "
        f"{AT_EDGE if edges else ''}{bias}"
        "gate_constant and add_scaled learn one number that weighs position against content, so "
        f"their gain is a gain of scale only. {outside_family(best, criteria)}".rstrip(),
    )


def by_value_table(found: OwnBest, criteria: Criteria) -> Table:
    """A row for each combination of values, a column for each operator."""
    cells, keys, metric = found.cells, found.keys, found.metric
    labels = ["data", "encoding", *if_many(cells, "variant"), *keys]
    order = [f"{key}_number" for key in keys]
    order.insert(1, "learned")
    fusions = cells["fusion"].unique().tolist()
    write = partial(_value_over_seeds, keys=keys, digits=metric.digits)
    rows = []
    for _, group in cells.groupby(["data", "encoding", "variant"], sort=False):
        by_value = group.sort_values(order, kind="stable").groupby(keys, sort=False)
        for _, at_value in by_value:
            named = [at_value[label].iloc[0] for label in labels]
            rows.append([*named, *by_fusion(at_value, fusions, write)])
    edges = any(cells[f"{key}_edge"].any() for key in keys)
    scale = (
        f"Embeddings are multiplied by {KEYS['scale']} before fusion. A learned scale starts at "
        "the paper's, sqrt_d, and counts as that value."
    )
    return Table(
        f"by_{'_'.join(keys)}",
        f"By {'token ' if 'scale' in keys else ''}{_words(keys)}",
        f"Test {metric.level}: mean ± standard deviation over seeds, number of seeds in brackets. "
        f"{MARK} the operator's {metric.best} mean validation {metric.title} "
        f"({chosen_by(found.best, criteria)}). {AT_EDGE if edges else ''}"
        f"{scale if 'scale' in keys else ''}".strip(),
        [*labels, *fusions],
        rows,
        cells,
    )


def budget_table(by_budget: pd.DataFrame, metric: Metric) -> Table:
    """Which operator is best after few trials?"""
    most = int(by_budget["trials"].max())
    steps = [2**i for i in range(most.bit_length()) if 2**i < most]
    columns: list[Column] = [("trials", str, "trials")]
    columns += [
        (f"best of {k}", partial(_best_of, k, metric.digits), "expected") for k in [*steps, most]
    ]
    return table_of(
        by_budget,
        columns,
        ["data", *if_many(by_budget, "encoding"), *if_many(by_budget, "variant"), "fusion"],
        name="budget",
        title=f"Validation {metric.title} by tuning budget",
        caption=f"The expected best validation {metric.level} of k trials that are drawn at random "
        "without replacement from all trials of the operator (Dodge et al. 2019). A trial is a "
        "combination of the tuned values; its score is the mean over the seeds that choose.",
    )


def _best_of(k: int, digits: int, expected: list[float]) -> str:
    return f"{expected[k - 1]:.{digits}f}" if k <= len(expected) else ""


def _words(keys: list[str]) -> str:
    return " and ".join(WORDS[key] for key in keys)


def _value(value: str, edge: bool) -> str:
    return f"{value}{EDGE}" if edge else value


def _value_over_seeds(cell: Row, keys: list[str], digits: int) -> str:
    text = over_seeds(cell["mean"], cell["std"], cell["n"], digits) + (MARK if cell["best"] else "")
    return _value(text, any(cell[f"{key}_edge"] for key in keys))
