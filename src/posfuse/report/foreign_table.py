"""posfuse report --from TABLE.csv: judge the per-seed results of any study."""

import math
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from posfuse.data.names import canonical
from posfuse.errors import InputError
from posfuse.evidence.foreign import Columns, first_names, read_foreign
from posfuse.evidence.metric import Metric
from posfuse.report.sections.cautions_table import cautions_section
from posfuse.report.sections.differences import forest
from posfuse.report.sections.section import RESULTS, Answer, Drawing, Section, answer_of, drawing
from posfuse.report.table import Column, Table, p_value, t_interval, table_of
from posfuse.statistics.cautions import FEW, FEW_VALUES, Arm, Cautions, cautions
from posfuse.statistics.cells import APART
from posfuse.statistics.comparisons import Criteria
from posfuse.statistics.contrasts import AHEAD, BEHIND, EQUIVALENT, UNDECIDED
from posfuse.statistics.group_comparisons import compare_foreign, over_groups, rankings

NOT_TESTED = "not tested"
MOST_IN_FIGURE = 60  # rows of a figure that fits a screen
MOST_ROWS = 1_000  # of a table on the page; its CSV file has all rows
MOST_NOTES = 20
MOST_ANSWERS = 100  # rows of the table at the top of the page, most of them folded


def columns_of(arguments: Namespace) -> Columns:
    """The meaning of the columns. Raises InputError for options that a foreign table does not
    allow, and for missing ones."""
    if arguments.unit == "raw" and arguments.margin is None:
        raise InputError(
            f"--margin: must be given with --unit raw, in the units of {arguments.value}, because "
            "its default is in points of accuracy"
        )
    if arguments.resolution is not None:
        if arguments.unpaired or arguments.overall:
            raise InputError(
                "--resolution: is for paired differences of single groups; remove it, or "
                "--unpaired and --overall"
            )
        if not 0 < arguments.resolution < math.inf:
            raise InputError(f"--resolution: must be above 0 (got {arguments.resolution:g})")
    where = {}
    for given in arguments.where:
        column, sign, value = given.partition("=")
        if not sign:
            raise InputError(f"--where: must be COLUMN=VALUE (got {given!r})")
        if (column := column.strip()) in where:
            raise InputError(f"--where: {column} is given twice; give each column one value")
        where[column] = value
    if arguments.all_pairs and arguments.baseline is not None:
        raise InputError("--all-pairs: has no baseline; remove --baseline or --all-pairs")
    by, units = (_names(given) for given in (arguments.by, arguments.overall))
    if units and not by:
        raise InputError("--overall: is the mean over the groups of --by; give --by, or remove it")
    if units and units != [arguments.seed]:
        if other := [name for name in units if name not in by]:
            raise InputError(
                f"--overall: must be {arguments.seed}, or columns of --by (got {other[0]})"
            )
        if arguments.unpaired:
            raise InputError(
                f"--unpaired: is for --overall {arguments.seed}; remove it, because means of the "
                "same groups are paired by group"
            )
    return Columns(
        arguments.seed, arguments.compare, arguments.value, by, where, arguments.unit, units
    )


def _names(given: str) -> list[str]:
    return [name.strip() for name in given.split(",") if name.strip()]


def criteria_of(columns: Columns, criteria: Criteria, lower_is_better: bool) -> Criteria:
    """The criteria with the metric of the foreign table."""
    value, unit, digits = columns.value, "points", 2  # the unit "points" means percent
    if columns.unit == "raw":
        unit = value if value != unit else f"raw {unit}"
        digits = max(2, 2 - math.floor(math.log10(criteria.margin)))  # three digits of the margin
    metric = Metric(value, value, unit, 1.0, digits, lower_is_better=lower_is_better, split="")
    return replace(criteria, metric=metric)


def sections_of(arguments: Namespace, criteria: Criteria) -> list[Section]:
    """The sections of the report of a foreign table. Raises InputError as `columns_of` and
    `read_foreign`, for an unknown baseline, and if there is nothing to compare."""
    columns = columns_of(arguments)
    results = read_foreign(arguments.table, columns)
    paired = not arguments.unpaired
    notes: list[str] = []
    if not arguments.all_pairs:
        names = sorted(results["name"].unique())
        baseline = {canonical(name): name for name in names}.get(canonical(criteria.baseline))
        if baseline is None:
            raise InputError(
                f"--baseline: no row has {columns.compare}={criteria.baseline}; use one of "
                f"{first_names(names)}, or --all-pairs"
            )
        criteria = replace(criteria, baseline=baseline)
    criteria = criteria_of(columns, criteria, arguments.lower_is_better)
    is_seed = columns.units in ([], [columns.seed])
    units = "seeds" if is_seed else f"values of {', '.join(columns.units)}"
    if columns.units:
        results, notes = over_groups(results, is_seed)
    resolution = math.nan if arguments.resolution is None else arguments.resolution
    comparisons, further = compare_foreign(
        results, criteria, paired, arguments.all_pairs, resolution, units
    )
    notes += further
    if comparisons.empty:
        why = f" ({notes[0]})" if notes else ""
        raise InputError(
            f"{arguments.table}: nothing to compare{why}; give rows with at least two values of "
            f"{columns.compare}{f' for the same {units}' if paired else ''}"
        )
    if len(notes) > MOST_NOTES:
        notes[MOST_NOTES:] = [f"and {len(notes) - MOST_NOTES:,} more notes of this kind"]
    if len(comparisons) > MOST_ROWS:
        notes.append(f"cautions are about the first {MOST_ROWS:,} comparisons")
    tables = [comparisons_table(comparisons, criteria, paired, columns)]
    if arguments.all_pairs:
        tables.insert(0, rankings_table(rankings(results, comparisons, criteria), criteria))
    other = "" if arguments.all_pairs else f" from {criteria.baseline}"
    question = f"Which values of {columns.compare} differ in {columns.value}{other}?"
    # No scale of raw values is known: groups within the margin do not matter.
    perfect, apart = 100.0, f"{100 * APART:g} points"
    if columns.unit == "raw":
        perfect, apart = criteria.margin / APART, "the margin"
    by_name = _cautions(results, comparisons, perfect, is_seed)
    return [
        Section(
            RESULTS,
            lead=[question, counted(comparisons, columns)],
            basis=rules(comparisons, criteria, paired, columns),
            answers=_answers(comparisons, criteria.metric),
            margin=criteria.margin,
            unit=criteria.metric.unit,
            counted=units,
            drawings=_drawings(comparisons, criteria),
            tables=tables,
            shown=tables,
            notes=notes,
        ),
        cautions_section(by_name, chapter=RESULTS, apart=apart),
    ]


def _answers(comparisons: pd.DataFrame, metric: Metric) -> list[Answer]:
    """The first comparisons, decided ones before others. The table of comparisons has all."""
    ranked = comparisons.sort_values(
        "verdict", key=lambda verdict: verdict.eq(UNDECIDED), kind="stable"
    )
    answers = []
    for row in ranked.head(MOST_ANSWERS).to_dict("records"):
        p, equivalence = p_value(row["p_holm"]), p_value(row["p_equivalence_holm"])
        tested = f"After Holm's adjustment: p {p}, of equivalence {equivalence}." if p else ""
        name = f"{row['group']}: {row['name']} - {row['than']}"
        answers.append(answer_of(row, name, metric.digits, tested))
    return answers


def _cautions(
    results: pd.DataFrame, comparisons: pd.DataFrame, perfect: float, is_seed: bool
) -> dict[str, Cautions]:
    """The cautions of each comparison that the numbers show. For values that are means over tasks
    there is only the caution about few values."""
    first = comparisons.head(MOST_ROWS)  # a table may have 100,000 groups
    by_arm = results[results["group"].isin(first["group"])].groupby(["group", "name"])
    arms = {key: runs.set_index("seed")["value"] for key, runs in by_arm}
    by_name = {}
    for row in first.to_dict("records"):
        names = [(row["group"], row["name"]), (row["group"], row["than"])]
        one, other = (arms[key] for key in names)
        if "," not in row["n"]:  # paired: the seeds in common
            one, other = one.align(other, join="inner")
        own = {
            " ".join(filter(None, key)): Arm(values.tolist() if is_seed else (), perfect=perfect)
            for key, values in zip(names, (one, other), strict=True)
        }
        fewest = min(map(int, row["n"].split(", ")))
        by_name[" - ".join(own)] = cautions(own, fewest, few=FEW if is_seed else FEW_VALUES)
    return by_name


def counted(comparisons: pd.DataFrame, columns: Columns) -> str:
    """The number of comparisons with each verdict, in a sentence."""
    counts = _tested(comparisons).replace([AHEAD, BEHIND], "different").value_counts()
    kinds = [k for k in ("different", EQUIVALENT, UNDECIDED, NOT_TESTED) if k in counts]
    over = f" of the {comparisons['group'].iloc[0]}" if columns.units else ""
    listed = ", ".join(f"{counts[kind]} {kind}" for kind in kinds)
    total = len(comparisons)
    return f"{total} comparison{'s' * (total != 1)}{over}: {listed}."


def _tested(comparisons: pd.DataFrame) -> "pd.Series[str]":
    """The verdicts, and NOT_TESTED for comparisons without a test."""
    return comparisons["verdict"].where(comparisons["p_t"].notna(), NOT_TESTED)


def rules(
    comparisons: pd.DataFrame, criteria: Criteria, paired: bool, columns: Columns
) -> list[str]:
    """Sentences about how the comparisons were tested."""
    how, about = "paired by seed" if paired else "of independent runs", []
    if columns.units == [columns.seed]:
        about.append(
            "n counts seeds, each with its mean over all groups. The conclusions are about new "
            "seeds of these groups. They say nothing about other groups."
        )
    elif columns.units:
        units = ", ".join(columns.units)
        how = f"paired by {units}"
        about.append(
            f"n counts the values of {units}, each with its mean over all its groups and seeds. "
            "The conclusions are about further values, if these are a random sample of them."
        )
    if criteria.metric.lower_is_better:
        about.append(f"Lower values of {columns.value} are better.")
    if (more := len(comparisons) - MOST_ANSWERS) > 0:
        about.append(f"The table of comparisons has {more:,} more rows.")
    alone = int((comparisons["p_t"] <= criteria.alpha).sum())
    return [
        f"Decided: p ≤ {criteria.alpha:g} after Holm's adjustment over all comparisons, {how}, for "
        f"a difference or for equivalence within ±{criteria.margin:g}. Without the adjustment "
        f"{alone} would count as different.",
        *about,
    ]


def comparisons_table(
    comparisons: pd.DataFrame, criteria: Criteria, paired: bool, columns: Columns
) -> Table:
    metric = criteria.metric
    unit = f"Differences are in the units of {columns.value}."
    if metric.is_share:
        unit = "Accuracies are in percent."
    tests = "Student's paired t" if paired else "Welch's t"
    return _readable(
        comparisons.assign(verdict=_tested(comparisons)),
        [
            ("verdict", str, "verdict"),
            ("n", str, "n"),
            ("difference", metric.signed, "mean"),
            t_interval(metric),
            ("p", p_value, "p_t"),
            ("p Holm", p_value, "p_holm"),
            ("p equiv.", p_value, "p_equivalence_holm"),
        ],
        keys=["group", "name", "than"],
        name="comparisons",
        title="Comparisons",
        caption=f"Mean difference, name minus than{metric.better}, with {tests}: interval, "
        "two-sided p, p adjusted by Holm over all comparisons of this table, and the adjusted p of "
        f"equivalence within ±{criteria.margin:g}. {unit}",
    )


def rankings_table(ranked: pd.DataFrame, criteria: Criteria) -> Table:
    return _readable(
        ranked,
        [("ranking", str, "ranking"), ("shown", "{} of {}".format, "shown", "of")],
        keys=["group"],
        name="rankings",
        title="Rankings",
        caption=f"Names from the best ({criteria.metric.best}) mean to the worst, with the mean. "
        "Between neighbours: > different, = equivalent, ? undecided, < the second is ahead on the "
        "seeds in common. Shown: how many neighbours have >.",
    )


def _readable(frame: pd.DataFrame, columns: Sequence[Column], caption: str, **more: Any) -> Table:
    """The table of the first MOST_ROWS rows; its CSV file has all rows."""
    if len(frame) > MOST_ROWS:
        caption += f" These are the first {MOST_ROWS:,} of {len(frame):,} rows; the CSV file has "
        caption += "all."
    shown = table_of(frame.head(MOST_ROWS), columns, caption=caption, **more)
    return replace(shown, numbers=frame)


def _drawings(comparisons: pd.DataFrame, criteria: Criteria) -> list[Drawing]:
    """The forest of the comparisons, if it is not too long."""
    rows = comparisons.dropna(subset=["low"])
    if len(rows) > MOST_IN_FIGURE:
        return []
    names, baseline = rows["name"] + " against " + rows["than"], "the second name"
    if rows["than"].nunique() == 1:
        names, baseline = rows["name"], rows["than"].iloc[0]
    cells = rows.assign(data=rows["group"], encoding="", fusion=names, variant="")
    caption = f"Every comparison; the band is ±{criteria.margin:g}."
    return drawing(forest, cells, replace(criteria, baseline=baseline), caption=caption)
