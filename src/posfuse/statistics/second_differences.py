"""Differences of differences: the part of an operator's gain that one condition adds.

A placebo is a run with a table of zeros (`encoding=none`): every operator keeps its parameters, but
gets no position. The gain over the baseline that remains does not come from position. The part from
position is the gain with position minus the gain without position, seed by seed.

Differences between architectures that are trained from random initial values may come from training
and not from the architectures (Amos et al. 2023, Never Train from Scratch). The part from
pretraining is the gain after pretraining minus the gain from scratch.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from posfuse.evidence.collect import CELL
from posfuse.evidence.metric import Metric
from posfuse.evidence.settings import NO_TABLE
from posfuse.statistics.comparisons import Criteria, compare_arms, in_families, judge, operators

COPIED = [*CELL, "baseline_variant", "length", "resolution"]  # from the first comparison
SCRATCH = "none"  # pretrain.name of a run without pretraining
Row = dict[Any, Any]


def placebos(comparisons: pd.DataFrame, criteria: Criteria) -> pd.DataFrame:
    """The rows of `second_differences` with `placebo`, for each comparison that has position and
    whose placebo was run.

    A placebo has the comparison's data, operator and settings, except for the encoding's. Its
    attention part is that of the comparison, or it has none.
    """

    def placebo_of(row: Row) -> pd.DataFrame:
        same = comparisons[
            (comparisons["data"] == row["data"])
            & (operators(comparisons) == row["fusion"].split()[0])
            & (comparisons["other_settings"] == row["other_settings"])
            & (comparisons["table"] == NO_TABLE)
            & (row["table"] != NO_TABLE)
        ]
        same_attention = same[same["attention"] == row["attention"]]
        both: pd.DataFrame = pd.concat([same_attention, same[same["attention"] == ""]])
        return both

    return second_differences(comparisons, placebo_of, criteria, "placebo")


def survival(comparisons: pd.DataFrame, criteria: Criteria) -> pd.DataFrame:
    """The rows of `second_differences` with `scratch`, for each comparison with pretraining whose
    operator and baseline were trained from scratch too, with the same settings otherwise."""

    def from_scratch(row: Row) -> pd.DataFrame:
        same = (comparisons["pretrain"] == SCRATCH) & (row["pretrain"] != SCRATCH)
        for name in ("data", "encoding", "fusion", "besides_pretraining"):
            same &= comparisons[name] == row[name]
        selected: pd.DataFrame = comparisons[same]
        return selected

    return second_differences(comparisons, from_scratch, criteria, "scratch")


def second_differences(
    comparisons: pd.DataFrame,
    others_of: Callable[[Row], pd.DataFrame],
    criteria: Criteria,
    other: str,
) -> pd.DataFrame:
    """One row for each comparison (a row of `compare` or of `OwnBest.best`) for which `others_of`
    returns comparisons under the second condition. The first of these is used.

    Columns: CELL, baseline_variant, length and resolution of the first; `other` (the encoding and
    variant of the second one's runs); seeds (that all four cells have); gains, {other}_gains and
    deltas (lists: of the first, of the second, and their difference); gain and {other}_gain (the
    means); the statistics of `judge` for the deltas, and the columns of `in_families`.
    """
    rows = []
    for row in comparisons.to_dict("records"):
        second = next(iter(others_of(row).to_dict("records")), None)
        if second is None:
            continue
        gains = [pd.Series(each["deltas"], each["seeds"]) for each in (row, second)]
        # Rounding errors of equal results must not count as a spread.
        both = pd.concat(gains, axis=1, keys=["first", "second"]).round(9)
        compared = compare_arms("first", "second", both, criteria, row["resolution"])
        if compared is None:
            continue
        means = [float(np.mean(compared[name])) for name in ("scores", "baseline_scores")]
        rows.append(
            {
                **{name: row[name] for name in COPIED},
                other: f"{second['encoding']} {second['variant']}".strip(),
                **dict(zip(("gain", f"{other}_gain"), means, strict=True)),
                **compared,
            }
        )
    columns = [*COPIED, other, "seeds", "scores", "baseline_scores", "deltas", "gain"]
    columns += [f"{other}_gain", *judge([0.0], criteria)]
    frame = pd.DataFrame(rows, columns=columns)
    renamed = {"scores": "gains", "baseline_scores": f"{other}_gains"}
    return in_families(frame.rename(columns=renamed), criteria)


def of_position(
    rows: pd.DataFrame, added: pd.DataFrame, metric: Metric
) -> tuple[pd.DataFrame, str]:
    """Comparisons with the part from position in place of their differences, and a line about it.

    `added` is the frame of `placebos`. If it lacks any of the rows, the comparisons do not change.
    """
    new = ["seeds", "deltas", "n", "gain", "placebo_gain"]
    with_position = rows.drop(columns=new[:3]).merge(added[[*CELL, *new]], on=CELL, how="left")
    names = [" ".join(filter(None, cell)) for cell in rows[CELL].itertuples(index=False)]
    without = [name for name, n in zip(names, with_position["n"], strict=True) if np.isnan(n)]
    if without:
        of = "" if len(without) == len(names) else f" for {', '.join(without)}"
        return rows, f"judged: the plain gain, because the placebo (encoding=none) was not run{of}"
    signed = metric.signed
    gains = zip(names, with_position["gain"], with_position["placebo_gain"], strict=True)
    texts = [f"{name} {signed(gain)} and {signed(less)}" for name, gain, less in gains]
    return with_position, (
        "judged: what position adds, the gain with position minus the gain without "
        f"({', '.join(texts)})"
    )
