"""Values from the runs of a study: outcomes, guessing, resolution, convergence.

`runs` has a row for each finished test run, as `finished_runs` in run_table.py and as runs.csv.
"""

from collections.abc import Iterable

import numpy as np
import pandas as pd

from posfuse.evidence.metric import ACCURACY, Metric
from posfuse.statistics.cells import was_last
from posfuse.statistics.comparisons import step_of
from posfuse.statistics.lengths import areas, at_lengths
from posfuse.study.spec import BEYOND


def outcomes(
    runs: pd.DataFrame, metric: Metric = ACCURACY, outcome: str = "", solved: float | None = None
) -> pd.DataFrame:
    """The metric on the test split, or with outcome=beyond its mean beyond the trained length: a
    row for each seed, a column for each arm. A run that diverged has the result of guessing. With
    `solved` it is 100 for a run that has at least this result, and 0 for the others; a run that
    diverged is not solved.

    NaN for a run that is not done, or has no test beyond its trained length.
    """
    if runs.empty:
        return pd.DataFrame(dtype=float)
    values = runs[f"test_{metric.name}"]
    if outcome == BEYOND:
        values = areas(by_test_length(runs, metric)).reindex(runs.index)
    guess = runs["arm"].map(guesses(runs, metric)) if solved is None else -np.inf
    values = values.astype(float).mask(runs["diverged"], guess)
    frame = runs.assign(value=values).pivot(index="seed", columns="arm", values="value")
    if solved is None:
        return frame
    return (100.0 * (frame.round(9) >= solved)).where(frame.notna())


def at(metric: Metric) -> str:
    """The prefix of the columns of test lengths."""
    return f"test_{metric.name}_at_"


def by_test_length(runs: pd.DataFrame, metric: Metric) -> pd.DataFrame:
    """The rows of `at_lengths` with arm, seed, trained (data.max_len) and classes."""
    columns = (column for column in map(str, runs) if column.startswith(at(metric)))
    length_of = {column: int(column.removeprefix(at(metric))) for column in columns}
    named = runs.rename(columns={"max_len": "trained"})
    return at_lengths(named, length_of, ["arm", "seed", "trained", "classes"])


def guesses(runs: pd.DataFrame, metric: Metric) -> "pd.Series[float]":
    """The result of guessing of each arm, in the metric's unit. For accuracy it depends on the
    number of classes: of the arm, or of all arms if none of its runs has classes; 0 if no run has
    classes."""
    classes = runs["classes"].astype(float).groupby(runs["arm"]).max()
    return metric.guesses(classes.where(classes > 0, classes.max())).fillna(0.0)


def resolution(
    runs: pd.DataFrame, arms: Iterable[str], metric: Metric = ACCURACY, outcome: str = ""
) -> float:
    """The points of one test document in the smallest test of an outcome of these arms; NaN if no
    run has its size, or if the metric is not a fraction of documents."""
    own = runs[runs["arm"].isin(list(arms))]
    sizes = own["test_documents"]
    if outcome == BEYOND and "beyond_documents" in own:  # runs of earlier versions lack it
        sizes = own["beyond_documents"].fillna(sizes)
    return step_of(metric, float(sizes.min()))


def best_was_last(runs: pd.DataFrame) -> float:
    """The share of the runs whose best evaluation was their last one, so they may not have
    converged; NaN if all diverged."""
    return float(was_last(runs[~runs["diverged"]]).mean())
