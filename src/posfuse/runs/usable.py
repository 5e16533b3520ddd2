"""The finished runs below a folder that can be used together, and why others cannot."""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from posfuse.errors import InputError
from posfuse.limits import NAME
from posfuse.runs.folders import AXES, lies_in, own_place, results_in
from posfuse.runs.identity import differing, is_current
from posfuse.runs.multirun import check_is_current, sweep_around
from posfuse.runs.records import Record, read_placed

T = TypeVar("T")
CELL = ("sweep_id", *AXES, "variant")  # equal for runs that differ only in their seeds


@dataclass(frozen=True)
class Run:
    """The folder and the record of a run, and what the caller has read of it."""

    folder: Path
    record: Record
    content: Any

    def key(self, *names: str) -> tuple[Any, ...]:
        return tuple(self.record[name] for name in names)


def usable(root: Path, read: Callable[[Path, Record], T]) -> tuple[list[T], list[str]]:
    """What `read(path of the result.json, record)` returns for each usable run below `root`, and a
    line for each record or cell that is left out. A sweep that was renamed and then resumed is one
    sweep, with the name of its folder.

    It leaves out records that cannot be read or for which `read` raises InputError, results of
    another run than the one last asked for in their folder, a second record of one run (of one
    fingerprint), runs of an earlier version of posfuse beside those of this one, and all runs of a
    cell with two configurations, two versions of own code or two runs of one seed.
    """
    found: list[tuple[Path, Record]] = []
    problems: dict[Path, str] = {}
    for path in results_in(root):
        try:
            check_is_current(path.parent)
            found.append((path, read_placed(path)))
        except InputError as error:
            problems[path] = str(error)
    _give_one_name(found)
    runs = []
    for path, record in found:
        try:
            runs.append(Run(path.parent, record, read(path, record)))
        except InputError as error:
            problems[path] = str(error)
    runs, copies = _once(runs)
    runs, earlier = _of_one_version(runs)
    cells: dict[tuple[Any, ...], list[Run]] = {}
    for run in runs:
        cells.setdefault(run.key(*CELL), []).append(run)
    reasons = {cell: reason for cell, own in cells.items() if (reason := _why_mixed(own))}
    whole = [run.content for run in runs if run.key(*CELL) not in reasons]
    unread = [problems[path] for path in sorted(problems)]
    return whole, [*unread, *copies, *earlier, *reasons.values()]


def _give_one_name(found: list[tuple[Path, Record]]) -> None:
    """Change `sweep_id` to the name of the sweep's folder in a sweep with several. A sweep that was
    renamed and then resumed has records of both names."""
    names: dict[Path, set[str]] = {}  # of the runs at their place: not of a sweep below this one
    around = [
        (r, Path(os.path.abspath(path.parent)), sweep_around(path.parent)) for path, r in found
    ]
    for record, folder, sweep in around:
        if sweep and sweep / own_place(record) == folder:
            names.setdefault(sweep, set()).add(record["sweep_id"])
    for record, _, sweep in around:
        if sweep and len(own := names.get(sweep, ())) > 1 and record["sweep_id"] in own:
            name = sweep.resolve().name
            record["sweep_id"] = name if NAME.fullmatch(name) else min(own)


def _once(found: Iterable[Run]) -> tuple[list[Run], list[str]]:
    """Each run once, and a line for each further record of it. A record at its place in the sweep
    has priority, also over a copy of the whole sweep in a folder of the sweep."""
    used: dict[tuple[Any, ...], Run] = {}
    lines = []
    for run in sorted(found, key=lambda r: (not lies_in(r.record, r.folder), len(r.folder.parts))):
        first = used.setdefault(run.key("sweep_id", "fingerprint"), run)
        if first is not run:
            second = f"{run.folder}: second record of the run in {first.folder}"
            lines.append(f"{second}, left out; remove one of the two")
    return list(used.values()), lines


def _of_one_version(runs: list[Run]) -> tuple[list[Run], list[str]]:
    """The runs without those of an earlier version of posfuse with other numbers, if the same sweep
    has runs of this version on the same corpus, and a line for each run that is left out."""
    is_new = [is_current(run.record) for run in runs]
    current = {run.key("sweep_id", "data") for run, new in zip(runs, is_new, strict=True) if new}
    kept, lines = [], []
    for run, new in zip(runs, is_new, strict=True):
        if new or run.key("sweep_id", "data") not in current:
            kept.append(run)
        else:
            lines.append(
                f"{run.folder}: made by an earlier version of posfuse, whose numbers differ, so it "
                "is not used; remove its result.json to run it again"
            )
    return kept, lines


def _why_mixed(cell: list[Run]) -> str:
    """A line about a cell whose runs differ in more than their seeds; empty for other cells."""
    first = cell[0]
    settings = [{k: v for k, v in run.record["settings"].items() if k != "seed"} for run in cell]
    for run, own in zip(cell, settings, strict=True):
        if keys := differing(settings[0], own):
            values = (f"{k} {settings[0].get(k)}, {own.get(k)}" for k in keys[:3])
            different, fix = "; ".join(values), "give one of them a sweep_id of its own"
            if "data.path" in keys:
                different = f"two corpora named {first.record['data']!r}"
                fix = "run one of them again with data.name=NAME"
            return (
                f"{first.folder} and {run.folder}: one cell with two configurations "
                f"({different}); the cell is left out, {fix}"
            )
    coded = [run for run in cell if run.record.get("code") is not None]
    for run in coded:
        if run.record["code"] != coded[0].record["code"]:
            return (
                f"{coded[0].folder} and {run.folder}: one cell with two versions of your code; the "
                "cell is left out, run its earlier seeds again"
            )
    by_seed: dict[int, Run] = {}
    for run in cell:
        if (other := by_seed.setdefault(run.record["seed"], run)) is not run:
            return (
                f"{other.folder} and {run.folder}: two different runs with seed "
                f"{run.record['seed']}; the cell is left out, remove one of them"
            )
    return ""
