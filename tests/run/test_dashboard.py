"""The comparison in W&B as code: what the two views hold, and that a second call changes them."""

import contextlib
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import wandb

from commands import called
from fake_wandb import ENTITY, fake_run
from posfuse import seals
from posfuse.config import LoggerConfig
from posfuse.errors import InputError
from posfuse.evidence.collect import collect
from posfuse.report import formats
from posfuse.report.sections.differences import short_table
from posfuse.runs import measurements, records
from posfuse.runs.measurements import Diagnostic
from posfuse.statistics.comparisons import Criteria, compare
from posfuse.tracking import dashboard as code
from posfuse.tracking import panels
from posfuse.tracking import server as wandb_server
from posfuse.tracking.projection import Cell, run_id
from refusals import refusal
from small_records import ask, write_failure, write_record, write_sweep

PAGE = Path(__file__).parents[2] / "docs" / "wandb.md"


@pytest.fixture
def sweep(tmp_path):
    """Two fusions x three cells x three seeds."""
    root = tmp_path / "mine"
    cells = (("learned", ""), ("sinusoidal", ""), ("sinusoidal", "model.token_scale=1"))
    for encoding, variant in cells:
        scores = {"add": [0.5, 0.6, 0.7], "concat": [0.6, 0.7, 0.9]}
        settings = {"model.token_scale": 1} if variant else {}
        write_sweep(root, scores, encoding=encoding, variant=variant, settings=settings)
    return root


@pytest.fixture
def server(fake):
    fake.runs["some"] = fake_run("posfuse")  # so the project exists
    return fake


@pytest.fixture
def dashboard(server, sweep, monkeypatch):
    """Call posfuse dashboard in this process without its run, after the server got the runs;
    returns its exit status and its lines."""
    monkeypatch.setattr(code, "log_comparison", lambda *_: None)

    def call(*options, folder=sweep, suffixes=("", "2")):
        for path in folder.rglob(records.RESULT):
            with contextlib.suppress(InputError):
                record = records.read_result(path)
                own = {run_id(record, suffix): fake_run("posfuse") for suffix in suffixes}
                server.runs = own | server.runs
        out, error = called("dashboard", *options, folder)
        return int(error is not None), (error or out).splitlines()

    return call


def find(tree, key, value):
    """All dicts of a JSON tree in which the key has the value."""
    if isinstance(tree, list):
        return [found for item in tree for found in find(item, key, value)]
    if isinstance(tree, dict):
        here = [tree] if tree.get(key) == value else []
        return here + [found for item in tree.values() for found in find(item, key, value)]
    return []


def ids_of(runset):
    """The ids of the runs that a view shows, which W&B calls their names."""
    (only,) = runset["filters"]["filters"]
    by_id = {"key": {"section": "run", "name": "name"}, "op": "IN", "disabled": False}
    assert only == by_id | {"value": only["value"]}
    return only["value"]


def check_views(workspace, report, sweep, suffix=""):
    """The views show the sweep's own runs, and no group of a chart has runs of two cells."""
    written = list(map(records.read_result, sweep.rglob("result.json")))
    own = {run_id(record, suffix): record for record in written}
    (runset,) = workspace["section"]["runSets"]
    (comparison,) = set(ids_of(runset)) ^ own.keys()  # its charts are in the workspace
    assert comparison.startswith("comparison-")
    assert comparison.endswith(f"-{suffix}") == bool(suffix)
    panels = find(workspace, "groupAgg", "mean")
    by_fusion = [panel["metrics"] for panel in panels if panel["groupBy"] == "fusion.value"]
    cells = ("learned", "sinusoidal", "sinusoidal/model_token_scale_1")
    names = [f"tiny/{cell}/{split}_accuracy" for cell in cells for split in ("test", "val")]
    drawn = [metric.removeprefix("summary_metrics.") for (metric,) in by_fusion]
    assert sorted(drawn) == sorted(names)
    others = {panel["groupBy"] for panel in panels} - {"fusion.value"}
    assert others == {"group"}  # the cell and the operator
    # The panels of settings have the runs of a corpus and an encoding.
    ranked = [p["config"]["targetKey"] for p in find(workspace, "viewType", "Parameter Importance")]
    pooled = [f"tiny/{encoding}/any_setting/test_accuracy" for encoding in cells[:2]]
    assert sorted(ranked) == pooled
    colors = workspace["section"]["customRunColors"]
    assert {colors[i] for i, record in own.items() if record["fusion"] == "concat"} == {"#0072B2"}

    grids = find(report, "type", "panel-grid")
    runsets = [runset for block in grids for runset in block["metadata"]["runSets"]]
    shown = [[own[i] for i in ids_of(runset)] for runset in runsets]
    assert [{(r["encoding"], r["variant"]) for r in of_cell} for of_cell in shown] == [
        {("learned", "")}, {("sinusoidal", "")}, {("sinusoidal", "model.token_scale=1")}
    ]  # fmt: skip
    assert sum(map(len, shown)) == len(own)
    for kind, spread in (("Run History Line Plot", "minmax"), ("Bar Chart", "stddev")):
        panels = [panel["config"] for panel in find(report, "viewType", kind)]
        assert {(p["groupBy"], p["groupArea"]) for p in panels} == {("fusion.value", spread)}
    assert set(grids[0]["metadata"]["customRunColors"].values()) == {"#000000", "#0072B2"}
    (block,) = find(report, "type", "markdown-block")
    comparisons, _ = compare(collect(sweep)[0], Criteria())
    table = formats.markdown(short_table(comparisons, Criteria()))
    assert table in block["content"]
    assert "| tiny | sinusoidal | concat |  | undecided | 3 | +13.33 ± 5.77 |" in table


def test_a_cell_has_the_panels_of_its_own_metric():
    cells = [Cell("copy", "sinusoidal", "", "exact_match"), Cell("own", "rope", "", "error")]
    names = {"exact_match": "exact match", "accuracy": "accuracy"}
    sections = panels.sections(cells, "accuracy", names)
    text = str({section.name: section.panels for section in sections})
    assert "copy/sinusoidal/test_exact_match" in text
    assert "own/rope/test_error" in text
    assert "copy/sinusoidal/test_accuracy" not in text


def specs(server):
    """The workspace and the report on the server."""
    views = {view["type"]: json.loads(view["spec"]) for view in server.views.values()}
    return views["project-view"], views["runs"]


def test_both_views_are_saved_and_then_changed_and_a_damaged_record_is_named(
    dashboard, sweep, server
):
    status, urls = dashboard()
    assert status == 0
    assert urls.pop() == "next: open both in a browser"
    assert len(urls) == 2
    page = f"{server.url}/{ENTITY}/posfuse"
    assert urls[0].startswith(f"workspace: {page}?nw=")
    assert urls[1].startswith(f"report: {page}/reports/")
    check_views(*specs(server), sweep)
    assert {view["displayName"] for view in server.views.values()} == {"posfuse mine"}
    noted = (sweep / "dashboard" / "views.json").read_text()
    assert "secret" not in "".join(urls) + str(server.views) + noted

    assert dashboard("--suffix=2")[1][:-1] == urls  # of runs under new ids
    check_views(*specs(server), sweep, "2")
    run = write_record(sweep, 0.8, "gate_mlp", 0)
    assert dashboard()[1][:-1] == urls
    assert len(server.views) == 2
    name = run_id(records.read_result(run / records.RESULT))
    assert all(name in str(view) for view in specs(server))
    (run / records.RESULT).write_text("{")
    status, (line,) = dashboard()
    assert (status, line.partition(": not ")[0]) == (1, f"error: {run / records.RESULT}")
    assert name not in str(specs(server))


def test_a_sweep_that_was_renamed_and_resumed_has_the_runs_of_both_names(dashboard, sweep, server):
    ask(sweep, {"seed": "0"})
    renamed = sweep.rename(sweep.parent / "renamed")
    write_record(renamed, 0.5, "add", 3)
    status, lines = dashboard(folder=renamed)
    assert (status, len(lines)) == (0, 3)
    assert {view["displayName"] for view in server.views.values()} == {"posfuse renamed"}
    recorded = map(records.read_result, renamed.rglob("result.json"))
    assert {record["sweep_id"] for record in recorded} == {"mine", "renamed"}
    check_views(*specs(server), renamed)


def test_the_report_counts_runs_without_a_result(dashboard, sweep, server):
    ask(sweep, {"seed": "0,7"}, ["data=tiny", "encoding=learned", "fusion=concat"])
    failed = sweep / "tiny" / "learned" / "concat" / "seed=7"
    failed.mkdir()
    write_failure(failed, "diverged", "lower optim.lr")
    assert dashboard()[0] == 0
    text = str(specs(server)[1])
    assert "missing: 1 of 19 runs" in text
    assert "runs without a result: 1 diverged" in text
    assert str(failed) not in text


def titles(workspace):
    """The titles of the panels, or their kinds, by section."""
    return {
        section.name: [getattr(p, "title", None) or type(p).__name__ for p in section.panels]
        for section in workspace.sections
    }


def test_each_question_has_a_panel_and_operators_without_gates_have_none(tmp_path):
    """docs/wandb.md lists the sections."""
    root = tmp_path / "mine"
    write_sweep(root, {"add": [0.5, 0.6]}, data="one")
    write_sweep(root, {"add": [0.5, 0.6], "gate_scalar": [0.5, 0.7]}, data="two")
    shown = code.Shown(collect(root)[0])
    before = titles(code.workspace(shown, ENTITY, "posfuse"))
    cell = [
        "sinusoidal: test accuracy", "sinusoidal: validation accuracy",
        "sinusoidal: test accuracy and run time", "sinusoidal: test accuracy by setting",
        "ParameterImportancePlot",
    ]  # fmt: skip
    assert before.pop("one") == before.pop("two") == cell
    assert before["Length"] == ["test accuracy and length"]
    assert len(before["Paired differences"]) == 2
    assert before["Errors"] == ["CustomChart"] * 2  # one for each corpus
    assert [name for name in before if f"| {name} |" not in PAGE.read_text()] == []
    rows = [Diagnostic(1, "gate_mean", "", 0, 0, 9, 0.5)]
    folder = next(root.rglob("gate_scalar/seed=1"))  # the first run may have lost the file
    measurements.write_table(folder / records.DIAGNOSTICS, measurements.table_of(Diagnostic, rows))
    after = titles(code.workspace(shown, ENTITY, "posfuse"))["Use of position"]
    assert after[:-2] == before["Use of position"]
    assert after[-2:] == ["mean gate", "CustomChart"]


def test_the_comparison_of_a_suffix_is_another_run(sweep, server):
    """W&B refuses the id of a deleted run."""
    runs = collect(sweep)[0]
    shown, again = code.Shown(runs), code.Shown(runs, suffix="2")
    server.deleted.add(shown.comparison_id)
    code.log_comparison(again, sweep, ENTITY, "posfuse")
    assert again.comparison_id == f"{shown.comparison_id}-2"
    assert server.runs[again.comparison_id].history


def test_the_comparison_is_a_run_of_the_sweep(sweep, server):
    shown = code.Shown(collect(sweep)[0])
    assert shown.comparison_id == f"comparison-{seals.short_digest('mine')}"
    for _ in range(2):
        code.log_comparison(shown, sweep, ENTITY, "posfuse")
    (run,) = (run for name, run in server.runs.items() if name.startswith("comparison-"))
    assert run.config["sweep_id"]["value"] == "mine"
    assert run.settings["jobType"] == "comparison"
    assert [row["_step"] for row in run.history] == [0, 1]
    tables = [v for k, v in run.files.items() if k.startswith("media/table/paired_differences")]
    first, *_ = json.loads(tables[-1])["data"]
    assert first[:6] == ["tiny", "learned", "concat", "", "undecided", "3"]
    assert any(k.startswith("media/images/paired_differences_intervals") for k in run.files)


def test_results_by_test_length_have_a_figure_in_the_comparison(tmp_path, server):
    lengths = {n: {"accuracy": 0.5, "documents": 20} for n in ("80", "160")}
    scores = {"add": [0.5, 0.6], "mul": [0.5, 0.7]}
    write_sweep(tmp_path / "mine", scores, lengths=lengths, settings={"data.max_len": 80})
    shown = code.Shown(collect(tmp_path / "mine")[0])
    code.log_comparison(shown, tmp_path / "mine", ENTITY, "posfuse")
    (run,) = (run for name, run in server.runs.items() if name.startswith("comparison-"))
    assert any(name.startswith("media/images/results_by_length") for name in run.files)
    by_section = titles(code.workspace(shown, ENTITY, "posfuse"))
    assert by_section["Length"] == ["test accuracy and length", "results_by_length"]


def test_a_server_that_refuses_is_one_line(dashboard, server):
    server.refuse = lambda query, variables: query == "UpsertView2"
    status, (line,) = dashboard()
    assert status == 1
    assert line.startswith(f"error: {server.url}: ")
    assert "UpsertView2 refused" in line


@pytest.mark.slow
def test_notes_that_lead_to_no_views_are_named(dashboard, sweep, server):
    path = sweep / "dashboard" / "views.json"
    path.parent.mkdir()
    place = f"{server.url}/{ENTITY}/posfuse"
    deleted = {"workspace": f"{place}?nw=gone", "report": f"{place}/reports/gone--gone"}
    contents = ["{", "[]", {place: 1}, {place: deleted}, {place: {"report": deleted["report"]}}]
    for content in contents:
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        status, (line,) = dashboard()
        assert status == 1
        assert line.startswith(f"error: {path}: cannot load the views in it (")
        assert line.endswith("); retry, or remove it to make new ones")
        assert server.views == {}


def test_what_is_missing_is_one_line(dashboard, sweep, server, monkeypatch):
    server.runs.clear()
    for project in ("posfuse", "of_shell"):
        line = f"error: {server.url}: no project {ENTITY}/{project}; run posfuse sync {sweep} first"
        assert dashboard(suffixes=()) == (1, [line])
        monkeypatch.setenv("WANDB_PROJECT", "of_shell")
    monkeypatch.setenv("WANDB_API_KEY", "")
    wandb.teardown()  # it remembers the key
    (line,) = dashboard()[1]
    assert line.startswith(f"error: {server.url}: ")
    fix = "; check WANDB_API_KEY and the network, retry"
    assert line.endswith(fix)
    assert f"{fix}\n" in PAGE.read_text()
    write_sweep(sweep.parent / "other", {"add": [0.5]})
    (line,) = dashboard(folder=sweep.parent)[1]
    assert "several sweeps (mine, other); give the folder of one" in line
    assert server.views == {}


def test_runs_of_another_upload_are_not_enough(dashboard, sweep, server):
    place = f"error: {server.url}/{ENTITY}/posfuse: has no run of {sweep}"
    fix = "run posfuse sync first, or give the --suffix of the upload"
    assert dashboard(suffixes=["2"]) == (1, [f"{place}; {fix}"])
    assert dashboard("--suffix=3") == (1, [f"{place} with suffix 3; {fix}"])
    assert server.views == {}
    assert dashboard("--suffix=2")[0] == 0


def test_a_key_without_a_user_is_refused():
    api = SimpleNamespace(settings={"entity": None}, default_entity=None)
    assert "set WANDB_ENTITY" in refusal(wandb_server.place_of, LoggerConfig(), api)


def test_errors_are_one_line_without_the_token(server):
    for text, line in (
        (f"{wandb_server.base_url()}/graphql timed out", "/graphql timed out; check"),
        ("", "TimeoutError; check WANDB_API_KEY and the network, retry"),
    ):
        with pytest.raises(InputError, match=line) as raised, wandb_server.errors_in_one_line():
            raise TimeoutError(text)
        assert "secret" not in str(raised.value)
    shown = {"https://token@host/o": "https://host/o", "git@host:o": "git@host:o", "": ""}
    assert {url: wandb_server.without_user(url) for url in shown} == shown


def test_without_the_baseline_there_is_no_table(tmp_path):
    write_sweep(tmp_path, {"concat": [0.5, 0.6]})
    table = code.paired_table(code.Shown(collect(tmp_path)[0]))
    assert table == (
        "Nothing to compare.\n\ntiny sinusoidal concat: not compared, because add has no run with "
        "this data and encoding"
    )
