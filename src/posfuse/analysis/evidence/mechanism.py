"""What runs have measured about their use of position."""

from pathlib import Path

import pandas as pd

from posfuse.analysis.evidence.collect import CELL
from posfuse.errors import InputError
from posfuse.runs import measurements


def mechanism(runs: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """The rows of mechanism.parquet of every run, with CELL and seed; and a line for each run whose
    file is damaged.

    Columns: CELL, seed and those of `Measurement`. No rows if no run has the file.
    """
    found, problems = [], []
    for run in runs.to_dict("records"):
        try:
            rows = measurements.read(Path(run["folder"]))
        except InputError as error:
            problems.append(str(error))
            continue
        if len(rows):
            found.append(rows.assign(seed=run["seed"], **{axis: run[axis] for axis in CELL}))
    columns = [*CELL, "seed", *measurements.frame([])]
    return pd.concat(found)[columns] if found else pd.DataFrame(columns=columns), problems
