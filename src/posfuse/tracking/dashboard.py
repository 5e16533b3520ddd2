"""posfuse-dashboard DIR: a sweep's comparison in W&B as code, a saved workspace and a report.

Without a key their specifications are written into the sweep's folder; with one both are saved,
and the next time the same two are changed.
"""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import wandb_workspaces.reports.v2 as wr
import wandb_workspaces.workspaces as ws
from wandb_workspaces import expr

from posfuse.analysis.evidence.collect import SHARED, collect
from posfuse.analysis.statistics.comparisons import Criteria, compare
from posfuse.analysis.tables import formats, paired_tables
from posfuse.errors import InputError, with_streams
from posfuse.runs import records
from posfuse.runs.records import STEP
from posfuse.tracking.logs import keep_files_in
from posfuse.tracking.server import FAILED, address, connect, entity_of, said, without_user

CURVES = {
    "val/accuracy": "validation accuracy",
    "val/loss": "validation loss",
    "train/loss": "training loss",
}
INSIDE = ("gate_mean", "norm_ratio", "attention_entropy_layer_1")  # of the diagnostics
SPREAD = {"groupby_aggfunc": "mean", "groupby_rangefunc": "stddev"}  # over the seeds of a group
MANY = 1000  # runs; W&B shows ten otherwise


def curves(titles: dict[str, str], by: Any) -> list[wr.LinePlot]:
    """Of these metrics, a curve a group: mean and standard deviation over its seeds."""
    grouped: Any = {"groupby": by, "max_runs_to_show": MANY, **SPREAD}
    return [wr.LinePlot(title=t, x=STEP, y=[name], **grouped) for name, t in titles.items()]


def bars() -> list[wr.BarPlot]:
    """Test accuracy by each axis: mean and standard deviation."""
    return [
        wr.BarPlot(
            title=f"test accuracy by {axis}",
            metrics=[wr.SummaryMetric("test/accuracy")],
            groupby=wr.Config(axis),
            max_runs_to_show=MANY,
            max_bars_to_show=MANY,
            **SPREAD,
        )
        for axis in ("fusion", "data", "encoding")
    ]


def panels(found: list[Any]) -> list[Any]:
    """Three side by side, in W&B's grid of 24 columns."""
    for i, panel in enumerate(found):
        panel.layout = wr.Layout(x=8 * (i % 3), y=6 * (i // 3), w=8, h=6)
    return found


def chosen(values: dict[str, str]) -> dict[str, Any]:
    """The filter that takes the runs whose config has these values, as W&B spells it."""
    filters = [
        {
            "key": {"section": "config", "name": key},
            "op": "=",
            "value": value,
            "disabled": False,
            "connector": "AND",
        }
        for key, value in values.items()
    ]
    del filters[0]["connector"]
    return {"filterFormat": "filterV2", "filters": filters}


def workspace(sweep_id: str, entity: str, project: str) -> ws.Workspace:
    """All of a sweep's runs, bars by each axis, and curves by W&B's group, which is data, encoding,
    fusion and variant: so their spread is the seeds'. Further filters are a click."""
    media = wr.MediaBrowser(title="gates", media_keys=["gate"], num_columns=3)
    inside = {f"diagnostics/{name}": name for name in INSIDE}
    return ws.Workspace(
        entity=entity,
        project=project,
        name=f"posfuse {sweep_id}",
        sections=[
            ws.Section(name="Test accuracy", panels=bars(), is_open=True),
            ws.Section(name="Learning curves", panels=curves(CURVES, "Group"), is_open=True),
            ws.Section(
                name="What position does",
                panels=[*curves(inside, "Group"), media],
                is_open=True,
            ),
        ],
        settings=ws.WorkspaceSettings(x_axis=STEP, max_runs=MANY),
        runset_settings=ws.RunsetSettings(
            filters=[expr.Config("sweep_id") == sweep_id],
            pinned_columns=["run:displayName", "summary:test/accuracy", "summary:test/macro_f1"],
        ),
    )


def report(runs: pd.DataFrame, entity: str, project: str) -> wr.Report:
    """The paired differences, the bars, and the curves of each corpus and encoding."""
    sweep_id = str(runs["sweep_id"].iloc[0])

    def grid(found: list[Any], cell: dict[str, str]) -> wr.PanelGrid:
        runset = wr.Runset(
            entity=entity,
            project=project,
            name=" ".join([sweep_id, *cell.values()]),
        )
        # Not as text: there the library doubles an = inside a value, as variants have.
        runset._stashed_filters_v2 = chosen({"sweep_id": sweep_id, **cell})
        runset._stashed_filter_string = runset.filters
        return wr.PanelGrid(runsets=[runset], panels=panels(found))

    blocks: list[Any] = [
        wr.H1("Paired differences"),
        wr.MarkdownBlock(paired_table(runs)),
        wr.H1("Test accuracy"),
        grid(bars(), {}),
        wr.H1("Learning curves"),
        wr.P("Mean and standard deviation over seeds, by fusion."),
    ]
    axes = [axis for axis in SHARED if axis != "variant" or runs["variant"].any()]
    # W&B has the variant that the record states; `collect` leaves out what goes without saying.
    records_of = (records.read_result(Path(f) / records.RESULT) for f in runs["folder"])
    stated = runs.assign(variant=[record["variant"] for record in records_of])
    for cell in stated[axes].drop_duplicates().to_dict("records"):
        names = {str(axis): str(name) for axis, name in cell.items()}
        panels_of_cell = curves(CURVES, wr.Config("fusion"))
        blocks += [wr.H2(" ".join(names.values()).strip()), grid(panels_of_cell, names)]
    return wr.Report(
        entity=entity,
        project=project,
        title=f"posfuse {sweep_id}",
        description=f"The sweep {sweep_id}: {len(runs)} runs, by posfuse-dashboard.",
        blocks=blocks,
        width="fluid",
    )


def paired_table(runs: pd.DataFrame) -> str:
    """The differences to the baseline as posfuse-report has them, and what is not compared."""
    criteria = Criteria()
    if criteria.baseline not in set(runs["fusion"]):
        return f"No run with fusion {criteria.baseline}: nothing to compare with."
    comparisons, notes = compare(runs, criteria)
    if comparisons.empty:
        return "\n\n".join(["Nothing to compare.", *notes])
    return "\n\n".join([formats.markdown(paired_tables.short_table(comparisons, criteria)), *notes])


def write(folder: Path, space: ws.Workspace, text: wr.Report) -> None:
    """The specifications as W&B takes them."""
    folder.mkdir(exist_ok=True)
    for name, model in (("workspace", space._to_model()), ("report", text._to_model())):
        spec = model.spec.model_dump_json(by_alias=True, exclude_none=True, indent=1)
        (folder / f"{name}.json").write_text(spec)


def save(folder: Path, space: ws.Workspace, text: wr.Report) -> list[str]:
    """Save both in W&B, as those of the last time where there are such; returns their URLs.

    Raises InputError before a sync has made the project.
    """
    try:
        text._to_model()  # looks the project up
    except ValueError as error:
        if "not found" not in str(error):
            raise
        place = f"{text.entity}/{text.project}"
        raise InputError(f"{address()}: no project {place}; make sync SWEEP=... first") from error
    folder.mkdir(exist_ok=True)
    path = folder / "views.json"
    try:
        views = json.loads(path.read_text()) if path.exists() else {}
        place = f"{address()}/{space.entity}/{space.project}"
        known = views.setdefault(place, {"workspace": ["", ""], "report": ""})
        space._internal_id, space._internal_name = known["workspace"]
        text.id = known["report"]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: damaged; remove it to make new views") from error
    is_new = not text.id
    try:
        space.save()
        known["workspace"] = [space._internal_id, space._internal_name]
        records.write_json(path, views)
        text.save()
    except FAILED as error:
        if is_new:
            raise
        cure = f"if a view was deleted there, remove {path} to make new ones"
        raise InputError(f"{said(error)}; {cure}") from error
    known["report"] = text.id
    records.write_json(path, views)
    return [without_user(str(space.url)), without_user(str(text.url))]


@with_streams
def main() -> None:
    """Prints the URLs, or without a key where the specifications are."""
    parser = argparse.ArgumentParser(prog="posfuse-dashboard", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="a sweep's, as multirun/quickstart")
    sweep = parser.parse_args().folder
    try:
        runs, problems = collect(sweep)
        if runs["sweep_id"].nunique() > 1:
            several = ", ".join(sorted(set(runs["sweep_id"])))
            raise InputError(f"{sweep}: several sweeps ({several}); give the folder of one")
        os.environ.setdefault("WANDB_SILENT", "true")  # the URLs are printed here
        keep_files_in(sweep)
        project = records.read_config(Path(runs["folder"].iloc[0])).logger.project
        sweep_id = str(runs["sweep_id"].iloc[0])
        api = connect()
        # W&B looks an owner's project up at once; without a key it has none.
        entity = entity_of(api) if api else ""
        space, text = workspace(sweep_id, entity, project), report(runs, entity, project)
        if api:
            lines = save(sweep / "dashboard", space, text)
        else:
            write(sweep / "dashboard", space, text)
            lines = [
                f"{sweep / 'dashboard'}: workspace.json and report.json; to have both in W&B:",
                "set WANDB_API_KEY (or: wandb login) and do this again",
            ]
    except InputError as error:
        sys.exit(f"error: {error}")
    except FAILED as error:
        sys.exit(f"error: {said(error)}")
    print("\n".join(lines))  # here, where a broken pipe is not taken for W&B's
    if problems:
        sys.exit("\n".join(f"error: {problem}" for problem in problems))


if __name__ == "__main__":
    main()
