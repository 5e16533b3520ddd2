"""Tuned keys: every operator at every value, each at its best value, and by tuning budget."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator

from posfuse.evidence.metric import ACCURACY, Metric
from posfuse.report import formats
from posfuse.report.figures import plot, style, svg
from posfuse.report.sections.differences import (
    outside_family,
    to_baseline,
    verdict_columns,
)
from posfuse.report.sections.second_gains import second_tables
from posfuse.report.sections.section import PAIRED, Drawing, Section
from posfuse.report.sweep import Sweep
from posfuse.report.table import (
    Row,
    Table,
    by_fusion,
    if_many,
    interval,
    over_seeds,
    signed,
    table_of,
)
from posfuse.statistics.budget import budgets
from posfuse.statistics.comparisons import Criteria
from posfuse.statistics.own_best import KEYS, OwnBest, chosen_by, keys_of

MARK = "*"  # an operator's own best values
EDGE = "‡"  # a best value at the end of the tried values
AT_EDGE = (
    f"{EDGE} the best value is the smallest or largest that the operator was run with, so a value "
    "beyond may be better. "
)
BIAS = (
    "Such a choice favours an operator that has more values near its best one; docs/statistics.md "
    "gives the size of this bias, and --select-seeds removes it. "
)
MOST_BUDGETS = 20  # columns; with more, powers of 2
WORDS = {"scale": "scale", "lr": "learning rate"}
LEARNED_SHIFT = 2**0.2  # a learned scale is drawn just to the right of its initial scale


def section(sweep: Sweep) -> Section:
    own_best, criteria, metric = sweep.best, sweep.criteria, sweep.metric
    tables = second_tables(sweep.best_placebos, criteria, keys_of(own_best.best))
    tables += own_best_tables(own_best, criteria)
    problems = []
    if criteria.select and not own_best.keys:
        problems.append(
            "--select-seeds: there is nothing to choose, because all runs have the same "
            "model.token_scale and optim.lr; remove this option"
        )
    figures = (
        (scale, own_best.along("scale"), f"{metric.heading} by token scale: is an operator better, "
         "or does it only move the best scale?"),
        (learning_rate, own_best.along("lr"), f"{metric.heading} by learning rate."),
        (budget, budgets(own_best.cells, metric), "Tuning budget: the expected best validation "
         f"{metric.title} of k trials."),
    )  # fmt: skip
    return Section(
        PAIRED,
        drawings=[
            Drawing(draw.__name__, partial(draw, rows, metric), caption)
            for draw, rows, caption in figures
            if len(rows)
        ],
        tables=tables,
        shown=list(map(formats.Fitted, reversed(tables))),
        notes=own_best.notes,
        problems=problems,
    )


def own_best_tables(own_best: OwnBest, criteria: Criteria) -> list[Table]:
    """The tables that have rows."""
    best = [best_table(own_best, criteria)] if len(own_best.best) else []
    by_budget = budgets(own_best.cells, criteria.metric)
    trial = (
        "A trial is a combination of the tuned values; its score is the mean over the seeds that "
        "choose."
    )
    more = [budget_table(by_budget, criteria.metric, trial)] if len(by_budget) else []
    return [*best, by_value_table(own_best, criteria), *more] if len(own_best.cells) else best


def best_table(own_best: OwnBest, criteria: Criteria) -> Table:
    """The operators compared with the baseline, each at its own best values."""
    best, keys, base, metric = own_best.best, own_best.keys, criteria.baseline, criteria.metric
    signs = partial(signed, digits=metric.digits)
    several = if_many(best, "encoding")  # a single one is in the title: the table is wide
    encoding = "" if several else f", encoding {best['encoding'].iloc[0]}"
    columns = verdict_columns(metric, "at best")
    columns += [(key, _value, key, f"{key}_edge") for key in keys]
    for key in keys:
        heading = f"{base}'s" if len(keys) == 1 else f"{base}'s {key}"
        columns.append((heading, _value, f"baseline_{key}", f"baseline_{key}_edge"))
    at_paper = ""
    if "scale" in keys:
        columns += [
            ("at sqrt_d", signs, "paper_mean"),
            ("95 % t", partial(interval, digits=metric.digits), "paper_low", "paper_high"),
        ]
        others = ", each at its best learning rate there" if len(keys) > 1 else ""
        at_paper = f"at sqrt_d: both operators at the paper's scale{others}. "
    chosen = chosen_by(best, criteria)
    bias = BIAS if "the same seeds" in chosen else ""
    edges = any(best[f"{of}{key}_edge"].any() for key in keys for of in ("", "baseline_"))
    return table_of(
        best,
        columns,
        ["data", *several, *if_many(best, "variant"), "fusion"],
        name=f"best_{'_'.join(keys)}",
        title=f"At each operator's own best {_words(keys)}{encoding}",
        caption=f"{to_baseline(criteria)}, paired by seed, with its 95 % t "
        f"interval. {at_paper}at best: each operator at the {keys_of(best)} with its {metric.best} "
        f"mean validation {metric.title} ({chosen}). n, the p-values (Holm-adjusted over this "
        "table) and the verdict belong to the difference at best. "
        f"{AT_EDGE if edges else ''}{bias}"
        "gate_constant and add_scaled learn one number that weighs position against content, so "
        f"their gain is a gain of scale only. {outside_family(best, criteria)}".rstrip(),
    )


def by_value_table(own_best: OwnBest, criteria: Criteria) -> Table:
    """A row for each combination of values, a column for each operator."""
    cells, keys, metric = own_best.cells, own_best.keys, own_best.metric
    labels = ["data", "encoding", *if_many(cells, "variant"), *keys]
    order = [f"{key}_number" for key in keys]
    order.insert(1, "learned")
    fusions = cells["fusion"].unique().tolist()
    write = partial(_value_over_seeds, keys=keys, digits=metric.digits)
    rows = []
    for _, group in cells.groupby(["data", "encoding", "variant"], sort=False):
        by_value = group.sort_values(order, kind="stable").groupby(keys, sort=False)
        for _, at_value in by_value:
            named = [at_value[label].iloc[0] for label in labels]
            rows.append([*named, *by_fusion(at_value, fusions, write)])
    edges = any(cells[f"{key}_edge"].any() for key in keys)
    scale = (
        f"Embeddings are multiplied by {KEYS['scale']} before fusion. A learned scale starts at "
        "the paper's, sqrt_d, and counts as that value."
    )
    return Table(
        f"by_{'_'.join(keys)}",
        f"By {'token ' if 'scale' in keys else ''}{_words(keys)}",
        f"Test {metric.level}: mean ± standard deviation over seeds, number of seeds in brackets. "
        f"{MARK} the operator's {metric.best} mean validation {metric.title} "
        f"({chosen_by(own_best.best, criteria)}). {AT_EDGE if edges else ''}"
        f"{scale if 'scale' in keys else ''}".strip(),
        [*labels, *fusions],
        rows,
        cells,
    )


def budget_table(by_budget: pd.DataFrame, metric: Metric, more: str) -> Table:
    """The expected best validation result of operators by number of trials; or of arms, with their
    names in the column `arm`."""
    keys = ["arm"]
    if "arm" not in by_budget:
        several = [*if_many(by_budget, "encoding"), *if_many(by_budget, "variant")]
        keys = ["data", *several, "fusion"]
    most = max(map(len, by_budget["expected"]))
    budgets = [*range(1, most + 1)]
    if most > MOST_BUDGETS:
        budgets = [*(2**i for i in range(most.bit_length()) if 2**i < most), most]

    def best_of(k: int, expected: Sequence[float]) -> str:
        return metric.number(expected[k - 1]) if k <= len(expected) else ""

    return table_of(
        by_budget,
        [(str(k), partial(best_of, k), "expected") for k in budgets],
        keys,
        name="budget",
        title=f"Validation {metric.title} by tuning budget",
        caption=f"The expected best validation {metric.title}{', in %,' * metric.is_share} of so "
        f"many of the {'arm' if keys == ['arm'] else 'operator'}'s trials drawn at random (Dodge "
        f"et al. 2019, without replacement). {more}",
    )


def _words(keys: list[str]) -> str:
    return " and ".join(WORDS[key] for key in keys)


def _value(value: str, edge: bool) -> str:
    return f"{value}{EDGE}" if edge else value


def _value_over_seeds(cell: Row, keys: list[str], digits: int) -> str:
    text = over_seeds(cell["mean"], cell["std"], cell["n"], digits) + (MARK if cell["best"] else "")
    return _value(text, any(cell[f"{key}_edge"] for key in keys))


@style.styled
def scale(cells: pd.DataFrame, metric: Metric = ACCURACY) -> Figure:
    """The rows of `OwnBest.along("scale")`, a panel for each data x encoding x variant."""
    hollow = "; hollow: learned, beside the scale where it starts" if cells["learned"].any() else ""
    figure = _over_values(
        cells, metric, "scale", "token scale", f"{hollow}; dotted: the paper's scale"
    )
    for axis, (_, panel) in zip(figure.axes, cells.groupby(plot.PANEL, sort=False), strict=True):
        for number in panel.loc[panel["sqrt_d"], "scale_number"].unique():
            axis.axvline(number, color=style.QUIET, linewidth=0.9, linestyle=":", zorder=0)
    return figure


@style.styled
def learning_rate(cells: pd.DataFrame, metric: Metric = ACCURACY) -> Figure:
    """The rows of `OwnBest.along("lr")`, a panel for each data x encoding x variant."""
    return _over_values(cells, metric, "lr", "learning rate", "")


@style.styled
def budget(by_budget: pd.DataFrame, metric: Metric = ACCURACY) -> Figure:
    """The rows of `budgets`, a panel for each data x encoding x variant."""
    caption = f"expected best validation {metric.level} of k trials, drawn without replacement"
    figure, panels = plot.panel_figure(by_budget, caption, (3.4, 2.4))
    for part, (axis,) in panels:
        for row in part.to_dict("records"):
            one = style.look(row["fusion"])
            x, y = range(1, row["trials"] + 1), row["expected"]
            (line,) = axis.plot(
                x, y, color=one.color, linestyle=one.dash, marker=one.marker,
                markevery=max(1, len(x) // 8), markersize=3.5,
            )  # fmt: skip
            label = plot.joined(row)
            first, last = (f"{metric.number(end)}{metric.percent}" for end in (y[0], y[-1]))
            svg.mark(line, f"{label}: {first} after 1 trial, {last} after {len(x)}")
            style.LineName(axis, (x[-1], y[-1]), row["fusion"])
        axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axis.set_xlabel("trials")
        axis.set_ylabel(f"validation {metric.axis}")
    return figure


def _over_values(cells: pd.DataFrame, metric: Metric, key: str, name: str, more: str) -> Figure:
    both = {f"{other}_number" for other in ("scale", "lr")} <= set(cells)
    at_best = f", each at the best value of the other tuned key by validation {metric.title}"
    caption = (
        f"test {metric.level} by {name}{at_best if both else ''}; line: mean over seeds; band: its "
        "95 % t interval (± one standard deviation with 2 seeds); ring: the operator's best "
        f"{name} by validation {metric.title}{more}"
    )
    figure, panels = plot.panel_figure(cells, caption, (5.2, 3.4), most=2)
    for part, (axis,) in panels:
        _draw_lines(axis, part.to_dict("records"), metric, key, name)
    return figure


def _draw_lines(axis: Axes, rows: list[plot.Row], metric: Metric, key: str, name: str) -> None:
    """Draw a line over the values of a key for each operator. A learned scale is a mark beside
    it."""

    def is_hollow(row: plot.Row) -> bool:
        return key == "scale" and bool(row["learned"])

    axis.set_xscale("log", base=2)
    texts: dict[float, str] = {}
    for row in sorted(rows, key=is_hollow):
        number = row[f"{key}_number"]
        texts.setdefault(number, f"{number:.6g}" if is_hollow(row) else row[key])
    for fusion in dict.fromkeys(row["fusion"] for row in rows):
        one = style.look(fusion)
        own = [row for row in rows if row["fusion"] == fusion]
        line = [row for row in own if not is_hollow(row)]
        x, ends = (
            [row[f"{key}_number"] for row in line],
            np.array([_band(row, metric) for row in line]),
        )
        lows, highs = ends.reshape(-1, 2).T
        axis.fill_between(x, lows, highs, color=one.color, alpha=0.1, linewidth=0)
        axis.plot(x, [row["mean"] for row in line], color=one.color, linestyle=one.dash)
        for row in own:
            at = row[f"{key}_number"] * (LEARNED_SHIFT if is_hollow(row) else 1)
            low, high = _band(row, metric)
            if is_hollow(row):
                axis.plot([at, at], [low, high], color=one.color, linewidth=0.8)
            if row["best"]:
                axis.plot(at, row["mean"], "o", mfc="none", mec=one.color, markersize=10)
            band = f" [{metric.number(low)}, {metric.number(high)}]"
            band = "" if np.isnan(row["std"]) else band
            point = plot.dot(axis, at, row["mean"], fusion, 5)
            if is_hollow(row):
                point.set(markerfacecolor="white", markeredgecolor=one.color, markeredgewidth=0.9)
            label = plot.joined(row)
            value = ", ".join(f"{k} {row[k]}" for k in ("scale", "lr") if k in row)
            mean = f"{metric.number(row['mean'])}{metric.percent}"
            svg.mark(point, f"{label}, {value}: {mean}{band} n={row['n']}")
            last = (at, row["mean"])
        style.LineName(axis, last, fusion)
    ticks = {number: texts[number].replace(" = ", "\n") for number in sorted(texts)}
    axis.set_xticks(list(ticks), list(ticks.values()), fontsize=style.SMALL)
    axis.xaxis.set_minor_locator(NullLocator())
    axis.set_xlabel(name)
    axis.set_ylabel(f"test {metric.axis}")


def _band(row: plot.Row, metric: Metric) -> tuple[float, float]:
    """The 95 % t interval, or ± one standard deviation with 2 seeds; shares are from 0 to 100."""
    low, high = row["low"], row["high"]
    if row["n"] < 3 or np.isnan(low):
        spread = np.nan_to_num(row["std"])
        low, high = row["mean"] - spread, row["mean"] + spread
    return float(max(low, 0.0)), float(min(high, 100.0 if metric.is_share else np.inf))
