"""Where W&B's files lie, and what its logs hold.

W&B keeps each start of a run as a segment, a folder of its own with a log that ends in .wandb: an
interrupted run has several, of one id.
"""

import json
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wandb.util import get_core_path

from posfuse.runs.records import STEP, flatten

# What W&B would else put into the home directory, or where it is called. WANDB_CONFIG_DIR is not
# among them: `wandb login` keeps the server's address there, which is read and never written.
PLACES = ("WANDB_DATA_DIR", "WANDB_CACHE_DIR", "WANDB_DIR")
_set: dict[str, str] = {}  # by keep_files_in, so that the next sweep of the process may change it

# A log is a header, then blocks of chunks; a chunk's header is its checksum (4 bytes), its length
# (2) and its kind (1). Records that do not fit a block lie in several chunks.
FILE_HEADER, BLOCK, CHUNK_HEADER = 7, 32768, 7
WHOLE, LAST = 1, 4  # kinds of chunks that end a record


@dataclass
class Segment:
    """What a log holds, as far as W&B can read it."""

    log: Path
    complaint: str = ""  # W&B's, where it cannot read all of it
    run_id: str = ""  # none where the run was killed before it was written
    project: str = ""
    entity: str = ""
    rows: list[dict[str, Any]] = field(default_factory=list)  # of the history
    config: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    artifacts: dict[str, list[Path]] = field(default_factory=dict)  # their files, by their names

    @property
    def end(self) -> tuple[float, bool]:
        """How far the run was, by which its segments have an order: clocks may jump. The one that
        has no row of its own at the same step came later."""
        steps: list[float] = [row.get(STEP, -1) for row in (*self.rows, self.summary)]
        return max(steps), not self.rows


def keep_files_in(sweep: Path) -> None:
    """Have W&B write into the sweep's folder, wherever the user has not said otherwise."""
    for variable in PLACES:
        if os.environ.get(variable) in (None, _set.get(variable)):
            os.environ[variable] = _set[variable] = str(sweep.resolve() / ".wandb")


def segments(folder: Path, online: bool = False) -> list[Path]:
    """The logs of the offline runs below a folder, or of those that were online, by run and
    time."""
    return sorted(folder.rglob(f"wandb/{'' if online else 'offline-'}run-*/*.wandb"))


def records_in(log: Path) -> tuple[list[dict[str, Any]], str]:
    """The log's records by W&B's own viewer, and its complaint if it cannot read all of them."""
    command = [get_core_path(), "leet", "inspect", "--no-observability", "--json"]
    command += ["--run-file", str(log), str(log.parents[1])]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    lines = done.stdout.split("\n")  # texts may hold what else ends a line
    return [json.loads(line) for line in lines if line], done.stderr.strip()


def read(log: Path) -> Segment:
    """What the log holds, nested keys joined with dots."""
    records, complaint = records_in(log)
    found = Segment(log, complaint)
    for record in records:
        content = record.get(record["type"], {})
        match record["type"]:
            case "run":
                found.run_id, found.project = content["run_id"], content["project"]
                found.entity = content.get("entity", "")
                found.config |= _own(content["config"]["update"])
            case "config":
                found.config |= _own(content.get("update", {}))
            case "history":
                found.rows.append(content["item"])
            case "summary":
                found.summary |= flatten(content.get("update", {}))
            case "artifact":
                files = content["manifest"]["contents"]
                found.artifacts[content["name"]] = [Path(f["local_path"]) for f in files]
    return found


def _own(config: dict[str, Any]) -> dict[str, Any]:
    """Without W&B's own keys, _wandb and what is below it."""
    return {k: v for k, v in flatten(config).items() if not k.startswith("_wandb")}


def drop_torn_end(log: Path) -> None:
    """Cut the part of a record off that a kill has left at the end: with it W&B would send what
    is before, fail there, and send that again the next time."""
    found, complaint = records_in(log)
    if not complaint:
        return
    content = log.read_bytes()
    place = end = FILE_HEADER
    while place + CHUNK_HEADER <= len(content):
        room = BLOCK - place % BLOCK
        if room < CHUNK_HEADER:  # the rest of a block is left empty
            place += room
            continue
        length, kind = int.from_bytes(content[place + 4 : place + 6], "little"), content[place + 6]
        if kind not in range(WHOLE, LAST + 1) or CHUNK_HEADER + length > room:
            return  # no chunk: damaged, not torn
        place += CHUNK_HEADER + length
        if kind in (WHOLE, LAST) and place <= len(content):
            end = place
    part = log.with_name(f"{log.name}.part")
    part.write_bytes(content[:end])
    if records_in(part) == (found, ""):
        os.replace(part, log)
    else:  # damaged elsewhere
        part.unlink()
