"""The comparison in W&B as code: what the two views hold, and that a second call changes them."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from fake_wandb import ENTITY, FakeRun, serve
from posfuse.analysis.evidence.collect import collect
from posfuse.analysis.statistics.comparisons import Criteria, compare
from posfuse.analysis.tables import formats, paired_tables
from posfuse.errors import InputError
from posfuse.tracking import dashboard as code
from posfuse.tracking import server as wandb_server
from processes import HANG
from small_records import write_record, write_sweep


@pytest.fixture
def sweep(tmp_path):
    """Two fusions x two encodings x three seeds."""
    root = tmp_path / "mine"
    for encoding in ("sinusoidal", "learned"):
        write_sweep(root, {"add": [0.5, 0.6, 0.7], "concat": [0.6, 0.7, 0.9]}, encoding=encoding)
    return root


@pytest.fixture
def server():
    with serve() as fake:
        fake.runs["some"] = FakeRun("posfuse")  # so the project is there
        yield fake
    assert fake.unknown == []


def dashboard(sweep, server=None):
    """posfuse-dashboard in a process of its own, with a key where there is a server."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("WANDB_")}
    kept["HOME"] = str(sweep.parent)
    if server:
        url = server.url.replace("//", "//user:secret@")
        kept |= {"WANDB_BASE_URL": url, "WANDB_API_KEY": "k" * 40}
    return subprocess.run(
        [sys.executable, "-m", "posfuse.tracking.dashboard", sweep.name],
        cwd=sweep.parent,
        env=kept,
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG,
    )


def find(tree, key, value):
    """All dicts of a JSON tree in which the key has the value."""
    if isinstance(tree, list):
        return [found for item in tree for found in find(item, key, value)]
    if isinstance(tree, dict):
        here = [tree] if tree.get(key) == value else []
        return here + [found for item in tree.values() for found in find(item, key, value)]
    return []


def filters_of(runset):
    found = runset["filters"]["filters"]
    return {f["key"]["name"]: f["value"] for f in found if f["op"] == "=" and not f["disabled"]}


def check_panels(spec, curves, by):
    """Curves over the step and bars, each a mean and a standard deviation by group."""
    lines = [panel["config"] for panel in find(spec, "viewType", "Run History Line Plot")]
    accuracy = [line for line in lines if line["metrics"] == ["val/accuracy"]]
    assert len(accuracy) == curves
    for line in lines:
        assert line["xAxis"] == "trainer/global_step"
        assert line["groupBy"] == by
        assert (line["groupAgg"], line["groupArea"]) == ("mean", "stddev")
        assert line["aggregate"]
    bars = [panel["config"] for panel in find(spec, "viewType", "Bar Chart")]
    assert [bar["groupBy"] for bar in bars] == ["fusion.value", "data.value", "encoding.value"]
    for bar in bars:
        assert bar["metrics"] == ["summary_metrics.test/accuracy"]
        assert (bar["groupAgg"], bar["groupArea"]) == ("mean", "stddev")


def check_views(workspace, report, sweep):
    check_panels(workspace, curves=1, by="group")
    (runset,) = workspace["section"]["runSets"]
    assert filters_of(runset) == {"sweep_id": "mine"}

    check_panels(report, curves=2, by="fusion.value")
    runsets = [runset for block in find(report, "type", "panel-grid")
               for runset in block["metadata"]["runSets"]]  # fmt: skip
    assert [filters_of(runset) for runset in runsets] == [
        {"sweep_id": "mine"},
        {"sweep_id": "mine", "data": "tiny", "encoding": "learned"},
        {"sweep_id": "mine", "data": "tiny", "encoding": "sinusoidal"},
    ]
    (block,) = find(report, "type", "markdown-block")
    comparisons, _ = compare(collect(sweep)[0], Criteria())
    table = formats.markdown(paired_tables.short_table(comparisons, Criteria()))
    assert table in block["content"]
    assert "| tiny | sinusoidal | concat | 3 | +13.33 ± 5.77 |" in table


def test_without_a_key_the_specifications_are_written(sweep):
    done = dashboard(sweep)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("mine/dashboard: workspace.json and report.json;")
    assert "WANDB_API_KEY" in done.stdout
    specs = [json.loads((sweep / "dashboard" / f"{name}.json").read_text())
             for name in ("workspace", "report")]  # fmt: skip
    check_views(*specs, sweep)
    assert {p.name for p in sweep.parent.iterdir()} == {"mine", "corpus"}


def test_with_a_key_both_are_saved_and_then_changed(sweep, server):
    done = dashboard(sweep, server)
    assert done.returncode == 0, done.stderr
    urls = done.stdout.split()
    assert all(url.startswith(f"{server.url}/{ENTITY}/posfuse") for url in urls)
    assert len(urls) == 2
    first = {view["type"]: view for view in server.views.values()}
    check_views(*(json.loads(first[kind]["spec"]) for kind in ("project-view", "runs")), sweep)
    assert {view["displayName"] for view in server.views.values()} == {"posfuse mine"}
    assert "secret" not in done.stdout + done.stderr + str(server.views)
    assert "secret" not in (sweep / "dashboard" / "views.json").read_text()

    write_record(sweep, 0.8, "mlp", 0)
    again = dashboard(sweep, server)
    assert again.stdout.split() == urls
    assert len(server.views) == 2
    (report,) = (v for v in server.views.values() if v["type"] == "runs")
    assert "mlp" in report["spec"]


def test_a_server_that_refuses_is_one_line(sweep, server):
    server.refuse = lambda query, variables: query == "UpsertView2"
    done = dashboard(sweep, server)
    assert done.returncode == 1
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("error: "))
    assert server.url in line
    assert "UpsertView2 refused" in line


@pytest.mark.parametrize("text", ["{", "[]", '{"http": 1}'])
def test_a_damaged_note_of_the_views_is_named(text, sweep, server):
    (sweep / "dashboard").mkdir()
    (sweep / "dashboard" / "views.json").write_text(text.replace('"http"', f'"{place(server)}"'))
    done = dashboard(sweep, server)
    assert done.returncode == 1
    assert "error: mine/dashboard/views.json: damaged; remove it" in done.stderr
    assert server.views == {}


def test_before_a_sync_one_line_says_so(sweep, server):
    server.runs.clear()
    done = dashboard(sweep, server)
    assert done.returncode == 1
    told = f"error: {server.url}: no project {ENTITY}/posfuse; make sync SWEEP=... first"
    assert done.stderr.splitlines()[-1] == told
    assert server.views == {}


def test_a_note_of_a_view_that_was_deleted_is_named(sweep, server):
    (sweep / "dashboard").mkdir()
    views = {place(server): {"workspace": ["gone", "nw-gone-v"], "report": "gone too"}}
    (sweep / "dashboard" / "views.json").write_text(json.dumps(views))
    done = dashboard(sweep, server)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: ")
    assert "view gone is not there" in last
    assert "remove mine/dashboard/views.json" in last


def test_whose_runs_they_are_is_never_nobody():
    api = SimpleNamespace(settings={"entity": None}, default_entity=None)
    with pytest.raises(InputError, match="set WANDB_ENTITY"):
        wandb_server.entity_of(api)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (TimeoutError("timed out"), "timed out; see to the network"),
        (TimeoutError(), "TimeoutError; see to the network"),
        (PermissionError(13, "Permission denied", "here"), "here: Permission denied; mend that"),
    ],
)
def test_an_error_is_told_with_its_cure(error, told, monkeypatch):
    monkeypatch.setattr(wandb_server, "base_url", lambda: "https://me:secret@host")
    said = wandb_server.said(error)
    assert told in said
    assert "None" not in said


def test_no_address_is_shown_with_a_token(monkeypatch):
    monkeypatch.setattr(wandb_server, "base_url", lambda: "https://me:secret@host:8080")
    error = TimeoutError("https://me:secret@host:8080/graphql timed out")
    assert wandb_server.said(error).startswith("https://host:8080: https://host:8080/graphql timed")
    for url, shown in (
        ("https://token@host/o/r.git", "https://host/o/r.git"),
        ("git@host:o/r.git", "git@host:o/r.git"),
        ("", ""),
    ):
        assert wandb_server.without_user(url) == shown


def place(server):
    return f"{server.url}/{ENTITY}/posfuse"


def test_two_sweeps_are_refused(sweep):
    write_sweep(sweep.parent / "other", {"add": [0.5]})
    done = dashboard(sweep.parent)
    assert done.returncode == 1
    assert "several sweeps (mine, other); give the folder of one" in done.stderr


def test_variants_have_curves_of_their_own(tmp_path):
    """By what W&B has of them: collect() leaves the paper's scale out of a variant's name."""
    for scale in (1, "sqrt_d"):
        settings = {"model.token_scale": scale}
        write_record(tmp_path, 0.5, variant=f"model.token_scale={scale}", settings=settings)
    runs, _ = collect(tmp_path)
    assert set(runs["variant"]) == {"", "model.token_scale=1"}
    report = code.report(runs, "", "posfuse")._to_model().spec
    spec = json.loads(report.model_dump_json(by_alias=True, exclude_none=True))
    runsets = [r for b in find(spec, "type", "panel-grid") for r in b["metadata"]["runSets"]]
    variants = sorted(filters_of(r)["variant"] for r in runsets[1:])
    assert variants == ["model.token_scale=1", "model.token_scale=sqrt_d"]


def test_without_the_baseline_there_is_no_table(tmp_path):
    write_sweep(tmp_path, {"concat": [0.5, 0.6]})
    table = code.paired_table(collect(tmp_path)[0])
    assert table == "No run with fusion add: nothing to compare with."
    write_record(tmp_path, 0.5, "add", 7)
    assert code.paired_table(collect(tmp_path)[0]).startswith("Nothing to compare.")
