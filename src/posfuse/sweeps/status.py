"""posfuse status: the state of each run of a sweep, and the time left.

It only reads the sweep's folder, so it works while the sweep runs, on any machine that shares the
folder's disk.
"""

import fcntl
import os
import shlex
import statistics
import sys
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from threading import Event, Thread
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from posfuse.errors import AlreadyRunning, Diverged, InputError, visible
from posfuse.process import signals
from posfuse.runs import records
from posfuse.runs.folders import AXES, lies_in, started_in, without_runs
from posfuse.runs.multirun import Multirun, check_is_current, read_multirun, sweeps_at

STATES = ("done", "running", records.INTERRUPTED, "stopped", "failed", "missing")
REFRESH = 2.0  # seconds between two updates
MINUTE = 60.0
PLACE = (*AXES, "variant", "seed")  # the keys of a record that `lies_in` reads


@dataclass(frozen=True)
class RunStatus:
    """The state of one run. "stopped" means that its process has ended; it was probably killed."""

    cell: str  # data/encoding/fusion[/variant]
    seed: str
    state: str
    detail: str = ""  # the message of a failure, or the epoch of a running run
    seconds: float | None = None  # the time of a done run, or the time left of a running one


TO_COME = RunStatus("not proposed yet", "", "missing")  # a run of a trial of a search


def runs_of(sweep: Path) -> list[RunStatus]:
    """Every run that the sweep's last command asked for, also those that a search has not proposed
    yet, and every other run in the folder. The folder may also be a part of a sweep, or have
    several. Raises InputError if there is no run."""
    if (sweep / "config.yaml").exists():
        raise InputError(
            f"{sweep}: is the folder of a run; give a sweep's folder, such as multirun/mine"
        )
    wanted: dict[Path, None] = {}
    to_come = 0
    for own in sweeps_at(sweep):
        asked = read_multirun(own)
        places = [os.path.relpath(own / folder, sweep) for folder in asked.folders]
        inside = [place for place in places if not place.startswith(os.pardir)]
        wanted |= dict.fromkeys(sweep / place for place in inside)
        to_come += asked.to_come if len(inside) == len(places) else 0
    every = wanted | dict.fromkeys(started_in(sweep))
    runs = [status_of(folder, sweep, folder in wanted) for folder in every]
    runs += [TO_COME] * to_come
    if not runs:
        raise InputError(without_runs(sweep, "runs here"))
    return runs


def status_of(folder: Path, sweep: Path, is_asked: bool = False) -> RunStatus:
    """The state of the run in this folder. `is_asked`: the sweep's last command asks for it."""
    *cell, seed = folder.relative_to(sweep).parts
    place = "/".join(cell), seed.removeprefix("seed=")
    if (folder / records.RESULT).exists():
        try:
            return RunStatus(*place, "done", seconds=_seconds(folder, is_asked))
        except InputError as error:
            return RunStatus(*place, "failed", str(error))
        except FileNotFoundError:
            pass  # a process has just removed the file to run again
    if not folder.exists():
        return RunStatus(*place, "missing")
    if _is_locked(folder):
        return RunStatus(*place, "running", *_progress(folder))
    failure = records.read_failure(folder)
    # After AlreadyRunning, the process that ran the run has ended.
    if failure and failure["kind"] != AlreadyRunning.kind:
        state = failure["kind"] if failure["kind"] == records.INTERRUPTED else "failed"
        return RunStatus(*place, state, failure["message"])
    return RunStatus(*place, "stopped" if (folder / "config.yaml").exists() else "missing")


def _seconds(folder: Path, is_asked: bool) -> float:
    """The time of a finished run. Raises InputError if its record is damaged or another run's."""
    result = folder / records.RESULT
    record = _read(result, result.stat().st_mtime_ns)
    if is_asked and not lies_in(record, folder):
        raise InputError(f"{result}: the result of another run; remove it to run again")
    failure = records.read_failure(folder) if is_asked else None
    # The last command that asked for this run did not accept the result.
    if failure and failure["kind"] not in (records.INTERRUPTED, AlreadyRunning.kind):
        check_is_current(folder)
        raise InputError(failure["message"])
    seconds = record.get("seconds")
    if not isinstance(seconds, dict) or not all(map(_is_amount, seconds.values())):
        raise InputError(f"{result}: no seconds in this record; remove it to run again")
    return float(sum(seconds.values()))


@cache
def _read(result: Path, modified: int) -> records.Record:
    """The seconds and the place of a run. A sweep of 10,000 runs keeps them in memory."""
    record = records.read_result(result)
    return {key: record[key] for key in (*PLACE, "seconds") if key in record}


def _is_amount(value: Any) -> bool:
    """True if a value is a number from 0 on that can be shown as a time."""
    return isinstance(value, int | float) and 0 <= value < 1e12


def _is_locked(folder: Path) -> bool:
    """True if a process has locked the folder by `records.sole_use`. It takes a shared lock for a
    moment, which needs no right to write."""
    path = folder / ".lock"
    if not path.is_file():  # a pipe would block
        return False
    with suppress(OSError), path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):  # the second one on some network disks
            return True
    return False


def _progress(folder: Path) -> tuple[str, float | None]:
    """The epoch of a running run, and the expected seconds of its other epochs; nothing in its
    first epoch, or if the file is damaged."""
    progress = records.read_json(folder / records.PROGRESS)
    values: list[Any] = [progress.get(key) for key in ("epoch", "epochs", "epoch_seconds")]
    if not all(map(_is_amount, values)):
        return "", None
    epoch, epochs, seconds = (float(value) for value in values)
    return f"epoch {epoch:g}/{epochs:g}", max(0.0, epochs - epoch) * seconds


def seconds_left(runs: list[RunStatus]) -> float | None:
    """Seconds until all runs are done, if as many run at once as now; None without any measured
    time."""
    times: dict[str, list[float]] = {run.cell: [] for run in runs}
    for run in runs:
        if run.state == "done" and run.seconds is not None:
            times[run.cell].append(run.seconds)
    every = [seconds for of_cell in times.values() for seconds in of_cell]
    total = 0.0
    for run in runs:
        if run.state == "running" and run.seconds is not None:
            total += run.seconds
        elif run.state != "done":
            likely = times[run.cell] or every
            if not likely:
                return None
            total += statistics.median(likely)
    return total / max(1, sum(run.state == "running" for run in runs))


def page(sweep: Path, runs: list[RunStatus], columns: int, rows: int = sys.maxsize) -> Text:
    """One line per cell, or two in a narrow terminal, and one for each run that is neither done nor
    missing. Without room for all of them, the first lines of each kind."""
    of_cell: dict[str, list[RunStatus]] = {}
    for run in runs:
        of_cell.setdefault(run.cell, []).append(run)
    counts = {cell: _counts(own) for cell, own in of_cell.items()}
    longest = max(map(len, counts))
    fits = longest + 2 + max(map(len, counts.values())) <= columns
    cells, others = [], []
    for cell, states in counts.items():
        cells += [f"{cell:<{longest}}  {states}"] if fits else [cell, f"    {states}"]
    for run in runs:
        if run.state not in ("done", "missing"):
            detail = run.detail and f": {run.detail}"
            others.append(f"{run.state}: {run.cell} seed={run.seed}{detail}")
    room = rows - 2  # besides the first and the last line
    others = _first(others, max(room // 2, room - len(cells)))
    lines = [f"{sweep}:", *_first(cells, room - len(others)), *others, summary(runs)]
    return Text("\n".join(visible(line.replace("\n", " ")) for line in lines))


def _first(lines: list[str], room: int) -> list[str]:
    """The first lines, and the number of those that have no room."""
    if len(lines) <= room:
        return lines
    shown = lines[: max(room - 1, 0)]
    return [*shown, f"... {len(lines) - len(shown)} more lines; posfuse status --once shows all"]


def _counts(runs: list[RunStatus], states: Sequence[str] = STATES) -> str:
    """The number of runs in each of these states, as "2 done, 1 failed"."""
    counted = Counter(run.state for run in runs)
    return ", ".join(f"{counted[state]} {state}" for state in states if counted[state])


def summary(runs: list[RunStatus], repeats_failed: bool = True) -> str:
    """The numbers of done, running and failed runs, and the time left."""
    done, left = sum(run.state == "done" for run in runs), runs
    if not repeats_failed:
        left = [run for run in runs if run.state != "failed"]
    parts = [f"{done} of {len(runs)} runs are done", _counts(runs, ("running", "failed"))]
    if seconds := seconds_left(left):
        parts.append(f"about {duration(seconds)} left")
    return ", ".join(filter(None, parts))


@contextmanager
def every_minute(
    say: Callable[[str], None], sweep: Path, command: Callable[[], Multirun], is_of_study: bool
) -> Iterator[None]:
    """Print the progress of a command every minute. `command` returns its runs, because a search
    adds some, and because multirun.yaml may be that of another command. A study does not repeat
    runs that diverged."""
    earlier = {
        failure["id"]
        for _, failure in records.failures_in(sweep)
        if not (is_of_study and failure["kind"] == Diverged.kind)
    }
    ended = Event()

    def watch() -> None:
        while not ended.wait(MINUTE):
            with suppress(OSError, InputError):  # a run may be changing the file
                runs = asked_for(command(), sweep, earlier)
                say(f"{sweep}: {summary(runs, repeats_failed=False)}")

    thread = Thread(target=watch, daemon=True)
    with signals.blocking():  # signals are for the main thread
        thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def asked_for(asked: Multirun, sweep: Path, earlier: set[str]) -> list[RunStatus]:
    """The runs of a command. A run with an `earlier` failure counts as missing, because
    this command repeats it."""
    failed = {run for run, failure in records.failures_in(sweep) if failure["id"] not in earlier}
    runs = {sweep / folder: status_of(sweep / folder, sweep, True) for folder in asked.folders}
    for folder, run in runs.items():
        if run.state == "failed" and folder not in failed:
            runs[folder] = replace(run, state="missing")
    return [*runs.values()] + [TO_COME] * asked.to_come


def next_step(sweep: Path, runs: list[RunStatus]) -> str:
    """What to type next; nothing while a run is running."""
    states = {run.state for run in runs}
    if states == {"done"}:
        return shlex.join(["posfuse", "report", str(sweep)])
    return "" if "running" in states else "run the sweep's command again; it skips finished runs"


def duration(seconds: float) -> str:
    """Seconds as text: 40 s, 12 min, 3 h 5 min."""
    if round(seconds) < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def main(arguments: Namespace) -> None:
    """posfuse status FOLDER: prints the state once; in a terminal it updates until all is done."""
    sweep = arguments.folder
    console = Console(highlight=False)
    runs = runs_of(sweep)
    if arguments.once or not sys.stdout.isatty():
        console.print(page(sweep, runs, console.width), soft_wrap=True)
    else:
        with Live(console=console, auto_refresh=False) as live:
            while True:
                live.update(page(sweep, runs, console.width, console.height - 1), refresh=True)
                if all(run.state == "done" for run in runs):
                    break
                time.sleep(REFRESH)
                runs = runs_of(sweep)
    if step := next_step(sweep, runs):
        console.print(Text(f"next: {step}"), soft_wrap=True)
