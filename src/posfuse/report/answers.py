"""The answer table of a page: one row per verdict, with its interval drawn in the row."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from posfuse.report.sections.section import Answer

# A sign beside the word, for readers who cannot distinguish colours.
SIGNS = {
    "supported": "✓", "refuted": "✗", "ahead": "▲", "behind": "▼", "equivalent": "=",
    "undecided": "?", "exploratory": "·", "not tested": "·",
}  # fmt: skip
WIDTH, EDGE = 180.0, 6.0  # of an interval's drawing, in pixels
LONG = 5  # an interval this many times as long as the median interval is cut


@dataclass(frozen=True)
class Mark:
    """An answer and the places of its interval, in pixels from the left; None without an
    interval."""

    answer: Answer
    sign: str
    mean: float
    low: float | None
    high: float | None
    is_cut_low: bool = False  # the interval is longer than the drawing
    is_cut_high: bool = False


@dataclass(frozen=True)
class Marks:
    """The rows of the table on one axis."""

    rows: list[Mark]
    zero: float
    band: tuple[float, float] | None  # the differences that do not matter


def marks(answers: Sequence[Answer], margin: float) -> Marks:
    """The places of all intervals on one axis, which contains 0 and the margin."""
    lengths = [a.high - a.low for a in answers if math.isfinite(a.high - a.low)]
    longest = LONG * statistics.median(lengths) if lengths else 0.0
    values = [a.mean for a in answers if math.isfinite(a.mean)]
    values += [v for a in answers if a.high - a.low <= longest for v in (a.low, a.high)]
    first, last = min([*values, -margin, 0.0]), max([*values, margin, 0.0])
    scale = (WIDTH - 2 * EDGE) / ((last - first) or 1.0)

    def at(value: float) -> float:
        inside = min(max(value, first), last)
        return round(EDGE + (inside - first) * scale, 1)

    rows = []
    for a in answers:
        low, high = (None, None) if math.isnan(a.low) else (at(a.low), at(a.high))
        cut = a.low < first, a.high > last
        rows.append(Mark(a, SIGNS[a.verdict], at(a.mean), low, high, *cut))
    band = (at(-margin), at(margin)) if margin else None
    return Marks(rows, at(0.0), band)
