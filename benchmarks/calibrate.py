"""Error rates of the statistics on simulated sweeps whose truth is known.

`make calibrate` runs it and writes the tables into docs/error_rates.md. Each rate has its 95 %
Clopper-Pearson interval. Each simulation has its own seed, so a second run gives the same figures.
With --only TEXT it makes the tables whose titles contain TEXT, and leaves the others as they are.
"""

import argparse
import platform
import re
from collections.abc import Callable
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

from joblib import Parallel, delayed

import solving
import violations
from posfuse.statistics import paired as st
from posfuse.statistics.sequential import Looks
from simulated import (
    CRITERIA,
    FALSE_AT_MARGIN,
    FALSE_AT_ZERO,
    LOOKS,
    NOISES,
    PUBLISHED_DELTAS,
    both_kinds,
    coverage,
    detection,
    document_coverage,
    equivalence,
    false_claims,
    family_looks,
    group_coverage,
    several_looks,
    verdict_power,
)

BEGIN, END = "<!-- calibration: begin -->", "<!-- calibration: end -->"


def markdown(title: str, rows: list[dict[str, Any]]) -> str:
    columns = list(rows[0])
    lines = [columns, ["---"] * len(columns), *([row[c] for c in columns] for row in rows)]
    return "\n".join([f"**{title}**", "", *(f"| {' | '.join(map(str, x))} |" for x in lines), ""])


def simulations(n_sweeps: int) -> dict[str, list[Callable[..., dict[str, Any]]]]:
    """The rows of each table by its title. A row's seed is its place among all rows, so new tables
    belong at the end."""
    mean, std = float(PUBLISHED_DELTAS.mean()), st.spread(PUBLISHED_DELTAS)
    within = f"±{solving.MARGIN:g}"
    return {
        "A sweep of 9 comparisons, spread 1.5 points: each rate is at most 0.05 if all is well": [
            *(partial(false_claims, noise, n, 1.5, 0.0, FALSE_AT_ZERO, n_sweeps)
              for noise in NOISES for n in (3, 5, 10)),
            *(partial(false_claims, "normal", n, 1.5, CRITERIA.margin, FALSE_AT_MARGIN, n_sweeps)
              for n in (5, 10, 30)),
        ],
        "Differences and equivalences of one sweep, spread 0.3 points: nominal 0.05 per kind": [
            partial(both_kinds, noise, n, n_sweeps)
            for noise in ("normal", "bimodal", "both skewed") for n in (5, 10)
        ],
        "Studies with several looks: the chance of a false result at any look, nominal 0.05": [
            partial(several_looks, noise, looks, 10 * n_sweeps)
            for noise in NOISES for looks in LOOKS.values()
        ],
        "Coverage of the 95 % intervals of a mean difference": [
            partial(coverage, noise, n, n_sweeps) for noise in NOISES for n in (3, 5, 10, 30)
        ],
        "Coverage over seeds and documents": [
            partial(document_coverage, spread, n, n_sweeps)
            for spread in (0.0, 0.15, 1.0) for n in (3, 5, 10)
        ],
        "Coverage over seeds and documents that begin with the same article": [
            partial(group_coverage, correlation, n_sweeps) for correlation in (0.0, 0.46, 0.9)
        ],
        "Power to find a difference": [
            partial(detection, e, s, n, 5 * n_sweeps)
            for e, s, n in ((mean, std, 3), (mean, std, 5), (1.0, 1.5, 5), (1.0, 1.5, 20))
        ],
        f"Equivalence within ±{CRITERIA.margin:g} points": [
            partial(equivalence, s, n, 5 * n_sweeps) for s, n in ((0.3, 5), (0.5, 10), (1.0, 36))
        ],
        f"The published effect ({mean:.2f} ± {std:.2f} points) among all of the paper's claims": [
            partial(verdict_power, n, n_sweeps) for n in (3, 5, 10)
        ],
        "Families of a study: any false difference, at any look, among independent hypotheses": [
            partial(family_looks, noise, Looks(looks), hypotheses, n_sweeps)
            for noise in ("normal", "bimodal", "lognormal", "collapsing", "rarely solved")
            for looks, hypotheses in (((8,), 1), ((8,), 9), ((8, 16, 24), 6))
        ],
        "One arm fails in some runs: a difference found between equal means": [
            partial(violations.failing_runs, share, gap, 10 * n_sweeps)
            for gap in (5, 20) for share in (0.05, 0.1, 0.2)
        ],
        "All seeds share a part of the deviation: a difference found without a true one": [
            partial(violations.shared_deviation, share, 10 * n_sweeps, n_sweeps)
            for share in (0.0, 0.01, 0.05, 0.1, 0.3)
        ],
        "Two identical operators, each tuned once: a difference found": [
            partial(violations.tuned_once, study, factor, 10 * n_sweeps)
            for study in violations.TUNINGS for factor in (1.0, 0.5, 0.0)
        ],
        "Two identical operators, tuned in each repeat: a difference found": [
            partial(violations.tuned_repeatedly, study, repeats, 12, 10 * n_sweeps)
            for study in violations.TUNINGS for repeats in (3, 5, 8)
        ],
        "Runs that solve a task: a false difference in a family of 6": [
            partial(solving.false_results, shape, share, 0.0, n_sweeps)
            for shape in solving.SHAPES for share in solving.SHARES
        ],
        f"Runs that solve a task: a false equivalence within {within} in a family of 6": [
            *(partial(solving.false_results, shape, share, solving.MARGIN, n_sweeps)
              for shape in solving.SHAPES for share in solving.SHARES),
            *(partial(solving.false_results, shape, 1.0, solving.MARGIN, n_sweeps)
              for shape in ("both", "both, other spreads")),
        ],
        "Runs that solve a task: a difference found by one test": [
            partial(solving.found, case, n, 2 * n_sweeps)
            for case in solving.CASES for n in (8, 16, 24)
        ],
    }  # fmt: skip


def replaced(page: str, made: str, tables: dict[str, str], order: list[str], only: str) -> str:
    """The page with new tables by title, in this order. With `only` its other tables stay."""
    before, rest = page.split(BEGIN)
    old, after = rest.split(END)
    if only:
        parts = (f"{part.strip()}\n" for part in re.split(r"(?m)^(?=\*\*)", old))
        lines = [line for line in next(parts).splitlines() if f"'{only}'" not in line]
        made = "\n".join([*lines, f"With `--only '{only}'`: {date.today()}.", ""])
        tables = {part.split("**")[1]: part for part in parts} | tables
    text = "\n".join([made, *(tables[title] for title in order if title in tables)])
    return f"{before}{BEGIN}\n{text}{END}{after}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path, help="the document to write the tables into")
    parser.add_argument("--sweeps", type=int, default=1_000, help="simulated sweeps per row")
    parser.add_argument("--only", default="", help="a part of the titles of the tables to make")
    arguments = parser.parse_args()
    tasks = simulations(arguments.sweeps)
    rows = enumerate((title, task) for title, group in tasks.items() for task in group)
    wanted = [(title, task, seed) for seed, (title, task) in rows if arguments.only in title]
    found = Parallel(n_jobs=-1)(delayed(task)(seed=seed) for _, task, seed in wanted)
    by_title: dict[str, list[dict[str, Any]]] = {title: [] for title, *_ in wanted}
    for (title, *_), row in zip(wanted, found, strict=True):
        by_title[title].append(row)
    tables = {title: markdown(title, own) for title, own in by_title.items()}
    made = (
        f"`make calibrate` ({arguments.sweeps:,} simulated sweeps or studies a row, in some tables "
        f"2, 5 or 10 times as many), {date.today()}, {platform.machine()}, about an hour on two "
        "cores.\n"
    )
    print("\n".join([made, *tables.values()]))
    if arguments.write:
        page = arguments.write.read_text(encoding="utf-8")
        page = replaced(page, made, tables, list(tasks), arguments.only)
        arguments.write.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
