"""The answer table of a page: one row per verdict, with its interval drawn in the row."""

import math
import statistics
from collections.abc import Sequence
from typing import Any

from posfuse.report.sections.section import Answer

# A sign beside the word, for readers who cannot distinguish colours.
SIGNS = {
    "supported": "✓", "refuted": "✗", "ahead": "▲", "behind": "▼", "equivalent": "=",
    "undecided": "?", "exploratory": "·", "not tested": "·",
}  # fmt: skip
WIDTH, EDGE = 180.0, 6.0  # of an interval's drawing, in pixels
LONG = 5  # an interval this many times as long as the median interval is cut


def marks(answers: Sequence[Answer], margin: float) -> dict[str, Any]:
    """The rows of the table, and the places of zero and of the margin's band. All places are in
    pixels on one axis, which contains 0 and the margin. The ends of a row are None without an
    interval; is_cut_low and is_cut_high: the interval is longer than the drawing."""
    lengths = [a.high - a.low for a in answers if math.isfinite(a.high - a.low)]
    longest = LONG * statistics.median(lengths) if lengths else 0.0
    values = [a.mean for a in answers if math.isfinite(a.mean)]
    values += [v for a in answers if a.high - a.low <= longest for v in (a.low, a.high)]
    first, last = min([*values, -margin, 0.0]), max([*values, margin, 0.0])
    scale = (WIDTH - 2 * EDGE) / ((last - first) or 1.0)

    def at(value: float) -> float:
        inside = min(max(value, first), last)
        return round(EDGE + (inside - first) * scale, 1)

    rows = [
        {
            "answer": a, "sign": SIGNS[a.verdict], "mean": at(a.mean),
            "ends": None if math.isnan(a.low) else (at(a.low), at(a.high)),
            "is_cut_low": a.low < first, "is_cut_high": a.high > last,
        }
        for a in answers
    ]  # fmt: skip
    return {"rows": rows, "zero": at(0.0), "band": (at(-margin), at(margin)) if margin else None}
