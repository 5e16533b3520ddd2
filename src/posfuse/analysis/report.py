"""Write tables, paired statistics, verdicts, figures and an HTML page of a sweep's records."""

import argparse
import math
import re
import shlex
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from posfuse.analysis import foreign_report, page
from posfuse.analysis.claims.verdicts import not_judged, read_claims
from posfuse.analysis.drawings import draw_all
from posfuse.analysis.evidence.collect import collect, declared_family
from posfuse.analysis.evidence.metric import BITS_PER_BYTE, METRICS, metric_of
from posfuse.analysis.findings import Findings, analyse
from posfuse.analysis.statistics.comparisons import Criteria, criteria_for
from posfuse.analysis.tables import formats
from posfuse.analysis.tables.cautions_table import caution_lines
from posfuse.analysis.tables.paired_tables import short_table
from posfuse.analysis.tables.second_tables import second_tables
from posfuse.data.names import check_printable
from posfuse.errors import InputError, checked_streams, failure_of_stdout


def write(found: Findings, criteria: Criteria, command: str, out: Path) -> None:
    """Write the page, the tables and the figures into `out`."""
    tables = [*found.tables, *found.cautions, *found.tuned, *found.paired, *found.described]
    formats.write_tables(tables, out / "tables")
    formats.write_csv(found.runs.drop(columns="configuration"), out / "runs.csv")
    drawn = draw_all(found, criteria, out / "figures")
    html = page.render(found, drawn, criteria, command)
    (out / "index.html").write_text(html, encoding="utf-8")


def show(found: Findings, criteria: Criteria, console: Console) -> None:
    """Print the headline, the paper's tables, the tests and the verdicts.

    A sweep over token scales or learning rates shows its two tables of them instead, since the
    others have a row for every value.
    """
    for i, line in enumerate(found.headline):
        style = "" if i else "bold"
        console.print(Text(line, style=style), soft_wrap=not console.is_terminal)
    console.print()
    for table in reversed(found.tuned) if found.tuned else found.tables:
        console.print(formats.terminal(table))
    if len(found.comparisons) and not found.tuned:
        short = short_table(found.comparisons, criteria)
        console.print(formats.terminal(short))
        console.print(Text(short.caption))
        console.print()
        second = second_tables(found.placebos, criteria)
        for table in [*second, *second_tables(found.survival, criteria)]:
            console.print(formats.terminal(table))
    for line in caution_lines(found.cautions):
        console.print(Text(line))
    for v in found.verdicts:
        console.print(Text(f"{v.verdict.upper():13}{v.claim.text}", style="bold"))
        settle = [f"To settle it: {v.settle}"] if v.settle else []
        for line in [*v.evidence.numbers, page.p_values(v), *settle]:
            console.print(Padding(Text(line), (0, 0, 0, 13)))
    for line in not_judged(found.folded):
        console.print(Text(line), soft_wrap=True)
    absent = len(found.missing)
    console.print(f"\nmissing: {absent} of {len(found.runs) + absent} runs")
    for line in [*(f"  {name}" for name in found.missing), *found.failures, *found.notes]:
        console.print(Text(line), soft_wrap=True)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    criteria = Criteria()
    parser = argparse.ArgumentParser(prog="posfuse-report", description=__doc__)
    add = parser.add_argument
    add("folder", nargs="?", help="folder of a sweep, for example multirun/quickstart")
    add("--out", type=Path, help="output folder (default: report in the sweep's folder)")
    add("--baseline", default=criteria.baseline, help="fusion to subtract (default: %(default)s)")
    points: dict[str, Any] = {"type": float, "metavar": "NUMBER"}
    compared = "what is compared: " + ", ".join(METRICS)
    compared += " (default: bits_per_byte or exact_match if all runs have it, else accuracy)"
    add("--metric", metavar="NAME", help=compared)
    bits = BITS_PER_BYTE
    defaults = f"(default: {criteria.margin} points, or {bits.margin} bits per byte)"
    does_not_matter = f"largest difference that does not matter {defaults}"
    add("--margin", help=does_not_matter, **points)
    defaults = f"(default: {criteria.effect} points, or {bits.effect} bits per byte)"
    listed = f"difference for which the seeds needed are listed {defaults}"
    add("--effect", help=listed, **points)
    chosen = "seeds that choose each operator's best token scale and learning rate by validation, "
    chosen += "as 0,1 or 0-4; only the others are tested (default: all seeds choose and are tested)"
    add("--select-seeds", metavar="SEEDS", help=chosen)
    solved = "test accuracy above which a run solves its task (default: halfway between chance and "
    solved += "100, where the runs of a cell are in two groups)"
    add("--solved", type=float, metavar="PERCENT", help=solved)
    listed = (
        "operators in the family of Holm's adjustment, as concat,gate_scalar, or all (default: "
    )
    add("--primary", metavar="FUSIONS", help=f"{listed}the sweep's sweep.primary)")
    add("--claims", type=Path, help="YAML file of claims (default: the paper's claims)")
    foreign_report.add_options(parser)
    found = parser.parse_args(arguments)
    if (found.folder is None) == (found.table is None):
        parser.error("give the folder of a sweep, or --from TABLE.csv")
    for name in foreign_report.OF_TABLES if found.table is None else ():
        if getattr(found, name) != parser.get_default(name):
            parser.error(f"--{name.replace('_', '-')} is for --from TABLE.csv; remove it")
    return found


def seeds_in(text: str, known: Iterable[int]) -> tuple[int, ...]:
    """The seeds of a text such as "0,1" or "0-4,9", in order.

    Raises InputError for another text, for a seed that is not known, and if no known seed is left.
    """
    known, found = set(known), set()
    for part in text.split(","):
        ends = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part, re.ASCII)
        first, last = (int(end) for end in (ends[1], ends[2] or ends[1])) if ends else (1, 0)
        if last < first:
            raise InputError(f"--select-seeds: must be seeds such as 0,1 or 0-4 (got {text!r})")
        for seed in range(first, last + 1):
            if seed not in known:
                listed = ", ".join(map(str, sorted(known)))
                raise InputError(f"--select-seeds: no run has seed {seed}; choose among {listed}")
            found.add(seed)
    if found == known:
        raise InputError(f"--select-seeds: {text} contains all seeds; leave at least one to test")
    return tuple(sorted(found))


def family_in(text: str, known: Iterable[str], baseline: str) -> tuple[str, ...]:
    """The operators of a text such as "concat, gate_scalar"; empty, which means all, for "all".

    Raises InputError for a name that is not among the known operators, or is the baseline's.
    """
    if text.strip() == "all":
        return ()
    others = sorted(set(known) - {baseline})
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in others:
            raise InputError(
                f"--primary: no run to compare with {baseline} has fusion={name or repr(name)}; "
                f"choose among {', '.join([*others, 'all'])}"
            )
    return tuple(dict.fromkeys(names))


def _declared(folder: str, sweep_id: str) -> tuple[str, ...]:
    try:
        return declared_family(folder, sweep_id)
    except InputError:
        return ()  # the report lists the damaged file among its problems


@checked_streams()
def main() -> None:
    """Exit status 0, or 1 with one line for each problem; what has a problem is left out."""
    arguments = parse()
    options = {name: getattr(arguments, name) for name in ("margin", "effect", "solved")}
    given = {name: value for name, value in options.items() if value is not None}
    criteria = Criteria(arguments.baseline, **given)
    command = shlex.join(["posfuse-report", *sys.argv[1:]])
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
    try:
        check_printable(sys.argv[1:], "the command line")
        for option, points in (("--margin", criteria.margin), ("--effect", criteria.effect)):
            if not 0 < points < math.inf:
                raise InputError(f"{option}: must be above 0 (got {points:g})")
        if criteria.solved is not None and not 0 < criteria.solved < 100:
            raise InputError(f"--solved: must be above 0 and below 100 (got {criteria.solved:g})")
        if arguments.table:
            foreign_report.judge_foreign(arguments, criteria, command, console)
            return
        claims = read_claims(arguments.claims)
        runs, problems = collect(arguments.folder)
        if arguments.select_seeds is not None:
            select = seeds_in(arguments.select_seeds, runs["seed"])
            criteria = replace(criteria, select=select)
        primary = None
        if arguments.primary is not None:
            primary = family_in(arguments.primary, runs["fusion"], criteria.baseline)
        out = arguments.out or Path(arguments.folder) / "report"
        wrong = list(problems)
        sweeps = list(runs.groupby("sweep_id"))
        for sweep_id, of_sweep in sweeps:
            own, family = arguments.claims is not None, primary
            if family is None:
                family = _declared(arguments.folder, str(sweep_id))
            metric = metric_of(of_sweep, arguments.metric)
            of_this = replace(criteria_for(criteria, metric), **given, primary=family)
            found = analyse(arguments.folder, of_sweep, problems, claims, of_this, own)
            target = out if len(sweeps) == 1 else out / str(sweep_id)
            write(found, of_this, command, target)
            show(found, of_this, console)
            console.print(Text(f"{target / 'index.html'}"), soft_wrap=True)
            wrong += found.problems
    except InputError as error:
        sys.exit(f"error: {error}")
    except OSError as error:
        place = error.filename or arguments.out or arguments.folder
        line = f"error: {place}: {error.strerror}; choose another folder with --out"
        sys.exit((None if error.filename else failure_of_stdout("\n")) or line)
    if wrong:
        sys.exit("\n".join(f"error: {problem}" for problem in dict.fromkeys(wrong)))


if __name__ == "__main__":
    main()
