"""The panels of a sweep's workspace and report in W&B.

A workspace shows the same runs in all panels. So a chart of one cell (a corpus, an encoding and a
variant) shows a metric that only the cell's runs have, and groups them by operator.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import wandb_workspaces.reports.v2 as wr
import wandb_workspaces.workspaces as ws

from posfuse.tracking.projection import CONFUSION, GATES, STEP, Cell, confusion_key

INSIDE = {  # of the diagnostics, with the titles of their curves
    "norm_ratio": "norm of the token part by that of the position part",
    "attention_entropy_layer_1": "entropy of attention in layer 1, bits",
}
DIFFERENCES, INTERVALS = "paired_differences", "paired_differences_intervals"
BY_LENGTH = "results_by_length"
MANY = 1000  # runs or bars in a chart; W&B shows ten by default
BY_FUSION = wr.Config("fusion")


def bars(title: str, key: str, by: Any = BY_FUSION) -> wr.BarPlot:
    """A number of the summary with a bar for each group: mean and standard deviation over seeds."""
    return wr.BarPlot(
        title=title, metrics=[wr.SummaryMetric(key)], groupby=by, groupby_aggfunc="mean",
        groupby_rangefunc="stddev", max_bars_to_show=MANY, max_runs_to_show=MANY,
    )  # fmt: skip


def curves(title: str, key: str, by: Any = BY_FUSION) -> wr.LinePlot:
    """A metric by training step with a curve for each group: the mean over seeds, and a band from
    the lowest to the highest."""
    return wr.LinePlot(
        title=title, x=STEP, y=[key], groupby=by, groupby_aggfunc="mean",
        groupby_rangefunc="minmax", max_runs_to_show=MANY,
    )  # fmt: skip


def learning(metric: str, title: str) -> dict[str, str]:
    """The titles of the learning curves by their names in W&B."""
    losses = {"val/loss": "validation loss", "train/loss": "training loss"}
    return {f"val/{metric}": f"validation {title}", **losses}


def of_table(chart: str, key: str, title: str, **columns: str) -> wr.CustomChart:
    """A chart that runs log with wandb.plot; `chart` is W&B's name of its kind."""
    return wr.CustomChart(
        query={"summaryTable": {"tableKey": f"{key}_table"}},
        chart_name=chart,
        chart_fields=columns,
        chart_strings={"title": title},
    )


def scatter(title: str, x: str, y: str) -> wr.ScatterPlot:
    """Two numbers of the summary, with a point for each run."""
    return wr.ScatterPlot(title=title, x=wr.SummaryMetric(x), y=wr.SummaryMetric(y))


def settings(score: str, title: str) -> list[Any]:
    """How a score depends on cost and settings; each point or line is a run."""
    axes = [wr.Config("fusion"), wr.Config("lr"), wr.Config("token_scale"), wr.SummaryMetric(score)]
    columns = [wr.ParallelCoordinatesPlotColumn(axis) for axis in axes]
    return [
        scatter(f"{title} and run time", "seconds", score),
        wr.ParallelCoordinatesPlot(title=f"{title} by setting", columns=columns),
        wr.ParameterImportancePlot(with_respect_to=score),
    ]


def image(key: str) -> wr.MediaBrowser:
    """A figure of the comparison run."""
    return wr.MediaBrowser(title=key, media_keys=[key], num_columns=1)


def sections(
    cells: Sequence[Cell], metric: str, titles: Mapping[str, str], has_gates: bool = False,
    has_lengths: bool = False, with_classes: Sequence[str] = (),
) -> list[ws.Section]:  # fmt: skip
    """The sections of a workspace: one for each corpus, and sections with all runs, in W&B's groups
    (a cell and an operator). A cell has the metric of its task, and all runs share `metric`;
    `titles` are those of metrics. `with_classes` are the corpora of classifiers."""
    of_corpus: dict[str, list[Any]] = {}
    for cell in cells:
        of_cell = titles.get(cell.metric, cell.metric)
        of_corpus.setdefault(cell.data, []).extend([
            bars(f"{cell.setting}: test {of_cell}", cell.key("test")),
            curves(f"{cell.setting}: validation {of_cell}", cell.key("val")),
        ])  # fmt: skip
    for cell in dict.fromkeys(cell.with_any_setting for cell in cells):
        of_cell = titles.get(cell.metric, cell.metric)
        of_corpus[cell.data] += settings(cell.key("test"), f"{cell.encoding}: test {of_cell}")
    title = titles[metric]
    shared: list[Any] = [bars(f"test {title}", f"test/{metric}", "Group")]
    shared += [curves(of, key, "Group") for key, of in learning(metric, title).items()]
    inside: list[Any] = [curves(of, f"diagnostics/{n}", "Group") for n, of in INSIDE.items()]
    if has_gates:
        gate = curves("mean gate", "diagnostics/gate_mean", "Group")
        inside += [gate, of_table("wandb/line/v0", "gates", GATES, x="position", y="gate")]
    named = {
        "Paired differences": [
            image(INTERVALS),
            wr.WeavePanelSummaryTable(table_name=DIFFERENCES),
        ],
        **of_corpus,
        "Length": [
            scatter(f"test {title} and length", "mean_tokens", f"test/{metric}"),
            *([image(BY_LENGTH)] * has_lengths),
        ],
        "All cells": shared,
        "Use of position": inside,
    }
    if with_classes:
        columns = {name: name for name in ("Actual", "Predicted", "nPredictions")}
        named["Errors"] = [
            of_table(
                "wandb/confusion_matrix/v1", confusion_key(data), f"{data}: {CONFUSION}", **columns
            )
            for data in with_classes
        ]
    return [ws.Section(name=name, panels=own, is_open=True) for name, own in named.items()]
