"""How much of an operator's gain comes from position.

A placebo is a run with a table of zeros (`encoding=none`): every operator keeps its parameters, but
gets no position. The gain over the baseline that remains does not come from position. What position
adds is the gain with position minus the gain without, seed by seed.
"""

from typing import Any

import numpy as np
import pandas as pd

from posfuse.evidence.collect import CELL
from posfuse.evidence.metric import Metric
from posfuse.evidence.settings import NO_TABLE
from posfuse.statistics.comparisons import Criteria, operators
from posfuse.statistics.second_differences import second_differences


def placebos(comparisons: pd.DataFrame, criteria: Criteria) -> pd.DataFrame:
    """One row for each row of `compare`, or of `OwnBest.best`, that has position and whose placebo
    was run: the columns of `second_differences` with `placebo`.

    A placebo has the comparison's data, operator and settings except for the encoding's. Its
    attention is that of the comparison, or it has no encoding there either.
    """
    found = ((row, _placebo_of(row, comparisons)) for row in comparisons.to_dict("records"))
    pairs = [(row, placebo) for row, placebo in found if placebo is not None]
    return second_differences(pairs, criteria, "placebo")


def of_position(
    rows: pd.DataFrame, added: pd.DataFrame, metric: Metric
) -> tuple[pd.DataFrame, str]:
    """Comparisons with what position adds in place of their differences, and a line that says so.

    `added` is the frame of `placebos`. If it lacks any of the rows, they stay as they are.
    """
    new = ["seeds", "deltas", "n", "gain", "placebo_gain"]
    found = rows.drop(columns=new[:3]).merge(added[[*CELL, *new]], on=CELL, how="left")
    names = [" ".join(filter(None, cell)) for cell in rows[CELL].itertuples(index=False)]
    without = [name for name, n in zip(names, found["n"], strict=True) if np.isnan(n)]
    if without:
        of = "" if len(without) == len(names) else f" for {', '.join(without)}"
        return rows, f"judged: the plain gain, because the placebo (encoding=none) was not run{of}"
    signed = metric.signed
    gains = zip(names, found["gain"], found["placebo_gain"], strict=True)
    texts = [f"{name} {signed(gain)} and {signed(less)}" for name, gain, less in gains]
    return found, (
        "judged: what position adds, the gain with position minus the gain without "
        f"({', '.join(texts)})"
    )


def _placebo_of(row: dict[Any, Any], comparisons: pd.DataFrame) -> dict[Any, Any] | None:
    """The comparison without position that differs from this one in the encoding alone."""
    if row["table"] == NO_TABLE:
        return None
    same = np.logical_and.reduce(
        [
            comparisons["data"] == row["data"],
            operators(comparisons) == row["fusion"].split()[0],
            comparisons["other_settings"] == row["other_settings"],
        ]
    )
    without = comparisons[same & (comparisons["table"] == NO_TABLE)]
    same_attention = without[without["attention"] == row["attention"]]
    found = pd.concat([same_attention, without[without["attention"] == ""]])
    return next(iter(found.to_dict("records")), None)
