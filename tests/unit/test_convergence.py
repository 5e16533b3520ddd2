"""Runs that were best at their last evaluation, by cell."""

import numpy as np
import pandas as pd

from posfuse.report.sections.spread import convergence_tables
from posfuse.statistics.cells import convergence


def frame(**records):
    """Runs from the records' entries of each fusion."""
    rows = [
        {"data": "tiny", "encoding": "sin", "fusion": fusion, "variant": "", **entry}
        for fusion, entries in records.items()
        for entry in entries
    ]
    return pd.DataFrame(rows)


def evaluations(*best, of=7):
    return [{"best_evaluation": b, "evaluations": of} for b in best]


def test_a_cell_counts_its_runs_with_the_numbers():
    nothing = {"best_evaluation": np.nan, "evaluations": 7}
    found = convergence(frame(add=[*evaluations(7, 3, 7), nothing], gate=evaluations(1, 2)))
    (table,) = convergence_tables(found)
    assert table.rows == [
        ["tiny", "sin", "add", "2 of 3", "5.7", "7.0"],
        ["tiny", "sin", "gate", "0 of 2", "1.5", "7.0"],
    ]
    assert convergence_tables(convergence(frame(add=[{}]))) == []
