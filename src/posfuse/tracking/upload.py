"""posfuse-sync DIR: a sweep's offline W&B runs to the server, and whether all of them arrived.

`wandb sync` ends with status 0 whatever happened, and what it sends a second time is there twice.
So nothing is sent that cannot arrive whole, and afterwards the server is asked what it holds.
"""

import argparse
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import wandb

from posfuse.errors import InputError, with_streams
from posfuse.runs import records
from posfuse.tracking.logs import (
    FILE_HEADER,
    Segment,
    drop_torn_end,
    keep_files_in,
    read,
    segments,
)
from posfuse.tracking.server import FAILED, address, base_url, connect, entity_of, said

PAGE = 50  # runs that the server is asked for at once
ATTEMPTS = 9  # ids of a run: what cannot be completed is sent anew under id-2, and so on
WANDB = [sys.executable, "-m", "wandb"]
AT_ONCE = 500  # logs that one `wandb sync` is given
PAUSES = (0, 1, 3, 6)  # seconds before each look at the server: what it was sent takes a moment


@dataclass
class Run:
    """A run's segments, in order, and what they hold together."""

    folder: Path
    segments: list[Segment]

    @property
    def id(self) -> str:
        return self.segments[0].run_id

    def rows(self, synced: bool = False) -> int:
        """Of the history; with `synced`, of the segments that were sent before."""
        return sum(len(s.rows) for s in self.segments if not synced or is_synced(s.log))

    @property
    def config(self) -> dict[str, Any]:
        return self.segments[-1].config

    @property
    def summary(self) -> dict[str, Any]:
        """The last segment's that has one: W&B's server keeps no other."""
        kept = [{k: v for k, v in s.summary.items() if k[0] != "_"} for s in self.segments]
        return next((summary for summary in reversed(kept) if summary), {})

    @property
    def artifacts(self) -> set[str]:
        return {name for segment in self.segments for name in segment.artifacts}

    def unsent(self) -> list[Path]:
        return [segment.log for segment in self.segments if not is_synced(segment.log)]


def is_synced(log: Path) -> bool:
    return log.with_name(f"{log.name}.synced").exists()  # W&B's own mark


def find(sweep: Path) -> tuple[list[Run], list[Path], list[str]]:
    """The sweep's offline runs, the folders of those that were online in the end, and a line for
    each other one."""
    runs: list[Run] = []
    online, problems = [], []
    logs: dict[Path, list[Path]] = {}
    for log in [*segments(sweep), *segments(sweep, online=True)]:
        logs.setdefault(log.parents[2], []).append(log)
    for folder, own in logs.items():
        last = max(own, key=lambda log: log.parent.name.removeprefix("offline-"))
        if not last.parent.name.startswith("offline-"):
            online.append(folder)
            continue
        try:
            with records.sole_use(folder):
                runs += runs_in(folder)
        except InputError as error:
            problems.append(str(error))
    silent = sorted({result.parent for result in sweep.rglob(records.RESULT)} - logs.keys())
    if silent:
        problems.append(
            f"{sweep}: {len(silent)} finished run(s) without W&B's logs, the first {silent[0]}; "
            "remove its result.json and run it again with logger=wandb"
        )
    return runs, online, problems


def runs_in(folder: Path) -> list[Run]:
    """The runs of a run's folder: one, or more where its config was changed in between."""
    own: dict[str, list[Segment]] = {}
    for log in segments(folder):
        if not is_synced(log):
            drop_torn_end(log)
        segment = read(log)
        if segment.run_id:
            own.setdefault(segment.run_id, []).append(segment)
        elif segment.complaint and log.stat().st_size > FILE_HEADER:
            raise InputError(damage(segment))
        # else it was killed before it held anything
    return [Run(folder, sorted(parts, key=lambda part: part.end)) for parts in own.values()]


def damage(segment: Segment) -> str:
    return f"{segment.log} is damaged ({segment.complaint}); restore it"


def sync(runs: list[Run], api: wandb.Api) -> list[str]:
    """Send what is not sent; a line for each run that is not on the server as it is here."""
    before = on_server(runs, api)
    problems = {run.id: obstacle(run, before.get(run.id)) for run in runs}
    waiting = [run for run in runs if not problems[run.id] and run.unsent()]
    pauses = PAUSES if waiting else PAUSES[:1]
    while waiting:  # one segment of each in turn: W&B would order them by the clock
        logs = [run.unsent()[0] for run in waiting]
        for start in range(0, len(logs), AT_ONCE):
            send(logs[start : start + AT_ONCE])
        sent = [run for run, log in zip(waiting, logs, strict=True) if is_synced(log)]
        waiting = [run for run in sent if run.unsent()]
    for pause in pauses:
        time.sleep(pause)
        after = on_server(runs, api)
        lacks = {run.id: problems[run.id] or difference(run, after.get(run.id)) for run in runs}
        if lacks == problems:
            break
    return [f"{run.folder}: {lacks[run.id]}" for run in runs if lacks[run.id]]


def send(logs: list[Path]) -> None:
    """Have W&B do so; what it says is shown, but for a token in the server's address."""
    command = [*WANDB, "sync", *map(str, logs)]
    pipe, both = subprocess.PIPE, subprocess.STDOUT
    with subprocess.Popen(command, stdout=pipe, stderr=both, encoding="utf-8") as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line.replace(base_url(), address()), end="", file=sys.stderr)


def on_server(runs: list[Run], api: Any) -> dict[str, Any]:
    """Those of the runs that the server has, by their ids here; of several attempts the last."""
    found: dict[str, Any] = {}
    api.flush()  # it keeps answers
    projects = dict.fromkeys((run.segments[0].entity, run.segments[0].project) for run in runs)
    for entity, project in projects:
        path = f"{entity or entity_of(api)}/{project}"
        ids = [
            r.id for r in runs if (r.segments[0].entity, r.segments[0].project) == (entity, project)
        ]
        for start in range(0, len(ids), PAGE):
            asked = [i for run_id in ids[start : start + PAGE] for i in attempts(run_id)]
            wanted = {"name": {"$in": asked}}
            try:
                found |= {run.id: run for run in api.runs(path, wanted, per_page=PAGE, lazy=False)}
            except ValueError as error:
                if "Could not find project" not in str(error):
                    raise
    return {r.id: found[i] for r in runs for i in attempts(r.id) if i in found}


def attempts(run_id: str) -> list[str]:
    """The ids that a run may have on the server, in order."""
    return [run_id, *(f"{run_id}-{number}" for number in range(2, ATTEMPTS + 1))]


def anew(run: Run, there: Any) -> str:
    """How to send all of a run again: under another id, since W&B takes none that was deleted."""
    ids = attempts(run.id)
    following = ids[ids.index(there.id) + 1 :] if there else ids[1:]
    if not following:
        return "its ids are used up; give sweep_id=NAME and run it again"
    logs = [str(segment.log) for segment in run.segments]
    command = shlex.join([*WANDB, "sync", "--include-synced", "--id", following[0], *logs])
    delete = f", and then delete {there.id} there, but not its artifacts" if there else ""
    return f"to have it whole{delete}, do: {command}"


def obstacle(run: Run, there: Any) -> str:
    """Why the run is not to be sent; empty where nothing is in its way."""
    if not run.unsent():
        return ""
    for segment in run.segments:
        if segment.complaint:
            return damage(segment)
        for file in (f for files in segment.artifacts.values() for f in files):
            if not is_synced(segment.log) and not file.exists():
                return (
                    f"{file} is not there; W&B wrote it down by this path, so if the sweep was "
                    "moved make a link from there to where it is now"
                )
    held = there.historyLineCount if there else 0
    if held != run.rows(synced=True):
        other = "another copy was synced, or a sync broke off"
        if segments(run.folder, online=True):
            other = "it was logged online before it went on offline"
        return (
            f"the server has {held} rows of it, {run.rows(synced=True)} were sent from here: "
            f"{other}; {anew(run, there)}"
        )
    return ""


def difference(run: Run, there: Any) -> str:
    """What the server lacks of the run; empty where it has all of it, once."""
    if unsent := run.unsent():
        return f"not sent: {', '.join(str(log) for log in unsent)}; W&B's message is above"
    if there is None:
        return f"not on the server under its id {run.id}; {anew(run, there)}"
    if there.historyLineCount != run.rows():
        counts = f"the server has {there.historyLineCount} history rows, here are {run.rows()}"
        return f"{counts}; {anew(run, there)}"
    for name, here, theirs in (
        ("config", run.config, there.config),
        ("summary", run.summary, there.summary_metrics),
    ):
        held = records.flatten(theirs)
        if wrong := [k for k, v in here.items() if k not in held or unlike(name, held[k], v)]:
            return f"{name} differs on the server ({', '.join(wrong[:5])}); {anew(run, there)}"
    if lost := lost_end(run):
        return lost
    if there.id != run.id:
        return ""  # sent anew: W&B adds artifacts to the run of the first id
    names = {artifact.name.split(":")[0] for artifact in there.logged_artifacts()}
    if absent := run.artifacts - names:
        return f"artifacts that did not arrive: {', '.join(sorted(absent))}; {anew(run, there)}"
    return ""


def unlike(part: str, one: Any, other: Any) -> bool:
    """Texts of a summary are left out: W&B rewrites those that name an artifact."""
    numbers = isinstance(one, int | float) and isinstance(other, int | float)
    return (numbers or part == "config") and one != other


def lost_end(run: Run) -> str:
    """What the logs of a finished run lack; empty where they hold all of it."""
    path = run.folder / records.RESULT
    if not path.exists():
        return ""
    try:
        record = records.read_result(path)
    except InputError as error:
        return str(error)
    if not run.id.startswith(record["fingerprint"]):
        return ""  # the record is another run's
    rows = record["epochs"] + 1  # and one of charts
    test = {f"test/{name}": value for name, value in record["test"].items()}
    if run.rows() == rows and test.items() <= run.summary.items():
        return ""
    return (
        f"its W&B logs have lost their end: they hold {run.rows()} of its {rows} rows; remove "
        f"{path}, run it again, which logs the others, and sync again"
    )


@with_streams
def main() -> None:
    """Exit status 0 when the server holds every run; else 1 and a line for each other one."""
    parser = argparse.ArgumentParser(prog="posfuse-sync", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="a sweep's, as multirun/quickstart")
    sweep = parser.parse_args().folder
    try:
        if not sweep.is_dir():
            raise InputError(f"{sweep}: no such folder; give a sweep's, as multirun/quickstart")
        keep_files_in(sweep)
        runs, online, problems = find(sweep)
        if not (runs or online or problems):
            raise InputError(f"{sweep}: no W&B runs here; run posfuse-train -m first")
        if online:
            print(
                f"{len(online)} runs were logged online, as {online[0]}: W&B has had them at once"
            )
        if runs:
            api = connect()
            if api is None:
                raise InputError(f"{address()}: no key for it; set WANDB_API_KEY, or: wandb login")
            problems += sync(runs, api)
    except InputError as error:
        sys.exit(f"error: {error}")
    except FAILED as error:
        sys.exit(f"error: {said(error)}")
    if problems:
        sys.exit("\n".join(f"error: {problem}" for problem in problems))
    if runs:
        print(f"{len(runs)} runs are on {address()}, all of their rows, summaries and artifacts")


if __name__ == "__main__":
    main()
