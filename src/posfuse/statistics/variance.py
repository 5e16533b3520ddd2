"""How much of the spread over seeds comes from which source of randomness.

A run draws its initial values, the order of its batches and its dropout masks, and in some sweeps
its split, from its seed. If a sweep lets one source at a time follow the seed and fixes the others
(`seeds=init`), the spread of these runs is that of the source (Bouthillier et al. 2021, section 2).
"""

from typing import Any

import numpy as np
import pandas as pd

from posfuse.evidence.collect import settings_columns, varying
from posfuse.statistics import paired as st
from posfuse.statistics.comparisons import Criteria

# Source -> its name in tables. The first three are the fields of `SeedsConfig`.
SOURCES = {
    "init": "initial values", "order": "batch order", "dropout": "dropout", "split": "split"
}  # fmt: skip
SEEDS = ["init", "order", "dropout"]
SPLITS = ["data.split_seed", "fidelity.validation_split"]
GROUP = ["data", "encoding", "variant"]


def follows_seed(runs: pd.DataFrame) -> pd.DataFrame:
    """For each run and each of SOURCES, whether it follows the run's seed."""
    none = pd.Series(None, runs.index, dtype=object)
    found = {source: runs.get(f"settings.seeds.{source}", none).isna() for source in SEEDS}
    by_data, by_fidelity = (runs.get(f"settings.{key}", none) for key in SPLITS)
    return pd.DataFrame({**found, "split": (by_data == "seed") | (by_fidelity == "by_seed")})


def is_held(runs: pd.DataFrame) -> "pd.Series[bool]":
    """For each run, whether one of its sources has a seed of its own. Such runs describe that seed
    only, so operators are not compared by them."""
    return ~follows_seed(runs)[SEEDS].all(axis=1)


def variance(runs: pd.DataFrame, criteria: Criteria) -> pd.DataFrame:
    """One row per GROUP x fusion x set of sources that follow the seed, where the runs of a GROUP
    differ in that set. Rows with one run are left out.

    Columns: GROUP, fusion, varied (the set in words), held (the seeds of the others), n, std, low
    and high (chi-square interval) of the metric on the test split; share, the variance in percent
    of that of the row whose set contains all others, NaN without such a row; and delta_n,
    delta_std, delta_low, delta_high and delta_share, the same for the differences to the baseline,
    paired by seed.
    """
    if not is_held(runs).any():
        return pd.DataFrame()
    options = [c for c in settings_columns(runs) if c.startswith("settings.fusion.")]
    others = settings_columns(runs, "fusion.", "seeds.", *SPLITS, "data.corpus.split_seed")
    of_fusion = varying(runs, ["data", "encoding", "fusion"], options)
    follows = follows_seed(runs)
    frame = runs[["data", "encoding", "seed"]].assign(
        variant=varying(runs, ["data", "encoding"], others),
        fusion=(runs["fusion"] + " " + of_fusion).str.strip(),
        score=criteria.metric.of(runs),
        sources=[" ".join(follows.columns[row]) for row in follows.to_numpy()],
        held=_held(runs),
    )
    rows = []
    for key, group in frame.groupby(GROUP, sort=False):
        if group["sources"].nunique() > 1:
            labels = dict(zip(GROUP, key, strict=True))
            rows += [labels | row for row in _rows_of(group, criteria)]
    return pd.DataFrame(rows)


def _held(runs: pd.DataFrame) -> list[str]:
    """For each run the seeds of its sources that do not follow its own, as "order=0 dropout=0"."""
    fixed = runs.reindex(columns=[f"settings.seeds.{source}" for source in SEEDS])
    return [
        " ".join(f"{s}={v:.0f}" for s, v in zip(SEEDS, row, strict=True) if not np.isnan(v))
        for row in fixed.astype(float).to_numpy()
    ]


def _rows_of(group: pd.DataFrame, criteria: Criteria) -> list[dict[str, Any]]:
    baseline = criteria.baseline
    scores = group.pivot(index="seed", columns=["fusion", "sources", "held"], values="score")
    columns: list[Any] = list(scores)  # fusion, sources, held
    rows: list[dict[str, Any]] = []
    for fusion in group["fusion"].unique():
        of_fusion = []
        for column in (column for column in columns if column[0] == fusion):
            _, text, held = column
            values, sources = scores[column].dropna(), text.split()
            if len(values) < 2:
                continue
            row = {"fusion": fusion, "sources": set(sources), "held": held}
            row["varied"] = ", ".join(SOURCES[source] for source in sources) or "none"
            row |= _spread(values)
            base = (baseline, text, held)
            deltas = (values - scores[base]).dropna() if base in scores else values[:0]
            if fusion != baseline and len(deltas) > 1:
                row |= {f"delta_{name}": value for name, value in _spread(deltas).items()}
            of_fusion.append(row)
        rows += _with_shares(of_fusion)
    return rows


def _spread(values: "pd.Series[float]") -> dict[str, Any]:
    low, high = st.spread_interval(values)
    return {"n": len(values), "std": st.spread(values), "low": low, "high": high}


def _with_shares(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of one operator, small sets first, with each variance in percent of that of the
    largest set if it contains the row's."""
    order = list(SOURCES)
    rows.sort(key=lambda row: (len(row["sources"]), sorted(map(order.index, row["sources"]))))
    inside = [row for row in rows if row["sources"] < rows[-1]["sources"]]
    for row in [*inside, rows[-1]] if inside else []:
        for of in ("", "delta_"):
            if rows[-1].get(f"{of}std", 0) > 0:
                ratio = row.get(f"{of}std", np.nan) / rows[-1][f"{of}std"]
                row[f"{of}share"] = 100 * ratio**2
    return [{name: value for name, value in row.items() if name != "sources"} for row in rows]
