"""What runs have measured about their use of position."""

from pathlib import Path

import pandas as pd

from posfuse.errors import InputError
from posfuse.evidence.collect import CELL, repeated
from posfuse.runs import measurements


def mechanism(runs: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """The rows of mechanism.parquet of every run, with CELL and seed; and a line for each run whose
    file is damaged.

    Columns: CELL, seed and those of `Measurement`. No rows if no run has the file.
    """
    found, kept, problems = [], [], []
    for at, folder in enumerate(runs["folder"]):
        try:
            rows = measurements.read(Path(folder))
        except InputError as error:
            problems.append(str(error))
            continue
        if len(rows):
            found.append(rows)
            kept.append(at)
    if not found:
        return pd.DataFrame(columns=[*CELL, "seed", *measurements.frame([])]), problems
    measured = pd.concat(found, ignore_index=True)[list(measurements.frame([]))]
    cells = repeated(runs.iloc[kept], [len(rows) for rows in found])
    return pd.concat([cells, measured], axis=1), problems
