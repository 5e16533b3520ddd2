"""Tuned keys: every operator at every value, each at its best value, and by tuning budget."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from posfuse.evidence.metric import ACCURACY, Metric
from posfuse.report.figures import plot, style
from posfuse.report.sections.differences import outside_family, to_baseline, verdict_columns
from posfuse.report.sections.second_gains import second_tables
from posfuse.report.sections.section import PAIRED, Section, drawing
from posfuse.report.sweep import Sweep
from posfuse.report.table import Row, Table, by_fusion, if_many, over_seeds, t_interval, table_of
from posfuse.statistics.budget import budgets
from posfuse.statistics.comparisons import Criteria
from posfuse.statistics.own_best import KEYS, OwnBest, chosen_by, keys_of

MARK = "*"  # an operator's own best values
EDGE = "‡"  # a best value at the end of the tried values
AT_EDGE = (
    f"{EDGE} the best value is the smallest or largest that the operator was run with, so a value "
    "beyond may be better."
)
BIAS = (
    "Such a choice favours an operator that has more values near its best one; --select-seeds "
    "removes this bias. "
)
TRIAL = (
    "A trial is a combination of the tuned values; its score is the mean over the seeds that "
    "choose."
)
MOST_BUDGETS = 20  # columns; with more, powers of 2
WORDS = {"scale": "scale", "lr": "learning rate"}
LEARNED_SHIFT = 2**0.2  # a learned scale is drawn just to the right of its initial scale


def section(sweep: Sweep) -> Section:
    own_best, criteria, metric = sweep.best, sweep.criteria, sweep.metric
    tables = second_tables(sweep.best_placebos, criteria, keys_of(own_best.best))
    tables += own_best_tables(own_best, criteria)
    trials = budgets(own_best.cells, metric)
    if len(trials):
        tables.append(budget_table(trials, metric, TRIAL))
    by_scale = (
        f"{metric.heading} by token scale: is an operator better, or does it only move the best "
        "scale?"
    )
    by_lr = f"{metric.heading} by learning rate."
    by_budget = f"Tuning budget: the expected best validation {metric.title} of k trials."
    return Section(
        PAIRED,
        drawings=[
            *drawing(scale, own_best.along("scale"), metric, caption=by_scale),
            *drawing(learning_rate, own_best.along("lr"), metric, caption=by_lr),
            *drawing(budget, trials, metric, caption=by_budget),
        ],
        tables=tables,
        shown=tables[::-1],
        notes=own_best.notes,
    )


def own_best_tables(own_best: OwnBest, criteria: Criteria) -> list[Table]:
    """The tables that have rows."""
    tables = [best_table(own_best, criteria)] if len(own_best.best) else []
    if len(own_best.cells):
        tables.append(by_value_table(own_best, criteria))
    return tables


def best_table(own_best: OwnBest, criteria: Criteria) -> Table:
    best, keys, base, metric = own_best.best, own_best.keys, criteria.baseline, criteria.metric
    columns = verdict_columns(metric, "at best")
    columns += [(key, _value, key, f"{key}_edge") for key in keys]
    for key in keys:
        heading = f"{base}'s" if len(keys) == 1 else f"{base}'s {key}"
        columns.append((heading, _value, f"baseline_{key}", f"baseline_{key}_edge"))
    at_paper = ""
    if "scale" in keys:
        columns += [("at sqrt_d", metric.signed, "paper_mean"), t_interval(metric, "paper_")]
        others = ", each at its best learning rate there" if len(keys) > 1 else ""
        at_paper = f"at sqrt_d: both operators at the paper's scale{others}. "
    chosen = chosen_by(best, criteria)
    bias = BIAS if "the same seeds" in chosen else ""
    edges = any(best[f"{of}{key}_edge"].any() for key in keys for of in ("", "baseline_"))
    marks = AT_EDGE * edges
    return table_of(
        best,
        columns,
        name=f"best_{'_'.join(keys)}",
        title=f"At each operator's own best {_words(keys)}",
        caption=f"{to_baseline(criteria)}, paired by seed, with its 95 % t "
        f"interval. {at_paper}at best: each operator at the {keys_of(best)} with its {metric.best} "
        f"mean validation {metric.title} ({chosen}). n, the p-values (Holm-adjusted over this "
        "table) and the verdict belong to the difference at best. "
        f"{marks}{' ' * edges}{bias}"
        "gate_constant and add_scaled learn one number that weighs position against content, so "
        f"their gain is a gain of scale only. {outside_family(best, criteria)}".rstrip(),
        marks=marks,
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
    marks = (
        f"{MARK} the operator's {metric.best} mean validation {metric.title} "
        f"({chosen_by(own_best.best, criteria)})."
    )
    marks += f" {EDGE} this best value is at the end of the tried ones." * edges
    scale = (
        f"Embeddings are multiplied by {KEYS['scale']} before fusion. A learned scale starts at "
        "the paper's, sqrt_d, and counts as that value."
    )
    return Table(
        f"by_{'_'.join(keys)}",
        f"By {'token ' if 'scale' in keys else ''}{_words(keys)}",
        f"Test {metric.level} of each operator at each value, with its spread over seeds and the "
        f"number of seeds. {marks} {scale if 'scale' in keys else ''}".strip(),
        [*labels, *fusions],
        rows,
        cells,
        marks,
    )


def budget_table(by_budget: pd.DataFrame, metric: Metric, more: str) -> Table:
    """The expected best validation result of operators by number of trials; or of arms, with their
    names in the column `arm`."""
    keys = ["arm"] if "arm" in by_budget else []
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
        caption=f"The expected best validation {metric.title}{', in %,' * metric.is_share} of k "
        f"random trials of the {'arm' if keys else 'operator'}, drawn without replacement (Dodge "
        f"et al. 2019). The columns are k. {more}",
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
            n, y = row["trials"], row["expected"]
            first, last = (f"{metric.number(end)}{metric.percent}" for end in (y[0], y[-1]))
            text = f"{plot.label(row)}: {first} after 1 trial, {last} after {n}"
            plot.line(axis, range(1, n + 1), y, row["fusion"], text)
        axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axis.set_xlabel("trials")
        axis.set_ylabel(f"validation {metric.axis}")
    return figure


def _over_values(cells: pd.DataFrame, metric: Metric, key: str, name: str, more: str) -> Figure:
    """The means by value of a key, a panel for each data x encoding x variant. A learned scale is a
    mark beside the line."""
    both = {f"{other}_number" for other in ("scale", "lr")} <= set(cells)
    at_best = f", each at the best value of the other tuned key by validation {metric.title}"
    caption = (
        f"test {metric.level} by {name}{at_best if both else ''}; line: mean over seeds; band: its "
        "95 % t interval (± one standard deviation with 2 seeds); ring: the operator's best "
        f"{name} by validation {metric.title}{more}"
    )
    few = (cells["n"] < 3) | cells["low"].isna()
    number, spread = cells[f"{key}_number"], cells["std"].fillna(0.0)
    is_beside = cells["learned"] & (key == "scale")
    highest = 100.0 if metric.is_share else None
    rows = cells.assign(
        low=cells["low"].mask(few, cells["mean"] - spread).clip(0.0, highest),
        high=cells["high"].mask(few, cells["mean"] + spread).clip(0.0, highest),
        is_beside=is_beside,
        at=number.where(~is_beside, number * LEARNED_SHIFT),
        tick=cells[key].str.replace(" = ", "\n").mask(is_beside, number.map("{:.6g}".format)),
    )
    figure, panels = plot.panel_figure(rows, caption, (5.2, 3.4), most=2)
    for part, (axis,) in panels:
        axis.set_xscale("log", base=2)
        for _, own in part.groupby("fusion", sort=False):
            _draw_operator(axis, own.sort_values("at", kind="stable"), metric)
        # A learned scale names a tick only if no other scale has its number.
        ticks = part.sort_values([f"{key}_number", "is_beside"], ascending=[True, False])
        texts = dict(zip(ticks[f"{key}_number"], ticks["tick"], strict=True))
        axis.set_xticks(list(texts), list(texts.values()), fontsize=style.SMALL)
        axis.minorticks_off()
        axis.set_xlabel(name)
        axis.set_ylabel(f"test {metric.axis}")
    return figure


def _draw_operator(axis: Axes, own: pd.DataFrame, metric: Metric) -> None:
    """A line with its band, a mark for each value, and a ring around the best one."""
    fusion, line = own["fusion"].iloc[0], own[~own["is_beside"]]
    one = style.look(fusion)
    axis.fill_between(
        line["at"], line["low"], line["high"], color=one.color, alpha=0.1, linewidth=0
    )
    axis.plot(line["at"], line["mean"], color=one.color, linestyle=one.dash)
    for row in own.to_dict("records"):
        at, mean, low, high = row["at"], row["mean"], row["low"], row["high"]
        if row["best"]:
            axis.plot(at, mean, "o", mfc="none", mec=one.color, markersize=10)
        ends = "" if np.isnan(row["std"]) else f" [{metric.number(low)}, {metric.number(high)}]"
        values = ", ".join(f"{key} {row[key]}" for key in KEYS if key in row)
        result = f"{metric.number(mean)}{metric.percent}{ends} n={row['n']}"
        point = plot.dot(axis, at, mean, fusion, 5, f"{plot.label(row)}, {values}: {result}")
        if row["is_beside"]:
            axis.plot([at, at], [low, high], color=one.color, linewidth=0.8, zorder=1)
            point.set(markerfacecolor="white", markeredgecolor=one.color, markeredgewidth=0.9)
    style.LineName(axis, (at, mean), fusion)
