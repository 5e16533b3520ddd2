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


def epochs(*best, of=7):
    return [{"best_epoch": b, "epochs": of} for b in best]


def test_a_cell_counts_its_runs_with_the_numbers():
    nothing = {"best_epoch": np.nan, "epochs": 7}
    found = convergence(frame(add=[*epochs(7, 3, 7), nothing], gate=epochs(1, 2)))
    (table,) = convergence_tables(found)
    assert table.rows == [
        ["tiny", "sin", "add", "2 of 3", "5.7", "7.0"],
        ["tiny", "sin", "gate", "0 of 2", "1.5", "7.0"],
    ]
    assert convergence_tables(convergence(frame(add=[{}]))) == []


def test_evaluations_count_where_a_record_has_them():
    inside = {"best_epoch": 2, "epochs": 2, "best_evaluation": 9, "evaluations": 10}
    last = inside | {"best_evaluation": 10}
    found = convergence(frame(add=[inside, last, *epochs(2, of=2)]))
    assert found[["n", "last", "best"]].to_numpy().tolist() == [[3, 2, (9 + 10 + 2) / 3]]
