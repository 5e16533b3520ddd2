"""Runs to cells (a mean over seeds) and comparisons (paired with a baseline, seed by seed)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from posfuse.analysis.evidence.collect import CELL, METRIC, differing, settings_columns
from posfuse.analysis.statistics import paired as st
from posfuse.analysis.statistics.shares import outperforming

POWER = 0.8


@dataclass(frozen=True)
class Criteria:
    """How a comparison is judged; accuracies and differences in points."""

    baseline: str = "add"  # the fusion that is subtracted
    margin: float = 0.5  # a difference within +-margin does not matter
    effect: float = 1.0  # the difference for which the seeds needed are also computed
    alpha: float = 0.05
    select: tuple[int, ...] = ()  # seeds that choose values of tuned keys and are not tested
    solved: float | None = None  # percent above which a run solves its task; None: by corpus


def cells(runs: pd.DataFrame) -> pd.DataFrame:
    """One row per cell.

    Columns: CELL, length, n, mean and std (n - 1) of the accuracy in percent, latency_mean and
    latency_std in ms per document, parameters, fusion_parameters.
    """
    optional = ["latency_ms", "parameters", "fusion_parameters"]
    table = runs.reindex(columns=[*CELL, "length", *optional]).assign(accuracy=100 * runs[METRIC])
    table["latency_ms"] = table["latency_ms"].astype(float)  # a record may hold null
    return table.groupby(CELL, sort=False, as_index=False).agg(
        length=("length", "first"),
        n=("accuracy", "size"),
        mean=("accuracy", "mean"),
        std=("accuracy", st.spread),
        latency_mean=("latency_ms", "mean"),
        latency_std=("latency_ms", st.spread),
        parameters=("parameters", "first"),
        fusion_parameters=("fusion_parameters", "first"),
    )


def compare(runs: pd.DataFrame, criteria: Criteria) -> tuple[pd.DataFrame, list[str]]:
    """One row for each cell but the baseline's, and a line for each cell or seed left out.

    Columns: CELL, baseline_variant, length, seeds, accuracies, baseline_accuracies and deltas
    (lists, paired), the statistics of `judge`; p_holm and p_equivalence_holm over all rows. A cell
    pairs with the baseline of the same data and encoding whose settings are the same except for the
    fusion's, on the seeds that both have.
    """
    rows, notes = [], []
    base_name = criteria.baseline
    settings = settings_columns(runs, "fusion.")
    groups = dict(iter(runs.groupby(CELL, sort=False)))
    for cell, group in groups.items():
        data, encoding, fusion, variant = cell
        if fusion == base_name:
            continue
        name = " ".join(str(part) for part in cell if part)
        candidates = [
            (differing(group[settings].iloc[0], other[settings].iloc[0]), key[3])
            for key, other in groups.items()
            if key[:3] == (data, encoding, base_name)
        ]
        if not candidates:
            notes.append(f"{name}: no {base_name} to compare with")
            continue
        # An option of the fusion makes a variant too, so settings decide and not the variant.
        gap, base_variant = min(candidates, key=lambda pair: (pair[0] != "", pair[1] != variant))
        if gap:
            notes.append(f"{name}: not compared, other settings than {base_name}: {gap}")
            continue
        base = groups[data, encoding, base_name, base_variant]
        accuracy, base_accuracy = (100 * g.set_index("seed")[METRIC] for g in (group, base))
        delta = (accuracy - base_accuracy).dropna().sort_index()
        if alone := sorted(set(accuracy.index) ^ set(base_accuracy.index)):
            listed = ", ".join(map(str, alone))
            notes.append(f"{name}: unpaired, left out of the comparison: seed {listed}")
        if delta.empty:
            notes.append(f"{name}: no seed in common with {base_name}")
            continue
        if len(delta) == 1:
            notes.append(f"{name}: one seed only, so no spread and no test")
        elif np.isnan(st.p_paired_t(delta)):
            notes.append(f"{name}: equal differences in all {len(delta)} seeds, so no test")
        deltas = delta.tolist()
        rows.append(
            {
                **dict(zip(CELL, cell, strict=True)),
                "baseline_variant": base_variant,
                "length": group["length"].iloc[0],
                "seeds": delta.index.tolist(),
                "accuracies": accuracy[delta.index].tolist(),
                "baseline_accuracies": base_accuracy[delta.index].tolist(),
                "deltas": deltas,
                **judge(deltas, criteria),
            }
        )
    lists = ["seeds", "accuracies", "baseline_accuracies", "deltas"]
    columns = [*CELL, "baseline_variant", "length", *lists, *judge([0.0], criteria)]
    frame = pd.DataFrame(rows, columns=columns)
    frame["p_holm"] = st.holm(frame["p_t"])
    frame["p_equivalence_holm"] = st.holm(frame["p_equivalence"])
    return frame, notes


def interactions(comparisons: pd.DataFrame) -> pd.DataFrame:
    """Does the gain grow with length? One row per encoding, fusion and variant compared on at
    least two corpora of different length.

    Columns: encoding, fusion, variant, corpora (text: mean length and gain), n, slopes (a list:
    each seed's gain in points per doubling of length), mean, low, high (t interval), p_t and
    p_sign_flip (two-sided). Seeds that any of the corpora lacks are left out.
    """
    keys = ["encoding", "fusion", "variant"]
    rows = []
    for cell, group in comparisons.groupby(keys, sort=False):
        by_seed = [pd.Series(d, s) for s, d in zip(group["seeds"], group["deltas"], strict=True)]
        gains = pd.concat(by_seed, axis=1).dropna().sort_index()
        if group["length"].nunique() < 2 or gains.empty:
            continue
        corpora = zip(group["data"], group["length"], gains.mean(), strict=True)
        texts = [f"{data} ({length:.0f} tokens, {gain:+.2f})" for data, length, gain in corpora]
        row = {**dict(zip(keys, cell, strict=True)), "corpora": ", ".join(texts)}
        rows.append(row | _slopes_and_tests(gains, group["length"]))
    return pd.DataFrame(rows, columns=[*keys, "corpora", *_slopes_and_tests([[0, 0]], [1, 2])])


def trends(bins: pd.DataFrame) -> pd.DataFrame:
    """Does the gain grow with length inside a corpus? As `interactions`, over the length bins of
    each comparison: CELL, n, slopes, mean, low, high, p_t, p_sign_flip."""
    rows = []
    for cell, group in bins.groupby(CELL, sort=False):
        if len(group) > 1:
            gains = np.transpose(group["gains"].tolist())
            found = _slopes_and_tests(gains, group["mean_length"])
            rows.append({**dict(zip(CELL, cell, strict=True)), **found})
    return pd.DataFrame(rows, columns=[*CELL, *_slopes_and_tests([[0, 0]], [1, 2])])


def _slopes_and_tests(gains: ArrayLike, lengths: ArrayLike) -> dict[str, Any]:
    """Each seed's slope of gains (S, R) over lengths (R,), and the tests of their mean."""
    slopes = st.slopes(gains, lengths)
    low, high = st.t_interval(slopes)
    found = {"slopes": slopes.tolist(), "mean": float(slopes.mean()), "low": low, "high": high}
    tests = {"p_t": st.p_paired_t(slopes), "p_sign_flip": st.p_sign_flip(slopes)}
    return {"n": len(slopes), **found, **tests}


def judge(deltas: list[float], criteria: Criteria) -> dict[str, Any]:
    """All statistics of one comparison, from its paired differences in points."""
    mean, std, n = float(np.mean(deltas)), st.spread(deltas), len(deltas)
    low, high = st.t_interval(deltas)
    bca_low, bca_high = st.bootstrap_interval(deltas)
    wins, wins_low, wins_high = outperforming(deltas)
    return {
        "n": n,
        "mean": mean,
        "std": std,
        "low": low,
        "high": high,
        "bca_low": bca_low,
        "bca_high": bca_high,
        "d_z": st.effect_size(deltas),
        "wins": wins,  # P(A > B), with its interval
        "wins_low": wins_low,
        "wins_high": wins_high,
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
    """Seeds needed to find a true mean difference of `effect` at 80 % power.

    NaN without a spread, inf for no effect.
    """
    if not std > 0:
        return np.nan
    return st.seeds_needed(lambda n: st.power(effect, std, n, alpha, sides), POWER)


def seeds_for_equivalence(std: float, margin: float, effect: float, alpha: float) -> float:
    """Seeds needed to show equivalence at 80 % power for a true mean difference of `effect`.

    NaN without a spread, inf where the effect is no smaller than the margin.
    """
    if not std > 0:
        return np.nan
    return st.seeds_needed(lambda n: st.equivalence_power(std, margin, n, effect, alpha), POWER)
