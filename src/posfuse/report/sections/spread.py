"""Tables about the runs of each cell besides their mean: solved, converged, variance."""

from functools import partial

import pandas as pd

from posfuse.evidence.collect import CELL
from posfuse.evidence.metric import ACCURACY, Metric
from posfuse.report import table
from posfuse.report.sections.section import PAIRED, Section
from posfuse.report.sweep import Sweep
from posfuse.report.table import Column, Table, interval, p_value, table_of
from posfuse.statistics.cells import convergence, solved_best, solved_cells, thresholds, variance
from posfuse.statistics.comparisons import Criteria

# Columns that a frame lacks if no row has them.
OF_PAIRS = ["pairs", "with", "base", "gained", "lost", "difference", "difference_low"]
OF_PAIRS += ["difference_high", "p_mcnemar"]
OF_SHARES = ["share", "delta_std", "delta_low", "delta_high", "delta_share"]
OF = "{:.0f} of {:.0f}".format


def section(sweep: Sweep) -> Section:
    runs, criteria = sweep.runs, sweep.criteria
    limits = thresholds(runs, criteria)
    of_cells = solved_cells(runs, sweep.comparisons, limits, criteria.metric)
    of_best = solved_best(sweep.best.best, limits)
    notes = []
    if held := int(sweep.held.sum()):
        notes.append(
            f"{held} runs have a source of randomness fixed (seeds.*); they show the spread of the "
            "other sources, and are not compared with the baseline"
        )
    return Section(
        PAIRED,
        tables=[
            *solved_tables(of_cells, of_best, criteria.baseline, criteria.metric),
            *convergence_tables(convergence(runs)),
            *variance_tables(variance(runs, criteria), criteria),
        ],
        notes=notes,
    )


def convergence_tables(trained: pd.DataFrame) -> list[Table]:
    """The frame of `convergence`, if it has rows."""
    if trained.empty:
        return []
    columns: list[Column] = [
        ("best at the last", OF, "last", "n"),
        ("best evaluation", "{:.1f}".format, "best"),
        ("evaluations", "{:.1f}".format, "evaluations"),
    ]
    caption = (
        "How many runs had their best validation result at the last evaluation, the mean number of "
        "the best evaluation, and the mean number of evaluations (epochs, if a run was evaluated "
        "once after each). A run that was best at the end may get better with more training, so an "
        "operator with many such runs may be undertrained."
    )
    title = "Runs that were best at their last evaluation"
    return [table_of(trained, columns, name="convergence", title=title, caption=caption)]


def solved_tables(
    cells: pd.DataFrame, best: pd.DataFrame, baseline: str, metric: Metric = ACCURACY
) -> list[Table]:
    """The tables of the frames of `solved_cells` and `solved_best` that have rows."""
    at_best = "Runs that solve the task at each operator's own best values"
    named = (best, "solved_best", at_best), (cells, "solved", "Runs that solve the task")
    return [_solved_table(frame, baseline, metric, *texts) for frame, *texts in named if len(frame)]


def _solved_table(
    frame: pd.DataFrame, baseline: str, metric: Metric, name: str, title: str
) -> Table:
    frame = frame.reindex(columns=frame.columns.union(OF_PAIRS, sort=False))
    at: list[Column] = [("at", str, "at"), (f"{baseline}'s", str, "baseline_at")]
    columns: list[Column] = [
        *(at if "at" in frame else []),
        (metric.title, table.with_spread, "mean", "std"),
        ("at least", "{:g}".format, "threshold"),
        ("solved", OF, "solved", "n"),
        ("95 % exact", "{:.0f} to {:.0f}".format, "low", "high"),
        (f"{baseline} solved", OF, "base", "pairs"),
        ("difference", "{:+.2f}".format, "difference"),
        ("95 % of it", interval, "difference_low", "difference_high"),
        ("gained", table.count, "gained"),
        ("lost", table.count, "lost"),
        ("p McNemar", p_value, "p_mcnemar"),
    ]
    return table_of(
        frame,
        columns,
        name=name,
        title=title,
        caption=f"A run solves its task if its test {metric.title} is at least this number of "
        f"percent. {metric.title}: mean ± standard deviation over all runs; if the runs form two "
        "groups, few runs are near this mean. solved: how many runs, and the exact "
        f"(Clopper-Pearson) 95 % interval of their share in %. {baseline} solved, difference (of "
        "the shares, in points), gained and "
        f"lost (seeds that only the operator, or only {baseline}, solves) belong to the paired "
        "seeds. The interval of the difference has exact limits (docs/statistics.md). McNemar's "
        "exact test compares gained with lost; its p is not adjusted.",
    )


def variance_tables(spreads: pd.DataFrame, criteria: Criteria) -> list[Table]:
    """The frame of `variance`, if it has rows."""
    if spreads.empty:
        return []
    metric = criteria.metric
    ends = partial(interval, digits=metric.digits, sign="")
    spreads = spreads.reindex(columns=spreads.columns.union(OF_SHARES, sort=False))
    cells = spreads.groupby([*CELL, "varied"])
    columns: list[Column] = [
        ("varied", str, "varied"),
        *([("fixed", str, "held")] if cells["held"].nunique().max() > 1 else []),
        ("n", str, "n"),
        ("std", metric.number, "std"),
        ("95 %", ends, "low", "high"),
        ("% of variance", table.count, "share"),
        ("std of difference", metric.number, "delta_std"),
        ("95 %", ends, "delta_low", "delta_high"),
        ("% of variance", table.count, "delta_share"),
    ]
    table_ = table_of(
        spreads,
        columns,
        name="variance",
        title="Spread by source of randomness",
        caption=f"Standard deviation of the test {metric.title}, in {metric.unit}, over n runs "
        "in which only these sources of randomness follow the seed and the others are fixed "
        "(Bouthillier et al. 2021), with its 95 % interval (chi-square, for normal results); "
        "% of variance: the variance in percent of the variance of runs in which all sources "
        f"follow the seed. The same for the difference from {criteria.baseline}, paired by seed. "
        "Each share belongs to the values at which the other sources are fixed. Sources that act "
        "together count in each of their shares, so the shares may add up to more than 100.",
    )
    return [table_]
