"""Tables of gains under two conditions: with and without position, after pretraining and from
scratch."""

import pandas as pd

from posfuse.report.sections.differences import outside_family, verdict_columns
from posfuse.report.sections.section import PAIRED, Section
from posfuse.report.sweep import Sweep
from posfuse.report.table import Table, table_of
from posfuse.statistics.comparisons import Criteria, family_size

# By the second condition (a column of `second_differences`): the headings of both gains and of
# their difference, the title, the descriptions of both gains, and the words for the difference.
SECOND = {
    "placebo": (
        ("gain", "without", "position adds"),
        "How much of the gain over {} comes from position",
        "with position",
        "the same with a table of zeros (encoding=none), where each operator keeps its parameters",
        "position adds",
    ),
    "scratch": (
        ("pretrained", "from scratch", "difference"),
        "Does the gain over {} survive pretraining?",
        "after masked pretraining",
        "the same without it",
        "pretraining changes the gain by",
    ),
}
NAMES = {"placebo": "placebo", "scratch": "pretraining"}  # of the tables


def section(sweep: Sweep) -> Section:
    tables = second_tables(sweep.placebos, sweep.criteria)
    tables += second_tables(sweep.pretraining_effect, sweep.criteria)
    return Section(PAIRED, tables=tables, shown=[] if sweep.is_tuned else tables)


def second_tables(frame: pd.DataFrame, criteria: Criteria, tuned: str = "") -> list[Table]:
    """The table of a frame of `second_differences`, if it has rows. `tuned` has in words the keys
    of which each cell has its own best values; empty if all cells have the same values."""
    if frame.empty:
        return []
    metric, name = criteria.metric, next(name for name in SECOND if name in frame)
    (first, second, adds), title, of_first, of_second, changes = SECOND[name]
    at_best = ""
    if tuned:
        at_best = f"Operator and baseline, each under both conditions, have the {tuned} with "
        at_best += f"their own {metric.best} mean validation {metric.title}. "
    shown = table_of(
        frame,
        [
            *verdict_columns(metric, adds),
            (first, metric.signed, "gain"),
            (second, metric.signed, f"{name}_gain"),
        ],
        name=f"{NAMES[name]}{'_best' if tuned else ''}",
        title=f"{title.format(criteria.baseline)}{', at own best values' if tuned else ''}",
        caption=f"{at_best}{first}: fused minus {criteria.baseline} in "
        f"{metric.points}{metric.better} {of_first}. {second}: {of_second}. {adds}: the first "
        "minus the second, paired by seed over the n seeds that all four cells have: mean ± "
        "standard deviation and 95 % t interval. p-values: t-tests of this difference, "
        f"Holm-adjusted over the {family_size(frame)} rows of this table's family. Equivalent: "
        f"{changes} no more than ±{criteria.within} on these test documents. "
        f"{outside_family(frame, criteria)}".rstrip(),
    )
    return [shown]
