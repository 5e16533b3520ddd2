"""Accuracy by test length, and the area beyond the trained length.

A run with data.test_lengths has an accuracy for each of these lengths. Lengths above data.max_len
are longer than any training document. The area beyond the trained length is the mean accuracy over
these lengths on a logarithmic scale (by the trapezoidal rule), so 80 to 160 tokens count as much as
160 to 320. With one such length it is the accuracy there.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from scipy.integrate import trapezoid

from posfuse.analysis.evidence.collect import BY_LENGTH, CELL, METRIC
from posfuse.analysis.statistics import paired as st

MAX_LEN = "settings.data.max_len"


def area(accuracies: Mapping[int, float], trained: float) -> float:
    """The mean of the accuracies at the lengths above `trained`, over the logarithm of the length.

    In the unit of the accuracies, which are given by length; NaN without such a length.
    """
    lengths = sorted(length for length in accuracies if length > trained)
    if not lengths:
        return np.nan
    values, x = [accuracies[length] for length in lengths], np.log2(lengths)
    return float(trapezoid(values, x) / (x[-1] - x[0])) if len(x) > 1 else float(values[0])


def by_test_length(runs: pd.DataFrame) -> pd.DataFrame:
    """One row for each run and test length.

    Columns: CELL, seed, trained (data.max_len), test_length, accuracy in percent. A run that has no
    test at the trained length gets a row there with the accuracy of its ordinary test split.
    """
    rows = []
    for run in runs.to_dict("records"):
        found = _accuracies(run)
        if not found:
            continue
        found.setdefault(run[MAX_LEN], 100 * run[METRIC])
        own = {**{axis: run[axis] for axis in CELL}, "seed": run["seed"], "trained": run[MAX_LEN]}
        rows += [{**own, "test_length": n, "accuracy": found[n]} for n in sorted(found)]
    return pd.DataFrame(rows, columns=[*CELL, "seed", "trained", "test_length", "accuracy"])


def beyond(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs that were tested beyond their trained length, with the area as their test accuracy.

    So `compare` compares their areas.
    """
    if MAX_LEN not in runs:
        return runs.iloc[:0]
    areas = [area(_accuracies(run), run[MAX_LEN]) / 100 for run in runs.to_dict("records")]
    found = runs.assign(**{METRIC: areas})
    return found[found[METRIC].notna()]


def length_cells(rows: pd.DataFrame) -> pd.DataFrame:
    """One row for each cell: CELL, n seeds, mean and std of the area in percent, and a column for
    each test length, such as "80", with the mean accuracy in percent.

    `rows` are those of `by_test_length`.
    """
    found = []
    for cell, group in rows.groupby(CELL, sort=False):
        table = group.pivot(index="seed", columns="test_length", values="accuracy")
        trained = group["trained"].iloc[0]
        areas = [area(dict(row.dropna()), trained) for _, row in table.iterrows()]
        row = {**dict(zip(CELL, cell, strict=True)), "n": len(table)}
        row |= {"mean": float(np.mean(areas)), "std": st.spread(areas)}
        found.append(row | {str(n): mean for n, mean in table.mean().items()})
    columns = sorted(rows["test_length"].unique())
    return pd.DataFrame(found, columns=[*CELL, "n", "mean", "std", *map(str, columns)])


def _accuracies(run: Mapping[object, float]) -> dict[int, float]:
    """The accuracies of a run in percent by test length."""
    found = {str(key).split(".")[1]: run[key] for key in run if BY_LENGTH.fullmatch(str(key))}
    return {int(length): 100 * value for length, value in found.items() if not np.isnan(value)}
