"""Runs that solve their task and runs that do not.

On a task that a run either solves or not, the accuracies of a cell lie in two groups and their mean
describes no run. The share of runs above a threshold does.
"""

from typing import Any

import numpy as np
import pandas as pd

from posfuse.evidence.collect import CELL
from posfuse.evidence.metric import ACCURACY
from posfuse.statistics import over_documents
from posfuse.statistics import paired as st
from posfuse.statistics.comparisons import Criteria
from posfuse.statistics.shares import paired_share_interval, share_interval

APART = 1 / 8  # of the way from chance to 100 %: the distance of either group from the threshold


def thresholds(runs: pd.DataFrame, criteria: Criteria) -> dict[str, float]:
    """By corpus the test accuracy in percent above which a run solves the task.

    With `Criteria.solved` this is that number, for every corpus. Without it, it is halfway between
    chance (1 of C classes) and 100 %, for the corpora where the runs of a cell are in two groups:
    one run is below it and another above it, both by APART of the way from chance to 100 % or more.
    """
    if criteria.solved is not None:
        return dict.fromkeys(runs["data"].unique(), criteria.solved)
    found = {}
    for data, group in runs.groupby("data", sort=False):
        classes = max(map(len, group["label_names"]))
        if classes < 2:
            continue
        way = 100 - 100 / classes
        middle = 100 - way / 2
        of_cell = ACCURACY.of(group).groupby([group[axis] for axis in CELL])
        low, high = of_cell.min(), of_cell.max()
        if ((low <= middle - APART * way) & (high >= middle + APART * way)).any():
            found[str(data)] = middle
    return found


def solved_cells(
    runs: pd.DataFrame, comparisons: pd.DataFrame, above: dict[str, float]
) -> pd.DataFrame:
    """One row per cell of the corpora in `above`: CELL and `_row`, compared with the baseline for
    the cells that `compare` compared."""
    compared = {tuple(row[axis] for axis in CELL): row for row in comparisons.to_dict("records")}
    rows = []
    for cell, group in runs[runs["data"].isin(above)].groupby(CELL, sort=False):
        accuracies = ACCURACY.of(group).tolist()
        rows.append(dict(zip(CELL, cell, strict=True)))
        rows[-1] |= _row(accuracies, compared.get(cell), above[str(cell[0])])
    return pd.DataFrame(rows)


def solved_best(best: pd.DataFrame, above: dict[str, float]) -> pd.DataFrame:
    """One row per row of `OwnBest.best` of the corpora in `above`: CELL, at, baseline_at and
    `_row`, over the seeds that are tested."""
    labels = [*CELL, "at", "baseline_at"]
    rows = [
        {name: row[name] for name in labels} | _row(row["scores"], row, above[row["data"]])
        for row in best.to_dict("records")
        if row["data"] in above
    ]
    return pd.DataFrame(rows)


def _row(accuracies: list[float], pairs: dict[Any, Any] | None, above: float) -> dict[str, Any]:
    """threshold, n, mean and std of the accuracies in percent; solved (how many runs), share, low
    and high (exact interval) in percent; and of the paired seeds: pairs (how many), with and base
    (how many runs of either solve it), gained and lost (seeds that one alone solves), difference,
    difference_low and difference_high (Newcombe) in points, p_mcnemar (exact)."""
    solves = np.asarray(accuracies) > above
    n, k = len(solves), int(solves.sum())
    low, high = share_interval(k, n)
    row = {"threshold": above, "n": n, "mean": float(np.mean(accuracies))}
    row |= {"std": st.spread(accuracies), "solved": k, "share": 100 * k / n}
    row |= {"low": 100 * low, "high": 100 * high}
    if pairs is None:
        return row
    one, base = (np.asarray(pairs[name]) > above for name in ("scores", "baseline_scores"))
    low, high = paired_share_interval(one, base)
    row |= {"pairs": len(one), "with": int(one.sum()), "base": int(base.sum())}
    row |= {"gained": int(np.sum(one & ~base)), "lost": int(np.sum(~one & base))}
    row |= {"difference": 100 * float(one.mean() - base.mean())}
    row |= {"difference_low": 100 * low, "difference_high": 100 * high}
    return row | {"p_mcnemar": over_documents.p_mcnemar(one, base)}
