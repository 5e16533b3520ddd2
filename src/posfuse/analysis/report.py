"""posfuse-report DIR: records to tables, paired statistics, verdicts, figures and one page."""

import argparse
import importlib.metadata
import math
import platform
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

import posfuse
from posfuse.analysis import page
from posfuse.analysis.claims.verdicts import Claims, Verdict, judge_claims, not_judged, read_claims
from posfuse.analysis.evidence.bag_of_words import bags_of_words
from posfuse.analysis.evidence.collect import collect, failures, learning_curves, missing
from posfuse.analysis.figures.drawings import draw_all
from posfuse.analysis.headline import headline
from posfuse.analysis.statistics.comparisons import Criteria, cells, compare, interactions, trends
from posfuse.analysis.statistics.documents import DocumentEvidence, document_evidence
from posfuse.analysis.statistics.scales import Scales, scales_of
from posfuse.analysis.tables import formats, paired_tables
from posfuse.analysis.tables.paper_tables import paper_tables
from posfuse.analysis.tables.scale_tables import scale_tables
from posfuse.analysis.tables.table import Table
from posfuse.errors import InputError
from posfuse.streams import failure_of_stdout, with_streams

# Beside the versions, what the page says of the runs.
ALSO = ("commit", "host.device")


@dataclass(frozen=True)
class Findings:
    """What the records of one sweep say."""

    runs: pd.DataFrame
    cells: pd.DataFrame
    comparisons: pd.DataFrame
    scales: Scales
    documents: DocumentEvidence
    curves: pd.DataFrame
    tables: list[Table]  # the paper's
    paired: list[Table]
    verdicts: list[Verdict]
    folded: list[Verdict]  # of the paper's claims that no runs here speak of: one line for all
    headline: list[str]  # what the sweep says, a sentence or more a line
    missing: list[str]  # a line a run of the grid without a record
    failures: list[str]  # a line a run that failed
    problems: list[str]  # a line for all that is wrong and left out
    notes: list[str]  # a line for all that could not be compared, or was not to be had


def analyse(
    folder: str,
    runs: pd.DataFrame,
    problems: list[str],
    claims: Claims,
    criteria: Criteria,
    own_claims: bool = False,
) -> Findings:
    """From the runs of one sweep below `folder` to everything that the report says; `problems`
    are those of their collection. Of the paper's claims only those that the runs speak of get a
    verdict; of the user's own claims, all."""
    if criteria.baseline not in set(runs["fusion"]):
        known = ", ".join(sorted(set(runs["fusion"])))
        line = f"--baseline: no run with fusion {criteria.baseline!r}; use {known}"
        problems = [*problems, line]
        comparisons, notes = compare(runs.iloc[:0], criteria)
    else:
        comparisons, notes = compare(runs, criteria)
    documents, mismatched = document_evidence(comparisons, runs, criteria.baseline)
    bags, without_bag = bags_of_words(runs)
    curves, without_curve = learning_curves(runs)
    scales = scales_of(runs, criteria)
    summary = cells(runs)
    for (data, variant), bag in bags.items():
        same = (summary["data"] == data) & (summary["variant"] == variant)
        if bag.accuracy >= summary.loc[same, "mean"].max():
            notes.append(
                f"{data}: a bag of words reaches {bag.accuracy:.2f} %, no fusion more: this corpus "
                "says little about position"
            )
    paired = paired_tables.all_tables(
        comparisons, documents, interactions(comparisons), trends(documents.bins), criteria
    )
    try:
        holes = missing(folder, runs)
    except InputError as error:
        holes, problems = [], [*problems, str(error)]
    verdicts = judge_claims(claims, comparisons, criteria)
    return Findings(
        runs,
        summary,
        comparisons,
        scales,
        documents,
        curves,
        paper_tables(summary, bags),
        [*scale_tables(scales, criteria), *paired],
        [v for v in verdicts if own_claims or v.judged],
        [v for v in verdicts if not own_claims and not v.judged],
        headline(summary, comparisons, scales.best, criteria),
        [" ".join((*hole[:3], f"seed={hole[3]}", *hole[4:])) for hole in holes],
        failures(folder, runs),
        [*problems, *mismatched, *without_curve],
        list(dict.fromkeys([*notes, *scales.notes, *without_bag])),  # a corpus's once, not by scale
    )


def write(found: Findings, criteria: Criteria, command: str, out: Path) -> None:
    """The page, the tables and the figures into `out`."""
    formats.write_tables([*found.tables, *found.paired], out / "tables")
    formats.write_csv(found.runs.drop(columns="configuration"), out / "runs.csv")
    labels = dict(zip(found.runs["data"], found.runs["label_names"], strict=True))
    drawn = draw_all(
        found.cells,
        found.comparisons,
        found.scales.cells,
        found.documents,
        found.curves,
        labels,
        criteria,
        out / "figures",
    )
    html = page.render(
        sweep=found.runs["sweep_id"].iloc[0],
        n_runs=len(found.runs),
        criteria=criteria,
        headline=found.headline,
        verdicts=found.verdicts,
        folded=found.folded,
        problems=found.problems,
        notes=found.notes,
        tables=found.tables,
        paired=found.paired,
        figures=drawn,
        missing=found.missing,
        failures=found.failures,
        command=command,
        made=made_with(found.runs),
    )
    (out / "index.html").write_text(html, encoding="utf-8")


def made_with(runs: pd.DataFrame) -> list[tuple[str, str]]:
    """Versions, commit and machine of the runs, and the versions that made the report."""
    columns = [c for c in map(str, runs) if c.startswith("versions.") or c in ALSO]
    rows = []
    for column in columns:
        values = ", ".join(sorted({str(value) for value in runs[column]}))
        rows.append((f"runs: {column.removeprefix('versions.')}", values))
    made = {"posfuse": posfuse.__version__, "python": platform.python_version()}
    libraries = ("scipy", "scikit-learn", "pandas", "matplotlib")
    made |= {name: importlib.metadata.version(name) for name in libraries}
    return rows + [(f"report: {name}", version) for name, version in made.items()]


def show(found: Findings, criteria: Criteria, console: Console) -> None:
    """In the terminal: what the sweep says, the paper's tables and the tests, the verdicts. A sweep
    over token scales has its own two tables instead; the others have a row for every scale."""
    for i, line in enumerate(found.headline):
        style = "" if i else "bold"
        console.print(Text(line, style=style), soft_wrap=not console.is_terminal)
    console.print()
    scaled = scale_tables(found.scales, criteria)
    for table in reversed(scaled) if scaled else found.tables:
        console.print(formats.terminal(table))
    if len(found.comparisons) and not scaled:
        short = paired_tables.short_table(found.comparisons, criteria)
        console.print(formats.terminal(short))
        console.print(Text(short.caption))
        console.print()
    for v in found.verdicts:
        console.print(Text(f"{v.verdict.upper():13}{v.claim.text}", style="bold"))
        lines = [*v.numbers, page.p_values(v), *([f"To settle it: {v.settle}"] if v.settle else [])]
        for line in lines:
            console.print(Padding(Text(line), (0, 0, 0, 13)))
    for line in not_judged(found.folded):
        console.print(Text(line), soft_wrap=True)
    absent = len(found.missing)
    console.print(f"\nmissing: {absent} of {len(found.runs) + absent} runs")
    for line in [*found.missing, *found.failures, *found.notes]:
        console.print(Text(f"  {line}"), soft_wrap=True)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    criteria = Criteria()
    parser = argparse.ArgumentParser(prog="posfuse-report", description=__doc__)
    parser.add_argument("folder", help="a sweep's folder, as multirun/quickstart")
    parser.add_argument("--out", type=Path, help="where to write (default: report in that folder)")
    parser.add_argument(
        "--baseline", default=criteria.baseline, help="fusion to subtract (default: %(default)s)"
    )
    parser.add_argument(
        "--margin",
        type=float,
        default=criteria.margin,
        help="points of accuracy within which a difference does not matter (default: %(default)s)",
    )
    parser.add_argument(
        "--effect",
        type=float,
        default=criteria.effect,
        help="points that the seeds needed are also given for (default: %(default)s)",
    )
    parser.add_argument("--claims", type=Path, help="a YAML file (default: the paper's claims)")
    return parser.parse_args(arguments)


@with_streams
def main() -> None:
    """Exit status 0; 1, and a line for each, if anything was wrong and had to be left out."""
    arguments = parse()
    criteria = Criteria(arguments.baseline, arguments.margin, arguments.effect)
    command = shlex.join(["posfuse-report", *sys.argv[1:]])
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
    try:
        if not (0 < criteria.margin < math.inf and 0 < criteria.effect < math.inf):
            raise InputError("--margin, --effect: use points above 0")
        claims = read_claims(arguments.claims)
        own_claims = arguments.claims is not None
        runs, problems = collect(arguments.folder)
        out = arguments.out or Path(arguments.folder) / "report"
        wrong: dict[str, None] = dict.fromkeys(problems)  # in order, each once
        sweeps = list(runs.groupby("sweep_id"))
        for sweep_id, of_sweep in sweeps:
            found = analyse(arguments.folder, of_sweep, problems, claims, criteria, own_claims)
            target = out if len(sweeps) == 1 else out / str(sweep_id)
            write(found, criteria, command, target)
            show(found, criteria, console)
            console.print(Text(f"{target / 'index.html'}"), soft_wrap=True)
            wrong |= dict.fromkeys(found.problems)
    except InputError as error:
        sys.exit(f"error: {error}")
    except OSError as error:
        place = error.filename or arguments.out or arguments.folder
        line = f"error: {place}: {error.strerror}; free it or give --out FOLDER"
        sys.exit((None if error.filename else failure_of_stdout("\n")) or line)
    if wrong:
        sys.exit("\n".join(f"error: {problem}" for problem in wrong))


if __name__ == "__main__":
    main()
