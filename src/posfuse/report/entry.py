"""Write tables, paired statistics, verdicts, figures and an HTML page of a sweep's records."""

import math
import shlex
import sys
from argparse import Namespace
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pandas as pd
from rich.console import Console

from posfuse.data.names import check_printable
from posfuse.errors import InputError
from posfuse.evidence.collect import collect, declared_family, left_out
from posfuse.evidence.metric import metric_of
from posfuse.report import foreign_table, page
from posfuse.report.sections import (
    answer,
    by_document,
    by_test_length,
    cautions_table,
    claims_judged,
    differences,
    own_values,
    paper,
    run_list,
    second_gains,
    spread,
    training_figures,
)
from posfuse.report.sections.section import Section
from posfuse.report.sweep import Sweep
from posfuse.report.terminal import show
from posfuse.runs.seeds import seeds_of
from posfuse.statistics.comparisons import Criteria, criteria_for
from posfuse.verdicts.claims import read_claims

# In the order of the terminal, and of the page within a chapter.
SECTIONS = (
    answer, paper, own_values, differences, second_gains, by_test_length, by_document, spread,
    claims_judged, cautions_table, training_figures, run_list,
)  # fmt: skip


def sections_of(sweep: Sweep) -> list[Section]:
    """The sections for which the sweep has results."""
    sections = (module.section(sweep) for module in SECTIONS)
    return [section for section in sections if section is not None]


def seeds_in(text: str, known: Iterable[int]) -> tuple[int, ...]:
    """The seeds of a text such as "0,1" or "0-4,9", in order.

    Raises InputError for another text, for an unknown seed, and if no seed is left to test.
    """
    seeds, known = set(seeds_of("--select-seeds", text)), set(known)
    if unknown := sorted(seeds - known):
        listed = ", ".join(map(str, sorted(known)))
        raise InputError(f"--select-seeds: no run has seed {unknown[0]}; choose among {listed}")
    if seeds == known:
        raise InputError(f"--select-seeds: {text} contains all seeds; leave at least one to test")
    return tuple(sorted(seeds))


def family_in(text: str, known: Iterable[str], baseline: str) -> tuple[str, ...]:
    """The operators of a text such as "concat, gate_scalar"; empty for "all", which means all of
    them.

    Raises InputError for a name that is not a known operator, or is the baseline's.
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


def main(arguments: Namespace) -> list[str]:
    """Write and show the report. Returns a line for each record that is left out. Raises InputError
    for a wrong option and for a folder or table without results."""
    names = ("baseline", "margin", "effect", "solved")
    given = {name: v for name in names if (v := getattr(arguments, name)) is not None}
    criteria = Criteria(**given)
    command = shlex.join(["posfuse", "report", *sys.argv[1:]])
    console = Console(highlight=False)
    check_printable(sys.argv[1:], "the command line")
    for option, points in (("--margin", criteria.margin), ("--effect", criteria.effect)):
        if not 0 < points < math.inf:
            raise InputError(f"{option}: must be above 0 (got {points:g})")
    if criteria.solved is not None and not 1 < criteria.solved <= 100:
        raise InputError(
            f"--solved: must be in percent, at most 100 (got {criteria.solved:g}), for example 90"
        )
    if arguments.table:
        sections = foreign_table.sections_of(arguments, criteria)
        out, name = arguments.out or Path("report"), arguments.table.stem
        replaced = [*page.files_of(out), *(out / "tables").glob("*")]
        if arguments.table.resolve() in map(Path.resolve, replaced):
            raise InputError(
                f"--out: the new report may remove or overwrite {arguments.table}; give another "
                f"folder than {out}"
            )
        show(sections, console, page.write(sections, name, command, pd.DataFrame(), out))
        return []
    claims = read_claims(arguments.claims)
    runs, problems = collect(arguments.folder)
    primary = None
    if arguments.primary is not None:
        primary = family_in(arguments.primary, runs["fusion"], criteria.baseline)
    groups = {str(name): of_sweep for name, of_sweep in runs.groupby("sweep_id")}
    out, own_claims = arguments.out or Path(arguments.folder) / "report", bool(arguments.claims)
    sweeps, left = [], left_out(arguments.folder, runs)
    for name, of_sweep in groups.items():  # all options are checked before anything is written
        own = _criteria_of(of_sweep, arguments, criteria)
        family, notes = declared_family(of_sweep) if primary is None else (primary, [])
        own, target = replace(own, **given, primary=family), out if len(groups) == 1 else out / name
        sweeps.append(
            Sweep(arguments.folder, of_sweep, own, claims, own_claims, target, notes, left)
        )
    if any(sweep.criteria.select and not sweep.best.keys for sweep in sweeps):
        raise InputError(
            "--select-seeds: there is nothing to choose, because all runs have the same "
            "model.token_scale and optim.lr; remove this option"
        )
    wrong = list(problems)
    for sweep in sweeps:
        sections = [*sections_of(sweep), Section(problems=problems, notes=sweep.notes)]
        rows = sweep.runs.drop(columns="configuration")
        path = page.write(sections, sweep.name, command, sweep.runs, sweep.out, rows)
        show(sections, console, path)
        wrong += page.problems_of(sections)
    if len(groups) > 1:
        page.remove(out)  # the page of an earlier command, which found a single sweep
    return list(dict.fromkeys(wrong))


def _criteria_of(runs: pd.DataFrame, arguments: Namespace, criteria: Criteria) -> Criteria:
    """The criteria of the runs of a sweep. Raises InputError for an option that does not fit
    them."""
    fusions = sorted(set(runs["fusion"]))
    if arguments.baseline not in (None, *fusions):
        known = ", ".join(fusions)
        raise InputError(f"--baseline: no run has fusion={criteria.baseline}; use {known}")
    metric = metric_of(runs, arguments.metric)
    if criteria.solved is not None and not metric.is_share:
        raise InputError(f"--solved: is in percent, but {metric.title} is compared; remove it")
    if arguments.select_seeds is not None:
        criteria = replace(criteria, select=seeds_in(arguments.select_seeds, runs["seed"]))
    return criteria_for(criteria, metric)
