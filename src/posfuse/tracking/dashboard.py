"""posfuse dashboard DIR: a sweep's comparison in W&B, a saved workspace and a report.

The paired differences are logged as a separate run. A second call changes the same run and the same
two views, whose URLs are in dashboard/views.json.
"""

import json
from argparse import Namespace
from itertools import groupby
from pathlib import Path
from typing import Any

import matplotlib.pyplot  # noqa: F401 - wandb.Image takes a figure only if it is loaded
import pandas as pd
import wandb
import wandb_workspaces.reports.v2 as wr
import wandb_workspaces.workspaces as ws
from wandb_workspaces import expr

from posfuse import seals
from posfuse.errors import InputError, input_errors
from posfuse.evidence.collect import (
    collect,
    declared_family,
    failures,
    left_out,
    missing,
    predicting,
)
from posfuse.evidence.metric import ACCURACY, MACRO_F1, METRICS, classes_of, metric_of
from posfuse.report import formats
from posfuse.report.figures.style import look, rc_style
from posfuse.report.sections.by_test_length import chance_of, results_by_length
from posfuse.report.sections.differences import forest, short_table
from posfuse.runs import configs, measurements, records
from posfuse.runs.measurements import Diagnostic
from posfuse.statistics.cells import is_held
from posfuse.statistics.comparisons import Criteria, compare, criteria_for
from posfuse.statistics.lengths import by_test_length
from posfuse.tracking import panels, server
from posfuse.tracking.panels import BY_LENGTH, DIFFERENCES, INTERVALS
from posfuse.tracking.projection import STEP, Cell, run_id


class Shown:
    """The content of both views: the runs of a sweep (rows of `collect`), with their records."""

    def __init__(self, runs: pd.DataFrame, primary: tuple[str, ...] = (), suffix: str = "") -> None:
        self.runs, self.sweep_id = runs, str(runs["sweep_id"].iloc[0])
        self.metric = metric_of(runs)
        # `collect` shortens the variant, but W&B has the record's variant.
        read = [records.read_result(Path(f, records.RESULT)) for f in runs["folder"]]
        self.by_id = {run_id(record, suffix): record for record in read}
        self.cells = list(dict.fromkeys(map(Cell.of, read)))
        parts = ("comparison", seals.short_digest(self.sweep_id), suffix)
        self.comparison_id = "-".join(filter(None, parts))
        self.criteria = criteria_for(Criteria(primary=primary), self.metric)
        self.comparisons, self.notes = compare(runs[~is_held(runs)], self.criteria)
        self.by_length = by_test_length(runs, self.metric)  # empty without data.test_lengths

    @property
    def has_gates(self) -> bool:
        files = self.runs["folder"].map(lambda folder: Path(folder, records.DIAGNOSTICS))
        one_of_each = files[files.map(Path.exists)].groupby(self.runs["fusion"]).first()
        tables = (measurements.read_table(path, Diagnostic) for path in one_of_each)
        return any("gate_mean" in set(table["name"]) for table in tables)


def of_runs(ids: list[str]) -> expr.FilterExpr:
    """A filter by the ids of runs. The project may have other runs with the same config: those of
    another suffix, or of another sweep with this name."""
    return expr.Metric("ID").isin(ids)


def workspace(shown: Shown, entity: str, project: str) -> ws.Workspace:
    """All runs of a sweep, in the colours of their operators in posfuse's report."""
    metric = shown.metric
    has_f1 = metric == ACCURACY and bool(MACRO_F1.of(shown.runs).notna().any())
    columns = [metric.name, *([MACRO_F1.name] if has_f1 else [])]
    colors = {
        name: ws.RunSettings(color=look(record["fusion"]).color)
        for name, record in shown.by_id.items()
    }
    return ws.Workspace(
        entity=entity,
        project=project,
        name=f"posfuse {shown.sweep_id}",
        sections=panels.sections(
            shown.cells,
            metric.name,
            {name: known.title for name, known in METRICS.items()},
            has_gates=shown.has_gates,
            has_lengths=len(shown.by_length) > 0,
            with_classes=list(dict.fromkeys(predicting(shown.runs)["data"])),
        ),
        settings=ws.WorkspaceSettings(x_axis=STEP, max_runs=1000),
        runset_settings=ws.RunsetSettings(
            filters=[of_runs([*shown.by_id, shown.comparison_id])],
            pinned_columns=[
                "run:displayName",
                *(f"summary:test/{name}" for name in columns),
                *(f"summary:{cost}" for cost in ("mean_tokens", "seconds")),
                "config:started.value",
            ],
            run_settings=colors,
        ),
    )


def report(shown: Shown, entity: str, project: str) -> wr.Report:
    """The paired differences, and for each cell the scores and learning curves of the operators."""
    metric = shown.metric
    fusions = sorted(set(shown.runs["fusion"]))

    def grid(cell: Cell) -> wr.PanelGrid:
        name = f"{cell.data} {cell.setting}"
        own = [panels.bars(f"test {metric.title}", f"test/{metric.name}")]
        titles = panels.learning(metric.name, metric.title)
        own += [panels.curves(title, key) for key, title in titles.items()]
        for i, panel in enumerate(own):  # two side by side, in W&B's grid of 24 columns
            panel.layout = wr.Layout(x=12 * (i % 2), y=6 * (i // 2), w=12, h=6)
        own_runs = [name for name, record in shown.by_id.items() if Cell.of(record) == cell]
        runset = wr.Runset(
            entity=entity,
            project=project,
            name=name,
            filters=[of_runs(own_runs)],
            groupby=["config.fusion"],
        )
        colors = {
            wr.RunsetGroup(name, (wr.RunsetGroupKey(panels.BY_FUSION, f),)): look(f).color
            for f in fusions
        }
        return wr.PanelGrid(runsets=[runset], panels=own, custom_run_colors=colors)

    blocks: list[Any] = [
        wr.H1("Paired differences"),
        wr.MarkdownBlock(paired_table(shown)),
        wr.P("Bars: mean and standard deviation over seeds. Curves: mean, lowest and highest."),
    ]
    for data, cells in groupby(shown.cells, lambda cell: cell.data):
        blocks.append(wr.H1(data))
        for cell in cells:
            blocks += [wr.H2(cell.setting), grid(cell)]
    return wr.Report(
        entity=entity,
        project=project,
        title=f"posfuse {shown.sweep_id}",
        description=f"The sweep {shown.sweep_id}: {len(shown.runs)} runs, by posfuse dashboard.",
        blocks=blocks,
        width="fluid",
    )


def paired_table(shown: Shown) -> str:
    """The differences from the baseline as in posfuse report, and notes on runs that are not
    compared."""
    table = "Nothing to compare."
    if not shown.comparisons.empty:
        table = formats.markdown(short_table(shown.comparisons, shown.criteria))
    return "\n\n".join([table, *shown.notes])


def log_comparison(shown: Shown, sweep: Path, entity: str, project: str) -> None:
    """Log the paired differences as a run of the sweep: their table, a figure of their 95 %
    intervals, and the results by test length, if there are any. A second call adds a newer version
    of them to the same run."""
    comparisons, metric = shown.comparisons, shown.metric
    if comparisons.empty:
        return
    table = short_table(comparisons, shown.criteria)
    with (
        wandb.init(
            entity=entity, project=project, resume="allow",
            id=shown.comparison_id, name=f"comparison of {shown.sweep_id}", job_type="comparison",
            config={"sweep_id": shown.sweep_id}, dir=sweep / ".wandb", mode="online",
            settings=wandb.Settings(**server.AFTERWARDS),
        ) as run,
        rc_style(),
    ):  # fmt: skip
        cells: Any = (table.columns, table.rows)
        logged: dict[str, Any] = {DIFFERENCES: wandb.Table(*cells)}
        logged[INTERVALS] = wandb.Image(forest(comparisons, shown.criteria))
        if len(shown.by_length):
            chance = chance_of(classes_of(shown.runs), metric)
            figure = results_by_length(shown.by_length, chance, metric)
            logged[BY_LENGTH] = wandb.Image(figure)
        run.log(logged, step=run.starting_step)


def save(path: Path, space: ws.Workspace, text: wr.Report) -> dict[str, str]:
    """Save both views in W&B, over the views whose URLs are in `path`. Returns each name's URL."""
    place = f"{server.address()}/{space.entity}/{space.project}"
    views: dict[str, Any] = {"workspace": space, "report": text}
    contents = {
        "workspace": ("name", "sections", "settings", "runset_settings"),
        "report": ("title", "description", "blocks"),
    }
    # The file may be damaged, or the views deleted.
    fix = "retry, or remove it to make new ones"
    with input_errors(f"{path}: cannot load the views in it", fix):
        saved = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        urls = saved.setdefault(place, {})
        for name in views.keys() & urls.keys():
            view = type(views[name]).from_url(urls[name])
            for attribute in contents[name]:
                setattr(view, attribute, getattr(views[name], attribute))
            views[name] = view
    path.parent.mkdir(exist_ok=True)
    for name, view in views.items():
        urls[name] = server.without_user(str(view.save().url))
        records.write_json(path, saved)
    return {name: urls[name] for name in views}


def main(arguments: Namespace) -> list[str]:
    """Save the sweep's two views and print their URLs. Returns a line for each record left out.
    Raises InputError for a folder with several sweeps and for a sweep that is not on the server."""
    sweep = arguments.folder
    runs, problems = collect(sweep)
    sweep_ids = sorted(set(runs["sweep_id"]))
    if len(sweep_ids) > 1:
        several = ", ".join(sweep_ids)
        raise InputError(f"{sweep}: contains several sweeps ({several}); give the folder of one")
    server.prepare(sweep)
    logger = configs.read_config(Path(runs["folder"].iloc[0])).logger
    api = server.connect()
    with server.errors_in_one_line():
        entity, project = server.place_of(logger, api)
        if server.project_url(api, entity, project) is None:
            place = f"{server.address()}: no project {entity}/{project}"
            raise InputError(f"{place}; run posfuse sync {sweep} first")
        family, notes = declared_family(runs)
        shown = Shown(runs, family, arguments.suffix)
        if absent := missing(runs):
            every = len(runs) + len(absent) + left_out(sweep, runs)
            shown.notes.append(f"missing: {len(absent)} of {every} runs")
        shown.notes.extend([*failures(sweep, runs)[:1], *notes])  # without a line for each run
        if not server.runs_of(api, entity, project, list(shown.by_id)):
            of_suffix = f" with suffix {arguments.suffix}" if arguments.suffix else ""
            raise InputError(
                f"{server.address()}/{entity}/{project}: has no run of {sweep}{of_suffix}; run "
                "posfuse sync first, or give the --suffix of the upload"
            )
        log_comparison(shown, sweep, entity, project)
        space, text = workspace(shown, entity, project), report(shown, entity, project)
        for name, url in save(sweep / "dashboard" / "views.json", space, text).items():
            print(f"{name}: {url}")
    print("next: open both in a browser")
    return problems
