"""Results by test length, and the area beyond the trained length.

A run with data.test_lengths has a result for each of these lengths. Lengths above data.max_len
are longer than any training document. The area beyond the trained length is the mean result over
these lengths on a logarithmic scale (by the trapezoidal rule), so 80 to 160 tokens count as much as
160 to 320. With one such length it is the result there.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from scipy.integrate import trapezoid

from posfuse.evidence.collect import BY_LENGTH, CELL
from posfuse.evidence.metric import ACCURACY, Metric
from posfuse.statistics import paired as st

MAX_LEN = "settings.data.max_len"
WHOLE, SLIDING = "lengths", "sliding"  # the keys of a record


def area(results: Mapping[int, float], trained: float) -> float:
    """The mean of the results at the lengths above `trained`, over the logarithm of the length.

    In the unit of the results, which are given by length; NaN without such a length.
    """
    lengths = sorted(length for length in results if length > trained)
    if not lengths:
        return np.nan
    values, x = [results[length] for length in lengths], np.log2(lengths)
    return float(trapezoid(values, x) / (x[-1] - x[0])) if len(x) > 1 else float(values[0])


def by_test_length(
    runs: pd.DataFrame, metric: Metric = ACCURACY, windows: str = WHOLE
) -> pd.DataFrame:
    """One row for each run and test length; `windows` are WHOLE or, of language models, SLIDING.

    Columns: CELL, seed, trained (data.max_len), test_length, value of the metric. A run that has no
    test at the trained length gets a row there with the value of its ordinary test split, whose
    windows are whole.
    """
    rows = []
    for run in runs.to_dict("records"):
        found = _by_length(run, metric, windows)
        if not found:
            continue
        if windows == WHOLE:
            found.setdefault(run[MAX_LEN], metric.factor * run[metric.column])
        own = {**{axis: run[axis] for axis in CELL}, "seed": run["seed"], "trained": run[MAX_LEN]}
        rows += [{**own, "test_length": n, "value": found[n]} for n in sorted(found)]
    return pd.DataFrame(rows, columns=[*CELL, "seed", "trained", "test_length", "value"])


def beyond(runs: pd.DataFrame, metric: Metric = ACCURACY) -> pd.DataFrame:
    """The runs that were tested beyond their trained length, with the area as their test result.

    So `compare` compares their areas.
    """
    if MAX_LEN not in runs:
        return runs.iloc[:0]
    records = runs.to_dict("records")
    areas = [area(_by_length(run, metric), run[MAX_LEN]) / metric.factor for run in records]
    found = runs.assign(**{metric.column: areas})
    return found[found[metric.column].notna()]


def length_cells(rows: pd.DataFrame) -> pd.DataFrame:
    """One row for each cell: CELL, n seeds, mean and std of the area, and a column for each test
    length, such as "80", with the mean.

    `rows` are those of `by_test_length`.
    """
    found = []
    for cell, group in rows.groupby(CELL, sort=False):
        table = group.pivot(index="seed", columns="test_length", values="value")
        trained = group["trained"].iloc[0]
        areas = [area(dict(row.dropna()), trained) for _, row in table.iterrows()]
        row = {**dict(zip(CELL, cell, strict=True)), "n": len(table)}
        row |= {"mean": float(np.mean(areas)), "std": st.spread(areas)}
        found.append(row | {str(n): mean for n, mean in table.mean().items()})
    columns = sorted(rows["test_length"].unique())
    return pd.DataFrame(found, columns=[*CELL, "n", "mean", "std", *map(str, columns)])


def _by_length(
    run: Mapping[object, float], metric: Metric, windows: str = WHOLE
) -> dict[int, float]:
    """The metric of a run by test length."""
    found = {}
    for key, value in run.items():
        place = BY_LENGTH.fullmatch(str(key))
        if place and place[1] == windows and place[3] == metric.name and not np.isnan(value):
            found[int(place[2])] = metric.factor * value
    return found
