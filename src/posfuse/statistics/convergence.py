"""Whether runs were trained long enough: how many were best at their last evaluation.

Such a run may get better with more training. If one operator has many of them and the baseline few,
their difference is one of speed as well (a caution, cautions.py).
"""

import pandas as pd

from posfuse.evidence.collect import CELL


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
