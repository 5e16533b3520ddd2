"""A list of the runs, each with its result and a link to its folder, and of runs without a
record."""

import os
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

import numpy as np

from posfuse.evidence.collect import failures, naming_columns
from posfuse.evidence.metric import Metric
from posfuse.report.page import TEMPLATES
from posfuse.report.sections.section import RUN_LIST, Section
from posfuse.report.sweep import Sweep
from posfuse.report.table import Row


def section(sweep: Sweep) -> Section:
    absent = sweep.missing
    failed = failures(sweep.folder, sweep.runs)
    every = len(sweep.runs) + len(absent) + sweep.left_out
    names = naming_columns(sweep.runs)
    runs = [
        run_of(row, " ".join(filter(None, (row[name] for name in names))), sweep.metric, value,
               sweep.out, Path(sweep.folder))
        for row, value in zip(
            sweep.runs.to_dict("records"), sweep.metric.of(sweep.runs), strict=True
        )
    ]  # fmt: skip
    html = runs_html(runs, sweep.metric, [*absent, *failed], len(absent))
    lines = [f"\nmissing: {len(absent)} of {every} runs", *(f"  {name}" for name in absent)]
    return Section(RUN_LIST, html=html, shown=[*lines, *failed])


def run_of(row: Row, name: str, metric: Metric, value: float, out: Path, root: Path) -> Row:
    """Name, result, best evaluation and link of a run. The link leads to its folder, if the page in
    `out` is below `root`, like the runs.

    `row` has seed, folder, and either diverged or best_evaluation and evaluations.
    """
    is_inside = out.resolve().is_relative_to(root.resolve())
    link = quote(Path(os.path.relpath(row["folder"], out)).as_posix()) if is_inside else ""
    best, every = (row.get(name, np.nan) for name in ("best_evaluation", "evaluations"))
    return {
        "name": f"{name} seed={row['seed']}",
        "result": "diverged" if row.get("diverged") else metric.number(value),
        "best": "" if np.isnan(best + every) else f"{best:.0f} of {every:.0f}",
        "link": link,
    }


def runs_html(runs: list[Row], metric: Metric, without: Iterable[str] = (), absent: int = 0) -> str:
    """A folded list of the runs. `without` are lines about runs without a record; `absent` of these
    runs were not started or not finished."""
    return TEMPLATES.get_template("sections/runs.html.j2").render(
        runs=runs, metric=metric, absent=absent, without=list(without)
    )
