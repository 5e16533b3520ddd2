"""A contrast: what a comparison, a difference of differences and a study's hypothesis share."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd


@dataclass(frozen=True)
class Contrast:
    """Weights over arms, which sum to 0: a difference of two outcomes, of means of several, or of
    two differences."""

    weights: Mapping[Any, float]  # by arm
    expects: str = ""  # greater, less or equivalent; empty: the comparison is exploratory
    margin: float = 0.0  # a mean within +-margin does not matter
    family: str = ""  # of comparisons that are adjusted together

    def __post_init__(self) -> None:
        assert abs(sum(self.weights.values())) < 1e-9

    def differences(self, outcomes: pd.DataFrame) -> "pd.Series[float]":
        """The weighted sum of each seed that every arm has. `outcomes` has a row for each seed, and
        a column for each arm."""
        arms = list(self.weights)
        if any(arm not in outcomes for arm in arms):
            return pd.Series(dtype=float)
        weighted = outcomes[arms] * list(self.weights.values())
        return weighted.sum(axis=1, skipna=False).dropna()
