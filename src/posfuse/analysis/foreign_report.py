"""posfuse-report --from TABLE.csv: judge the per-seed results of any study."""

import argparse
import math
from dataclasses import replace
from pathlib import Path

import pandas as pd
from rich.console import Console
from rich.text import Text

from posfuse.analysis import page
from posfuse.analysis.drawings import Drawing
from posfuse.analysis.evidence.foreign import UNITS, Columns, read_foreign
from posfuse.analysis.figures import figures
from posfuse.analysis.figures.svg import save
from posfuse.analysis.statistics.cautions import Arm, Cautions, cautions
from posfuse.analysis.statistics.comparisons import Criteria
from posfuse.analysis.statistics.foreign import (
    AHEAD,
    BEHIND,
    EQUIVALENT,
    compare_foreign,
    ranking,
)
from posfuse.analysis.tables import formats
from posfuse.analysis.tables.cautions_table import caution_lines, cautions_tables
from posfuse.analysis.tables.table import Table, interval, p_value, signed, table_of
from posfuse.errors import InputError

MOST_IN_FIGURE = 60  # rows of a figure that fits a screen
OF_SWEEPS = ("effect", "metric", "select_seeds", "solved", "primary", "claims")  # options


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that name the columns of a foreign table."""
    group = parser.add_argument_group("results of another study, one row per run")
    add, default = group.add_argument, Columns()
    add("--from", dest="table", type=Path, metavar="TABLE.csv", help="CSV file with a header")
    add("--seed", default=default.seed, metavar="COLUMN", help="default: %(default)s")
    add("--compare", default=default.compare, metavar="COLUMN", help="default: %(default)s")
    add("--value", default=default.value, metavar="COLUMN", help="default: %(default)s")
    add("--by", default="", metavar="COLUMN,COLUMN", help="compare within each combination")
    add("--where", action="append", default=[], metavar="COLUMN=VALUE", help="only these rows")
    add("--unit", choices=UNITS, help="of the values (default: as the numbers say)")
    step = "step of the values, such as 100 / test documents; it tests differences that are equal "
    step += "in all seeds (default: they have no test)"
    add("--resolution", type=float, metavar="POINTS", help=step)
    add("--unpaired", action="store_true", help="runs with equal seeds share nothing")
    add("--all-pairs", action="store_true", help="compare all with each other, not with a baseline")


def columns_of(arguments: argparse.Namespace) -> Columns:
    """Raises InputError for options that a foreign table does not allow, or needs and lacks."""
    for name in OF_SWEEPS:
        if getattr(arguments, name) is not None:
            option = f"--{name.replace('_', '-')}"
            raise InputError(f"{option}: is for the folder of a sweep, not for --from; remove it")
    if arguments.unit == "raw" and arguments.margin is None:
        raise InputError(
            f"--margin: must be given with --unit raw, in the units of {arguments.value}, because "
            "its default is in points of accuracy"
        )
    if arguments.resolution is not None:
        if arguments.unpaired:
            raise InputError("--resolution: is for paired differences; remove it, or --unpaired")
        if not 0 < arguments.resolution < math.inf:
            raise InputError(f"--resolution: must be above 0 (got {arguments.resolution:g})")
    where = {}
    for given in arguments.where:
        column, sign, value = given.partition("=")
        if not sign:
            raise InputError(f"--where: must be COLUMN=VALUE (got {given!r})")
        where[column] = value
    by = [name for name in arguments.by.split(",") if name]
    return Columns(
        arguments.seed, arguments.compare, arguments.value, by, where, arguments.unit
    )  # fmt: skip


def judge_foreign(
    arguments: argparse.Namespace, criteria: Criteria, command: str, console: Console
) -> None:
    """Write the page and the tables of a foreign table, and print its comparisons."""
    columns, out = columns_of(arguments), arguments.out or Path("report")
    results = read_foreign(arguments.table, columns)
    names = sorted(results["name"].unique())
    if not arguments.all_pairs and criteria.baseline not in names:
        raise InputError(
            f"--baseline: no row has {columns.compare}={criteria.baseline}; use one of "
            f"{', '.join(names)}, or --all-pairs"
        )
    paired = not arguments.unpaired
    resolution = math.nan if arguments.resolution is None else arguments.resolution
    comparisons, notes = compare_foreign(results, criteria, paired, arguments.all_pairs, resolution)
    if comparisons.empty:
        why = f" ({notes[0]})" if notes else ""
        raise InputError(
            f"{arguments.table}: nothing to compare{why}; give rows with at least two values of "
            f"{columns.compare}{' for the same seeds' if paired else ''}"
        )
    lines = headline(comparisons, criteria, paired)
    shown = [comparisons_table(comparisons, criteria, paired, columns)]
    if arguments.all_pairs:
        shown.insert(0, rankings_table(results, comparisons))
    leans = cautions_tables(_cautions(results, comparisons, columns), "comparisons")
    tables = [*shown, *leans]
    formats.write_tables(tables, out / "tables")
    html = page.template("short_page.html.j2").render(
        name=arguments.table.stem, headline=lines, tables=tables, notes=notes, command=command,
        figures=_figures(comparisons, criteria, out), made=page.made_with(pd.DataFrame()),
    )  # fmt: skip
    (out / "index.html").write_text(html, encoding="utf-8")
    for line in lines:
        console.print(Text(line), soft_wrap=not console.is_terminal)
    for one in shown:
        console.print(formats.terminal(one))
    for line in [*caution_lines(leans), *notes, str(out / "index.html")]:
        console.print(Text(line), soft_wrap=True)


def _cautions(
    results: pd.DataFrame, comparisons: pd.DataFrame, columns: Columns
) -> dict[str, Cautions]:
    """What each comparison leans on, as far as the numbers alone show it."""
    perfect = 0.0 if columns.unit == "raw" else 100.0
    arms = {
        key: Arm(values=runs["value"].tolist(), perfect=perfect)
        for key, runs in results.groupby(["group", "name"])
    }
    found = {}
    for row in comparisons.to_dict("records"):
        names = [(row["group"], row["name"]), (row["group"], row["than"])]
        own = {" ".join(filter(None, key)): arms[key] for key in names}
        fewest = min(map(int, row["n"].split(", ")))
        found[" - ".join(own)] = cautions(own, fewest)
    return found


def headline(comparisons: pd.DataFrame, criteria: Criteria, paired: bool) -> list[str]:
    """How many comparisons are decided, and how."""
    counts = comparisons["conclusion"].value_counts()
    differ, same = counts.get(AHEAD, 0) + counts.get(BEHIND, 0), counts.get(EQUIVALENT, 0)
    alone = int((comparisons["p_t"] <= criteria.alpha).sum())
    how = "paired by seed" if paired else "of independent runs"
    return [
        f"{differ + same} of {len(comparisons)} comparisons, {how}, are decided: {differ} are "
        f"different and {same} equivalent within ±{criteria.margin:g}, at p ≤ {criteria.alpha:g} "
        "after Holm's adjustment over all of them.",
        f"Without the adjustment {alone} would count as different.",
    ]


def comparisons_table(
    comparisons: pd.DataFrame, criteria: Criteria, paired: bool, columns: Columns
) -> Table:
    unit = "Accuracies are in percent."
    if columns.unit == "raw":
        unit = f"Differences are in the units of {columns.value}."
    tests = "Student's paired t" if paired else "Welch's t"
    return table_of(
        comparisons,
        [
            ("n", str, "n"),
            ("difference", signed, "mean"),
            ("95 % t", interval, "low", "high"),
            ("p", p_value, "p_t"),
            ("p Holm", p_value, "p_holm"),
            ("p equiv.", p_value, "p_equivalence_holm"),
            ("conclusion", str, "conclusion"),
        ],
        keys=["group", "name", "than"],
        name="comparisons",
        title="Comparisons",
        caption=f"Mean difference name - than, with {tests}: interval, two-sided p, p adjusted by "
        "Holm over all comparisons of this table, and the adjusted p of equivalence within "
        f"±{criteria.margin:g}. {unit}",
    )


def rankings_table(results: pd.DataFrame, comparisons: pd.DataFrame) -> Table:
    rows = []
    for group in dict.fromkeys(results["group"]):
        text, counts = ranking(str(group), results, comparisons)
        rows.append(
            {"group": group, "ranking": text, "shown": counts[">"], "of": sum(counts.values())}
        )
    return table_of(
        pd.DataFrame(rows),
        [("ranking", str, "ranking"), ("shown", "{} of {}".format, "shown", "of")],
        keys=["group"],
        name="rankings",
        title="Rankings",
        caption="From the best mean to the worst, with the mean. > the neighbours are shown to "
        "differ, = they are shown to be equivalent, ? their order is not shown. Shown: the number "
        "of > among neighbours.",
    )  # fmt: skip


def _figures(comparisons: pd.DataFrame, criteria: Criteria, out: Path) -> list[Drawing]:
    """The forest of the comparisons, if it is not too long."""
    rows = comparisons.dropna(subset=["low"])
    if len(rows) > MOST_IN_FIGURE or rows.empty:
        return []
    than = rows["than"].unique()
    names = rows["name"] if len(than) == 1 else rows["name"] + " - " + rows["than"]
    cells = rows.assign(data=rows["group"], encoding="", fusion=names, variant="")
    cells["deltas"] = pd.Series([[mean] for mean in rows["mean"]], rows.index)
    baseline = than[0] if len(than) == 1 else "the name behind the minus sign"
    svg = save(
        figures.forest(cells, replace(criteria, baseline=baseline)), out / "figures", "forest"
    )
    return [Drawing("forest", svg, f"Every comparison; the band is ±{criteria.margin:g}.")]
