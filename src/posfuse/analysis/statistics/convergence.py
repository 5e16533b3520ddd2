"""Whether runs were trained long enough: how many were best at their last evaluation.

Such a run may get better with more training. If one operator has many of them and the baseline few,
their difference is one of speed as well.
"""

from typing import Any

import pandas as pd

from posfuse.analysis.evidence.collect import CELL

APART = 0.5  # a difference of the shares that a note names
FEWEST = 5  # runs of each of the two cells that a note compares


def convergence(runs: pd.DataFrame) -> pd.DataFrame:
    """One row per cell: CELL, n (runs whose records have the two numbers), last (how many of them
    were best at their last evaluation), best and evaluations (means of the two numbers).

    An evaluation is one on the validation split. A record without `best_evaluation` and
    `evaluations` was evaluated once after each epoch: best_epoch and epochs.
    """
    frame = runs[CELL].copy()
    for name, epochs in (("best_evaluation", "best_epoch"), ("evaluations", "epochs")):
        counted = (runs.get(column, pd.Series(index=runs.index)) for column in (name, epochs))
        own, by_epoch = (pd.to_numeric(column, errors="coerce") for column in counted)
        frame[name] = own.fillna(by_epoch)
    frame = frame.dropna()
    frame["last"] = frame["best_evaluation"] >= frame["evaluations"]
    return frame.groupby(CELL, sort=False, as_index=False).agg(
        n=("last", "size"),
        last=("last", "sum"),
        best=("best_evaluation", "mean"),
        evaluations=("evaluations", "mean"),
    )


def unequal(found: pd.DataFrame, comparisons: pd.DataFrame, baseline: str) -> list[str]:
    """A note for each comparison whose two cells differ by APART or more in the share of runs that
    were best at their last evaluation; both need FEWEST runs."""
    cells: dict[Any, Any] = {
        tuple(row[axis] for axis in CELL): row for row in found.to_dict("records")
    }
    notes = []
    for row in comparisons.to_dict("records"):
        cell = tuple(row[axis] for axis in CELL)
        base = (*cell[:2], baseline, row["baseline_variant"])
        one, other = cells.get(cell), cells.get(base)
        if not one or not other or min(one["n"], other["n"]) < FEWEST:
            continue
        if abs(one["last"] / one["n"] - other["last"] / other["n"]) >= APART:
            notes.append(
                f"{' '.join(filter(None, cell))}: {one['last']} of {one['n']} runs were best at "
                f"their last evaluation, but {other['last']} of {other['n']} runs of {baseline}; "
                "longer training may change the difference"
            )
    return notes
