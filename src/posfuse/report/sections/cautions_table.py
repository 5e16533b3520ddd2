"""A table of the cautions of a report's verdicts, each caution once."""

from collections.abc import Mapping, Sequence
from functools import partial

import pandas as pd

from posfuse.report.sections.section import VERDICTS, Section
from posfuse.report.sweep import Sweep
from posfuse.report.table import Column, table_of
from posfuse.statistics.cautions import (
    CHANCE,
    EDGE,
    GROUPS,
    LAST,
    LEVEL,
    NEAR,
    ORDER,
    Cautions,
    of_comparisons,
)
from posfuse.statistics.cells import APART

MOST = 8  # names in a cell
# The smallest difference of the means of two groups.
OF_RANGE = f"{100 * APART:g} % of the range from guessing to the best possible value"
MEANINGS = {
    CHANCE: "Close to guessing: the mean is at most "
    f"{100 * NEAR:g} % of the way from guessing to the best possible value.",
    GROUPS: "Two groups: relative to the spread within them, the groups of runs are further apart "
    f"than in {100 * (1 - LEVEL):g} of 100 samples of normal values. Their means also differ by at "
    "least {apart}. One run can be a group. A study with `solved` compares numbers of solved runs.",
    LAST: "Still improving: the best evaluation of these runs was their last one.",
    EDGE: "Edge: a better value may lie beyond those tried.",
}


def section(sweep: Sweep) -> Section:
    runs = sweep.runs[~sweep.held]
    by_name = of_comparisons(sweep.comparisons, sweep.best, runs, sweep.criteria)
    return cautions_section(by_name)


def cautions_section(
    by_name: Mapping[str, Cautions], verdicts: str = "comparisons", chapter: str = VERDICTS,
    apart: str = OF_RANGE,
) -> Section:  # fmt: skip
    """A table with one row per caution, and a line for each on the terminal; empty without one.
    `by_name` has the cautions of each verdict; `verdicts` are hypotheses or comparisons. The means
    of two groups differ at least by `apart`."""
    rows = []
    for text in ORDER:
        own = {name: each[text] for name, each in by_name.items() if text in each}
        if any(own.values()):  # no arm: all of them
            own = {name: each or [f"all arms of {name}"] for name, each in own.items()}
        arms = dict.fromkeys(arm for each in own.values() for arm in each)
        if own:
            rows.append({"caution": text, "arms": list(arms), verdicts: list(own)})
    if not rows:
        return Section(chapter)
    meanings = (MEANINGS[row["caution"]] for row in rows if row["caution"] in MEANINGS)
    caption = " ".join(["A caution changes no verdict.", *meanings]).format(apart=apart)
    columns: list[Column] = [
        ("arms", _some, "arms"),
        (verdicts, partial(_some, every=len(by_name)), verdicts),
    ]
    title = "Limits of the verdicts"
    table = table_of(pd.DataFrame(rows), columns, ["caution"], name="cautions", title=title,
                     caption=caption)  # fmt: skip
    return Section(chapter, tables=[table], shown=[_line(*row) for row in table.rows])


def _some(names: Sequence[str], every: int = 0) -> str:
    """Up to MOST names, or the word "all" if there are `every` names."""
    if len(names) == every:
        return "all"
    more = [f"{len(names) - MOST} more"] if len(names) > MOST else []
    return ", ".join([*names[:MOST], *more])


def _line(caution: str, arms: str, verdicts: str) -> str:
    concerns = next((text for text in (arms, verdicts) if text != "all"), "")
    return f"caution: {caution}{f' ({concerns})' if concerns else ''}"
