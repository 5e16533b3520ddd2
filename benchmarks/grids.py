"""Store the runs of experiments with three seeds for docs/findings.

    posfuse report multirun/positions
    python benchmarks/grids.py multirun/positions
    python benchmarks/studies.py    # writes the page

For each sweep it writes docs/findings/<sweep>/: one row per run and the figure of results by
length.
"""

import argparse
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from posfuse.evidence.metric import ACCURACY, BITS_PER_BYTE, Metric

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "findings"
RUNS, FIGURE = "runs.csv", "lengths.svg"
CELL = ["data", "encoding", "fusion"]
SECONDS = ["seconds.setup", "seconds.fit", "seconds.test"]


@dataclass(frozen=True)
class Grid:
    """What the table of a sweep shows."""

    metric: Metric
    lengths: tuple[int, ...]  # of data.test_lengths
    data: str  # what was tested: at the trained length / at test lengths
    row: str  # the heading of the column of data
    digits: int

    @property
    def measured(self) -> list[str]:
        name = self.metric.name
        return [f"test.{name}", *(f"lengths.{length}.{name}" for length in self.lengths)]


GRIDS = {  # by sweep_id
    "positions": Grid(
        ACCURACY, (40, 80, 160),
        "strings of the trained lengths / of 40, 80 and 160 symbols", "task", 1,
    ),
    "language_model_grid": Grid(
        BITS_PER_BYTE, (128, 256),
        "windows of 64 bytes as in training / of 128 and 256 bytes", "text", 3,
    ),
}  # fmt: skip


def table(runs: pd.DataFrame, grid: Grid) -> str:
    """A row for each corpus and encoding, a column for each operator: the means over seeds at the
    trained length and at each test length."""
    means = grid.metric.factor * runs.groupby(CELL, sort=False)[grid.measured].mean()
    operators = list(dict.fromkeys(runs["fusion"]))
    lines = [f"| {grid.row} | encoding | " + " | ".join(operators) + " |"]
    lines.append("|" + " --- |" * (2 + len(operators)))
    for data, encoding in dict.fromkeys(zip(runs["data"], runs["encoding"], strict=True)):
        cells = [
            " / ".join(f"{value:.{grid.digits}f}" for value in means.loc[(data, encoding, name)])
            for name in operators
        ]
        lines.append(f"| {data} | {encoding} | " + " | ".join(cells) + " |")
    (seeds,) = set(runs.groupby(CELL)["seed"].nunique())
    hours = runs[SECONDS].to_numpy().sum() / 3600
    caption = (
        f"Test {grid.metric.level}, mean over {seeds} seeds: {grid.data}. "
        f"{len(runs)} runs, {hours:.1f} core hours."
    )
    return "\n".join([*lines, "", caption, ""])


def table_of(sweep: str) -> str:
    """The table of a sweep in docs/findings, from its rows."""
    return table(pd.read_csv(FOLDER / sweep / RUNS), GRIDS[sweep])


def keep(sweep: Path) -> None:
    """Write the folder of a sweep."""
    report, grid, folder = sweep / "report", GRIDS[sweep.name], FOLDER / sweep.name
    runs = pd.read_csv(report / RUNS)[[*CELL, "seed", *grid.measured, *SECONDS, "commit"]]
    folder.mkdir(parents=True, exist_ok=True)
    runs.to_csv(folder / RUNS, index=False)
    shutil.copy(report / "figures" / "results_by_length.svg", folder / FIGURE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known = ", ".join(f"multirun/{name}" for name in GRIDS)
    parser.add_argument("sweeps", type=Path, nargs="+", help=f"with their reports: {known}")
    for sweep in parser.parse_args().sweeps:
        if sweep.name not in GRIDS:
            sys.exit(f"error: {sweep}: no table is defined for it; use one of {known}")
        if not (sweep / "report" / RUNS).exists():
            sys.exit(f"error: {sweep / 'report' / RUNS}: missing; run posfuse report {sweep} first")
        keep(sweep)


if __name__ == "__main__":
    main()
