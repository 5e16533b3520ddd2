"""The panels of a sweep's workspace and report in W&B.

A workspace shows the same runs in all panels. So a chart of one cell (a corpus, an encoding and a
variant) shows a metric that only the cell's runs have, and groups them by operator.
"""

from collections.abc import Iterable
from typing import Any

import wandb_workspaces.reports.v2 as wr
import wandb_workspaces.workspaces as ws

from posfuse.tracking.projection import STEP, Cell

INSIDE = ("gate_mean", "norm_ratio", "attention_entropy_layer_1")  # of the diagnostics
MANY: dict[str, Any] = {"max_runs_to_show": 1000}  # W&B shows ten by default
BY_FUSION = wr.Config("fusion")


def bars(title: str, key: str, by: Any = BY_FUSION) -> wr.BarPlot:
    """A number of the summary with a bar for each group: mean and standard deviation over seeds."""
    spread: Any = {"groupby_aggfunc": "mean", "groupby_rangefunc": "stddev"}
    metrics = [wr.SummaryMetric(key)]
    return wr.BarPlot(
        title=title, metrics=metrics, groupby=by, max_bars_to_show=1000, **spread, **MANY
    )


def curves(title: str, key: str, by: Any = BY_FUSION) -> wr.LinePlot:
    """A metric by training step with a curve for each group: the mean over seeds, and a band from
    the lowest to the highest."""
    spread: Any = {"groupby_aggfunc": "mean", "groupby_rangefunc": "minmax"}
    return wr.LinePlot(title=title, x=STEP, y=[key], groupby=by, **spread, **MANY)


def cell_panels(cell: Cell, metric: str, title: str) -> list[Any]:
    """What the operators of one cell reach, and how they learn it."""
    return [
        bars(f"{cell.setting}: test {title}", cell.key("test", metric)),
        curves(f"{cell.setting}: validation {title}", cell.key("val", metric)),
    ]


def learning(metric: str, title: str) -> dict[str, str]:
    """The titles of the learning curves by their names in W&B."""
    losses = {"val/loss": "validation loss", "train/loss": "training loss"}
    return {f"val/{metric}": f"validation {title}", **losses}


def sections(cells: Iterable[Cell], metric: str, title: str) -> list[ws.Section]:
    """The sections of a workspace: one for each corpus, then those of all runs, whose groups are
    W&B's own (a cell and an operator)."""
    of_corpus: dict[str, list[Any]] = {}
    for cell in cells:
        of_corpus.setdefault(cell.data, []).extend(cell_panels(cell, metric, title))
    shared: list[Any] = [bars(f"test {title}", f"test/{metric}", "Group")]
    shared += [curves(of, key, "Group") for key, of in learning(metric, title).items()]
    inside: list[Any] = [curves(name, f"diagnostics/{name}", "Group") for name in INSIDE]
    inside.append(wr.MediaBrowser(title="gates", media_keys=["gate"], num_columns=3))
    named = {**of_corpus, "All cells": shared, "What position does": inside}
    return [ws.Section(name=name, panels=own, is_open=True) for name, own in named.items()]
