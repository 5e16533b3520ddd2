"""posfuse dashboard DIR: a sweep's comparison in W&B, a saved workspace and a report.

A second call changes the same two views, whose URLs are in dashboard/views.json.
"""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import wandb_workspaces.reports.v2 as wr
import wandb_workspaces.workspaces as ws
from wandb_workspaces import expr

from posfuse.errors import InputError
from posfuse.evidence.collect import SHARED, collect, declared_family
from posfuse.evidence.metric import ACCURACY, Metric, metric_of
from posfuse.process.arguments import sweep_parser
from posfuse.report import formats
from posfuse.report.sections.differences import short_table
from posfuse.runs import configs, records
from posfuse.statistics.comparisons import Criteria, compare, criteria_for
from posfuse.tracking import server
from posfuse.tracking.places import prepare
from posfuse.tracking.projection import STEP, variant

LOSSES = {"val/loss": "validation loss", "train/loss": "training loss"}
INSIDE = ("gate_mean", "norm_ratio", "attention_entropy_layer_1")  # of the diagnostics
SPREAD = {"groupby_aggfunc": "mean", "groupby_rangefunc": "stddev"}  # over the seeds of a group
MANY = 1000  # runs; W&B shows ten by default


def learning_curves(metric: Metric) -> dict[str, str]:
    """The titles of the curves by their names in W&B."""
    return {f"val/{metric.name}": f"validation {metric.title}", **LOSSES}


def curves(titles: dict[str, str], by: Any) -> list[wr.LinePlot]:
    """A line plot per metric, with a curve per group: mean and standard deviation over seeds."""
    grouped: Any = {"groupby": by, "max_runs_to_show": MANY, **SPREAD}
    return [wr.LinePlot(title=t, x=STEP, y=[name], **grouped) for name, t in titles.items()]


def bars(metric: Metric) -> list[wr.BarPlot]:
    """The metric of the test split by each axis: mean and standard deviation."""
    shown: Any = {"max_runs_to_show": MANY, "max_bars_to_show": MANY, **SPREAD}
    metrics = [wr.SummaryMetric(f"test/{metric.name}")]
    return [
        wr.BarPlot(title=f"test {metric.title} by {axis}", metrics=metrics,
                   groupby=wr.Config(axis), **shown)
        for axis in ("fusion", "data", "encoding")
    ]  # fmt: skip


def workspace(sweep_id: str, entity: str, project: str, metric: Metric) -> ws.Workspace:
    """All of a sweep's runs: bars by each axis, and curves by W&B's group (data, encoding, fusion
    and variant), so the spread is over seeds."""
    shown = [metric.name, *(["macro_f1"] if metric == ACCURACY else [])]
    media = wr.MediaBrowser(title="gates", media_keys=["gate"], num_columns=3)
    learning = curves(learning_curves(metric), "Group")
    inside = [*curves({f"diagnostics/{name}": name for name in INSIDE}, "Group"), media]
    return ws.Workspace(
        entity=entity,
        project=project,
        name=f"posfuse {sweep_id}",
        sections=[
            ws.Section(name=f"Test {metric.title}", panels=bars(metric), is_open=True),
            ws.Section(name="Learning curves", panels=learning, is_open=True),
            ws.Section(name="What position does", panels=inside, is_open=True),
        ],
        settings=ws.WorkspaceSettings(x_axis=STEP, max_runs=MANY),
        runset_settings=ws.RunsetSettings(
            filters=[expr.Config("sweep_id") == sweep_id],
            pinned_columns=["run:displayName", *(f"summary:test/{name}" for name in shown)],
        ),
    )


def report(
    runs: pd.DataFrame, entity: str, project: str, primary: tuple[str, ...] = ()
) -> wr.Report:
    """The paired differences, the bars, and the curves of each corpus and encoding. `primary` is
    that of Criteria."""
    sweep_id = str(runs["sweep_id"].iloc[0])
    metric = metric_of(runs)

    def grid(panels: list[Any], cell: dict[str, str]) -> wr.PanelGrid:
        for i, panel in enumerate(panels):  # three side by side, in W&B's grid of 24 columns
            panel.layout = wr.Layout(x=8 * (i % 3), y=6 * (i // 3), w=8, h=6)
        values = {"sweep_id": sweep_id, **cell}
        runset = wr.Runset(
            entity=entity,
            project=project,
            name=" ".join(values.values()),
            filters=[expr.Config(key) == value for key, value in values.items()],
        )
        return wr.PanelGrid(runsets=[runset], panels=panels)

    criteria = criteria_for(Criteria(primary=primary), metric)
    blocks: list[Any] = [
        wr.H1("Paired differences"),
        wr.MarkdownBlock(paired_table(runs, criteria)),
        wr.H1(f"Test {metric.title}"),
        grid(bars(metric), {}),
        wr.H1("Learning curves"),
        wr.P("Mean and standard deviation over seeds, by fusion."),
    ]
    axes = [axis for axis in SHARED if axis != "variant" or runs["variant"].any()]
    # W&B has the variant of the record; `collect` shortens it.
    read = [records.read_result(Path(folder, records.RESULT)) for folder in runs["folder"]]
    stated = runs.assign(variant=[variant(record["variant"]) for record in read])
    for cell in stated[axes].drop_duplicates().to_dict("records"):
        names = {str(axis): str(name) for axis, name in cell.items()}
        plots = curves(learning_curves(metric), wr.Config("fusion"))
        blocks += [wr.H2(" ".join(names.values()).strip()), grid(plots, names)]
    return wr.Report(
        entity=entity,
        project=project,
        title=f"posfuse {sweep_id}",
        description=f"The sweep {sweep_id}: {len(runs)} runs, by posfuse dashboard.",
        blocks=blocks,
        width="fluid",
    )


def paired_table(runs: pd.DataFrame, criteria: Criteria) -> str:
    """The differences to the baseline as in posfuse report, and notes on what is not compared."""
    comparisons, notes = compare(runs, criteria)
    table = "Nothing to compare."
    if not comparisons.empty:
        table = formats.markdown(short_table(comparisons, criteria))
    return "\n\n".join([table, *notes])


def save(path: Path, space: ws.Workspace, text: wr.Report) -> list[str]:
    """Save both views in W&B, over those whose URLs `path` holds; returns their URLs."""
    place = f"{server.address()}/{space.entity}/{space.project}"
    try:
        views = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        urls = views.setdefault(place, {})
        if "workspace" in urls:
            saved = ws.Workspace.from_url(urls["workspace"])
            saved.name, saved.sections, saved.settings = space.name, space.sections, space.settings
            saved.runset_settings = space.runset_settings
            space = saved
        if "report" in urls:
            old = wr.Report.from_url(urls["report"])
            old.title, old.description, old.blocks = text.title, text.description, text.blocks
            text = old
    except Exception as error:  # the file may hold anything, and the views may be deleted
        reason = " ".join(str(error).split())
        raise InputError(
            f"{path}: cannot load the views in it ({reason}); remove it to make new ones"
        ) from error
    path.parent.mkdir(exist_ok=True)
    urls["workspace"] = server.without_user(str(space.save().url))
    records.write_json(path, views)
    urls["report"] = server.without_user(str(text.save().url))
    records.write_json(path, views)
    return [urls["workspace"], urls["report"]]


def saved_views(sweep: Path) -> tuple[list[str], list[str]]:
    """Save the sweep's two views; returns their URLs, and a line for each record left out."""
    runs, problems = collect(sweep)
    sweep_ids = sorted(set(runs["sweep_id"]))
    if len(sweep_ids) > 1:
        several = ", ".join(sweep_ids)
        raise InputError(f"{sweep}: holds several sweeps ({several}); give the folder of one")
    prepare(sweep)
    project = configs.read_config(Path(runs["folder"].iloc[0])).logger.project
    api = server.connect()
    with server.errors_in_one_line():
        entity = server.entity_of(api)
        if not server.has_project(api, entity, project):
            place = f"{server.address()}: no project {entity}/{project}"
            raise InputError(f"{place}; run posfuse sync {sweep} first")
        primary = declared_family(sweep, sweep_ids[0])
        space = workspace(sweep_ids[0], entity, project, metric_of(runs))
        text = report(runs, entity, project, primary)
        return save(sweep / "dashboard" / "views.json", space, text), problems


def main() -> list[str]:
    """Save and print the URLs of the two views; returns a line for each record left out."""
    arguments = sweep_parser("dashboard", __doc__.splitlines()[0]).parse_args()
    urls, problems = saved_views(arguments.folder)
    print("\n".join(urls))
    return problems
