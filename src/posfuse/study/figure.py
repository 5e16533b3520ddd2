"""The figures of a study: its hypotheses, and its metric against the ratio of token to position and
against the test length."""

from collections.abc import Sequence

import pandas as pd
from matplotlib import ticker
from matplotlib.figure import Figure

from posfuse.evidence.metric import ACCURACY, Metric
from posfuse.report.figures import style, svg
from posfuse.report.sections.by_test_length import chance_of, results_by_length
from posfuse.report.sections.differences import forest_of
from posfuse.study.looks import HypothesisVerdict
from posfuse.study.scores import by_test_length
from posfuse.study.spec import BEYOND, Study
from posfuse.study.tables import quantity


def hypotheses(
    verdicts: Sequence[HypothesisVerdict], units: Sequence[int], metric: Metric = ACCURACY
) -> Figure:
    """A row for each judged hypothesis with the difference of its answer, in a block for each
    family. `units` are the seeds, or the repeats, of the differences."""
    asked = [v.hypothesis for v in verdicts]
    beyond = any(h.outcome == BEYOND and h.solved is None for h in asked)
    longer = ", or of its mean beyond the trained length" if beyond else ""
    early = f', in rows with "decided at" the 95 % interval over all {verdicts[0].units}'
    has_early = any(v.all_seeds for v in verdicts)
    caption = (
        f"difference in {quantity(asked, metric)}{longer}; small mark: one "
        f"{verdicts[0].units.removesuffix('s')}; line: the interval that is valid over all "
        f"looks{early * has_early}; shaded: the margin within which a difference does not matter"
    )
    rows = [
        {
            "data": v.hypothesis.family, "encoding": v.hypothesis.name, "fusion": v.verdict,
            "variant": "", "margin": v.hypothesis.margin, "n": v.counted, "mean": d.mean,
            "low": d.low, "high": d.high, "seeds": units[: d.n], "deltas": v.differences[: d.n],
        }
        for v in verdicts
        if (d := v.shown)
    ]  # fmt: skip
    unit = verdicts[0].units.removesuffix("s")
    return forest_of(pd.DataFrame(rows), caption, metric, of_each=unit)


@style.styled
def ratios(runs: pd.DataFrame, study: Study) -> Figure:
    """The metric against the ratio of token to position; one mark per run, in a panel per corpus.

    An operator has one shape and colour, hollow for arms with a further choice, such as
    model.fused_norm=layer. Arms that differ only in numbers look the same. Tuning runs are paler.
    """
    metric, kinds = study.measured, {arm: _kind(arm, study) for arm in study.arms}
    corpus, kind = runs["arm"].map(study.corpus), runs["arm"].map(kinds.get)
    panels = list(dict.fromkeys(corpus))
    titles = [[name * (len(panels) > 1)] for name in panels]
    caption = (
        f"test {metric.level} against the norm of the token's part of the fused vector divided by "
        "that of the position's part, in the last whole epoch; mark: one run; pale: tuning; "
        "hollow: the operator with the named setting"
    )
    figure, grid = style.grid([len(panels)], titles, caption, (5.0, 3.0), most=2)
    for name, (axis,) in zip(panels, grid, strict=True):
        for (operator, choices), own in runs[corpus == name].groupby(kind, sort=False):
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
    corpus = {arm: study.corpus(arm) for arm in study.arms}
    names = {arm: " ".join(_kind(arm, study)).rstrip() for arm in study.arms}
    different = {(corpus[arm], name) for arm, name in names.items()}
    if len(set(corpus.values())) == 1 or len(different) < len(names):
        names = {arm: arm for arm in names}
    rows = by_test_length(runs, metric)
    rows = rows.assign(
        data=rows["arm"].map(corpus), encoding="", variant="", fusion=rows["arm"].map(names)
    ).sort_values("test_length")
    return results_by_length(rows, chance_of(rows.groupby("data")["classes"].max(), metric), metric)


def _kind(arm: str, study: Study) -> tuple[str, str]:
    """An arm's operator, and in words its further choices that not all arms of its corpus have,
    without numbers."""
    chosen = [
        f"{key.rpartition('.')[2]}={value}"
        for key, value in study.varied_overrides(arm).items()
        if key not in ("fusion", "data", "data.name", "data.path")
        and type(value) not in (int, float)
    ]
    return str(study.overrides[arm].get("fusion", "add")), ", ".join(chosen)
