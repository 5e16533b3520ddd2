"""What tests decide about a difference: one vocabulary for sweeps, studies, claims and tables."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

AHEAD, BEHIND, EQUIVALENT, UNDECIDED = "ahead", "behind", "equivalent", "undecided"
SUPPORTED, REFUTED = "supported", "refuted"
# The answer of each result, by what a hypothesis expects.
ANSWERS = {
    "greater": {AHEAD: SUPPORTED, BEHIND: REFUTED, EQUIVALENT: EQUIVALENT},
    "less": {AHEAD: REFUTED, BEHIND: SUPPORTED, EQUIVALENT: EQUIVALENT},
    "equivalent": {AHEAD: REFUTED, BEHIND: REFUTED, EQUIVALENT: SUPPORTED},
}


def decide(mean: ArrayLike, differs: ArrayLike, equivalent: ArrayLike) -> NDArray[Any]:
    """The result of each comparison, from its mean difference, positive for ahead, and from whether
    tests show a difference and show equivalence. A shown difference comes first."""
    is_above = np.asarray(mean, dtype=float) > 0
    shown = np.asarray(differs, dtype=bool)
    cases = [shown & is_above, shown, np.asarray(equivalent, dtype=bool)]
    return np.select(cases, [AHEAD, BEHIND, EQUIVALENT], UNDECIDED)


def answer(supports: bool, refutes: bool) -> str:
    """The verdict on a statement that has a test for it and one against it."""
    return SUPPORTED if supports else REFUTED if refutes else UNDECIDED
