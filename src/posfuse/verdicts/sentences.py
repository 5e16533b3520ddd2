"""Verdicts in words, for sweeps, studies and tables of other studies."""

import math
from dataclasses import dataclass

from posfuse.evidence.metric import Metric, decimals


@dataclass(frozen=True)
class Size:
    """A mean difference, one minus other, with its interval."""

    one: str
    other: str
    mean: float
    low: float
    high: float
    metric: Metric
    digits: int
    where: str = ""  # the restriction of the difference, after a space
    unit: str = ""  # by default the metric's
    are_differences: bool = False  # the two sides are differences, not results

    def _size(self, direction: int = 0) -> str:
        unit = f" {self.unit or self.metric.unit}"
        return size_text(self.mean, self.low, self.high, self.digits, unit, direction=direction)

    @property
    def difference(self) -> str:
        """one - other: +4.1 points (+2.0 to +6.2)"""
        return f"{self.one} - {self.other}{self.where}: {self._size()}"

    @property
    def relation(self) -> str:
        """one is behind other by 4.1 points (2.0 to 6.2)"""
        is_above = self.mean > 0
        words = "ahead of" if is_above != self.metric.lower_is_better else "behind"
        if self.are_differences:
            words = "above" if is_above else "below"
        size = self._size(1 if is_above else -1)
        return f"{self.one} is {words} {self.other}{self.where} by {size}"


def size_text(
    mean: float, low: float, high: float, digits: int, unit: str = "", of: str = "",
    direction: int = 0,
) -> str:  # fmt: skip
    """A mean and its interval, if it has one, such as +4.1 points (+2.0 to +6.2). `unit` follows
    the mean, and `of` begins the brackets. With a direction, 1 or -1, the numbers count in this
    direction and have no plus."""
    sign, plus = direction or 1, "" if direction else "+"
    low, high = sorted((sign * low + 0.0, sign * high + 0.0))  # an end at -0.0 is at 0
    ends = f" ({of}{decimals(low, digits, plus)} to {decimals(high, digits, plus)})"
    return f"{decimals(sign * mean, digits, plus + 'z')}{unit}{'' if math.isnan(low) else ends}"


def to_settle(as_measured: float, at_zero: float, units: str = "seeds") -> str:
    """The number of seeds, or other units, that would settle an undecided comparison if the true
    difference is the measured one, and if it is 0. Empty if the differences have no spread."""
    if math.isnan(as_measured):
        return ""
    both = ((as_measured, "as measured"), (at_zero, "0"))
    finite = [(_about(n), case) for n, case in both if math.isfinite(n)]
    if not finite:
        return f"No feasible number of {units} would settle this."
    (n, case), *other = finite
    more = "".join(f", and about {n} if it is {case}" for n, case in other)
    return f"About {n} {units} would settle this if the true difference is {case}{more}."


def _about(number: float) -> str:
    """A number with two significant digits."""
    return f"{float(f'{number:.2g}'):,.0f}"
