"""Runs to cells (a mean over seeds) and comparisons (paired with a baseline, seed by seed)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from posfuse.analysis.evidence.collect import CELL, METRIC, differing, settings_columns
from posfuse.analysis.statistics import paired as st

POWER = 0.8


@dataclass(frozen=True)
class Criteria:
    """What a comparison is judged by; accuracies and differences in points."""

    baseline: str = "add"  # the fusion that is subtracted
    margin: float = 0.5  # a difference within +-margin does not matter
    effect: float = 1.0  # the effect that the seeds needed are also given for
    alpha: float = 0.05


def cells(runs: pd.DataFrame) -> pd.DataFrame:
    """One row a cell: CELL, length, n, mean and std (n - 1) of the accuracy in percent,
    latency_mean and latency_std in ms a document, parameters, fusion_parameters."""
    rows = []
    for cell, group in runs.groupby(CELL, sort=False):
        accuracy = 100 * group[METRIC]
        latency = group.get("latency_ms", pd.Series(np.nan, group.index))
        rows.append(
            {
                **dict(zip(CELL, cell, strict=True)),
                "length": group["length"].iloc[0],
                "n": len(group),
                "mean": accuracy.mean(),
                "std": st.spread(accuracy),
                "latency_mean": latency.mean(),
                "latency_std": st.spread(latency),
                "parameters": group.get("parameters", pd.Series([np.nan])).iloc[0],
                "fusion_parameters": group.get("fusion_parameters", pd.Series([np.nan])).iloc[0],
            }
        )
    return pd.DataFrame(rows)


def compare(runs: pd.DataFrame, criteria: Criteria) -> tuple[pd.DataFrame, list[str]]:
    """One row for each cell but the baseline's, and a line for all that is left out of it.

    Columns: CELL, baseline_variant, length, seeds and deltas (lists, paired), n, the statistics of
    `judge`; p_holm and p_equivalence_holm over all rows of the frame. A cell pairs with the
    baseline of the same data and encoding from which no setting but the fusion's differs, on the
    seeds that both have.
    """
    rows, notes = [], []
    settings = settings_columns(runs, "fusion.")
    groups = dict(iter(runs.groupby(CELL, sort=False)))
    for cell, group in groups.items():
        labels = dict(zip(CELL, cell, strict=True))
        if labels["fusion"] == criteria.baseline:
            continue
        name = " ".join(str(part) for part in cell if part)
        like = [
            (differing(group[settings].iloc[0], other[settings].iloc[0]), variant)
            for (data, encoding, fusion, variant), other in groups.items()
            if (data, encoding, fusion) == (labels["data"], labels["encoding"], criteria.baseline)
        ]
        if not like:
            notes.append(f"{name}: no {criteria.baseline} to compare with")
            continue
        # An option of the fusion makes a variant too: what counts is that nothing else differs.
        gap, variant = min(like, key=lambda pair: (pair[0] != "", pair[1] != labels["variant"]))
        if gap:
            notes.append(f"{name}: not compared, other settings than {criteria.baseline}: {gap}")
            continue
        base = groups[labels["data"], labels["encoding"], criteria.baseline, variant]
        accuracy, base_accuracy = (100 * g.set_index("seed")[METRIC] for g in (group, base))
        delta = (accuracy - base_accuracy).dropna().sort_index()
        if alone := sorted(set(accuracy.index) ^ set(base_accuracy.index)):
            notes.append(f"{name}: unpaired, left out of the comparison: seed {_listed(alone)}")
        if delta.empty:
            notes.append(f"{name}: no seed in common with {criteria.baseline}")
            continue
        if len(delta) == 1:
            notes.append(f"{name}: one seed only, so no spread and no test")
        elif np.isnan(st.p_paired_t(delta)):
            notes.append(f"{name}: equal differences in all {len(delta)} seeds, so no test")
        seeds, deltas = delta.index.tolist(), delta.tolist()
        statistics = judge(deltas, criteria)
        rows.append(
            {**labels, "baseline_variant": variant, "length": group["length"].iloc[0]}
            | {"seeds": seeds, "deltas": deltas, **statistics}
        )
    columns = [*CELL, "baseline_variant", "length", "seeds", "deltas", *judge([0.0], criteria)]
    frame = pd.DataFrame(rows, columns=columns)
    for adjusted, p in (("p_holm", "p_t"), ("p_equivalence_holm", "p_equivalence")):
        frame[adjusted] = st.holm(frame[p]) if rows else pd.Series(dtype=float)
    return frame, notes


def interactions(comparisons: pd.DataFrame) -> pd.DataFrame:
    """Does the gain grow with length? A row for each encoding, fusion and variant that was
    compared on two corpora of unlike length at least.

    Columns: encoding, fusion, variant, corpora (text: mean length and gain), n, slopes (a list:
    each seed's gain in points per doubling of length), mean, low, high (t interval), p_t and
    p_sign_flip (two-sided).
    Seeds that not all of the corpora have are left out.
    """
    rows = []
    for cell, group in comparisons.groupby(["encoding", "fusion", "variant"], sort=False):
        seeds = sorted(set.intersection(*map(set, group["seeds"])))
        if group["length"].nunique() < 2 or not seeds:
            continue
        gains = [_of_seeds(row, seeds) for row in group.to_dict("records")]
        slopes = st.slopes(np.transpose(gains), group["length"])
        means = np.mean(gains, axis=1)
        corpora = zip(group["data"], group["length"], means, strict=True)
        rows.append(
            {
                **dict(zip(("encoding", "fusion", "variant"), cell, strict=True)),
                "corpora": ", ".join(
                    f"{d} ({length:.0f} tokens, {g:+.2f})" for d, length, g in corpora
                ),
                "n": len(seeds),
                "slopes": slopes.tolist(),
                **_mean_and_tests(slopes),
            }
        )
    columns = ["encoding", "fusion", "variant", "corpora", "n", "slopes", *_mean_and_tests([0.0])]
    return pd.DataFrame(rows, columns=columns)


def _of_seeds(comparison: dict[Any, Any], seeds: list[Any]) -> list[float]:
    by_seed = dict(zip(comparison["seeds"], comparison["deltas"], strict=True))
    return [by_seed[seed] for seed in seeds]


def _mean_and_tests(slopes: ArrayLike) -> dict[str, float]:
    low, high = st.t_interval(slopes)
    return {
        "mean": float(np.asarray(slopes, dtype=float).mean()),
        "low": low,
        "high": high,
        "p_t": st.p_paired_t(slopes),
        "p_sign_flip": st.p_sign_flip(slopes),
    }


def trends(bins: pd.DataFrame) -> pd.DataFrame:
    """Does the gain grow with length inside a corpus? As `interactions`, over the length bins of
    each comparison: CELL, n, slopes, mean, low, high, p_t, p_sign_flip."""
    rows = []
    for cell, group in bins.groupby(CELL, sort=False):
        if len(group) > 1:
            slopes = st.slopes(np.transpose(group["gains"].tolist()), group["mean_length"])
            labels = dict(zip(CELL, cell, strict=True))
            n = len(slopes)
            rows.append({**labels, "n": n, "slopes": slopes.tolist(), **_mean_and_tests(slopes)})
    return pd.DataFrame(rows, columns=[*CELL, "n", "slopes", *_mean_and_tests([0.0])])


def judge(deltas: list[float], criteria: Criteria) -> dict[str, Any]:
    """All statistics of one comparison, from its paired differences in points."""
    mean, std, n = float(np.mean(deltas)), st.spread(deltas), len(deltas)
    low, high = st.t_interval(deltas)
    bca_low, bca_high = st.bootstrap_interval(deltas)
    return {
        "n": n,
        "mean": mean,
        "std": std,
        "low": low,
        "high": high,
        "bca_low": bca_low,
        "bca_high": bca_high,
        "d_z": st.effect_size(deltas),
        "p_t": st.p_paired_t(deltas),
        "p_wilcoxon": st.p_wilcoxon(deltas),
        "p_sign_flip": st.p_sign_flip(deltas),
        "smallest_p": st.smallest_p(n),
        "p_equivalence": st.p_equivalence(deltas, criteria.margin),
        "seeds_observed": seeds_for_difference(mean, std, criteria.alpha),
        "seeds_effect": seeds_for_difference(criteria.effect, std, criteria.alpha),
        "seeds_equivalence": seeds_for_equivalence(std, criteria.margin, 0.0, criteria.alpha),
    }


def seeds_for_difference(effect: float, std: float, alpha: float, sides: int = 2) -> float:
    """Seeds needed to find a true mean difference of `effect` at 80 % power; NaN without a
    spread, inf for no effect."""
    if not std > 0:
        return np.nan
    if effect == 0:
        return np.inf
    return st.seeds_needed(lambda n: st.power(effect, std, n, alpha, sides), POWER)


def seeds_for_equivalence(std: float, margin: float, effect: float, alpha: float) -> float:
    """Seeds needed to show equivalence at 80 % power for a true mean difference of `effect`; NaN
    without a spread, inf where the effect is no smaller than the margin."""
    if not std > 0:
        return np.nan
    if abs(effect) >= margin:
        return np.inf
    return st.seeds_needed(lambda n: st.equivalence_power(std, margin, n, effect, alpha), POWER)


def _listed(seeds: list[Any]) -> str:
    return ", ".join(map(str, seeds))
