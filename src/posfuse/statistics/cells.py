"""Facts about the runs of a cell besides their mean: the fraction that solves the task, whether
they were trained long enough, and the spread by source of randomness (Bouthillier et al. 2021)."""

from typing import Any

import numpy as np
import pandas as pd

from posfuse.evidence.collect import CELL, GROUP, by_settings, varying
from posfuse.evidence.metric import ACCURACY, Metric, classes_of
from posfuse.statistics import over_documents
from posfuse.statistics import paired as st
from posfuse.statistics.comparisons import Criteria
from posfuse.statistics.shares import difference_interval, share_interval

COUNTS = ["best_evaluation", "evaluations"]
APART = 1 / 8  # of the way from chance to 100 %: the distance of either group from the threshold


def thresholds(runs: pd.DataFrame, criteria: Criteria) -> dict[str, float]:
    """By corpus the lowest test result in percent of a run that solves the task.

    With `Criteria.solved` this is the given number, for every corpus. Otherwise, for accuracies, it
    is halfway between chance (1 of C classes) and 100 %, for corpora where the runs of a cell are
    in two groups: at least one run is below and one above the threshold, both by APART of the way
    from chance to 100 % or more.
    """
    if criteria.solved is not None:
        return dict.fromkeys(runs["data"].unique(), criteria.solved)
    limits: dict[str, float] = {}
    if criteria.metric != ACCURACY:
        return limits
    guesses = ACCURACY.guesses(classes_of(runs)).dropna()
    for data, group in runs[runs["data"].isin(guesses.index)].groupby("data", sort=False):
        way = 100 - guesses[data]
        middle = 100 - way / 2
        of_cell = ACCURACY.of(group).groupby([group[axis] for axis in CELL])
        low, high = of_cell.min(), of_cell.max()
        if ((low <= middle - APART * way) & (high >= middle + APART * way)).any():
            limits[str(data)] = middle
    return limits


def solved_cells(
    runs: pd.DataFrame, comparisons: pd.DataFrame, limits: dict[str, float],
    metric: Metric = ACCURACY,
) -> pd.DataFrame:  # fmt: skip
    """One row per cell of the corpora in `limits`: CELL and `_row`. The cells of `compare` are
    compared with their baselines."""
    compared = {tuple(row[axis] for axis in CELL): row for row in comparisons.to_dict("records")}
    rows = []
    for cell, group in runs[runs["data"].isin(limits)].groupby(CELL, sort=False):
        rows.append(dict(zip(CELL, cell, strict=True)))
        rows[-1] |= _row(metric.of(group).tolist(), compared.get(cell), limits[str(cell[0])])
    return pd.DataFrame(rows)


def solved_best(best: pd.DataFrame, limits: dict[str, float]) -> pd.DataFrame:
    """One row per row of `OwnBest.best` of the corpora in `limits`: CELL, at, baseline_at and
    `_row`, over the seeds that are tested."""
    labels = [*CELL, "at", "baseline_at"]
    rows = [
        {name: row[name] for name in labels} | _row(row["scores"], row, limits[row["data"]])
        for row in best.to_dict("records")
        if row["data"] in limits
    ]
    return pd.DataFrame(rows)


def _row(values: list[float], pairs: dict[Any, Any] | None, limit: float) -> dict[str, Any]:
    """threshold, n, mean and std of the values in percent; solved (how many runs), share, low
    and high (exact interval) in percent; and of the paired seeds: pairs (how many), with and base
    (how many runs of either solve it), gained and lost (seeds that only one solves), difference,
    difference_low and difference_high (exact interval) in points, p_mcnemar (exact)."""
    limit = round(limit, 9)  # like the results: 100 * 0.57 is a little below 57
    solves = np.round(values, 9) >= limit
    n, k = len(solves), int(solves.sum())
    low, high = share_interval(k, n)
    row = {
        "threshold": limit, "n": n, "mean": float(np.mean(values)), "std": st.spread(values),
        "solved": k, "share": 100 * k / n, "low": 100 * low, "high": 100 * high,
    }  # fmt: skip
    if pairs is None:
        return row
    one, base = (np.round(pairs[name], 9) >= limit for name in ("scores", "baseline_scores"))
    low, high = difference_interval(100.0 * (one.astype(float) - base))
    return row | {
        "pairs": len(one), "with": int(one.sum()), "base": int(base.sum()),
        "gained": int(np.sum(one & ~base)), "lost": int(np.sum(~one & base)),
        "difference": 100 * float(one.mean() - base.mean()),
        "difference_low": low, "difference_high": high,
        "p_mcnemar": over_documents.p_mcnemar(one, base),
    }  # fmt: skip


def convergence(runs: pd.DataFrame) -> pd.DataFrame:
    """One row per cell: CELL, n (runs whose records have the two numbers), last (how many of them
    were best at their last evaluation), best and evaluations (means of the two numbers).

    Evaluations are those on the validation split.
    """
    frame = runs.reindex(columns=[*CELL, *COUNTS]).dropna()
    frame["last"] = was_last(frame)
    return frame.groupby(CELL, sort=False, as_index=False).agg(
        n=("last", "size"),
        last=("last", "sum"),
        best=("best_evaluation", "mean"),
        evaluations=("evaluations", "mean"),
    )


def was_last(runs: pd.DataFrame) -> "pd.Series[bool]":
    """True for runs whose best evaluation was their last one, so they may not have converged."""
    return runs["best_evaluation"] >= runs["evaluations"]


# Source -> its name in tables. The first three are the fields of `SeedsConfig`.
SOURCES = {
    "init": "initial values", "order": "batch order", "dropout": "dropout", "split": "split"
}  # fmt: skip
SEEDS = ["init", "order", "dropout"]
SPLITS = ["data.split_seed", "fidelity.validation_split"]
OF_CORPUS = "data.corpus.split_seed"  # of a corpus that draws its test split: data.split_seed


def follows_seed(runs: pd.DataFrame) -> pd.DataFrame:
    """For each run and each of SOURCES, True if it follows the run's seed."""
    none = pd.Series(None, runs.index, dtype=object)
    follows = {source: runs.get(f"settings.seeds.{source}", none).isna() for source in SEEDS}
    by_data, by_fidelity = (runs.get(f"settings.{key}", none) for key in SPLITS)
    return pd.DataFrame({**follows, "split": (by_data == "seed") | (by_fidelity == "by_seed")})


def is_held(runs: pd.DataFrame) -> "pd.Series[bool]":
    """For each run, True if one of its sources has a fixed seed. Such runs describe only this seed,
    so operators are not compared by them."""
    return ~follows_seed(runs)[SEEDS].all(axis=1)


def variance(runs: pd.DataFrame, criteria: Criteria) -> pd.DataFrame:
    """One row per GROUP x fusion x set of sources that follow the seed, where the runs of a GROUP
    differ in that set. Rows with one run are left out.

    Columns: GROUP, fusion, varied (the set in words), held (the seeds of the others, and the
    settings of the split if several were run), n, std, low and high (chi-square interval) of the
    metric on the test split; share, the variance in percent of that of the row whose set contains
    all others, with the same held seeds, NaN without such a row; and delta_n, delta_std, delta_low,
    delta_high and delta_share, the same for the differences from the baseline, paired by seed.
    """
    if not is_held(runs).any():
        return pd.DataFrame()
    follows = follows_seed(runs)
    frame = by_settings(runs, criteria.metric, "seeds.", *SPLITS, OF_CORPUS)
    frame["sources"] = [" ".join(follows.columns[row]) for row in follows.to_numpy()]
    frame["held"] = _held(runs)
    frame["held"] = (frame["held"] + " " + _splits(frame, runs)).str.strip()
    rows = []
    for key, group in frame.groupby(GROUP, sort=False):
        if group["sources"].nunique() > 1:
            labels = dict(zip(GROUP, key, strict=True))
            rows += [labels | row for row in _rows_of(group, criteria)]
    return pd.DataFrame(rows)


def _held(runs: pd.DataFrame) -> list[str]:
    """For each run the seeds of its fixed sources, as "order=0 dropout=0"."""
    fixed = runs.reindex(columns=[f"settings.seeds.{source}" for source in SEEDS])
    return [
        " ".join(f"{s}={v:.0f}" for s, v in zip(SEEDS, row, strict=True) if not np.isnan(v))
        for row in fixed.astype(float).to_numpy()
    ]


def _splits(frame: pd.DataFrame, runs: pd.DataFrame) -> "pd.Series[str]":
    """The settings of the splits in which runs with the same sources and held seeds differ."""
    columns = own, _, of_corpus = [f"settings.{key}" for key in (*SPLITS, OF_CORPUS)]
    settings = runs.reindex(columns=columns)
    settings[of_corpus] = settings[of_corpus].where(settings[of_corpus] != settings[own])
    return varying(frame.join(settings), [*GROUP, "sources", "held"], columns)


def _rows_of(group: pd.DataFrame, criteria: Criteria) -> list[dict[str, Any]]:
    baseline = criteria.baseline
    scores = group.pivot(index="seed", columns=["fusion", "sources", "held"], values="score")
    rows: list[dict[str, Any]] = []
    for fusion in group["fusion"].unique():
        of_fusion = []
        of_sets: Any = scores.items()
        for (name, text, held), column in of_sets:
            if name != fusion or len(values := column.dropna()) < 2:
                continue
            sources = text.split()
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
    largest set if it contains the row's and has the same held seeds."""
    order = list(SOURCES)
    rows.sort(key=lambda row: (len(row["sources"]), sorted(map(order.index, row["sources"]))))
    for whole in (row for row in rows if row["sources"] == rows[-1]["sources"]):
        held = set(whole["held"].split())
        inside = [
            row
            for row in rows
            if row["sources"] < whole["sources"] and held <= set(row["held"].split())
        ]
        for row in [*inside, whole] if inside else []:
            for of in ("", "delta_"):
                if whole.get(f"{of}std", 0) > 0:
                    row[f"{of}share"] = 100 * (row.get(f"{of}std", np.nan) / whole[f"{of}std"]) ** 2
    return [{name: value for name, value in row.items() if name != "sources"} for row in rows]
