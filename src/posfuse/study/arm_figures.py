"""Figures of a study's arms: results against the ratio of token to position, and against length."""

import pandas as pd
from matplotlib import ticker
from matplotlib.figure import Figure

from posfuse.report.figures import plot, style, svg
from posfuse.report.sections.by_test_length import chance_of, results_by_length
from posfuse.study.scores import by_test_length
from posfuse.study.spec import Study

USUAL = {"data": "", "fusion": "add"}  # if neither the study nor its runs name it


@style.styled
def ratios(runs: pd.DataFrame, study: Study) -> Figure:
    """The metric against the ratio of token to position; one mark per run, in a panel per corpus.

    An operator has one shape and colour, hollow for arms with a further choice, such as
    model.fused_norm=layer. Arms that differ only in numbers look the same. Tuning runs are paler.
    """
    metric, operators = study.measured, chosen("fusion", study, runs)
    kinds = {arm: (operators[arm], _further_choices(study, arm)) for arm in study.arms}
    corpus, kind = runs["arm"].map(chosen("data", study, runs)), runs["arm"].map(kinds.get)
    named = corpus if corpus.nunique() > 1 else ""
    rows = runs.assign(data=named, encoding="", variant="")
    caption = (
        f"test {metric.level} against the norm of the token's part of the fused vector divided by "
        "that of the position's part, in the last whole epoch; mark: one run; pale: tuning; "
        "hollow: the operator with the named setting"
    )
    figure, panels = plot.panel_figure(rows, caption, (5.0, 3.0), most=2)
    for part, (axis,) in panels:
        for (operator, choices), own in part.groupby(kind, sort=False):
            looks = style.look(operator)
            for run in own.to_dict("records"):
                value = run[f"test_{metric.name}"]
                (point,) = axis.plot(
                    run["norm_ratio"], value, linestyle="none", marker=looks.marker,
                    color=looks.color, markerfacecolor="none" if choices else looks.color,
                    alpha=0.3 if run["stage"] == "tuning" else 0.9,
                )  # fmt: skip
                names = [run.get("repeat"), run["arm"], run.get("trial")]
                name = " ".join(name for name in names if isinstance(name, str) and name)
                svg.mark(point, f"{name} seed={run['seed']}: {metric.number(value)}")
            point.set_label(style.short(f"{operator} {choices}".rstrip(), 36))  # once in the legend
        axis.set_xlabel("norm of the token / norm of the position")
        axis.set_ylabel(f"test {metric.axis}")
        axis.set_xscale("log")
        low, high = axis.get_xlim()
        steps = (1, 2, 5) if high < 1000 * low else (1,)  # a wide range has no room for more
        axis.xaxis.set_major_locator(ticker.LogLocator(subs=steps, numticks=7))
        axis.xaxis.set_major_formatter(lambda ratio, _: f"{ratio:g}")
        axis.xaxis.set_minor_locator(ticker.NullLocator())
        axis.legend(
            fontsize=style.SMALL - 1, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0)
        )
    return figure


def lengths(runs: pd.DataFrame, study: Study) -> Figure:
    """The metric against test length, in a panel per corpus; one line per arm, with its band. A
    line has its operator's name if there are several corpora and no two arms of a corpus differ
    only in numbers; otherwise its arm's name."""
    metric = study.measured
    corpus, operators = chosen("data", study, runs), chosen("fusion", study, runs)
    names = {arm: f"{operators[arm]} {_further_choices(study, arm)}".rstrip() for arm in operators}
    different = {(corpus[arm], name) for arm, name in names.items()}
    if len(set(corpus.values())) == 1 or len(different) < len(names):
        names = {arm: arm for arm in names}
    rows = by_test_length(runs, metric)
    rows = rows.assign(
        data=rows["arm"].map(corpus), encoding="", variant="", fusion=rows["arm"].map(names)
    ).sort_values("test_length")
    return results_by_length(rows, chance_of(rows.groupby("data")["classes"].max(), metric), metric)


def chosen(group: str, study: Study, runs: pd.DataFrame) -> dict[str, str]:
    """The `data` or `fusion` of each arm: as the study names it, otherwise as the arm's last run
    does, because the study's base may set it."""
    chosen = dict.fromkeys(study.arms, USUAL[group])
    if group in runs:  # the runs.csv of earlier versions lacks it
        known = runs.dropna(subset=[group])
        chosen |= dict(zip(known["arm"], known[group], strict=True))
    return chosen | {arm: str(o[group]) for arm, o in study.overrides.items() if group in o}


def _further_choices(study: Study, arm: str) -> str:
    """In words the choices of an arm beside its operator that not all arms of its corpus have,
    without numbers."""
    chosen = [
        f"{key.rpartition('.')[2]}={value}"
        for key, value in study.varied_overrides(arm).items()
        if key not in ("fusion", "data", "data.name", "data.path")
        and type(value) not in (int, float)
    ]
    return ", ".join(chosen)
