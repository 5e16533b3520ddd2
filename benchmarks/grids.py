"""Store the runs of experiment=positions for docs/findings.md.

    posfuse-report multirun/positions
    python benchmarks/positions.py multirun/positions

It writes docs/findings/positions/: one row per run, the figure of accuracy by length and the table
that docs/findings.md shows. tests/unit/test_studies.py computes the table again.
"""

import argparse
import shutil
import sys
from pathlib import Path

import pandas as pd

import studies

FOLDER = studies.FOLDER / "positions"
RUNS, TEXT, FIGURE = "runs.csv", "lengths.md", "lengths.svg"
CELL = ["data", "encoding", "fusion"]
LENGTHS = (40, 80, 160)
MEASURED = ["test.accuracy", *(f"lengths.{length}.accuracy" for length in LENGTHS)]
SECONDS = ["seconds.setup", "seconds.fit", "seconds.test"]


def table(runs: pd.DataFrame) -> str:
    """A row for each task and encoding, a column for each operator: the mean accuracies over seeds
    in percent, of the trained lengths and of each test length."""
    means = 100 * runs.groupby(CELL, sort=False)[MEASURED].mean()
    operators = list(dict.fromkeys(runs["fusion"]))
    lines = ["| task | encoding | " + " | ".join(operators) + " |"]
    lines.append("|" + " --- |" * (2 + len(operators)))
    for task, encoding in dict.fromkeys(zip(runs["data"], runs["encoding"], strict=True)):
        cells = [
            " / ".join(f"{value:.1f}" for value in means.loc[(task, encoding, operator)])
            for operator in operators
        ]
        lines.append(f"| {task} | {encoding} | " + " | ".join(cells) + " |")
    (seeds,) = set(runs.groupby(CELL)["seed"].nunique())
    hours = runs[SECONDS].to_numpy().sum() / 3600
    lengths = ", ".join(map(str, LENGTHS[:-1])) + f" and {LENGTHS[-1]}"
    caption = (
        f"Test accuracy in %, mean over {seeds} seeds: strings of the trained lengths / of "
        f"{lengths} symbols. {len(runs)} runs, {hours:.1f} core hours."
    )
    return "\n".join([*lines, "", caption, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sweep", type=Path, help="as multirun/positions, with its report")
    report = parser.parse_args().sweep / "report"
    if not (report / RUNS).exists():
        sys.exit(f"error: {report / RUNS}: missing; run posfuse-report {report.parent} first")
    runs = pd.read_csv(report / RUNS)[[*CELL, "seed", *MEASURED, *SECONDS, "commit"]]
    FOLDER.mkdir(parents=True, exist_ok=True)
    runs.to_csv(FOLDER / RUNS, index=False)
    shutil.copy(report / "figures" / "results_by_length.svg", FOLDER / FIGURE)
    (FOLDER / TEXT).write_text(table(runs))
    studies.DOCUMENT.write_text(studies.with_texts(studies.DOCUMENT.read_text()))


if __name__ == "__main__":
    main()
