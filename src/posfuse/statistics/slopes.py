"""Does the gain grow with length? Slopes over corpora, and over the length bins of one corpus."""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from posfuse.evidence.collect import CELL
from posfuse.evidence.metric import ACCURACY, Metric
from posfuse.statistics import paired as st


def interactions(comparisons: pd.DataFrame, metric: Metric = ACCURACY) -> pd.DataFrame:
    """Does the gain grow with length? For each encoding, fusion and variant a row for each task
    that was run at several lengths, and one over all corpora if they are of several tasks.

    Columns: encoding, fusion, variant, task (its name; empty for several tasks), corpora (text:
    mean length and gain), n, slopes (a list: each seed's gain per doubling of length),
    resolution, mean, low, high (t interval), p_t and p_sign_flip (two-sided), p_fit (two-sided,
    NaN for two lengths: small if the gain does not follow a straight line), and monotone (whether
    the mean gain rises from each length to the next, or falls). Seeds that any of the corpora lacks
    are left out.
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
    """Does the gain grow with length inside a corpus? As `interactions`, over the length bins of
    each comparison: CELL, n, slopes, mean, low, high, p_t, p_sign_flip."""
    rows = []
    for cell, group in bins.groupby(CELL, sort=False):
        if len(group) > 1:
            gains = np.transpose(group["gains"].tolist())
            resolutions = 100 / group["n_documents"]
            found = _slopes_and_tests(gains, group["mean_length"], resolutions)
            rows.append({**dict(zip(CELL, cell, strict=True)), **found})
    return pd.DataFrame(rows, columns=[*CELL, *_slopes_and_tests([[0, 0]], [1, 2], [1, 1])])


def _slopes_and_tests(
    gains: ArrayLike, lengths: ArrayLike, resolutions: ArrayLike
) -> dict[str, Any]:
    """Each seed's slope of gains (S, R) over lengths (R,), and the tests of their mean. The gains
    at each length have the resolutions (R,)."""
    steps = np.diag(np.asarray(resolutions, dtype=float))
    slopes, curvatures = st.slopes(gains, lengths), st.curvatures(gains, lengths)
    # Each gain has a weight in a slope: the spread of one document in every gain.
    resolution = float(np.linalg.norm(st.slopes(steps, lengths)))
    of_curvature = float(np.linalg.norm(st.curvatures(steps, lengths)))
    means = np.asarray(gains, dtype=float).mean(0)[np.argsort(lengths)]
    low, high = st.t_interval(slopes, resolution=resolution)
    found = {"slopes": slopes.tolist(), "mean": float(slopes.mean()), "low": low, "high": high}
    tests = {
        "p_t": st.p_paired_t(slopes, resolution),
        "p_sign_flip": st.p_sign_flip(slopes),
        "p_fit": st.p_paired_t(curvatures, of_curvature),
        "monotone": bool((np.diff(means) > 0).all() or (np.diff(means) < 0).all()),
    }
    return {"n": len(slopes), "resolution": resolution, **found, **tests}
