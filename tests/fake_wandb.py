"""A small W&B server on 127.0.0.1, as `wandb sync`, the public API and wandb-workspaces need it.

It holds runs by id, each with its config, summary, history rows, files and artifacts, and views by
id. As W&B's own it places history rows by the offset that the client gives, and a client that
resumes a run asks how many there are.
"""

import gzip
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ENTITY = "someone"
NOW = "2026-01-01T00:00:00Z"


class Refused(Exception):
    """The server's answer is this message."""


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
        self.runs: dict[str, FakeRun] = {}
        self.views: dict[str, dict[str, Any]] = {}
        self.artifacts: dict[str, dict[str, Any]] = {}
        self.asked: list[str] = []  # the queries' names, in order
        self.unknown: list[str] = []
        self.refuse: Callable[[str, dict[str, Any]], bool] = lambda query, variables: False
        self.lose: dict[str, str] = {}  # "rows" or "summary" of these runs is taken and not kept
        self.deleted: set[str] = set()  # runs, whose ids W&B takes no more
        self.lock = threading.RLock()
        self.url = ""

    def answer(self, query: str, variables: dict[str, Any]) -> dict[str, Any]:
        """A GraphQL response."""
        name = re.search(r"(?:query|mutation)\s+(\w+)", query)[1]
        self.asked.append(name)
        if self.refuse(name, variables):
            return {"errors": [{"message": f"{name} refused"}]}
        method = getattr(self, f"on_{name}", None)
        if method is None:
            self.unknown.append(name)
            return {"errors": [{"message": f"{name} is not known here"}]}
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

    # What wandb asks when a run starts.

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
            elif name == "wandb-summary.json" and self.lose.get(run_id) != "summary":
                run.summary = json.loads(lines[-1])
            elif name == "wandb-events.jsonl":
                run.events[start : start + len(lines)] = lines
        if body.get("complete"):
            run.exit_code = body["exitcode"]

    # Artifacts.

    def on_ArtifactType(self, v: dict[str, Any]) -> dict[str, Any]:
        return {"project": {"artifact": None}}  # a collection that is not there yet

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
        self.runs[made["run"]].artifacts.append(made)
        return {"commitArtifact": {"artifact": {"id": v["artifactID"], "digest": made["digest"]}}}

    # What the public API asks.

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

    # What wandb-workspaces asks.

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
        number = v.get("id") or f"view-{len(self.views)}"
        if v.get("id") and number not in self.views:
            raise Refused(f"view {number} is not there")
        inserted = number not in self.views
        project = {"id": "p", "name": v["projectName"], "entityName": v["entityName"]}
        view = {"id": number, "project": project, "updatedAt": NOW, "createdAt": NOW}
        view |= {key: v[key] for key in ("type", "name", "displayName", "description", "spec")}
        self.views[number] = view
        return {"upsertView": {"view": view, "inserted": inserted}}

    on_upsertView = on_UpsertView2


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    fake: FakeWandb

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

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
        """Say nothing of clients that are gone."""


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
