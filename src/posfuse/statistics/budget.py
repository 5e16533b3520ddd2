"""Expected validation performance by tuning budget (Dodge et al. 2019, "Show Your Work").

An operator that was tuned over more values has more chances of a good one. The expected best of k
trials compares operators at equal budgets.
"""

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import stats

from posfuse.evidence.collect import GROUP
from posfuse.evidence.metric import ACCURACY, Metric
from posfuse.statistics.paired import Floats

FEWEST = 3  # trials of an operator; with fewer there is no curve


def expected_best(scores: ArrayLike, metric: Metric = ACCURACY) -> Floats:
    """The expected best score of k trials for each budget k = 1..n, from the scores (n,) of all
    trials; shape (n,), in the unit of the scores.

    k different trials of the n are drawn, each set with equal probability. For a grid this is
    exact, because no combination is tried twice, and the budget n includes the best one. For trials
    drawn at random from a space it is the unbiased estimate of the expected best of k new trials
    (Dodge et al. 2021, Tang et al. 2020).
    """
    ordered = np.sort(metric.sign * np.asarray(scores, dtype=float))  # from the worst to the best
    n = len(ordered)
    better, k = np.arange(n, -1, -1), np.arange(1, n + 1)[:, None]
    # The best of k is at most the i-th (i from 0) if none of the n - i better ones is drawn.
    at_most = stats.hypergeom.pmf(0, n, better, k)
    return np.asarray(metric.sign * (np.diff(at_most) @ ordered))


def budgets(cells: pd.DataFrame, metric: Metric = ACCURACY) -> pd.DataFrame:
    """One row per GROUP x fusion of `OwnBest.cells` with at least FEWEST trials. A trial is a
    combination of values. Its score is the mean validation result over the seeds that choose.

    Columns: GROUP, fusion, trials (how many), expected (a list: for each budget from 1 on, the
    expected best validation result).
    """
    names = [*GROUP, "fusion"]
    rows = []
    for key, group in cells.dropna(subset=["validation"]).groupby(names, sort=False):
        if len(group) >= FEWEST:
            row = dict(zip(names, key, strict=True))
            expected = expected_best(group["validation"], metric).tolist()
            rows.append({**row, "trials": len(group), "expected": expected})
    return pd.DataFrame(rows, columns=[*names, "trials", "expected"])
