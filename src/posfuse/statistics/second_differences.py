"""Differences of differences: the part of an operator's gain that one condition adds, seed by seed.

The part from position is the gain with position minus the gain of the placebo, a run with a table
of zeros (`encoding=none`). The part from pretraining is the gain after pretraining minus the gain
from scratch (Amos et al. 2023, Never Train from Scratch).
"""

import numpy as np
import pandas as pd

from posfuse.evidence.collect import CELL
from posfuse.evidence.metric import Metric
from posfuse.evidence.settings import NO_TABLE
from posfuse.statistics.comparisons import JUDGED, Criteria, compare_arms, in_families, operators

# From the first comparison.
COPIED = [*CELL, "table", "other_settings", "baseline_variant", "length", "resolution"]
SCRATCH = "none"  # pretrain.name of a run without pretraining


def placebos(comparisons: pd.DataFrame, criteria: Criteria) -> pd.DataFrame:
    """The rows of `second_differences` with `placebo`, for each comparison that has position and
    whose placebo was run.

    A placebo has the comparison's data, operator and settings, except for the encoding's. Its
    attention part is that of the comparison, or it has none.
    """
    same = [comparisons["data"], operators(comparisons), comparisons["other_settings"]]
    is_placebo = comparisons["table"] == NO_TABLE
    return second_differences(comparisons, is_placebo, same, criteria, "placebo")


def pretraining_effect(comparisons: pd.DataFrame, criteria: Criteria) -> pd.DataFrame:
    """The rows of `second_differences` with `scratch`, for each comparison with pretraining whose
    operator and baseline were trained from scratch too, with the same settings otherwise."""
    same = [comparisons[name] for name in ("data", "encoding", "fusion", "besides_pretraining")]
    is_scratch = comparisons["pretrain"] == SCRATCH
    return second_differences(comparisons, is_scratch, same, criteria, "scratch")


def second_differences(
    comparisons: pd.DataFrame,
    is_second: "pd.Series[bool]",
    same: "list[pd.Series[str]]",
    criteria: Criteria,
    other: str,
) -> pd.DataFrame:
    """One row for each comparison (a row of `compare` or of `OwnBest.best`) that has a comparison
    under the second condition, with equal `same` and the same attention part or none.

    Columns: COPIED of the first; `other` (the encoding and variant of the second one's runs);
    seeds (that all four cells have); gains, {other}_gains and deltas (lists: of the first, of the
    second, and their difference); gain and {other}_gain (the means); the statistics of `judge` for
    the deltas, and the columns of `in_families`.
    """
    keys, records = zip(*same, strict=True), comparisons.to_dict("records")
    every = list(zip(keys, is_second, records, strict=True))
    # If several have the same key, the first one counts.
    seconds = {(key, row["attention"]): row for key, is_one, row in reversed(every) if is_one}
    rows = []
    for key, is_one, row in every:
        second = seconds.get((key, row["attention"])) or seconds.get((key, ""))
        if is_one or second is None:
            continue
        gains = [pd.Series(each["deltas"], each["seeds"]) for each in (row, second)]
        # Without the last digits of sums, which vary. Coarser rounding would look like a spread.
        both = pd.concat(gains, axis=1, keys=["first", "second"]).round(12)
        compared = compare_arms("first", "second", both, criteria, row["resolution"])
        if compared is None:
            continue
        of_gains = {"gain": compared["scores"], f"{other}_gain": compared["baseline_scores"]}
        own = {name: row[name] for name in COPIED} | compared
        own[other] = f"{second['encoding']} {second['variant']}".strip()
        for name, gains in of_gains.items():
            own |= {f"{name}s": gains, name: float(np.mean(gains))}
        rows.append(own)
    columns = [*COPIED, other, "seeds", "gains", f"{other}_gains", "deltas", "gain"]
    columns += [f"{other}_gain", *JUDGED]
    return in_families(pd.DataFrame(rows, columns=columns), criteria)


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
