"""posfuse-report DIR: the comparison as a table in the terminal."""

import argparse
import sys
from typing import Any

import pandas as pd
from rich.console import Console
from rich.table import Table

from posfuse.analysis.collect import CELL, collect, failures, missing
from posfuse.errors import InputError

METRIC = "test.accuracy"


def compare(runs: pd.DataFrame, baseline: str = "add") -> pd.DataFrame:
    """One row a cell: mean and standard deviation over seeds, and differences to the baseline.

    Accuracies in percent, differences in points. `std` is the sample standard deviation (n - 1),
    NaN for one seed. `deltas` maps each seed that both cells have to fused minus baseline.
    """
    rows = []
    for cell, group in runs.groupby(CELL, sort=False, dropna=False):
        accuracy = 100 * group.set_index("seed")[METRIC]
        labels = dict(zip(CELL, cell, strict=True))
        row: dict[str, Any] = {
            **labels,
            "n": len(group),
            "mean": accuracy.mean(),
            "std": accuracy.std(ddof=1),
        }
        if labels["fusion"] != baseline:
            like = {**labels, "fusion": baseline}
            same = runs.loc[(runs[CELL] == [like[c] for c in CELL]).all(axis=1)]
            delta = (accuracy - 100 * same.set_index("seed")[METRIC]).dropna()
            row |= {"deltas": delta.to_dict(), "delta_mean": delta.mean()}
        rows.append(row)
    return pd.DataFrame(rows, columns=[*CELL, "n", "mean", "std", "deltas", "delta_mean"])


def terminal_table(cells: pd.DataFrame, baseline: str) -> Table:
    """The comparison for a terminal; a line between two corpora."""
    table = Table(
        caption="test accuracy in %, mean ± standard deviation over n seeds; "
        f"differences to {baseline} in points, by seed"
    )
    shown = [c for c in CELL if c != "variant" or cells["variant"].nunique() > 1]
    for column in shown:
        table.add_column(column, overflow="fold")
    for column in ("n", "accuracy", f"- {baseline}"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("by seed")
    previous = cells["data"].iloc[0]
    for row in cells.to_dict("records"):
        if row["data"] != previous:
            table.add_section()
            previous = row["data"]
        spread = "" if pd.isna(row["std"]) else f" ± {row['std']:.2f}"
        difference, by_seed = "", ""
        if isinstance(row["deltas"], dict) and row["deltas"]:
            difference = f"{row['delta_mean']:+.2f}"
            by_seed = "  ".join(f"{seed}: {d:+.2f}" for seed, d in sorted(row["deltas"].items()))
        elif row["fusion"] != baseline:
            by_seed = f"no seed in common with {baseline}"
        labels = [str(row[c]) for c in shown]
        accuracy = f"{row['mean']:.2f}{spread}"
        table.add_row(*labels, str(row["n"]), accuracy, difference, by_seed)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(prog="posfuse-report", description="Compare a sweep's runs.")
    parser.add_argument("folder", help="a sweep's folder, as multirun/quickstart")
    parser.add_argument("--baseline", default="add", help="fusion to subtract (default: add)")
    arguments = parser.parse_args()
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    try:
        runs, problems = collect(arguments.folder)
        if arguments.baseline not in set(runs["fusion"]):
            known = ", ".join(sorted(set(runs["fusion"])))
            raise InputError(f"--baseline: no run with fusion {arguments.baseline!r}; use {known}")
    except InputError as error:
        sys.exit(f"error: {error}")
    for sweep_id, sweep in runs.groupby("sweep_id"):
        console.print(f"[bold]{sweep_id}[/bold]: {len(sweep)} runs")
        console.print(terminal_table(compare(sweep, arguments.baseline), arguments.baseline))
    absent = missing(arguments.folder, runs)
    console.print(f"missing: {len(absent)} of {len(runs) + len(absent)} runs")
    for cell in absent:
        console.print("  {} {} {} seed={}".format(*cell), markup=False)
    for problem in problems + failures(arguments.folder):
        console.print(f"  {problem}", markup=False, soft_wrap=True)


if __name__ == "__main__":
    main()
