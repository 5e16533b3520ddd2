"""Contrasts, and the decisions of tests about them, with one vocabulary for all verdicts.

A contrast maps arms to weights that sum to 0. It is a difference of two outcomes, of means of
several outcomes, or of two differences.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray


def differences(contrast: Mapping[Any, float], outcomes: pd.DataFrame) -> "pd.Series[float]":
    """The weighted sum over arms, for each seed that every arm has. `outcomes` has a row for
    each seed and a column for each arm. A sum that is 0 up to rounding is 0."""
    assert abs(sum(contrast.values())) < 1e-9
    if any(arm not in outcomes for arm in contrast):
        return pd.Series(dtype=float)
    weighted = outcomes[list(contrast)] * list(contrast.values())
    sums = weighted.sum(axis=1, skipna=False).dropna()
    largest = weighted.abs().max(axis=1)[sums.index]
    return sums.where(sums.abs() > 1e-9 * largest, 0.0)


AHEAD, BEHIND, EQUIVALENT, UNDECIDED = "ahead", "behind", "equivalent", "undecided"
DECIDED = (AHEAD, BEHIND, EQUIVALENT)
SUPPORTED, REFUTED = "supported", "refuted"
# The answer of each result, by what a hypothesis expects.
ANSWERS = {
    "greater": {AHEAD: SUPPORTED, BEHIND: REFUTED, EQUIVALENT: EQUIVALENT},
    "less": {AHEAD: REFUTED, BEHIND: SUPPORTED, EQUIVALENT: EQUIVALENT},
    "equivalent": {AHEAD: REFUTED, BEHIND: REFUTED, EQUIVALENT: SUPPORTED},
}


def decide(mean: ArrayLike, differs: ArrayLike, equivalent: ArrayLike) -> NDArray[Any]:
    """The result of each comparison, from its mean difference (positive means ahead) and from two
    tests: of a difference and of equivalence. A shown difference has priority."""
    is_above = np.asarray(mean, dtype=float) > 0
    shown = np.asarray(differs, dtype=bool)
    cases = [shown & is_above, shown, np.asarray(equivalent, dtype=bool)]
    return np.select(cases, [AHEAD, BEHIND, EQUIVALENT], UNDECIDED)
