"""A small W&B server on 127.0.0.1 for wandb, its public API and wandb-workspaces.

It has runs and views by id. As W&B's own, it places history rows by the offset of the client.
"""

import base64
import gzip
import json
import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

ENTITY, NOW = "someone", "2026-01-01T00:00:00Z"
NONE, ORGANIZATION = {"edges": []}, {"coreWeaveOrganizationId": None}
OWNER, PROJECT = {"id": "e", "name": ENTITY}, {"id": "p", "internalId": "1"}
VIEWER = dict.fromkeys(("id", "entity", "name", "username", "email"), ENTITY)
VIEWER |= {"admin": False, "flags": "{}", "deletedAt": None, "apiKeys": NONE, "teams": NONE}
FIXED = {  # answers by query
    "ServerFeaturesQuery": {"serverInfo": {"features": []}},
    "OrganizationCoreWeaveOrganizationID": {"entity": {"organization": ORGANIZATION}},
    **{name: {"viewer": VIEWER} for name in ("Viewer", "GetViewer", "GetDefaultEntity")},
    "ArtifactType": {"project": {"artifact": None}},
}


def page(nodes):
    """One page of a list that a query asks for."""
    edges = [{"node": node, "cursor": str(i)} for i, node in enumerate(nodes)]
    return {"edges": edges, "pageInfo": {"endCursor": None, "hasNextPage": False}}


def fake_run(project):
    """A run as the server has it; `settings` are those of UpsertBucket."""
    empty = {"settings": {}, "config": {}, "summary": {}, "history": [], "files": {}}
    return SimpleNamespace(project=project, artifacts=[], exit_code=None, **empty)


class FakeWandb:
    """The server's state, and its answers."""

    def __init__(self):
        self.lock, self.url = threading.Lock(), ""
        self.clear()

    def clear(self):
        self.runs, self.views, self.artifacts = {}, {}, {}
        self.asked, self.unknown = [], []  # the queries' names, in order
        self.refuse = lambda query, variables: False
        self.lose = set()  # ids of runs whose rows and summary are not stored
        self.deleted = set()  # ids of deleted runs, which W&B refuses

    def answer(self, query, variables):
        """A GraphQL response."""
        name = re.search(r"(?:query|mutation)\s+(\w+)", query)[1]
        self.asked.append(name)
        try:
            if self.refuse(name, variables):
                raise RuntimeError(f"{name} refused")
            return {"data": FIXED.get(name) or getattr(self, f"on_{name}")(variables)}
        except RuntimeError as error:  # a message to the client; other errors are gaps here
            return {"errors": [{"message": str(error)}]}
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            self.unknown.append(f"{name}({variables}): {error!r}")
            return {"errors": [{"message": repr(error)}]}

    def bucket(self, name):
        """What clients read of a run."""
        run = self.runs[name]
        nothing = ("sweepName", "description", "notes", "jobType", "commit", "historyKeys")
        return dict.fromkeys(nothing) | {
            "id": name, "name": name, "displayName": run.settings.get("displayName"),
            "config": json.dumps(run.config), "summaryMetrics": json.dumps(run.summary),
            "tags": run.settings.get("tags") or [], "historyLineCount": len(run.history),
            "historyTail": json.dumps([json.dumps(row) for row in run.history[-1:]]),
            "project": {"id": "p", "name": run.project, "entity": OWNER}, "projectId": "1",
            "state": "finished" if run.exit_code == 0 else "failed", "systemMetrics": "{}",
            "group": run.settings.get("groupName"), "readOnly": False, "createdAt": NOW,
            "heartbeatAt": NOW, "user": {"name": ENTITY, "username": ENTITY}, "logLineCount": 0,
            "eventsLineCount": 0, "eventsTail": "[]", "wandbConfig": json.dumps({"t": 1}),
        }  # fmt: skip

    def on_RunResumeStatus(self, v):
        bucket = self.bucket(v["name"]) if v["name"] in self.runs else None
        return {"model": {"id": "p", "name": v["project"], "entity": OWNER, "bucket": bucket}}

    def on_UpsertBucket(self, v):
        if v["name"] in self.deleted:
            raise RuntimeError(f"run {v['name']} was previously created and deleted")
        inserted = v["name"] not in self.runs
        run = self.runs.setdefault(v["name"], fake_run(v["project"]))
        run.config = json.loads(v.get("config") or "null") or run.config
        run.settings |= {key: value for key, value in v.items() if value is not None}
        return {"upsertBucket": {"bucket": self.bucket(v["name"]), "inserted": inserted}}

    def on_CreateRunFiles(self, v):
        url = f"{self.url}/upload/run/{v['run']}/"
        files = [{"name": name, "uploadUrl": url + name} for name in v["files"]]
        return {"createRunFiles": {"runID": v["run"], "uploadHeaders": [], "files": files}}

    def file_stream(self, run_id, body):
        run = self.runs[run_id]
        for name, part in body.get("files", {}).items():
            lines, start = part["content"], part["offset"]
            if name == "wandb-history.jsonl" and run_id not in self.lose:
                run.history[start : start + len(lines)] = map(json.loads, lines)
            elif name == "wandb-summary.json" and run_id not in self.lose:
                run.summary = json.loads(lines[-1])
        if body.get("complete"):
            run.exit_code = body["exitcode"]

    def on_CreateArtifact(self, v):
        given, number = v["input"], f"artifact-{len(self.artifacts)}"
        if given["runName"] in self.deleted:
            raise RuntimeError(f"run {given['runName']} was deleted")
        self.artifacts[number] = {
            "run": given["runName"], "digest": given["digest"], "files": {},
            "name": given["artifactCollectionName"], "type": given["artifactTypeName"],
        }  # fmt: skip
        made = {"artifactSequence": {"id": "s", "latestArtifact": None}, "state": "PENDING"}
        return {"createArtifact": {"artifact": made | {"id": number}}}

    def file(self, artifact, name):
        return {
            "id": "f", "name": name, "displayName": name, "artifact": {"id": artifact},
            "uploadUrl": f"{self.url}/upload/artifact/{artifact}/{name}", "uploadHeaders": [],
            "uploadMultipartUrls": None, "storagePath": "place",
        }  # fmt: skip

    def on_CreateArtifactManifest(self, v):
        manifest = {"id": v["artifactID"], "file": self.file(v["artifactID"], v["name"])}
        return {"createArtifactManifest": {"artifactManifest": manifest}}

    def on_CreateArtifactFiles(self, v):
        files = page(self.file(of["artifactID"], of["name"]) for of in v["input"]["artifactFiles"])
        return {"createArtifactFiles": {"files": files}}

    def on_CommitArtifact(self, v):
        made = self.artifacts[v["artifactID"]]
        held = self.runs[made["run"]].artifacts
        if made["digest"] not in {artifact["digest"] for artifact in held}:  # as W&B's server does
            held.append(made)
        return {"commitArtifact": {"artifact": {"id": v["artifactID"], "digest": made["digest"]}}}

    def on_RunHistoryKeys(self, v):
        steps = [row["_step"] for row in self.runs[v["name"]].history]
        return {"project": {"run": {"historyKeys": {"lastStep": max(steps, default=-1)}}}}

    def on_RunSampledHistory(self, v):
        keys, history = json.loads(v["specs"][0])["keys"], self.runs[v["name"]].history
        rows = [{key: row[key] for key in keys} for row in history if row.keys() >= {*keys}]
        return {"project": {"run": {"sampledHistory": [rows]}}}

    def on_Runs(self, v):
        if all(run.project != v["project"] for run in self.runs.values()):
            return {"project": None}
        wanted = json.loads(v["filters"] or "{}").get("name", {}).get("$in", list(self.runs))
        nodes = [self.bucket(name) for name in wanted if name in self.runs]
        found = {"runCount": len(nodes), "readOnly": False, "runs": page(nodes)}
        return {"project": PROJECT | found}

    def on_RunOutputArtifacts(self, v):
        project = PROJECT | {"name": v["project"], "entity": {"name": ENTITY}}
        nothing = ("description", "metadata", "historyStep", "commitHash", "updatedAt")
        common = dict.fromkeys(nothing) | {
            "id": "a", "ttlDurationSeconds": 0, "ttlIsInherited": False, "tags": [], "aliases": [],
            "versionIndex": 0, "state": "COMMITTED", "createdAt": NOW, "size": 1, "fileCount": 1,
        }  # fmt: skip
        nodes = [
            common | {"digest": made["digest"], "artifactType": {"name": made["type"]}}
            | {"artifactSequence": {"name": made["name"], "project": project}}
            for made in self.runs[v["run"]].artifacts
        ]  # fmt: skip
        return {"project": {"run": {"artifacts": page(nodes) | {"totalCount": len(nodes)}}}}

    def on_ProjectInternalId(self, v):
        names = {run.project for run in self.runs.values()}
        return {"project": PROJECT if v["projectName"] in names else None}

    def on_GetProjects(self, _):
        project = {"id": "p", "entityName": ENTITY, "createdAt": NOW, "isBenchmark": False}
        names = {run.project for run in self.runs.values()}
        return {"models": page([project | {"name": name, "user": None} for name in names])}

    def on_UpsertView2(self, v):
        number = v.get("id") or base64.b64encode(b"View:%d" % len(self.views)).decode()
        if v.get("id") and number not in self.views:
            raise RuntimeError(f"view {number} does not exist")
        project = {"id": "p", "name": v["projectName"], "entityName": v["entityName"]}
        view = {"id": number, "project": project, "updatedAt": NOW, "createdAt": NOW}
        view |= {key: v[key] for key in ("type", "name", "displayName", "description", "spec")}
        self.views[number] = view
        return {"upsertView": {"view": view, "inserted": not v.get("id")}}

    on_upsertView = on_UpsertView2

    def on_View(self, v):
        found = (view for view in self.views.values() if view["name"] == v["viewName"])
        return {"project": {"allViews": page(found)}}

    def on_SpecificReport(self, v):
        if v["reportId"] not in self.views:
            raise RuntimeError(f"view {v['reportId']} does not exist")
        return {"view": self.views[v["reportId"]] | {"user": None, "discussionThreads": []}}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    log_message = lambda *_: None  # noqa: E731

    def do_POST(self):
        content = self.rfile.read(int(self.headers["Content-Length"] or 0))
        fake, answer = self.fake, {}
        if self.headers.get("Content-Encoding") == "gzip":
            content = gzip.decompress(content)
        with fake.lock:
            if self.command == "PUT":
                _, _, kind, owner, name = self.path.split("/", 4)
                files = fake.runs[owner].files if kind == "run" else fake.artifacts[owner]["files"]
                files[name] = content
            elif self.path.endswith("/file_stream"):
                fake.file_stream(self.path.split("/")[-2], json.loads(content))
            elif self.path.endswith("/graphql"):
                asked = json.loads(content)
                answer = fake.answer(asked["query"], asked.get("variables") or {})
            else:
                fake.asked.append("telemetry")
        encoded = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(encoded)))
        self.end_headers()
        self.wfile.write(encoded)

    do_GET = do_PUT = do_POST


@contextmanager
def serve():
    """The server, until the block ends."""
    fake = FakeWandb()
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"fake": fake})) as server:
        server.handle_error = lambda *_: None  # a client that has disconnected
        fake.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield fake
        finally:
            server.shutdown()
