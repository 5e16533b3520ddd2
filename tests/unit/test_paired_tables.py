"""The tables of paired differences: what they show of each comparison."""

import numpy as np
import pandas as pd

from posfuse.analysis.statistics.comparisons import Criteria
from posfuse.analysis.tables import paired_tables

CELL = {"data": "tiny", "encoding": "sinusoidal", "fusion": "concat", "variant": ""}


def column(table, name):
    return [row[table.columns.index(name)] for row in table.rows]


def test_equivalence_over_documents_is_the_90_percent_interval_inside_the_margin():
    ends = [(-0.4, 0.4), (-0.6, 0.4), (-0.4, 0.6), (-0.5, 0.4), (np.nan, np.nan)]
    frame = pd.DataFrame(
        {
            **CELL, "document_seeds": [0, 1], "n_documents": 1200, "n_groups": groups,
            "documents_mean": 0.1, "documents_low": -3.0, "documents_high": 3.0,
            "documents_low_90": low, "documents_high_90": high, "p_mcnemar": [0.5, 0.04],
        }
        for (low, high), groups in zip(ends, (1200, 323, 1200, 1200, 1200), strict=True)
    )  # fmt: skip
    table = paired_tables.documents_table(frame, Criteria(margin=0.5))
    assert column(table, "equivalent") == ["yes", "no", "no", "no", ""]
    assert column(table, "documents") == ["1,200", "1,200 (323)", "1,200", "1,200", "1,200"]
    assert column(table, "90 %")[0] == "-0.40 to +0.40"
    assert table.numeric[table.columns.index("documents")]
    assert "within ±0.5 points" in table.caption
    wide = paired_tables.documents_table(frame, Criteria(margin=1))
    assert column(wide, "equivalent") == ["yes", "yes", "yes", "yes", ""]
