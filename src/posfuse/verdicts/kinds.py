"""The kinds of claims: each tests the rows of `compare` that a claim selects.

Each takes (rows, margin, rows of the fusion to compare with, metric) and returns the hypothesis in
words with one test per comparison, or the missing runs. A gain is an improvement. If lower values
of the metric are better, it is a negative difference.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from posfuse.evidence.collect import CELL, GROUP
from posfuse.evidence.metric import Metric
from posfuse.statistics import paired as st
from posfuse.statistics.lengths import interactions
from posfuse.statistics.power import seeds_for_difference, seeds_for_equivalence

EXTRAPOLATES = "extrapolates"  # a gain in the area beyond the trained length
POWER = (
    "about {} per cell would decide it with 80 % power if the true means are the measured ones "
    "(planned for the upper 80 % confidence limit of each standard deviation)"
)
STABLE = "about {} would decide it with 80 % power if the true spreads are the measured ones"
FIT = 0.05  # a slope over lengths is not interpreted if p of the lack of fit is at most this


class Test(NamedTuple):
    """The test of one comparison."""

    line: str
    p_support: float
    p_refute: float
    # The needed seeds, by alpha for the claim and alpha for this comparison.
    seeds: Callable[[float, float], float]
    is_contrary: bool = False  # the measured result contradicts the claim


# The hypothesis, its tests, and the text about how to settle it, with {} for a number of seeds.
Tests = tuple[str, list[Test], str]
Kind = Callable[[pd.DataFrame, float, pd.DataFrame, Metric], Tests]


def p_values(tests: Sequence[Test]) -> tuple[float, float]:
    """The p-values for and against a claim; NaN without a test. All tests must support it, so the
    largest p counts. One counter-example refutes it, by Bonferroni."""
    refute = [test.p_refute for test in tests if not np.isnan(test.p_refute)]
    return (
        float(np.max([test.p_support for test in tests])) if tests else np.nan,
        min(1.0, min(refute) * len(refute)) if refute else np.nan,
    )


def how_to_settle(tests: Sequence[Test], settles: str, alpha: float) -> str:
    """A text about how to decide a claim at this level. `settles` may have {} for a number of
    seeds."""
    if "{}" not in settles:
        return settles
    needed = [test.seeds(alpha, alpha / len(tests)) for test in tests]
    if any(map(np.isnan, needed)):
        fewest = 3 if settles == STABLE else 2
        return f"needs at least {fewest} seeds in common, with different results"
    against = [n for test, n in zip(tests, needed, strict=True) if test.is_contrary]
    most = min(against) if against else max(needed)  # one counter-example refutes
    if not np.isfinite(most):
        return "no number of seeds would decide it if the true values are the measured ones"
    return settles.format(f"{most:,.0f} seeds")


def _name(row: dict[Any, Any]) -> str:
    return " ".join(str(row[axis]) for axis in CELL if row.get(axis))


def _sides(metric: Metric) -> str:
    """The words for the side of a limit on which an improvement lies."""
    return "below" if metric.lower_is_better else "above"


def _line(name: str, row: dict[Any, Any], metric: Metric, unit: str = "") -> str:
    """The mean difference of a row with its interval."""
    d, signed = row["deltas"], metric.signed
    low, high = st.t_interval(d, resolution=row["resolution"])
    interval = "no interval" if np.isnan(low) else f"95 % interval {signed(low)} to {signed(high)}"
    return f"{name}: {signed(float(np.mean(d)))}{unit}, {interval}, n = {len(d)}"


def _above(line: str, row: dict[Any, Any], margin: float, metric: Metric) -> Test:
    """Tests whether the mean gain of a row is above the margin."""
    gains, r = [metric.gain(delta) for delta in row["deltas"]], row["resolution"]
    gap, std = float(np.mean(gains)) - margin, st.spread_limit(gains, r)
    return Test(
        line,
        st.p_above(gains, margin, r),
        st.p_below(gains, margin, r),
        # A two-sided test at twice alpha is a one-sided one at alpha.
        lambda every, one: seeds_for_difference(gap, std, 2 * (every if gap > 0 else one)),
        gap < 0,
    )


def _negligible(rows: pd.DataFrame, margin: float, others: pd.DataFrame, metric: Metric) -> Tests:
    def test(row: dict[Any, Any]) -> Test:
        d, r = row["deltas"], row["resolution"]
        mean, std = abs(float(np.mean(d))), st.spread_limit(d, r)
        outside = min(st.p_above(d, margin, r), st.p_below(d, -margin, r))

        def seeds(every: float, one: float) -> float:
            if mean < margin:
                return seeds_for_equivalence(std, margin, mean, every)
            return seeds_for_difference(mean - margin, std, one)

        line = _line(_name(row), row, metric)
        p_refute = float(np.minimum(1.0, 2 * outside))
        return Test(line, st.p_equivalence(d, margin, r), p_refute, seeds, mean > margin)

    tested = f"each mean difference within ±{margin:g} {metric.unit}"
    return tested, list(map(test, rows.to_dict("records"))), POWER


def _gain(rows: pd.DataFrame, margin: float, others: pd.DataFrame, metric: Metric) -> Tests:
    limit = f"difference {_sides(metric)} {metric.gain(margin):+g} {metric.unit}"
    tests = [
        _above(_line(_name(row), row, metric), row, margin, metric)
        for row in rows.to_dict("records")
    ]
    return f"each mean {limit if margin else f'{_sides(metric)} 0'}", tests, POWER


def _every_seed_positive(
    rows: pd.DataFrame, margin: float, others: pd.DataFrame, metric: Metric
) -> Tests:
    """The sign test supports it if every seed has a gain. One counter-example refutes it."""
    tests, sides = [], _sides(metric)
    for row in rows.to_dict("records"):
        n, positive = row["n"], sum(metric.gain(d) > 0 for d in row["deltas"])
        is_every = positive == n
        tests.append(
            Test(
                f"{_name(row)}: {positive} of {n} seeds {sides} 0",
                0.5**n if is_every else 1.0,
                float(is_every),
                lambda alpha, _: float(np.ceil(-np.log2(alpha))),
            )
        )
    settles = f"{{}} per cell, all {sides} 0, or one that is not"
    return f"every difference {sides} 0, by the sign test", tests, settles


def _stability(row: dict[Any, Any], other: "pd.Series[Any]", metric: Metric) -> Test:
    by_seed = (pd.Series(r["deltas"], r["seeds"]) for r in (row, other))
    one, two = pd.concat(by_seed, axis=1, join="inner").to_numpy().T
    own, others = st.spread(one), st.spread(two)
    return Test(
        f"{_name(row)}: standard deviation {metric.number(own)} against {metric.number(others)} of "
        f"{other['fusion']}, n = {len(one)}",
        st.p_more_variable(one, two),
        st.p_more_variable(two, one),
        lambda every, each: st.seeds_for_spreads(one, two, each if own < others else every),
        own < others,
    )


def _less_stable(rows: pd.DataFrame, margin: float, others: pd.DataFrame, metric: Metric) -> Tests:
    tested, tests = "a larger variance of the differences", []
    for row in rows.to_dict("records"):
        other = others[(others[GROUP] == [row[axis] for axis in GROUP]).all(axis=1)]
        if other.empty:
            return "", [], f"needs the fusion of `than` to compare {_name(row)} with"
        tests.append(_stability(row, other.iloc[0], metric))
    return tested, tests, STABLE


def _grows(rows: pd.DataFrame, margin: float, others: pd.DataFrame, metric: Metric) -> Tests:
    """Tests a slope over one task at several lengths. Corpora of several tasks differ in more than
    length, and a slope through gains that do not follow a line has no meaning."""
    slope = f"a slope {_sides(metric)} {metric.gain(margin) + 0.0:g} {metric.unit}"  # not -0
    tests, whys = [], []
    slopes = interactions(rows, metric).rename(columns={"slopes": "deltas"})
    for row in slopes.to_dict("records"):
        if not row["task"]:
            continue
        name, unit = f"{_name(row)} over {row['corpora']}", f" {metric.unit} per doubling"
        test = _above(_line(name, row, metric, unit), row, margin, metric)
        if row["p_fit"] <= FIT:  # its slope neither supports nor refutes
            how = "does not follow a straight line" if row["monotone"] else "is not monotone"
            line = f"{test.line}; the gain {how} (lack of fit: p = {row['p_fit']:.2g})"
            whys.append(f"the gain {how} over {row['corpora']}")
            test = test._replace(line=line, p_support=1.0, p_refute=1.0)
        tests.append(test)
    why = f"{'; '.join(whys)}: compare the lengths one by one" if whys else POWER
    if not tests:
        why = (
            "needs one task at several lengths (corpora whose settings differ in length alone, "
            "such as lead_story), with seeds in common"
        )
    return f"{slope} per doubling of length, over one task", tests, why


KINDS: dict[str, Kind] = {
    "negligible": _negligible,
    "gain": _gain,
    "every_seed_positive": _every_seed_positive,
    "less_stable": _less_stable,
    "grows_with_length": _grows,
    EXTRAPOLATES: _gain,
}
