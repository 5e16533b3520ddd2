"""Tuned keys: every operator at every value, and each operator at its own best value.

Validation chooses the values of each operator; test documents are not used. With `Criteria.select`
the seeds that choose are not compared. docs/statistics.md explains the choice and its cost.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from posfuse.evidence.collect import CELL, GROUP, by_settings
from posfuse.evidence.metric import Metric
from posfuse.evidence.settings import labels_of
from posfuse.statistics import paired as st
from posfuse.statistics.comparisons import (
    COMPARED,
    JUDGED,
    Criteria,
    compare_arms,
    in_families,
    notes_on_tests,
    step_of,
)

KEYS = {"scale": "model.token_scale", "lr": "optim.lr"}  # column of a tuned key -> the key
LABELS = ["table", "attention", "other_settings"]  # of `labels_of`, without the tuned keys


@dataclass(frozen=True)
class OwnBest:
    """The results by tuned key. Frames are empty if no two runs differ in a tuned key.

    keys: the columns of the tuned keys that vary. `key` below stands for each of them.

    cells: one row per GROUP x fusion x combination of the keys' values. key (text), key_number (of
    a learned scale sqrt(d), its initial value), learned, sqrt_d (whether the scale is the
    paper's), length, n, mean, std, low and high (t interval) of the metric on the test split over
    all seeds; choosing and validation: the number of seeds that choose, and their mean on the
    validation split. best: whether validation is the operator's best; the smallest values win a tie
    (within Metric.tie), and a fixed scale before a learned one. key_edge: whether the row is the
    best and its number is the smallest or largest that the operator chose from.

    best: one row per GROUP x fusion but the baseline, over the seeds that are tested, with both at
    their best values. key, key_edge, at (the values as one text) and choices (how many each chose
    from), and the same of the baseline as baseline_*; length and the columns of `compare_arms`; if
    the scale varies, the statistics of `judge` as paper_* with both at the scale sqrt(d), each at
    its best other values there, NaN where that was not run; LABELS; the columns of `in_families`.

    `variant` and `fusion` are those of `by_settings`.
    """

    keys: list[str]
    cells: pd.DataFrame
    best: pd.DataFrame
    notes: list[str]  # a line for each row of `best` that is missing or needs caution
    metric: Metric
    replaced: set[tuple[str, ...]]  # CELL of the runs in the groups of `best`

    def others(self, comparisons: pd.DataFrame) -> pd.DataFrame:
        """The rows of `compare` that no row of `best` replaces."""
        cells = comparisons[CELL].itertuples(index=False, name=None)
        return comparisons[[cell not in self.replaced for cell in cells]]

    def along(self, key: str) -> pd.DataFrame:
        """The cells of each operator by value of one key. If other keys vary too, only the cells
        with the best validation result. No rows if the key does not vary."""
        if key not in self.keys:
            return self.cells.iloc[:0]
        worst = -self.metric.gain(np.inf)
        known = self.cells.fillna({"validation": worst})
        return self.cells.loc[_best(known, [*GROUP, "fusion", key], self.metric).index]


def own_best(runs: pd.DataFrame, criteria: Criteria) -> OwnBest:
    """The results by tuned key, from the rows of `collect`."""
    tuned, keys, groups = _tuning_runs(runs, criteria.metric)
    cells = _cells(tuned, keys, criteria)
    tested = tuned[~tuned["seed"].isin(criteria.select)]
    rows, notes = _at_own_best(runs, tested, cells, keys, criteria)
    columns = None if rows else [*GROUP, "fusion", "baseline_variant", *COMPARED, *LABELS]
    best = pd.DataFrame(rows, columns=columns)
    is_replaced = pd.MultiIndex.from_frame(groups).isin(pd.MultiIndex.from_frame(best[GROUP]))
    replaced = set(runs.loc[is_replaced, CELL].itertuples(index=False, name=None))
    return OwnBest(keys, cells, in_families(best, criteria), notes, criteria.metric, replaced)


def keys_of(best: pd.DataFrame) -> str:
    """The tuned keys of `OwnBest.best`, in words."""
    return _names([column for column in KEYS if f"baseline_{column}" in best])


def chosen_by(best: pd.DataFrame, criteria: Criteria) -> str:
    """A sentence about the seeds that chose the values in `OwnBest.best` and the seeds that are
    tested."""
    if len(best) and (best[["choices", "baseline_choices"]] == 1).all(axis=None):
        return "not chosen: each operator ran with a single value"
    if not criteria.select:
        return "chosen by the same seeds that are tested"
    return f"chosen by {_seeds(criteria)}, tested with other seeds"


def _seeds(criteria: Criteria) -> str:
    listed = ", ".join(map(str, criteria.select))
    return f"seed{'s' if len(criteria.select) > 1 else ''} {listed}"


def _tuning_runs(
    runs: pd.DataFrame, metric: Metric
) -> tuple[pd.DataFrame, list[str], pd.DataFrame]:
    """The runs of each GROUP with at least two combinations of values, the keys that vary, and the
    GROUP of every run.

    Columns of the first: GROUP, fusion, each key's text and number, learned, sqrt_d, validation,
    seed, length and score. A value with two spellings (8, sqrt_d) counts once.
    """
    needed = ["documents.test", "settings.model.d_model", *map("settings.{}".format, KEYS.values())]
    runs = runs.reindex(columns=list(dict.fromkeys([*runs, *needed])))
    frame = by_settings(runs, metric, *KEYS.values()).assign(
        length=runs["length"],
        validation=metric.of(runs, "validation"),
        resolution=_numeric(runs["documents.test"]).map(partial(step_of, metric)),
    )
    root = _numeric(runs["settings.model.d_model"]) ** 0.5
    for column, key in KEYS.items():
        asked = runs[f"settings.{key}"]
        number = _numeric(asked).where(~asked.isin(["sqrt_d", "learned"]), root)
        frame[f"{column}_number"] = number
        frame[column] = number.map("{:.6g}".format).where(number.notna(), asked.map(str))
    frame["learned"] = runs[f"settings.{KEYS['scale']}"] == "learned"
    frame["sqrt_d"] = np.isclose(frame["scale_number"], root) & ~frame["learned"]
    scales = zip(*(frame[c] for c in ("scale", "scale_number", "sqrt_d", "learned")), strict=True)
    frame["scale"] = [_scale(*row) for row in scales]
    groups = frame[GROUP]
    frame = frame.drop_duplicates([*GROUP, "fusion", *KEYS, "seed"])
    varies = frame.groupby(GROUP)[list(KEYS)].transform("nunique") > 1
    return frame[varies.any(axis=1)], [key for key in KEYS if varies[key].any()], groups


def _numeric(values: "pd.Series[Any]") -> "pd.Series[float]":
    return pd.to_numeric(values, errors="coerce").astype(float)


def _scale(text: str, number: float, sqrt_d: bool, learned: bool) -> str:
    """The text of a token scale: 1/8, sqrt_d = 8, learned."""
    if learned:
        return "learned"
    part = 1 / number
    text = f"1/{part:.0f}" if part > 1 and part.is_integer() else text
    return f"sqrt_d = {text}" if sqrt_d else text


def _cells(tuned: pd.DataFrame, keys: list[str], criteria: Criteria) -> pd.DataFrame:
    operator = [*GROUP, "fusion"]
    chooses = tuned["seed"].isin(criteria.select) | (not criteria.select)
    table = tuned.assign(
        order=tuned.groupby(operator, sort=False).ngroup(),
        validation=tuned["validation"].where(chooses),
    )
    table = table.sort_values(["order", "scale_number", "learned", "lr_number"], kind="stable")
    cells = table.groupby([*operator, *keys], sort=False, as_index=False).agg(
        **{f"{key}_number": (f"{key}_number", "first") for key in keys},
        learned=("learned", "first"),
        sqrt_d=("sqrt_d", "first"),
        length=("length", "first"),
        n=("score", "size"),
        mean=("score", "mean"),
        std=("score", st.spread),
        low=("score", lambda a: st.t_interval(a)[0]),
        high=("score", lambda a: st.t_interval(a)[1]),
        choosing=("validation", "count"),
        validation=("validation", "mean"),
    )
    cells["best"] = cells.index.isin(_best(cells, operator, criteria.metric).index)
    for key in keys:
        number = cells[f"{key}_number"]
        of_candidates = number.where(cells["validation"].notna())
        tried = of_candidates.groupby([cells[name] for name in operator])
        low, high = tried.transform("min"), tried.transform("max")
        at_end = np.isclose(number, low) | np.isclose(number, high)
        cells[f"{key}_edge"] = cells["best"] & at_end & (low < high)
    return cells


def _at_own_best(
    runs: pd.DataFrame,
    tested: pd.DataFrame,
    cells: pd.DataFrame,
    keys: list[str],
    criteria: Criteria,
) -> tuple[list[dict[str, Any]], list[str]]:
    rows: list[dict[str, Any]] = []
    notes: list[str] = []
    base, metric = criteria.baseline, criteria.metric
    untuned = runs.drop(columns=[f"settings.{key}" for key in KEYS.values()], errors="ignore")

    def place(row: dict[Any, Any]) -> tuple[Any, ...]:
        """The column of `scores` with the runs of a row of the cells."""
        return (row["fusion"], *(row[key] for key in keys))

    for group_key, group in cells.groupby(GROUP, sort=False):
        where = " ".join(str(part) for part in group_key if part)
        of_group = tested[(tested[GROUP] == list(group_key)).all(axis=1)]
        resolution = float(of_group["resolution"].mean())
        scores = of_group.pivot(index="seed", columns=["fusion", *keys], values="score")
        for fusion, own in group.groupby("fusion", sort=False):
            notes += [f"{where} {fusion}: {caution}" for caution in _cautions(own, keys, criteria)]
        candidates = group[group["choosing"] > 0]
        tried = {str(fusion): own for fusion, own in candidates.groupby("fusion", sort=False)}
        chosen, papers = (_choice(rows_, metric) for rows_ in (group, group[group["sqrt_d"]]))
        if base not in chosen:
            options = [str(name) for name in tried if str(name).startswith(f"{base} ")]
            why = f"has no best {_names(keys)}"
            if options:
                why = f"was run with several options ({', '.join(options)})"
            notes.append(f"{where}: not compared, because {base} {why}")
            continue
        for fusion in (f for f in chosen if f != base):
            mine, its = chosen[fusion], chosen[base]
            compared = compare_arms(place(mine), place(its), scores, criteria, resolution)
            if compared is None:
                seed = "tested seed" if criteria.select else "seed"
                why = f"it has no {seed} in common with {base}"
                notes.append(f"{where} {fusion}: not compared, because {why}")
                continue
            notes += notes_on_tests(f"{where} {fusion}", compared["deltas"], resolution)
            notes += [
                f"{where} {fusion}: was run with other values of {KEYS[key]} than {base}"
                for key in keys
                if set(tried[fusion][key]) != set(tried[base][key])
            ]
            row: dict[str, Any] = dict(zip(GROUP, group_key, strict=True))
            row |= {"fusion": fusion, "baseline_variant": row["variant"]}
            for prefix, one in (("", mine), ("baseline_", its)):
                row |= {f"{prefix}{key}{end}": one[f"{key}{end}"]
                        for key in keys for end in ("", "_edge")}  # fmt: skip
                row[f"{prefix}at"] = _at(one, keys)
                row[f"{prefix}choices"] = len(tried[str(one["fusion"])])
            row |= {"length": mine["length"], **compared}
            if "scale" in keys:
                at_sqrt_d: dict[str, Any] = {}
                if fusion in papers and base in papers:
                    both = place(papers[fusion]), place(papers[base])
                    at_sqrt_d = compare_arms(*both, scores, criteria, resolution) or {}
                row |= {f"paper_{name}": at_sqrt_d.get(name, np.nan) for name in JUDGED}
            first = of_group.index[of_group["fusion"] == fusion][0]
            labels = labels_of(untuned.loc[first].to_dict())
            rows.append(row | {name: labels[name] for name in LABELS})
    return rows, notes


def _names(keys: list[str]) -> str:
    return " and ".join(KEYS[key] for key in keys)


def _choice(cells: pd.DataFrame, metric: Metric) -> dict[str, dict[Any, Any]]:
    """Each operator's row of `_best`."""
    return {str(row["fusion"]): row for row in _best(cells, ["fusion"], metric).to_dict("records")}


def _best(cells: pd.DataFrame, by: list[str], metric: Metric) -> pd.DataFrame:
    """The row of each group with the best validation result, or the first one within a tie."""
    groups = cells.dropna(subset=["validation"]).groupby(by, sort=False)
    first = [own.index[metric.first_best(own["validation"])] for _, own in groups]
    return cells.loc[sorted(first)]


def _at(row: dict[Any, Any], keys: list[str]) -> str:
    """The values of a row: "2", or "2, lr 0.001" if both keys vary."""
    return ", ".join(row[key] if key == keys[0] else f"{key} {row[key]}" for key in keys)


def _cautions(rows: pd.DataFrame, keys: list[str], criteria: Criteria) -> list[str]:
    """Cautions about one operator's choice, from its cells."""
    lines = []
    if not rows["best"].any():
        of = f" of {_seeds(criteria)}" if criteria.select else ""
        lines.append(
            f"no best {_names(keys)}, because there is no validation {criteria.metric.title}{of}"
        )
    n = rows.loc[rows["choosing"] > 0, "choosing"]
    if n.nunique() > 1:
        lines.append(f"its values have different numbers of seeds, {n.min()} to {n.max()}")
    return lines
