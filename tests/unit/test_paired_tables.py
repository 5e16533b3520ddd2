"""The tables of paired differences: what they show of each comparison."""

import numpy as np
import pandas as pd

from posfuse.report.sections import by_document, differences
from posfuse.statistics import paired as st
from posfuse.statistics.comparisons import Criteria, in_families, judge

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
    table = by_document.documents_table(frame, Criteria(margin=0.5))
    assert column(table, "equivalent") == ["yes", "no", "no", "no", ""]
    assert column(table, "documents") == ["1,200", "1,200 (323)", "1,200", "1,200", "1,200"]
    assert column(table, "90 %")[0] == "-0.40 to +0.40"
    assert table.numeric[table.columns.index("documents")]
    assert "within ±0.5 points" in table.caption
    wide = by_document.documents_table(frame, Criteria(margin=1))
    assert column(wide, "equivalent") == ["yes", "yes", "yes", "yes", ""]


def compared(deltas, criteria):
    """The rows of `compare`, from the differences of each fusion."""
    rows = [{**CELL, "fusion": fusion, **judge(d, criteria)} for fusion, d in deltas.items()]
    same = {"table": "Sinusoidal", "other_settings": "same"}
    return in_families(pd.DataFrame(rows).assign(**same), criteria)


def test_exploratory_rows_have_unadjusted_p_values_that_are_marked():
    deltas = {"concat": [3.0, 3.5, 4.0], "mul": [0.9, 3.0, 2.0], "none": [1.0]}
    criteria = Criteria(primary=("concat",))
    frame = compared(deltas, criteria)
    table = differences.short_table(frame, criteria)
    p = [f"{st.p_paired_t(deltas[name]):.3f}" for name in ("concat", "mul")]
    q = [f"{st.p_equivalence(deltas[name], 0.5):.3f}" for name in ("concat", "mul")]
    assert column(table, "p Holm") == [p[0], f"{p[1]} (unadj.)", ""]
    assert column(table, "p equiv.") == [q[0], f"{q[1]} (unadj.)", ""]
    assert column(table, "verdict") == ["ahead", "exploratory", "exploratory"]
    assert table.numeric[table.columns.index("p Holm")]
    assert "exploratory: not in the sweep's primary family (concat)" in table.caption
    tests = differences.tests_table(frame, criteria)
    assert column(tests, "p t") == [*p, ""]
    assert column(tests, "p Holm") == [p[0], "", ""]
    assert "over the 1 comparisons of the family" in tests.caption
    every = compared(deltas, Criteria())
    assert "exploratory" not in differences.short_table(every, Criteria()).caption
