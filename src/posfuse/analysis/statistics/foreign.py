"""Comparisons of foreign per-seed results: paired by seed, or of independent samples."""

import warnings
from collections.abc import Sequence
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from posfuse.analysis.statistics import paired as st
from posfuse.analysis.statistics.comparisons import Criteria

AHEAD, BEHIND, EQUIVALENT, UNDECIDED = "ahead", "behind", "equivalent", "undecided"


def compare_foreign(
    table: pd.DataFrame,
    criteria: Criteria,
    paired: bool = True,
    all_pairs: bool = False,
    resolution: float = np.nan,
) -> tuple[pd.DataFrame, list[str]]:
    """One row for each comparison within a group of `read_foreign`, and a line for each that is
    left out.

    Names are compared with `criteria.baseline`, or all with each other. `resolution` is that of
    paired.py; independent runs have none. Columns: group, name, than,
    n (pairs, or runs of each side as text), mean, low, high, p_t, p_equivalence, both adjusted by
    Holm over all rows as p_holm and p_equivalence_holm, and conclusion: ahead, behind, equivalent
    or undecided.
    """
    rows, notes = [], []
    for group, part in table.groupby("group", sort=False):
        own = {str(name): runs.set_index("seed")["value"] for name, runs in part.groupby("name")}
        ranked = sorted(own, key=lambda name: -own[name].mean())
        base = criteria.baseline
        if not all_pairs and base not in own:
            notes.append(f"{group}: not compared, because it has no row of {base}")
            continue
        pairs = list(combinations(ranked, 2))
        if not all_pairs:
            pairs = [(name, base) for name in ranked if name != base]
        for name, than in pairs:
            if not paired:
                found = _independent(own[name], own[than], criteria.margin)
            elif len(own[name].index.intersection(own[than].index)):
                found = _paired(own[name], own[than], criteria.margin, resolution)
            else:
                why = "they have no seed in common"
                notes.append(f"{group}: {name} and {than}: not compared, because {why}")
                continue
            if np.isnan(found["p_t"]):
                why = "there are fewer than two seeds, or the values or differences are all equal"
                notes.append(f"{group}: {name} and {than}: no test, because {why}")
            rows.append({"group": group, "name": name, "than": than, **found})
    columns = ["group", "name", "than", "n", "mean", "low", "high", "p_t", "p_equivalence"]
    frame = pd.DataFrame(rows, columns=columns)
    frame["p_holm"] = st.holm(frame["p_t"].astype(float))
    frame["p_equivalence_holm"] = st.holm(frame["p_equivalence"].astype(float))
    decided = [_conclusion(row, criteria.alpha) for row in frame.to_dict("records")]
    return frame.assign(conclusion=decided), notes


def _conclusion(row: dict[Any, Any], alpha: float) -> str:
    if row["p_holm"] <= alpha:
        return AHEAD if row["mean"] > 0 else BEHIND
    return EQUIVALENT if row["p_equivalence_holm"] <= alpha else UNDECIDED


def _paired(
    one: "pd.Series[float]", other: "pd.Series[float]", margin: float, resolution: float
) -> dict[str, Any]:
    deltas = (one - other).dropna()
    low, high = st.t_interval(deltas, resolution=resolution)
    return {
        "n": f"{len(deltas)}",
        "mean": float(deltas.mean()),
        "low": low,
        "high": high,
        "p_t": st.p_paired_t(deltas, resolution),
        "p_equivalence": st.p_equivalence(deltas, margin, resolution),
    }


def _independent(
    one: "pd.Series[float]", other: "pd.Series[float]", margin: float
) -> dict[str, Any]:
    """Welch's test, interval and two one-sided tests (no equal variances assumed)."""
    found: dict[str, Any] = {"n": f"{len(one)}, {len(other)}", "mean": one.mean() - other.mean()}
    if min(len(one), len(other)) < 2 or not (np.ptp(one) or np.ptp(other)):
        return found | dict.fromkeys(("low", "high", "p_t", "p_equivalence"), np.nan)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Precision loss")  # one of the two has no spread
        test = stats.ttest_ind(one, other, equal_var=False)
        above = stats.ttest_ind(one + margin, other, equal_var=False, alternative="greater").pvalue
        below = stats.ttest_ind(one - margin, other, equal_var=False, alternative="less").pvalue
    low, high = test.confidence_interval()
    p, equivalence = float(test.pvalue), float(max(above, below))
    return found | {"low": low, "high": high, "p_t": p, "p_equivalence": equivalence}


def ranking(
    group: str, table: pd.DataFrame, comparisons: pd.DataFrame
) -> tuple[str, dict[str, int]]:
    """The names of a group from best to worst, with a sign between neighbours: > shown to be ahead,
    = shown to be equivalent, ? undecided; and the number of each sign. < is rare: on the seeds that
    both have, the other one is ahead."""
    part = table[table["group"] == group]
    means = part.groupby("name")["value"].mean().sort_values(ascending=False, kind="stable")
    rows = comparisons[comparisons["group"] == group].to_dict("records")
    signs, turned = {AHEAD: ">", BEHIND: "<", EQUIVALENT: "="}, {AHEAD: "<", BEHIND: ">"}
    found = {(row["name"], row["than"]): signs.get(row["conclusion"], "?") for row in rows}
    signs |= turned
    found |= {(row["than"], row["name"]): signs.get(row["conclusion"], "?") for row in rows}
    names: Sequence[str] = list(map(str, means.index))
    text, counts = f"{names[0]} {means.iloc[0]:.1f}", dict.fromkeys([">", "=", "?"], 0)
    for one, other in pairwise(names):
        sign = found.get((one, other), "?")
        counts[sign] = counts.get(sign, 0) + 1
        text += f" {sign} {other} {means[other]:.1f}"
    return text, counts
