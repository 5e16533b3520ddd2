"""Differences of differences: how much of an operator's gain one condition adds to another."""

from collections.abc import Iterable
from typing import Any

import pandas as pd

from posfuse.evidence.collect import CELL
from posfuse.statistics.comparisons import Criteria, in_families, judge

COPIED = [*CELL, "baseline_variant", "length", "resolution"]  # from the first comparison
Row = dict[Any, Any]


def second_differences(
    pairs: Iterable[tuple[Row, Row]], criteria: Criteria, other: str
) -> pd.DataFrame:
    """One row for each pair of comparisons, rows of `compare` or of `OwnBest.best`.

    Columns: CELL, baseline_variant, length and resolution of the first; `other` (the encoding and
    variant of the second one's runs); seeds (that all four cells have); gains, {other}_gains and
    deltas (lists: of the first, of the second, and their difference); gain and {other}_gain (the
    means); the statistics of `judge` for the deltas, and the columns of `in_families`.
    """
    rows = []
    for row, second in pairs:
        first, theirs = (pd.Series(r["deltas"], r["seeds"]) for r in (row, second))
        # Rounding errors of equal results must not become a spread.
        both = pd.concat([first, theirs], axis=1, keys=["own", "other"]).dropna().round(9)
        if both.empty:
            continue
        deltas = (both["own"] - both["other"]).tolist()
        rows.append(
            {
                **{name: row[name] for name in COPIED},
                other: f"{second['encoding']} {second['variant']}".strip(),
                "seeds": both.index.tolist(),
                "gains": both["own"].tolist(),
                f"{other}_gains": both["other"].tolist(),
                "deltas": deltas,
                "gain": float(both["own"].mean()),
                f"{other}_gain": float(both["other"].mean()),
                **judge(deltas, criteria, row["resolution"]),
            }
        )
    columns = [*COPIED, other, "seeds", "gains", f"{other}_gains", "deltas", "gain"]
    columns += [f"{other}_gain", *judge([0.0], criteria)]
    return in_families(pd.DataFrame(rows, columns=columns), criteria)
