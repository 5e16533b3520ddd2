"""A small W&B server on 127.0.0.1 for wandb, its public API and wandb-workspaces.

It holds runs by id, each with its config, summary, history rows, files and artifacts, and views by
id. Like W&B's own it places history rows by the offset that the client sends, and a client that
resumes a run asks for the number of rows.
"""

import base64
import gzip
import io
import json
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import wandb

from posfuse.runs import records
from posfuse.tracking import places, projection, upload
from posfuse.tracking.places import PLACES

ENTITY = "someone"
EPOCHS = 3  # of a run with 60 documents in batches of 16, which is 4 steps an epoch
ALL_STEPS = [4, 8, 12, 13]  # of W&B's rows: one per epoch, and the charts
KEY = "0123456789abcdef" * 2 + "plantedk"
NOW = "2026-01-01T00:00:00Z"


class Refused(Exception):
    """The server answers with this error message."""


@dataclass
class FakeRun:
    """A run as the server has it."""

    project: str
    settings: dict[str, Any] = field(default_factory=dict)  # as UpsertBucket gives them
    config: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    artifacts: list[dict[str, Any]] = field(default_factory=list)
    exit_code: int | None = None


class FakeWandb:
    """The server's state, and its answers."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.url = ""
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.runs: dict[str, FakeRun] = {}
        self.views: dict[str, dict[str, Any]] = {}
        self.artifacts: dict[str, dict[str, Any]] = {}
        self.asked: list[str] = []  # the queries' names, in order
        self.unknown: list[str] = []
        self.refuse: Callable[[str, dict[str, Any]], bool] = lambda query, variables: False
        self.lose: dict[str, str] = {}  # by run: "rows" (and summary) or "summary" not stored
        self.deleted: set[str] = set()  # ids of deleted runs, which W&B refuses

    def answer(self, query: str, variables: dict[str, Any]) -> dict[str, Any]:
        """A GraphQL response."""
        name = re.search(r"(?:query|mutation)\s+(\w+)", query)[1]
        self.asked.append(name)
        if self.refuse(name, variables):
            return {"errors": [{"message": f"{name} refused"}]}
        method = getattr(self, f"on_{name}", None)
        if method is None:
            self.unknown.append(name)
            return {"errors": [{"message": f"{name} is unknown"}]}
        try:
            with self.lock:
                return {"data": method(variables)}
        except Refused as error:
            return {"errors": [{"message": str(error)}]}
        except (KeyError, TypeError, ValueError) as error:
            self.unknown.append(f"{name}({variables}): {error!r}")
            return {"errors": [{"message": repr(error)}]}

    def upload_url(self, *place: str) -> str:
        return "/".join((self.url, "upload", *place))

    # Queries of wandb when a run starts.

    def on_ServerFeaturesQuery(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"serverInfo": {"features": []}}

    def on_Viewer(self, _: dict[str, Any]) -> dict[str, Any]:
        empty: dict[str, Any] = {"edges": []}
        names = dict.fromkeys(("id", "entity", "name", "username", "email"), ENTITY)
        more = {"admin": False, "flags": "{}", "deletedAt": None, "apiKeys": empty, "teams": empty}
        return {"viewer": names | more}

    on_GetViewer = on_GetDefaultEntity = on_Viewer

    def on_OrganizationCoreWeaveOrganizationID(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"entity": {"organization": {"coreWeaveOrganizationId": None}}}

    def on_RunResumeStatus(self, v: dict[str, Any]) -> dict[str, Any]:
        model = {"id": "p", "name": v["project"], "entity": {"id": "e", "name": ENTITY}}
        run = self.runs.get(v["name"])
        if run is None:
            return {"model": model | {"bucket": None}}
        bucket = {
            "id": v["name"],
            "name": v["name"],
            "displayName": run.settings.get("displayName"),
            "summaryMetrics": json.dumps(run.summary),
            "config": json.dumps(run.config),
            "logLineCount": 0,
            "historyLineCount": len(run.history),
            "eventsLineCount": len(run.events),
            "historyTail": json.dumps([json.dumps(row) for row in run.history[-1:]]),
            "eventsTail": json.dumps(run.events[-1:]),
            "tags": run.settings.get("tags") or [],
            "notes": None,
            "wandbConfig": json.dumps({"t": 1}),
        }
        return {"model": model | {"bucket": bucket}}

    def on_UpsertBucket(self, v: dict[str, Any]) -> dict[str, Any]:
        if v["name"] in self.deleted:
            raise Refused(f"run {v['name']} was previously created and deleted")
        inserted = v["name"] not in self.runs
        run = self.runs.setdefault(v["name"], FakeRun(v["project"]))
        given = {key: value for key, value in v.items() if value is not None}
        run.config = json.loads(given.pop("config", "null")) or run.config
        run.settings |= given
        bucket = {
            "id": v["name"],
            "name": v["name"],
            "displayName": run.settings.get("displayName"),
            "description": None,
            "config": json.dumps(run.config),
            "sweepName": None,
            "project": {"id": "p", "name": run.project, "entity": {"id": "e", "name": ENTITY}},
            "historyLineCount": len(run.history),
        }
        return {"upsertBucket": {"bucket": bucket, "inserted": inserted}}

    def on_CreateRunFiles(self, v: dict[str, Any]) -> dict[str, Any]:
        files = [{"name": n, "uploadUrl": self.upload_url("run", v["run"], n)} for n in v["files"]]
        return {"createRunFiles": {"runID": v["run"], "uploadHeaders": [], "files": files}}

    def file_stream(self, run_id: str, body: dict[str, Any]) -> None:
        run = self.runs[run_id]
        for name, part in body.get("files", {}).items():
            lines, start = part["content"], part["offset"]
            if name == "wandb-history.jsonl" and self.lose.get(run_id) != "rows":
                run.history[start : start + len(lines)] = map(json.loads, lines)
            elif name == "wandb-summary.json" and run_id not in self.lose:
                run.summary = json.loads(lines[-1])
            elif name == "wandb-events.jsonl":
                run.events[start : start + len(lines)] = lines
        if body.get("complete"):
            run.exit_code = body["exitcode"]

    # Artifacts.

    def on_ArtifactType(self, v: dict[str, Any]) -> dict[str, Any]:
        return {"project": {"artifact": None}}

    def on_CreateArtifact(self, v: dict[str, Any]) -> dict[str, Any]:
        given, number = v["input"], f"artifact-{len(self.artifacts)}"
        if given["runName"] in self.deleted:
            raise Refused(f"run {given['runName']} was deleted")
        self.artifacts[number] = {
            "run": given["runName"],
            "digest": given["digest"],
            "name": given["artifactCollectionName"],
            "type": given["artifactTypeName"],
            "files": {},
        }
        sequence = {"id": "s", "latestArtifact": None}
        made = {"id": number, "state": "PENDING", "artifactSequence": sequence}
        return {"createArtifact": {"artifact": made}}

    def on_CreateArtifactManifest(self, v: dict[str, Any]) -> dict[str, Any]:
        url = self.upload_url("artifact", v["artifactID"], "wandb_manifest.json")
        file = {"id": "f", "name": v["name"], "displayName": v["name"]}
        manifest = {"id": v["artifactID"], "file": file | {"uploadUrl": url, "uploadHeaders": []}}
        return {"createArtifactManifest": {"artifactManifest": manifest}}

    def on_CreateArtifactFiles(self, v: dict[str, Any]) -> dict[str, Any]:
        edges = []
        for spec in v["input"]["artifactFiles"]:
            node = {"id": "f", "name": spec["name"], "displayName": spec["name"]}
            node |= {"uploadUrl": self.upload_url("artifact", spec["artifactID"], spec["name"])}
            node |= {"uploadHeaders": [], "uploadMultipartUrls": None, "storagePath": "place"}
            edges.append({"node": node | {"artifact": {"id": spec["artifactID"]}}})
        return {"createArtifactFiles": {"files": {"edges": edges}}}

    def on_CommitArtifact(self, v: dict[str, Any]) -> dict[str, Any]:
        made = self.artifacts[v["artifactID"]]
        held = self.runs[made["run"]].artifacts
        if made["digest"] not in {artifact["digest"] for artifact in held}:  # as W&B's server does
            held.append(made)
        return {"commitArtifact": {"artifact": {"id": v["artifactID"], "digest": made["digest"]}}}

    def on_RunHistoryKeys(self, v: dict[str, Any]) -> dict[str, Any]:
        steps = [row["_step"] for row in self.runs[v["name"]].history]
        return {"project": {"run": {"historyKeys": {"lastStep": max(steps, default=-1)}}}}

    # Queries of the public API.

    def on_Runs(self, v: dict[str, Any]) -> dict[str, Any]:
        wanted = json.loads(v["filters"] or "{}").get("name", {}).get("$in", list(self.runs))
        edges = [{"node": self.node(name), "cursor": name} for name in wanted if name in self.runs]
        if all(run.project != v["project"] for run in self.runs.values()):
            return {"project": None}
        page = {"endCursor": None, "hasNextPage": False}
        runs = {"edges": edges, "pageInfo": page}
        return {
            "project": {"internalId": "1", "runCount": len(edges), "readOnly": False, "runs": runs}
        }

    def node(self, name: str) -> dict[str, Any]:
        run = self.runs[name]
        nothing = dict.fromkeys(
            ("sweepName", "jobType", "commit", "description", "notes", "historyKeys")
        )
        return nothing | {
            "id": name,
            "projectId": "1",
            "name": name,
            "displayName": run.settings.get("displayName"),
            "tags": run.settings.get("tags") or [],
            "state": "finished" if run.exit_code == 0 else "failed",
            "config": json.dumps(run.config),
            "summaryMetrics": json.dumps(run.summary),
            "systemMetrics": "{}",
            "group": run.settings.get("groupName"),
            "readOnly": False,
            "createdAt": NOW,
            "heartbeatAt": NOW,
            "historyLineCount": len(run.history),
            "user": {"name": ENTITY, "username": ENTITY},
        }

    def on_RunOutputArtifacts(self, v: dict[str, Any]) -> dict[str, Any]:
        project = {"id": "p", "internalId": "1", "name": v["project"], "entity": {"name": ENTITY}}
        edges = []
        for made in self.runs[v["run"]].artifacts:
            nothing = ("description", "metadata", "historyStep", "commitHash", "updatedAt")
            node: dict[str, Any] = dict.fromkeys(nothing)
            node |= {"id": "a", "versionIndex": 0, "artifactType": {"name": made["type"]}}
            node |= {"artifactSequence": {"name": made["name"], "project": project}}
            node |= {"ttlDurationSeconds": 0, "ttlIsInherited": False, "tags": [], "size": 1}
            node |= {"state": "COMMITTED", "digest": made["digest"], "fileCount": 1}
            edges.append({"node": node | {"createdAt": NOW, "aliases": []}})
        page = {"endCursor": None, "hasNextPage": False}
        found = {"totalCount": len(edges), "pageInfo": page, "edges": edges}
        return {"project": {"run": {"artifacts": found}}}

    # Queries of wandb-workspaces.

    def on_ProjectInternalId(self, v: dict[str, Any]) -> dict[str, Any]:
        if all(run.project != v["projectName"] for run in self.runs.values()):
            return {"project": None}
        return {"project": {"id": "p", "internalId": "1"}}

    def on_GetProjects(self, v: dict[str, Any]) -> dict[str, Any]:
        page = {"endCursor": None, "hasNextPage": False}
        project = {"id": "p", "entityName": ENTITY, "createdAt": NOW, "isBenchmark": False}
        names = {run.project for run in self.runs.values()}
        edges = [{"node": project | {"name": name, "user": None}} for name in names]
        return {"models": {"pageInfo": page, "edges": edges}}

    def on_UpsertView2(self, v: dict[str, Any]) -> dict[str, Any]:
        number = v.get("id") or base64.b64encode(b"View:%d" % len(self.views)).decode()
        if v.get("id") and number not in self.views:
            raise Refused(f"view {number} does not exist")
        inserted = number not in self.views
        project = {"id": "p", "name": v["projectName"], "entityName": v["entityName"]}
        view = {"id": number, "project": project, "updatedAt": NOW, "createdAt": NOW}
        view |= {key: v[key] for key in ("type", "name", "displayName", "description", "spec")}
        self.views[number] = view
        return {"upsertView": {"view": view, "inserted": inserted}}

    on_upsertView = on_UpsertView2

    def on_View(self, v: dict[str, Any]) -> dict[str, Any]:
        found = [view for view in self.views.values() if view["name"] == v["viewName"]]
        return {"project": {"allViews": {"edges": [{"node": view} for view in found]}}}

    def on_SpecificReport(self, v: dict[str, Any]) -> dict[str, Any]:
        if v["reportId"] not in self.views:
            raise Refused(f"view {v['reportId']} does not exist")
        return {"view": self.views[v["reportId"]] | {"user": None, "discussionThreads": []}}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    fake: FakeWandb

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    def body(self) -> bytes:
        read = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return gzip.decompress(read) if self.headers.get("Content-Encoding") == "gzip" else read

    def reply(self, content: dict[str, Any]) -> None:
        encoded = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(encoded)))
        self.end_headers()
        self.wfile.write(encoded)

    def do_PUT(self) -> None:
        _, _, kind, owner, name = self.path.split("/", 4)
        content = self.body()
        with self.fake.lock:
            if kind == "run":
                self.fake.runs[owner].files[name] = content
            else:
                self.fake.artifacts[owner]["files"][name] = content
        self.reply({})

    def do_POST(self) -> None:
        content = self.body()
        if self.path.endswith("/file_stream"):
            with self.fake.lock:
                self.fake.file_stream(self.path.split("/")[-2], json.loads(content))
            self.reply({})
        elif self.path.endswith("/graphql"):
            asked = json.loads(content)
            self.reply(self.fake.answer(asked["query"], asked.get("variables") or {}))
        else:
            self.fake.asked.append("telemetry")
            self.reply({})

    do_GET = do_POST


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """Print nothing about clients that have disconnected."""


@contextmanager
def serve() -> Iterator[FakeWandb]:
    """The server, until the block ends."""
    fake = FakeWandb()
    server = Server(("127.0.0.1", 0), type("Bound", (Handler,), {"fake": fake}))
    fake.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def in_use(fake: FakeWandb, home: Path, user: str = "") -> Iterator[None]:
    """Have W&B of this process use the server, with a key and an empty home directory.

    W&B reads its variables once, so its process is ended before and afterwards.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("WANDB_")]:
            patch.delenv(name)
        patch.setenv("MPLCONFIGDIR", str(Path("~/.config/matplotlib").expanduser()))
        patch.setenv("HOME", str(home))
        patch.setenv("WANDB_BASE_URL", fake.url.replace("//", f"//{user}"))
        patch.setenv("WANDB_API_KEY", KEY)
        for part in ("GRAPHQL", "FILE_STREAM"):
            patch.setenv(f"WANDB_X_{part}_RETRY_MAX", "1")
        patch.setenv("WANDB_X_FILE_STREAM_TRANSMIT_INTERVAL", "0.5")  # seconds; 15 by default
        # posfuse sets these for the process; now they are unset, and are so again afterwards
        for name in (*PLACES, "WANDB_SILENT", "WANDB_ERROR_REPORTING", "WANDB_MODE"):
            patch.setenv(name, "")
            patch.delenv(name)
        patch.setattr(places, "_set", {})
        wandb.teardown()
        try:
            yield
        finally:
            wandb.teardown()


def environment(**more: str) -> dict[str, str]:
    """For a command: without the address of W&B's process of this one."""
    return {k: v for k, v in os.environ.items() if k != "WANDB_SERVICE"} | more


def synced(folder: Path, *arguments: str) -> tuple[int, str, list[str]]:
    """Call posfuse-sync in this process; returns its exit status, output and error lines."""
    out, err, status = io.StringIO(), "", 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out):
        patch.setattr(sys, "argv", ["posfuse-sync", str(folder), *arguments])
        patch.setattr(upload, "PAUSES", (0,))
        try:
            upload.main()
        except SystemExit as end:
            status, err = 1, str(end.code)
    return status, out.getvalue(), err.splitlines()


def check_held(fake, run, run_id):
    """The server holds this run, each epoch once."""
    there, record = fake.runs[run_id], run.record
    assert there.exit_code == 0
    assert [row["_step"] for row in there.history] == ALL_STEPS
    assert [row["trainer/global_step"] for row in there.history] == [4, 8, 12, 12]
    history = pd.read_csv(run.folder / records.HISTORY, float_precision="round_trip")
    for column in ("train_loss", "val_loss", "val_accuracy", "val_macro_f1"):
        logged = [row[column.replace("_", "/", 1)] for row in there.history[:-1]]
        assert logged == history[column].tolist()
    diagnostics = pd.read_parquet(run.folder / records.DIAGNOSTICS)
    last = diagnostics[(diagnostics["epoch"] == EPOCHS) & (diagnostics["name"] == "norm_ratio")]
    value = last.loc[(last["by"] == "position") & (last["low"] == 4), "value"].item()
    assert there.history[-2]["diagnostics/norm_ratio_position_4"] == value
    shown = diagnostics["epoch"].eq(EPOCHS) & ~diagnostics["name"].str.startswith("accuracy")
    logged = [v for k, v in there.history[-2].items() if k.startswith("diagnostics/")]
    assert sorted(logged) == sorted(diagnostics.loc[shown, "value"])
    for part in ("test", "position"):
        for name, number in record[part].items():
            assert there.summary[f"{part}/{name}"] == number
    assert there.summary["val/accuracy"] == record["validation"]["accuracy"]
    assert there.summary["best_epoch"] == record["best_epoch"]
    values = {key: item["value"] for key, item in there.config.items() if "value" in item}
    assert {k: values[k] for k in projection.config(record)} == projection.config(record)
    assert values["fusion"] == record["fusion"]
    assert values["commit"] == record["commit"]
    assert "repo" not in there.settings
    (artifact,) = (a for a in there.artifacts if a["type"] == "result")
    assert artifact["files"]["result.json"] == (run.folder / records.RESULT).read_bytes()
    (table,) = (v for k, v in there.files.items() if k.startswith("media/table/confusion_matrix"))
    right = sum(n for actual, predicted, n in json.loads(table)["data"] if actual == predicted)
    assert right == round(20 * record["test"]["accuracy"])
    images = [name for name in there.files if name.startswith("media/images/gate_")]
    assert len(images) == (record["fusion"] == "gate_scalar")
