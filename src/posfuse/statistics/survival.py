"""Does an operator's gain survive pretraining? The gain after pretraining minus that from scratch.

Differences between architectures that are trained from random initial values may come from
training, not from the architectures (Amos et al. 2023, Never Train from Scratch).
"""

from typing import Any

import pandas as pd

from posfuse.statistics.comparisons import Criteria
from posfuse.statistics.second_differences import second_differences

SCRATCH = "none"  # pretrain.name of a run without pretraining


def survival(comparisons: pd.DataFrame, criteria: Criteria) -> pd.DataFrame:
    """One row for each row of `compare` with pretraining whose operator and baseline were trained
    from scratch too: the columns of `second_differences` with `scratch`.

    The runs from scratch have the same settings except for those of pretraining.
    """
    found = ((row, _from_scratch(row, comparisons)) for row in comparisons.to_dict("records"))
    pairs = [(row, other) for row, other in found if other is not None]
    return second_differences(pairs, criteria, "scratch")


def _from_scratch(row: dict[Any, Any], comparisons: pd.DataFrame) -> dict[Any, Any] | None:
    if row["pretrain"] == SCRATCH:
        return None
    same = comparisons["pretrain"] == SCRATCH
    for name in ("data", "encoding", "fusion", "besides_pretraining"):
        same &= comparisons[name] == row[name]
    return next(iter(comparisons[same].to_dict("records")), None)
