"""A table: what is shown, as text, and the numbers behind it; and how numbers are worded."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd


@dataclass(frozen=True)
class Table:
    name: str  # of its files
    title: str
    caption: str
    columns: list[str]
    rows: list[list[str]]
    numbers: pd.DataFrame  # what the CSV file holds


def if_many(frame: pd.DataFrame, axis: str) -> list[str]:
    return [axis] if frame[axis].nunique() > 1 else []


def with_spread(mean: float, std: float, digits: int, sign: bool = False) -> str:
    if np.isnan(mean):
        return ""
    text = f"{mean:{'+' if sign else ''}.{digits}f}"
    return text if np.isnan(std) else f"{text} ± {std:.{digits}f}"


def interval(low: float, high: float) -> str:
    return "" if np.isnan(low) else f"{low:+.2f} to {high:+.2f}"


def number(value: float, form: str) -> str:
    return "" if np.isnan(value) else form.format(value)


def count(value: float) -> str:
    return number(value, "{:,.0f}")


def seeds(value: float) -> str:
    if np.isinf(value):
        return "none enough"
    return number(value, "{:,.0f}")


def p_value(value: float) -> str:
    if np.isnan(value):
        return ""
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def joined(values: Sequence[Any]) -> str:
    return " ".join(f"{v:.6g}" if isinstance(v, float) else str(v) for v in values)
