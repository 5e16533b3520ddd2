"""Combines runs into cells (means over seeds) and comparisons (paired with a baseline, seed by
seed)."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from posfuse.evidence.collect import CELL, differing, naming_columns, settings_columns
from posfuse.evidence.metric import ACCURACY, Metric
from posfuse.evidence.settings import NO_TABLE, labels_of
from posfuse.statistics import paired as st
from posfuse.statistics.contrasts import decide, differences
from posfuse.statistics.power import seeds_for_decision, seeds_for_difference, seeds_for_equivalence
from posfuse.statistics.shares import outperforming

# The role of a comparison: in Holm's family; outside the sweep's declared family; a placebo of a
# comparison with position.
PRIMARY, EXPLORATORY, PLACEBO = "primary", "exploratory", "placebo"


@dataclass(frozen=True)
class Criteria:
    """The criteria of a comparison. Numbers are in the unit of the metric."""

    baseline: str = "add"  # the fusion to compare with
    margin: float = 0.5  # a difference within +-margin does not matter
    effect: float = 1.0  # the difference for which the needed seeds are computed
    alpha: float = 0.05
    select: tuple[int, ...] = ()  # seeds that choose values of tuned keys and are not tested
    metric: Metric = ACCURACY
    solved: float | None = None  # lowest percent of a run that solves its task; None: by corpus
    primary: tuple[str, ...] = ()  # fusions in Holm's family; empty: all

    @property
    def within(self) -> str:
        """The margin with its unit."""
        return f"{self.margin:g} {self.metric.unit}"


def criteria_for(criteria: Criteria, metric: Metric) -> Criteria:
    """The criteria with another metric. If its unit is another one, margin and effect are its
    own."""
    if metric.unit == criteria.metric.unit:
        return replace(criteria, metric=metric)
    return replace(criteria, metric=metric, margin=metric.margin, effect=metric.effect)


def cells(runs: pd.DataFrame, metric: Metric = ACCURACY) -> pd.DataFrame:
    """One row per cell.

    Columns: CELL, length, n, mean and std (n - 1) of the metric, latency_mean and
    latency_std in ms per document, parameters, fusion_parameters.
    """
    optional = ["latency_ms", "parameters", "fusion_parameters"]
    table = runs.reindex(columns=[*CELL, "length", *optional]).assign(score=metric.of(runs))
    return table.groupby(CELL, sort=False, as_index=False).agg(
        length=("length", "first"),
        n=("score", "size"),
        mean=("score", "mean"),
        std=("score", st.spread),
        latency_mean=("latency_ms", "mean"),
        latency_std=("latency_ms", st.spread),
        parameters=("parameters", "first"),
        fusion_parameters=("fusion_parameters", "first"),
    )


def compare(runs: pd.DataFrame, criteria: Criteria) -> tuple[pd.DataFrame, list[str]]:
    """One row for each cell except the baseline's, and a line for each cell or seed left out.

    Columns: CELL, baseline_variant, length, and the columns of `labels_of`, `compare_arms` and
    `in_families`. A cell pairs with the baseline of the same data and encoding whose settings
    differ only in the fusion's, on the seeds that both have.
    """
    rows, notes = [], []
    base_name, metric = criteria.baseline, criteria.metric
    settings = settings_columns(runs, "fusion.")
    groups = dict(iter(runs.groupby(CELL, sort=False)))
    values = runs.assign(value=metric.of(runs))
    outcomes = values.pivot(index="seed", columns=CELL, values="value")
    shown = len(naming_columns(runs))
    for cell, group in groups.items():
        data, encoding, fusion, variant = cell
        if fusion == base_name:
            continue
        name = " ".join(str(part) for part in cell[:shown] if part)
        not_compared = f"{name}: not compared, because"
        candidates = [
            (differing(group[settings].iloc[0], other[settings].iloc[0]), key[3])
            for key, other in groups.items()
            if key[:3] == (data, encoding, base_name)
        ]
        if not candidates:
            notes.append(f"{not_compared} {base_name} has no run with this data and encoding")
            continue
        # An option of the fusion makes a variant too, so settings decide and not the variant.
        gap, base_variant = min(candidates, key=lambda pair: (pair[0] != "", pair[1] != variant))
        if gap:
            notes.append(f"{not_compared} its settings differ from {base_name}'s: {gap}")
            continue
        base_cell = (data, encoding, base_name, base_variant)
        if alone := sorted(set(group["seed"]) ^ set(groups[base_cell]["seed"])):
            listed = ", ".join(map(str, alone))
            notes.append(
                f"{name}: only one of {fusion} and {base_name} has these seeds, so they are left "
                f"out: {listed}"
            )
        documents = group.iloc[0].get("documents.test", np.nan)
        resolution = step_of(metric, float(documents))
        compared = compare_arms(cell, base_cell, outcomes, criteria, resolution)
        if compared is None:
            notes.append(f"{not_compared} it has no seed in common with {base_name}")
            continue
        notes += notes_on_tests(name, compared["deltas"], resolution)
        row = {**dict(zip(CELL, cell, strict=True)), "baseline_variant": base_variant}
        row |= labels_of(group.iloc[0].to_dict())
        rows.append(row | {"length": group["length"].iloc[0]} | compared)
    columns = [*CELL, "baseline_variant", *labels_of(dict.fromkeys(["data", "encoding"])), "length"]
    columns += COMPARED
    return in_families(pd.DataFrame(rows, columns=columns), criteria), notes


def notes_on_tests(name: str, deltas: list[float], resolution: float) -> list[str]:
    """A line about a comparison without the usual test: of one seed, or of equal differences."""
    if len(deltas) == 1:
        return [f"{name}: no test, because there is only one seed"]
    if not np.isnan(st.p_paired_t(deltas)):
        return []
    how = "there is no test"
    if not np.isnan(resolution):
        std = f"one test document, {resolution:.2f} points"
        how = f"the test uses {std}, as standard deviation"
    return [f"{name}: the difference is the same in all {len(deltas)} seeds; {how}"]


def compare_arms(
    arm: Any, baseline: Any, outcomes: pd.DataFrame, criteria: Criteria, resolution: float = np.nan
) -> dict[str, Any] | None:
    """The comparison of two columns of `outcomes`, which has a row for each seed; None without a
    common seed.

    Keys: seeds, scores, baseline_scores and deltas (lists, paired: arm minus baseline), resolution
    (points of one test document, NaN for a metric that is not a fraction of documents), and the
    statistics of `judge`.
    """
    of_seeds = differences({arm: 1, baseline: -1}, outcomes)
    if of_seeds.empty:
        return None
    both = outcomes.loc[of_seeds.index]
    deltas = of_seeds.tolist()
    return {
        "seeds": of_seeds.index.tolist(),
        "scores": both[arm].to_numpy().tolist(),
        "baseline_scores": both[baseline].to_numpy().tolist(),
        "deltas": deltas,
        "resolution": resolution,
        **judge(deltas, criteria, resolution),
    }


def step_of(metric: Metric, documents: float) -> float:
    """The points of one test document, by the number of documents; NaN for a metric that is not a
    fraction of documents."""
    is_counted = metric.is_share and metric.counts_documents
    return metric.factor / documents if is_counted else np.nan


def in_families(frame: pd.DataFrame, criteria: Criteria) -> pd.DataFrame:
    """The comparisons with their role, their p-values adjusted over the primary ones, and verdicts.

    New columns: role; p_holm, p_equivalence_holm (and paper_p_holm in a frame of own_best.py),
    which are NaN for rows of another role; verdict (the result of `decide`, or another role) and
    small (ahead or behind, and equivalent as well); and the seeds that each comparison needs for
    80 % power, two-sided, at the strictest level of the frame and for the upper limit of its
    standard deviation: seeds_observed (to find the observed difference), seeds_effect (to find
    `criteria.effect`), seeds_equivalence (to show equivalence if there is no difference), and
    seeds_decision (to find the observed difference or to show equivalence).
    """
    is_declared = operators(frame).isin(criteria.primary) | (not criteria.primary)
    role = np.where(is_declared, PRIMARY, EXPLORATORY)
    frame = frame.assign(role=np.where(_is_placebo(frame), PLACEBO, role))
    is_primary = frame["role"] == PRIMARY
    frame = decide_all(frame, is_primary, criteria)
    verdict = frame["verdict"].where(is_primary, frame["role"])
    level, limits, margin = strictest_level(frame, criteria), frame["std_limit"], criteria.margin
    observed = list(zip(frame["mean"], limits, strict=True))
    return frame.assign(
        verdict=verdict,
        small=(frame[["p_holm", "p_equivalence_holm"]] <= criteria.alpha).all(axis=1),
        seeds_observed=[seeds_for_difference(mean, std, level) for mean, std in observed],
        seeds_effect=[seeds_for_difference(criteria.effect, std, level) for std in limits],
        seeds_equivalence=[seeds_for_equivalence(std, margin, 0.0, level) for std in limits],
        seeds_decision=[seeds_for_decision(mean, std, margin, level) for mean, std in observed],
    )


def decide_all(frame: pd.DataFrame, family: "pd.Series[bool]", criteria: Criteria) -> pd.DataFrame:
    """The comparisons with their p-values adjusted over those in the family, and with the result
    of `decide`."""
    frame = frame.copy()
    for p in ("p_t", "p_equivalence", "paper_p_t"):
        if p in frame:
            tested = frame[p].astype(float).where(family)
            frame[f"{p.removesuffix('_t')}_holm"] = st.holm(tested)
    differs, same = (frame[p] <= criteria.alpha for p in ("p_holm", "p_equivalence_holm"))
    return frame.assign(verdict=decide(criteria.metric.gain(frame["mean"]), differs, same))


def operators(frame: pd.DataFrame) -> "pd.Series[str]":
    """The operator of each row, without the options that own_best.py may add."""
    return frame["fusion"].str.split().str[0]


def _is_placebo(frame: pd.DataFrame) -> NDArray[np.bool_]:
    """True for rows that fuse a table of zeros and differ from another row only in the encoding."""
    key = pd.MultiIndex.from_arrays([frame["data"], operators(frame), frame["other_settings"]])
    is_zero = (frame["table"] == NO_TABLE).to_numpy()
    return np.asarray(is_zero & key.isin(key[~is_zero]))


def family_size(frame: pd.DataFrame) -> int:
    """The number of primary comparisons that have a test."""
    return int((frame["p_t"].notna() & (frame["role"] == PRIMARY)).sum())


def strictest_level(frame: pd.DataFrame, criteria: Criteria) -> float:
    """alpha / the size of the family: the strictest of Holm's levels."""
    return criteria.alpha / max(family_size(frame), 1)


def judge(deltas: list[float], criteria: Criteria, resolution: float = np.nan) -> dict[str, Any]:
    """All statistics of one comparison, from its paired differences. `resolution` is as in
    paired.py."""
    n = len(deltas)
    low, high = st.t_interval(deltas, resolution=resolution)
    bca_low, bca_high = st.bootstrap_interval(deltas)
    wins, wins_low, wins_high = outperforming([criteria.metric.gain(delta) for delta in deltas])
    return {
        "n": n,
        "mean": float(np.mean(deltas)),
        "std": st.spread(deltas),
        "std_limit": st.spread_limit(deltas, resolution),
        "low": low,
        "high": high,
        "bca_low": bca_low,
        "bca_high": bca_high,
        "d_z": st.effect_size(deltas),
        "wins": wins,  # P(A > B), with its interval
        "wins_low": wins_low,
        "wins_high": wins_high,
        "p_t": st.p_paired_t(deltas, resolution),
        "p_wilcoxon": st.p_wilcoxon(deltas),
        "p_sign_flip": st.p_sign_flip(deltas),
        "smallest_p": st.smallest_p(n),
        "p_equivalence": st.p_equivalence(deltas, criteria.margin, resolution),
    }


# The keys of `judge` and of `compare_arms`, as columns of a frame without rows.
JUDGED = list(judge([0.0], Criteria()))
COMPARED = ["seeds", "scores", "baseline_scores", "deltas", "resolution", *JUDGED]
