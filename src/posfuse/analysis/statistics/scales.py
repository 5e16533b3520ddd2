"""The token scale as an axis: every operator at every scale, and each at its own best scale.

Each operator weighs position against content differently, so a comparison at one scale also
measures the scale. Each operator therefore chooses its own scale by validation accuracy. No test
document takes part in the choice. The seeds that choose are also the seeds that are compared;
docs/statistics.md gives the cost of that.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from posfuse.analysis.evidence.collect import METRIC, settings_columns
from posfuse.analysis.statistics import paired as st
from posfuse.analysis.statistics.comparisons import Criteria, judge

SCALE = "model.token_scale"
GROUP = ["data", "encoding", "variant"]  # its runs differ only in scale, operator and seed


@dataclass(frozen=True)
class Scales:
    """Empty frames where no two runs differ in scale.

    cells: one row per GROUP x fusion x scale. scale (text), number (NaN where learned), sqrt_d
    (whether it is the paper's scale), length, n, mean, std, low and high (t interval) of the test
    accuracy, and validation (its mean), in percent. best: whether validation is the operator's
    highest; the smallest scale wins a tie.

    best: one row per GROUP x fusion but the baseline. scale, baseline_scale, length, seeds, deltas
    and the statistics of `judge` with both at their best scales; the same statistics as paper_*
    with both at sqrt(d), NaN where that was not run; p_holm, p_equivalence_holm and paper_p_holm
    over all rows.

    `variant` holds the other settings that differ, as "model.d_model=8", not the run's folder. If
    an operator was run with several options, `fusion` contains them.
    """

    cells: pd.DataFrame
    best: pd.DataFrame
    notes: list[str]  # a line for each row of `best` that is missing or needs caution


def scales_of(runs: pd.DataFrame, criteria: Criteria) -> Scales:
    """From the rows of `collect`."""
    scaled = _scaled(runs)
    cells = _cells(scaled)
    best, notes = _at_own_best(scaled, cells, criteria)
    return Scales(cells, best, notes)


def _scaled(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs of each GROUP with at least two scales.

    Columns: GROUP, fusion, scale, number, sqrt_d, validation, seed, length and METRIC. A scale
    that is written in two ways (8, sqrt_d) counts once.
    """
    if f"settings.{SCALE}" not in runs:
        return runs.iloc[:0]
    asked = runs[f"settings.{SCALE}"]
    root = _numeric(runs, "settings.model.d_model") ** 0.5
    number = _numeric(runs, f"settings.{SCALE}").where(asked != "sqrt_d", root)
    number = number.where(number > 0)
    options = [c for c in settings_columns(runs) if c.startswith("settings.fusion.")]
    others = settings_columns(runs, "fusion.", SCALE)
    of_fusion = _labels(runs, ["data", "encoding", "fusion"], options)
    frame = runs[["data", "encoding", "seed", "length", METRIC]].assign(
        variant=_labels(runs, ["data", "encoding"], others),
        fusion=(runs["fusion"] + " " + of_fusion).str.strip(),
        number=number,
        sqrt_d=np.isclose(number, root),
        validation=_numeric(runs, "validation.accuracy"),
    )
    numbers = zip(asked, frame["number"], frame["sqrt_d"], strict=True)
    frame["scale"] = [str(a) if np.isnan(x) else _text(x, paper) for a, x, paper in numbers]
    frame = frame.drop_duplicates([*GROUP, "fusion", "scale", "seed"])
    return frame[frame.groupby(GROUP)["scale"].transform("nunique") > 1]


def _numeric(runs: pd.DataFrame, column: str) -> "pd.Series[float]":
    values = runs.get(column, pd.Series(np.nan, runs.index))
    return pd.to_numeric(values, errors="coerce").astype(float)


def _labels(runs: pd.DataFrame, within: list[str], columns: list[str]) -> "pd.Series[str]":
    """For each run "key=value" of the columns that vary among the runs with equal `within`."""
    labels = pd.Series("", runs.index)
    texts = runs[columns].astype(str)
    for _, group in texts.groupby([runs[name] for name in within], sort=False):
        varied = [c for c in columns if group[c].nunique() > 1]
        for i, row in zip(group.index, group[varied].to_numpy(), strict=True):
            pairs = zip(varied, row, strict=True)
            labels[i] = " ".join(f"{c.removeprefix('settings.')}={v}" for c, v in pairs)
    return labels


def _text(number: float, sqrt_d: bool) -> str:
    part = 1 / float(number)
    text = f"1/{part:.0f}" if part > 1 and part.is_integer() else f"{number:.6g}"
    return f"sqrt_d = {text}" if sqrt_d else text


def _cells(scaled: pd.DataFrame) -> pd.DataFrame:
    operator = [*GROUP, "fusion"]
    if scaled.empty:
        return pd.DataFrame(columns=operator)
    order = scaled.groupby(operator, sort=False).ngroup()
    table = scaled.assign(order=order, accuracy=100 * scaled[METRIC])
    table = table.sort_values(["order", "number"], kind="stable")
    cells = table.groupby([*operator, "scale"], sort=False, as_index=False).agg(
        number=("number", "first"),
        sqrt_d=("sqrt_d", "first"),
        length=("length", "first"),
        n=("accuracy", "size"),
        mean=("accuracy", "mean"),
        std=("accuracy", st.spread),
        low=("accuracy", lambda a: st.t_interval(a)[0]),
        high=("accuracy", lambda a: st.t_interval(a)[1]),
        validation=("validation", lambda v: 100 * v.mean()),
    )
    highest = cells.dropna(subset=["validation"]).groupby(operator)["validation"].idxmax()
    return cells.assign(best=cells.index.isin(highest))


def _at_own_best(
    scaled: pd.DataFrame, cells: pd.DataFrame, criteria: Criteria
) -> tuple[pd.DataFrame, list[str]]:
    rows: list[dict[str, Any]] = []
    notes: list[str] = []
    base = criteria.baseline
    for key, group in cells.groupby(GROUP, sort=False):
        where = " ".join(str(part) for part in key if part)
        runs = scaled[(scaled[GROUP] == list(key)).all(axis=1)]
        accuracy = 100 * runs.pivot(index="seed", columns=["fusion", "scale"], values=METRIC)
        tried = {str(fusion): own for fusion, own in group.groupby("fusion", sort=False)}
        for fusion, own in tried.items():
            notes += [f"{where} {fusion}: {caution}" for caution in _cautions(own)]
        best = group[group["best"]]
        chosen = dict(zip(best["fusion"], best["scale"], strict=True))
        if base not in chosen:
            notes.append(f"{where}: no {base} to choose a scale for")
            continue
        paper = next(iter(group.loc[group["sqrt_d"], "scale"]), None)
        for fusion in (f for f in chosen if f != base):
            deltas = _deltas(accuracy, (fusion, chosen[fusion]), (base, chosen[base]))
            if deltas.empty:
                notes.append(f"{where} {fusion}: no seed in common with {base}")
                continue
            if set(tried[fusion]["scale"]) != set(tried[base]["scale"]):
                notes.append(f"{where} {fusion}: was run at other scales than {base}")
            row = {**dict(zip(GROUP, key, strict=True)), "fusion": fusion, "scale": chosen[fusion]}
            row |= {"baseline_scale": chosen[base], "length": group["length"].iloc[0]}
            row |= {"seeds": deltas.index.tolist(), "deltas": deltas.tolist()}
            row |= judge(deltas.tolist(), criteria)
            at_paper = _deltas(accuracy, (fusion, paper), (base, paper))
            if len(at_paper):
                row |= {f"paper_{k}": v for k, v in judge(at_paper.tolist(), criteria).items()}
            rows.append(row)
    statistics = list(judge([0.0], criteria))
    columns = [*GROUP, "fusion", "scale", "baseline_scale", "length", "seeds", "deltas"]
    columns += [*statistics, *(f"paper_{name}" for name in statistics)]
    table = pd.DataFrame(rows, columns=columns)
    for p in ("p_t", "p_equivalence", "paper_p_t"):
        table[f"{p.removesuffix('_t')}_holm"] = st.holm(table[p].astype(float))
    return table, notes


def _deltas(accuracy: pd.DataFrame, one: tuple[Any, Any], other: tuple[Any, Any]) -> Any:
    """one - other by seed, each a (fusion, scale); empty if either was not run."""
    if one not in accuracy or other not in accuracy:
        return pd.Series(dtype=float)
    return (accuracy[one] - accuracy[other]).dropna()


def _cautions(rows: pd.DataFrame) -> list[str]:
    """What a reader of one operator's choice must know, from its cells."""
    found = []
    if not rows["best"].any():
        found.append(f"no validation accuracy, so no best {SCALE}")
    if rows["n"].nunique() > 1:
        found.append(f"chose among scales with {rows['n'].min()} to {rows['n'].max()} seeds")
    # A learned scale may be best and still hide that the fixed ones end too early.
    fixed = rows.dropna(subset=["number", "validation"])
    if fixed["number"].nunique() > 1:
        best = fixed.sort_values("validation", ascending=False, kind="stable").iloc[0]
        if best["number"] in (fixed["number"].min(), fixed["number"].max()):
            which = "best" if best["best"] else "best fixed"
            end = f"{best['scale']}, is at the end of those tried: try beyond"
            found.append(f"its {which} {SCALE}, {end}")
    return found
