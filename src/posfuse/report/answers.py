"""The answer table of a page: one row per verdict, with its interval drawn in the row."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from posfuse.report.sections.section import Answer

# A sign beside the word: a reader who sees no colours can tell verdicts apart.
SIGNS = {
    "supported": "✓", "refuted": "✗", "ahead": "▲", "behind": "▼", "equivalent": "=",
    "undecided": "?", "exploratory": "·", "not tested": "·",
}  # fmt: skip
WIDTH, EDGE = 180.0, 6.0  # of an interval's drawing, in pixels


@dataclass(frozen=True)
class Mark:
    """An answer and the places of its interval, in pixels from the left; None without one."""

    answer: Answer
    sign: str
    mean: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Marks:
    """The rows of the table on one axis."""

    rows: list[Mark]
    zero: float
    band: tuple[float, float] | None  # the differences that do not matter


def marks(answers: Sequence[Answer], margin: float) -> Marks:
    """The places of all intervals on one axis, which contains 0 and the margin."""
    values = [v for a in answers for v in (a.mean, a.low, a.high) if math.isfinite(v)]
    first, last = min([*values, -margin, 0.0]), max([*values, margin, 0.0])
    scale = (WIDTH - 2 * EDGE) / ((last - first) or 1.0)

    def at(value: float) -> float:
        return round(EDGE + (value - first) * scale, 1)

    rows = []
    for a in answers:
        ends = (None, None) if math.isnan(a.low) else (at(a.low), at(a.high))
        rows.append(Mark(a, SIGNS[a.verdict], at(a.mean), *ends))
    band = (at(-margin), at(margin)) if margin else None
    return Marks(rows, at(0.0), band)
