"""The kinds of claims: each computes p-values from the rows of `compare` that a claim selects.

Each takes (rows, margin, rows of the fusion to compare with, metric). A gain is an improvement:
where lower values of the metric are better, it is a negative difference.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from posfuse.analysis.evidence.collect import CELL, SHARED
from posfuse.analysis.evidence.metric import Metric
from posfuse.analysis.statistics import paired as st
from posfuse.analysis.statistics.comparisons import (
    seeds_for_difference,
    seeds_for_equivalence,
)
from posfuse.analysis.statistics.slopes import interactions

EXTRAPOLATES = "extrapolates"  # a gain in the area beyond the trained length
FIT = 0.05  # p of the lack of fit from which a slope over lengths is not interpreted


@dataclass(frozen=True)
class Evidence:
    """The tests of one claim's comparisons; p-values are NaN where there is no test."""

    p_support: float
    p_refute: float
    tested: str  # the hypothesis in words
    numbers: list[str]  # one line per comparison
    settle: Callable[[float], str]  # alpha -> what would decide the claim


def untested(needs: str, tested: str = "") -> Evidence:
    """No comparison and no p-value; `needs` names what is missing."""
    return Evidence(np.nan, np.nan, tested, [], lambda _: needs)


def _name(row: dict[Any, Any]) -> str:
    return " ".join(str(row[axis]) for axis in CELL if row.get(axis))


Sample = tuple[list[float], float]  # a value for each seed, and their resolution (paired.py)


def _samples(rows: pd.DataFrame) -> list[Sample]:
    return list(zip(rows["deltas"], rows["resolution"], strict=True))


def _line(name: str, sample: Sample, metric: Metric, unit: str = "") -> str:
    """The mean of the values with its interval, as a line."""
    values, resolution = sample
    low, high = st.t_interval(values, resolution=resolution)
    signed = metric.signed
    interval = "no interval" if np.isnan(low) else f"95 % interval {signed(low)} to {signed(high)}"
    return f"{name}: {signed(float(np.mean(values)))}{unit}, {interval}, n = {len(values)}"


def _lines(rows: pd.DataFrame, metric: Metric) -> list[str]:
    names = [_name(row) for row in rows.to_dict("records")]
    return [_line(*pair, metric) for pair in zip(names, _samples(rows), strict=True)]


def _every(p_values: list[float]) -> float:
    """p of a claim that needs every test to hold: the largest p, NaN if any p is NaN."""
    return float(np.max(p_values))


def _any(p_values: list[float]) -> float:
    """p of a claim that needs one test to hold, by Bonferroni; NaN if every p is NaN."""
    known = [p for p in p_values if not np.isnan(p)]
    return min(1.0, min(known) * len(known)) if known else np.nan


def _seeds(n: float) -> str:
    return f"{n:,.0f} seeds" if np.isfinite(n) else "no number of seeds"


def _negligible(
    rows: pd.DataFrame, margin: float, others: pd.DataFrame, metric: Metric
) -> Evidence:
    samples = _samples(rows)
    support = [st.p_equivalence(d, margin, r) for d, r in samples]
    outside = [min(st.p_above(d, margin, r), st.p_below(d, -margin, r)) for d, r in samples]
    refute = [min(1.0, 2 * p) for p in outside]

    def settle(alpha: float) -> str:
        needed = []
        for d, r in samples:
            mean, std = abs(float(np.mean(d))), st.spread_limit(d, r)
            if mean < margin:
                needed.append(seeds_for_equivalence(std, margin, mean, alpha))
            else:  # alpha is divided among the two sides and the comparisons
                alone = alpha / 2 / len(samples)
                needed.append(seeds_for_difference(mean - margin, std, alone, sides=1))
        return _settled(needed)

    tested = f"each mean difference within ±{margin:g} {metric.unit}"
    return Evidence(_every(support), _any(refute), tested, _lines(rows, metric), settle)


def _gain(rows: pd.DataFrame, margin: float, others: pd.DataFrame, metric: Metric) -> Evidence:
    sides = _sides(metric)
    limit = f"{metric.gain(margin):+g} {metric.unit}"
    tested = f"each mean difference {sides} {limit}" if margin else f"each mean {sides} 0"
    return _above(_gains(_samples(rows), metric), margin, tested, _lines(rows, metric))


def _gains(samples: list[Sample], metric: Metric) -> list[Sample]:
    """The samples with the sign that makes improvements positive."""
    return [([metric.gain(d) for d in values], resolution) for values, resolution in samples]


def _sides(metric: Metric) -> str:
    """On which side of a limit an improvement lies."""
    return "below" if metric.lower_is_better else "above"


def _above(samples: list[Sample], margin: float, tested: str, lines: list[str]) -> Evidence:
    """The test of means above the margin; the samples are gains."""
    support = [st.p_above(s, margin, r) for s, r in samples]
    refute = [st.p_below(s, margin, r) for s, r in samples]

    def settle(alpha: float) -> str:
        needed = []
        for s, r in samples:
            gap = float(np.mean(s)) - margin
            alone = alpha if gap > 0 else alpha / len(samples)
            needed.append(seeds_for_difference(gap, st.spread_limit(s, r), alone, sides=1))
        return _settled(needed)

    return Evidence(_every(support), _any(refute), tested, lines, settle)


def _settled(needed: list[float]) -> str:
    if any(np.isnan(n) for n in needed):
        return "needs at least 2 seeds with different results in each comparison"
    return (
        f"about {_seeds(max(needed))} per cell decide it at 80 % power, if the means stay as they "
        "are, for the upper 80 % limits of the standard deviations"
    )


def _every_seed_positive(
    rows: pd.DataFrame, margin: float, others: pd.DataFrame, metric: Metric
) -> Evidence:
    """One counter-example refutes it; the sign test supports it if every seed has a gain."""
    lines, support, negative = [], [], 0
    sides = _sides(metric)
    for row in rows.to_dict("records"):
        positive = sum(metric.gain(d) > 0 for d in row["deltas"])
        negative += row["n"] - positive
        support.append(0.5 ** row["n"] if positive == row["n"] else 1.0)
        lines.append(f"{_name(row)}: {positive} of {row['n']} seeds {sides} 0")

    def settle(alpha: float) -> str:
        return f"{np.ceil(-np.log2(alpha)):.0f} seeds per cell, all {sides} 0, or one that is not"

    tested = f"every difference {sides} 0, by the sign test"
    return Evidence(_every(support), 0.0 if negative else 1.0, tested, lines, settle)


def _less_stable(
    rows: pd.DataFrame, margin: float, others: pd.DataFrame, metric: Metric
) -> Evidence:
    lines: list[str] = []
    support, refute, pairs = [], [], []
    for row in rows.to_dict("records"):
        other = others[(others[SHARED] == [row[axis] for axis in SHARED]).all(axis=1)]
        if other.empty:
            return untested(f"needs the fusion to compare {_name(row)} with")
        both = sorted(set(row["seeds"]) & set(other["seeds"].iloc[0]))
        by_seed = (dict(zip(r["seeds"], r["deltas"], strict=True)) for r in (row, other.iloc[0]))
        one, two = ([deltas[seed] for seed in both] for deltas in by_seed)
        support.append(st.p_more_variable(one, two))
        refute.append(st.p_more_variable(two, one))
        pairs.append((one, two))
        lines.append(
            f"{_name(row)}: standard deviation {metric.number(st.spread(one))} against "
            f"{metric.number(st.spread(two))} of {other['fusion'].iloc[0]}, n = {len(both)}"
        )

    def settle(alpha: float) -> str:
        needed = [st.seeds_for_spreads(one, two, alpha) for one, two in pairs]
        if any(np.isnan(n) for n in needed):
            return "needs at least 3 seeds in common with different results"
        seeds = _seeds(max(needed))
        return f"about {seeds} decide it at 80 % power, if the spreads stay as they are"

    tested = "a larger variance of the differences"
    return Evidence(_every(support), _any(refute), tested, lines, settle)


def _grows(rows: pd.DataFrame, margin: float, others: pd.DataFrame, metric: Metric) -> Evidence:
    """A slope over one task at several lengths. Corpora of several tasks differ in more than
    length, and a slope through gains that do not follow a line means nothing."""
    found = [row for row in interactions(rows, metric).to_dict("records") if row["task"]]
    slope = f"a slope {_sides(metric)} {metric.gain(margin):g} {metric.unit}"
    tested = f"{slope} per doubling of length, over one task"
    if not found:
        return untested(
            "needs one task at several lengths (corpora whose settings differ in length alone, "
            "such as lead_story), with seeds in common",
            tested,
        )
    samples = [(row["slopes"], row["resolution"]) for row in found]
    names = [f"{_name(row)} over {row['corpora']}" for row in found]
    lines = [
        _line(n, s, metric, f" {metric.unit} per doubling")
        for n, s in zip(names, samples, strict=True)
    ]
    curved = [row["p_fit"] <= FIT for row in found]
    samples = _gains(samples, metric)
    if not any(curved):
        return _above(samples, margin, tested, lines)
    whys = []
    for i in np.flatnonzero(curved):
        how = "does not follow a straight line" if found[i]["monotone"] else "is not monotone"
        lines[i] += f"; the gain {how} (lack of fit: p = {found[i]['p_fit']:.2g})"
        whys.append(f"the gain {how} over {found[i]['corpora']}")
    # Where the line does not fit, its slope neither supports nor refutes.
    support, refute = (
        [1.0 if c else test(s, margin, r) for c, (s, r) in zip(curved, samples, strict=True)]
        for test in (st.p_above, st.p_below)
    )
    why = f"{'; '.join(whys)}: compare the lengths one by one"
    return Evidence(_every(support), _any(refute), tested, lines, lambda _: why)


KINDS: dict[str, Callable[[pd.DataFrame, float, pd.DataFrame, Metric], Evidence]] = {
    "negligible": _negligible,
    "gain": _gain,
    "every_seed_positive": _every_seed_positive,
    "less_stable": _less_stable,
    "grows_with_length": _grows,
    EXTRAPOLATES: _gain,
}
