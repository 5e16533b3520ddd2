"""Results by length: beyond the trained length, and whether a gain grows with length.

The area beyond the trained length is the mean result over the test lengths above data.max_len on a
logarithmic scale (by the trapezoidal rule). A slope is that of a gain over the logarithm of the
length, over corpora or over the length bins of one corpus.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.integrate import trapezoid

from posfuse.evidence.collect import CELL
from posfuse.evidence.metric import ACCURACY, Metric
from posfuse.evidence.rows import BY_LENGTH
from posfuse.statistics import paired as st

MAX_LEN = "settings.data.max_len"
WHOLE, SLIDING = "lengths", "sliding"  # the keys of a record
DOCUMENTS = "documents"  # the number of a test's documents, beside its metrics


def area(results: Mapping[int, float], trained: float) -> float:
    """The mean of the results at the lengths above `trained`, over the logarithm of the length.

    `results` are given by length. The mean is in their unit; NaN without such a length.
    """
    lengths = sorted(length for length in results if length > trained)
    if not lengths:
        return np.nan
    values, x = [results[length] for length in lengths], np.log2(lengths)
    return float(trapezoid(values, x) / (x[-1] - x[0])) if len(x) > 1 else float(values[0])


def by_test_length(
    runs: pd.DataFrame, metric: Metric = ACCURACY, windows: str = WHOLE
) -> pd.DataFrame:
    """One row for each run and test length. `windows` is WHOLE or, for language models, SLIDING.

    Columns: run (its index in `runs`), CELL, seed, trained (data.max_len), test_length, value of
    the metric. A run without a test at the trained length gets a row with the value of its ordinary
    test split, which has whole windows.
    """
    named = runs.rename(columns={MAX_LEN: "trained"})
    columns = _test_lengths(runs, windows, metric.name)
    rows = at_lengths(named, columns, [*CELL, "seed", "trained"])
    if windows == WHOLE:
        usual = rows.drop_duplicates("run")
        values = runs.reindex(columns=[metric.column]).loc[usual["run"], metric.column]
        usual = usual.assign(test_length=usual["trained"], value=values.to_numpy())
        rows = pd.concat([rows, usual]).drop_duplicates(["run", "test_length"])
    rows = rows.assign(value=metric.factor * rows["value"].astype(float))
    return rows.astype({"test_length": int}).sort_values(["run", "test_length"])


def _test_lengths(runs: pd.DataFrame, windows: str, name: str) -> dict[str, int]:
    """The test length of each column with this number of a test at one length."""
    places = {column: BY_LENGTH.fullmatch(column) for column in map(str, runs)}
    return {c: int(p[2]) for c, p in places.items() if p and (p[1], p[3]) == (windows, name)}


def at_lengths(
    runs: pd.DataFrame, length_of: Mapping[str, int], keys: Sequence[str]
) -> pd.DataFrame:
    """One row for each run and test length: run (its index in `runs`), the keys, test_length and
    value. `length_of` has the test length of each column."""
    wide = runs.reindex(columns=[*keys, *length_of]).rename_axis("run").reset_index()
    rows = wide.melt(["run", *keys], var_name="test_length").dropna(subset="value")
    return rows.assign(test_length=rows["test_length"].map(length_of))


def areas(rows: pd.DataFrame) -> "pd.Series[float]":
    """The area of each run, by its index; NaN without a test beyond its trained length. `rows` have
    the columns run, trained, test_length and value."""
    results = {
        run: area(dict(zip(own["test_length"], own["value"], strict=True)), own["trained"].iloc[0])
        for run, own in rows.groupby("run")
    }
    return pd.Series(results, dtype=float)


def beyond(runs: pd.DataFrame, metric: Metric = ACCURACY) -> pd.DataFrame:
    """The runs that were tested beyond their trained length, with the area as their test result and
    the documents of the smallest of these tests. So `compare` compares areas.
    """
    known = (areas(by_test_length(runs, metric)) / metric.factor).dropna()
    tested = runs.loc[known.index]
    documents = {"documents.test": _fewest_documents(tested)}
    return tested.assign(**{metric.column: known}, **documents)


def _fewest_documents(runs: pd.DataFrame) -> "pd.Series[float]":
    """The documents of each run's smallest test beyond its trained length; those of its test split
    if its record lacks their number."""
    named = runs.rename(columns={MAX_LEN: "trained"})
    columns = _test_lengths(runs, WHOLE, DOCUMENTS)
    rows = at_lengths(named, columns, ["trained"]).astype(float)
    fewest = rows[rows["test_length"] > rows["trained"]].groupby("run")["value"].min()
    return fewest.reindex(runs.index).fillna(runs.get("documents.test"))


def length_cells(rows: pd.DataFrame) -> pd.DataFrame:
    """One row for each cell: CELL, n seeds, mean and std of the area, and a column for each test
    length, such as "80", with the mean.

    `rows` are those of `by_test_length`.
    """
    of_runs = rows.drop_duplicates("run")
    of_runs = of_runs.assign(area=of_runs["run"].map(areas(rows)))
    of_areas = of_runs.groupby(CELL, sort=False).agg(
        n=("area", "size"), mean=("area", pd.Series.mean), std=("area", st.spread)
    )
    means = rows.groupby([*CELL, "test_length"])["value"].agg(pd.Series.mean).unstack()
    return of_areas.join(means.rename(columns=str)).reset_index()


def interactions(comparisons: pd.DataFrame, metric: Metric = ACCURACY) -> pd.DataFrame:
    """Tests whether the gain grows with length. For each encoding, fusion and variant there is a
    row for each task that was run at several lengths, and a row over all corpora if they belong to
    several tasks.

    Columns: encoding, fusion, variant, task (its name; empty for several tasks), corpora (text:
    mean length and gain), n, slopes (a list: each seed's gain per doubling of length), resolution,
    mean, low, high (t interval), p_t and p_sign_flip (two-sided), p_fit (two-sided, NaN for two
    lengths: small if the gain does not follow a straight line), and monotone (True if the mean gain
    always rises or always falls with length). Seeds that any of the corpora lacks are left out.
    """
    keys, signed = ["encoding", "fusion", "variant"], metric.signed
    rows = []
    for cell, every in comparisons.groupby(keys, sort=False):
        tasks = every["task"].unique().tolist()
        for name in [*tasks, *([""] if len(tasks) > 1 else [])]:
            group = every[every["task"] == name] if name else every
            seeds_deltas = zip(group["seeds"], group["deltas"], strict=True)
            gains = pd.concat([pd.Series(d, s) for s, d in seeds_deltas], axis=1).dropna()
            if group["length"].nunique() < 2 or gains.empty:
                continue
            corpora = zip(group["data"], group["length"], gains.mean(), strict=True)
            texts = [f"{data} ({n:.0f} tokens, {signed(gain)})" for data, n, gain in corpora]
            row = {**dict(zip(keys, cell, strict=True)), "task": name.rpartition("-")[0]}
            row["corpora"] = ", ".join(texts)
            gains = gains.sort_index()
            rows.append(row | _slopes_and_tests(gains, group["length"], group["resolution"]))
    columns = [*keys, "task", "corpora", *_slopes_and_tests([[0, 0]], [1, 2], [1, 1])]
    return pd.DataFrame(rows, columns=columns)


def trends(bins: pd.DataFrame) -> pd.DataFrame:
    """Tests whether the gain grows with length inside a corpus. As `interactions`, over the length
    bins of each comparison: CELL, n, slopes, mean, low, high, p_t, p_sign_flip."""
    rows = []
    for cell, group in bins.groupby(CELL, sort=False):
        if len(group) > 1:
            gains = np.transpose(group["gains"].tolist())
            resolutions = 100 / group["n_documents"]
            tests = _slopes_and_tests(gains, group["mean_length"], resolutions)
            rows.append({**dict(zip(CELL, cell, strict=True)), **tests})
    return pd.DataFrame(rows, columns=[*CELL, *_slopes_and_tests([[0, 0]], [1, 2], [1, 1])])


def _slopes_and_tests(
    gains: ArrayLike, lengths: ArrayLike, resolutions: ArrayLike
) -> dict[str, Any]:
    """Each seed's slope of gains (S, R) over lengths (R,), and the tests of their mean. The gains
    at each length have the resolutions (R,)."""
    steps = np.diag(np.asarray(resolutions, dtype=float))
    slopes, curvatures = (st.slopes(gains, lengths, degree) for degree in (1, 2))
    # The resolution of a slope: one document in every gain, weighted as in the slope.
    resolution = float(np.linalg.norm(st.slopes(steps, lengths)))
    of_curvature = float(np.linalg.norm(st.slopes(steps, lengths, degree=2)))
    means = np.asarray(gains, dtype=float).mean(0)[np.argsort(lengths)]
    low, high = st.t_interval(slopes, resolution=resolution)
    estimate = {"slopes": slopes.tolist(), "mean": float(slopes.mean()), "low": low, "high": high}
    tests = {
        "p_t": st.p_paired_t(slopes, resolution),
        "p_sign_flip": st.p_sign_flip(slopes),
        "p_fit": st.p_paired_t(curvatures, of_curvature),
        "monotone": bool((np.diff(means) > 0).all() or (np.diff(means) < 0).all()),
    }
    return {"n": len(slopes), "resolution": resolution, **estimate, **tests}
