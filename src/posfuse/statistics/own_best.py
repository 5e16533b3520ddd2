"""Tuned keys: every operator at every value, and each operator at its own best value.

Each operator weighs position against content differently, and each needs its own learning rate. So
a comparison at one value of such a key also measures the value. Validation chooses the values of
each operator. Test documents are not used for the choice. With `Criteria.select` the seeds that
choose are not compared. Otherwise all seeds choose and are compared; docs/statistics.md gives the
cost.

A learned scale starts at sqrt(d) and moves little. It is a candidate like the others, and its
number is sqrt(d).
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from posfuse.evidence.collect import settings_columns, varying
from posfuse.evidence.metric import Metric
from posfuse.evidence.settings import labels_of
from posfuse.statistics import paired as st
from posfuse.statistics.comparisons import (
    Criteria,
    compare_arms,
    in_families,
    judge,
    no_comparison,
    step_of,
)

KEYS = {"scale": "model.token_scale", "lr": "optim.lr"}  # column of a tuned key -> the key
GROUP = ["data", "encoding", "variant"]  # its runs differ only in tuned keys, operator and seed


@dataclass(frozen=True)
class OwnBest:
    """The results by tuned key. Frames are empty if no two runs differ in a tuned key.

    keys: the columns of the tuned keys that vary. `key` below stands for each of them.

    cells: one row per GROUP x fusion x combination of the keys' values. key (text), key_number (of
    a learned scale the one that it starts from), learned, sqrt_d (whether the scale is the
    paper's), length, n, mean, std, low and high (t interval) of the metric on the test split over
    all seeds; choosing and validation: the number of seeds that choose, and their mean on the
    validation split. best: whether validation is the operator's best; the smallest values win a tie
    (within Metric.tie), and a fixed scale before a learned one. key_edge: whether the row is the
    best and its number is the smallest or largest that the operator chose from.

    best: one row per GROUP x fusion but the baseline. key, key_edge, baseline_key,
    baseline_key_edge, at and baseline_at (the values as one text), choices and baseline_choices
    (how many each chose from), length, seeds, scores, baseline_scores, deltas and the
    statistics of `judge` with both at their best values, over the seeds that are tested; the same
    statistics as paper_* with both at the scale sqrt(d), each at its best other values there, NaN
    where that was not run; resolution, table, attention, other_settings (without the tuned keys)
    and baseline_variant (equal to variant) as in `compare`; the columns of `in_families`, and
    paper_p_holm.

    `variant` holds the other settings that differ, as "model.d_model=8", not the run's folder. If
    an operator was run with several options, `fusion` contains them.
    """

    keys: list[str]
    cells: pd.DataFrame
    best: pd.DataFrame
    notes: list[str]  # a line for each row of `best` that is missing or needs caution
    metric: Metric

    def along(self, key: str) -> pd.DataFrame:
        """The cells of each operator by value of one key. If other keys vary too, only the cells
        with the best validation result. No rows if the key does not vary."""
        if key not in self.keys:
            return self.cells.iloc[:0]
        if self.keys == [key]:
            return self.cells
        worst = -self.metric.gain(np.inf)
        known = self.cells.fillna({"validation": worst})
        return self.cells.loc[_best(known, [*GROUP, "fusion", key], self.metric).index]


def own_best(runs: pd.DataFrame, criteria: Criteria) -> OwnBest:
    """The results by tuned key, from the rows of `collect`."""
    tuned, keys = _tuning_runs(runs, criteria.metric)
    cells = _cells(tuned, keys, criteria)
    tested = tuned[~tuned["seed"].isin(criteria.select)]
    rows, notes = _at_own_best(tested, cells, keys, criteria)
    table = _frame(rows, keys, criteria).merge(_encodings(runs, tuned), "left", [*GROUP, "fusion"])
    return OwnBest(keys, cells, in_families(table, criteria), notes, criteria.metric)


def keys_of(best: pd.DataFrame) -> str:
    """The tuned keys of `OwnBest.best`, in words."""
    return " and ".join(key for column, key in KEYS.items() if f"baseline_{column}" in best)


def chosen_by(best: pd.DataFrame, criteria: Criteria) -> str:
    """A sentence about the seeds that chose the values in `OwnBest.best` and the seeds that are
    tested."""
    if len(best) and (best[["choices", "baseline_choices"]] == 1).all(axis=None):
        return "not chosen here: each operator ran with one"
    if not criteria.select:
        return "chosen by the same seeds that are tested"
    return f"chosen by {_seeds(criteria)}, tested with other seeds"


def _seeds(criteria: Criteria) -> str:
    listed = ", ".join(map(str, criteria.select))
    return f"seed{'s' if len(criteria.select) > 1 else ''} {listed}"


def _tuning_runs(runs: pd.DataFrame, metric: Metric) -> tuple[pd.DataFrame, list[str]]:
    """The runs of each GROUP with at least two combinations of values, and the keys that vary.

    Columns: GROUP, fusion, each key's text and number, learned, sqrt_d, validation, seed, length
    and score. A value with two spellings (8, sqrt_d) counts once.
    """
    options = [c for c in settings_columns(runs) if c.startswith("settings.fusion.")]
    others = settings_columns(runs, "fusion.", *KEYS.values())
    of_fusion = varying(runs, ["data", "encoding", "fusion"], options)
    frame = runs[["data", "encoding", "seed", "length"]].assign(
        score=metric.of(runs),
        variant=varying(runs, ["data", "encoding"], others),
        fusion=(runs["fusion"] + " " + of_fusion).str.strip(),
        validation=metric.of(runs, "validation"),
        resolution=_numeric(_column(runs, "documents.test")).map(partial(step_of, metric)),
    )
    root = _numeric(_column(runs, "settings.model.d_model")) ** 0.5
    for column, key in KEYS.items():
        asked = _column(runs, f"settings.{key}")
        number = _numeric(asked).where(~asked.isin(["sqrt_d", "learned"]), root)
        frame[f"{column}_number"] = number
        frame[column] = number.map("{:.6g}".format).where(number.notna(), asked.map(str))
    frame["learned"] = _column(runs, f"settings.{KEYS['scale']}") == "learned"
    frame["sqrt_d"] = np.isclose(frame["scale_number"], root) & ~frame["learned"]
    scales = zip(*(frame[c] for c in ("scale", "scale_number", "sqrt_d", "learned")), strict=True)
    frame["scale"] = [_scale(*row) for row in scales]
    frame = frame.drop_duplicates([*GROUP, "fusion", *KEYS, "seed"])
    combination = frame.groupby([*GROUP, *KEYS]).ngroup()
    combinations = combination.groupby([frame[name] for name in GROUP]).transform("nunique")
    frame = frame[combinations > 1]
    values = frame.groupby(GROUP)[list(KEYS)].nunique()
    return frame, [key for key in KEYS if (values[key] > 1).any()]


def _encodings(runs: pd.DataFrame, tuned: pd.DataFrame) -> pd.DataFrame:
    """GROUP, fusion, table, attention and other_settings, one row for each GROUP x fusion."""
    first = tuned[[*GROUP, "fusion"]].drop_duplicates()
    asked = runs.drop(columns=[f"settings.{key}" for key in KEYS.values()], errors="ignore")
    settings = [labels_of(run) for run in asked.loc[first.index].to_dict("records")]
    columns = ["table", "attention", "other_settings"]
    return first.join(pd.DataFrame(settings, first.index, columns))


def _column(runs: pd.DataFrame, name: str) -> "pd.Series[Any]":
    return runs.get(name, pd.Series(np.nan, runs.index, dtype=object))


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
    if tuned.empty:
        return pd.DataFrame(columns=operator)
    order = tuned.groupby(operator, sort=False).ngroup()
    chooses = tuned["seed"].isin(criteria.select) | (not criteria.select)
    table = tuned.assign(
        order=order,
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
    candidates = cells.dropna(subset=["validation"]).groupby(operator)
    cells["best"] = cells.index.isin(_best(cells, operator, criteria.metric).index)
    for key in keys:
        number = cells[f"{key}_number"]
        low, high = (candidates[f"{key}_number"].transform(end) for end in ("min", "max"))
        at_end = np.isclose(number, low.reindex(cells.index)) | np.isclose(
            number, high.reindex(cells.index)
        )
        cells[f"{key}_edge"] = cells["best"] & at_end & (low < high).reindex(cells.index)
    return cells


def _at_own_best(
    tuned: pd.DataFrame, cells: pd.DataFrame, keys: list[str], criteria: Criteria
) -> tuple[list[dict[str, Any]], list[str]]:
    rows: list[dict[str, Any]] = []
    notes: list[str] = []
    base, metric = criteria.baseline, criteria.metric
    statistics = judge([0.0], criteria)

    def place(row: dict[Any, Any]) -> tuple[Any, ...]:
        """The column of `scores` with the runs of a row of the cells."""
        return (row["fusion"], *(row[key] for key in keys))

    for group_key, group in cells.groupby(GROUP, sort=False):
        where = " ".join(str(part) for part in group_key if part)
        runs = tuned[(tuned[GROUP] == list(group_key)).all(axis=1)]
        resolution = float(runs["resolution"].mean())
        scores = runs.pivot(index="seed", columns=["fusion", *keys], values="score")
        for fusion, own in group.groupby("fusion", sort=False):
            notes += [f"{where} {fusion}: {caution}" for caution in _cautions(own, keys, criteria)]
        candidates = group[group["choosing"] > 0]
        tried = {str(fusion): own for fusion, own in candidates.groupby("fusion", sort=False)}
        chosen, papers = (_choice(rows_, metric) for rows_ in (group, group[group["sqrt_d"]]))
        if base not in chosen:
            named = " and ".join(KEYS[key] for key in keys)
            notes.append(f"{where}: not compared, because {base} has no best {named}")
            continue
        for fusion in (f for f in chosen if f != base):
            mine, its = chosen[fusion], chosen[base]
            compared = compare_arms(place(mine), place(its), scores, criteria, resolution)
            if compared is None:
                tested = "tested seed" if criteria.select else "seed"
                notes.append(
                    f"{where} {fusion}: not compared, because it has no {tested} in common with "
                    f"{base}"
                )
                continue
            for key in keys:
                if set(tried[fusion][key]) != set(tried[base][key]):
                    notes.append(
                        f"{where} {fusion}: was run with other values of {KEYS[key]} than {base}"
                    )
            row: dict[str, Any] = dict(zip(GROUP, group_key, strict=True))
            row |= {"fusion": fusion, "baseline_variant": row["variant"]}
            for prefix, one in (("", mine), ("baseline_", its)):
                row |= {f"{prefix}{key}{end}": one[f"{key}{end}"]
                        for key in keys for end in ("", "_edge")}  # fmt: skip
                row[f"{prefix}at"] = _at(one, keys)
                row[f"{prefix}choices"] = len(tried[str(one["fusion"])])
            row |= {"length": mine["length"], **compared}
            if "scale" in keys and fusion in papers and base in papers:
                both = place(papers[fusion]), place(papers[base])
                at_sqrt_d = compare_arms(*both, scores, criteria, resolution) or {}
                row |= {f"paper_{name}": at_sqrt_d.get(name, np.nan) for name in statistics}
            rows.append(row)
    return rows, notes


def _frame(rows: list[dict[str, Any]], keys: list[str], criteria: Criteria) -> pd.DataFrame:
    of_keys = [*(f"{key}{end}" for key in keys for end in ("", "_edge")), "at", "choices"]
    columns = [*GROUP, "fusion", *of_keys, *(f"baseline_{name}" for name in of_keys)]
    columns += ["length", *(name for name in no_comparison(criteria) if name != "resolution")]
    columns += [*(f"paper_{name}" for name in judge([0.0], criteria))]
    columns += ["resolution", "baseline_variant"]
    return pd.DataFrame(rows, columns=columns)


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
        named = " and ".join(KEYS[key] for key in keys)
        of = f" of {_seeds(criteria)}" if criteria.select else ""
        lines.append(f"no best {named}, because there is no validation {criteria.metric.title}{of}")
    n = rows.loc[rows["choosing"] > 0, "choosing"]
    if n.nunique() > 1:
        lines.append(f"its values have different numbers of seeds, {n.min()} to {n.max()}")
    return lines
