"""What of a sweep is done, at work, failed or missing, and how long it will take: posfuse-status.

Read from the sweep's folder alone, so it works from anywhere and beside a sweep on any machine
that shares the folder's disk.
"""

import argparse
import re
import statistics
import sys
import time
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from filelock import FileLock, Timeout
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import Container, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text
from yaml import YAMLError

from posfuse.config import run_folder
from posfuse.errors import InputError
from posfuse.runs import records
from posfuse.streams import with_streams

STATES = ("done", "at work", "preempted", "stopped", "failed", "missing")
EPOCH = re.compile(r"epoch (\d+)/(\d+): .*, ([\d.]+) s$")
WIDE = 1000  # columns where it is no terminal: names are whole
REFRESH = 2.0  # seconds between two looks


@dataclass(frozen=True)
class Run:
    """A run of a sweep. "stopped" are those that were at work and are not: killed, most likely."""

    cell: str  # data/encoding/fusion[/variant]
    seed: str
    state: str
    detail: str = ""  # of a failure its message, of a run at work its epoch
    seconds: float | None = None  # a done run's whole time, of one at work what is left


def runs_of(sweep: Path) -> list[Run]:
    """Every run that the sweep's last command asks for, and every other that is found there."""
    folders = dict.fromkeys([*asked(sweep), *(p.parent for p in sweep.rglob("config.yaml"))])
    return [look(folder, sweep) for folder in folders]


def asked(sweep: Path) -> list[Path]:
    """The folders of the runs that multirun.yaml asks for; none where there is no such file."""
    path = sweep / "multirun.yaml"
    if not path.exists():
        return []
    try:
        cfg = OmegaConf.load(path)
        params = [f"{k}={v}" for k, v in (cfg.hydra.sweeper.get("params") or {}).items()]
        overrides = OverridesParser.create().parse_overrides([*params, *cfg.hydra.overrides.task])
        (jobs,) = BasicSweeper.split_arguments(overrides, max_batch_size=None)
        return [sweep / folder_of(job, cfg) for job in jobs]
    except (OSError, ValueError, AttributeError, TypeError, YAMLError, OmegaConfBaseException,
            HydraException) as error:  # fmt: skip
        reason = " ".join(str(error).split())[:80]
        raise InputError(f"{path}: not a sweep's settings ({reason}); restore it") from error


def folder_of(overrides: list[str], cfg: Container) -> str:
    """Where the run of these overrides lies in its sweep."""
    given = dict(override.lstrip("+").split("=", 1) for override in overrides if "=" in override)

    def value(name: str, group: str) -> str:
        return given.get(name) or given.get(group) or str(OmegaConf.select(cfg, name))

    data, encoding, fusion = (value(f"{a}.name", a) for a in ("data", "encoding", "fusion"))
    return run_folder(data, encoding, fusion, int(value("seed", "seed")), overrides)


def look(folder: Path, sweep: Path) -> Run:
    """The state of the run in this folder."""
    if folder == sweep:
        raise InputError(f"{sweep}: a run's folder; give its sweep's, as multirun/quickstart")
    *cell, seed = folder.relative_to(sweep).parts
    place = "/".join(cell), seed.removeprefix("seed=")
    if (folder / records.RESULT).exists():
        try:
            return Run(*place, "done", seconds=_seconds(folder / records.RESULT))
        except InputError as error:  # it is run again
            return Run(*place, "failed", str(error))
    if not folder.exists():
        return Run(*place, "missing")
    if _is_held(folder):
        return Run(*place, "at work", *_progress(folder))
    if (folder / records.FAILURE).exists():
        failure = records.read_failure(folder / records.FAILURE)
        state = "preempted" if failure["kind"] == "preempted" else "failed"
        return Run(*place, state, failure["message"])
    return Run(*place, "stopped" if (folder / "config.yaml").exists() else "missing")


@cache
def _seconds(result: Path) -> float:
    try:
        return float(sum(records.read_result(result)["seconds"].values()))
    except (KeyError, AttributeError, TypeError) as error:
        raise InputError(f"{result}: tells no seconds; remove it to run again") from error


def _is_held(folder: Path) -> bool:
    lock = FileLock(folder / ".lock", timeout=0)
    try:
        with lock:
            return False
    except Timeout:
        return True
    except OSError:
        return False  # a folder that cannot be written: nobody is at work in it


def _progress(folder: Path) -> tuple[str, float | None]:
    """The epoch that a run is at, and the seconds that its others will take."""
    log = folder / "train.log"
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    found = [match.groups() for line in lines if (match := EPOCH.search(line))]
    if not found:
        return "", None
    epoch, epochs, _ = found[-1]
    return f"epoch {epoch}/{epochs}", (int(epochs) - int(epoch)) * statistics.median(
        float(seconds) for *_, seconds in found
    )


def left(runs: list[Run]) -> float | None:
    """Seconds until all is done with as many runs at work as now; None where nothing tells it."""
    took: dict[str, list[float]] = {run.cell: [] for run in runs}
    for run in runs:
        if run.state == "done" and run.seconds is not None:
            took[run.cell].append(run.seconds)
    every = [seconds for of_cell in took.values() for seconds in of_cell]
    if not every and not any(run.seconds for run in runs):
        return None
    total = 0.0
    for run in runs:
        if run.state == "at work" and run.seconds is not None:
            total += run.seconds
        elif run.state != "done":
            likely = took[run.cell] or every
            if not likely:
                return None
            total += statistics.median(likely)
    return total / max(1, sum(run.state == "at work" for run in runs))


def page(sweep: Path, runs: list[Run]) -> Group:
    """What is shown: a row a cell, then the runs at work and those that failed."""
    table = Table(box=None, pad_edge=False)
    table.add_column(str(sweep))
    shown = [state for state in STATES if any(run.state == state for run in runs)]
    for state in shown:
        table.add_column(state, justify="right")
    for cell in dict.fromkeys(run.cell for run in runs):
        counts = Counter(run.state for run in runs if run.cell == cell)
        table.add_row(cell, *(str(counts[state] or "") for state in shown))
    lines = [
        Text(f"{run.state}: {run.cell} seed={run.seed}" + (run.detail and f": {run.detail}"))
        for run in runs
        if run.state not in ("done", "missing")
    ]
    done = sum(run.state == "done" for run in runs)
    summary = f"{done} of {len(runs)} runs are done"
    seconds = left(runs)
    if done < len(runs):
        summary += f", about {spelt(seconds)} left" if seconds is not None else ""
    return Group(table, *lines, Text(summary))


def spelt(seconds: float) -> str:
    """Seconds as a person says them: 40 s, 12 min, 3 h 5 min."""
    if round(seconds) < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


@with_streams
def main() -> None:
    """posfuse-status DIR: once, or in a terminal until all is done."""
    parser = argparse.ArgumentParser(prog="posfuse-status", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="a sweep's, as multirun/quickstart")
    parser.add_argument("--once", action="store_true", help="in a terminal too, show it and end")
    arguments = parser.parse_args()
    sweep = arguments.folder
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDE)
    try:
        if not sweep.is_dir():
            raise InputError(f"{sweep}: no such folder; give a sweep's, as multirun/quickstart")
        runs = runs_of(sweep)
        if not runs:
            raise InputError(f"{sweep}: no runs here; run posfuse-train -m first")
        if arguments.once or not console.is_terminal:
            console.print(page(sweep, runs), soft_wrap=True)
            return
        with Live(page(sweep, runs), console=console, auto_refresh=False) as live:
            while any(run.state != "done" for run in runs):
                time.sleep(REFRESH)
                runs = runs_of(sweep)
                live.update(page(sweep, runs), refresh=True)
    except InputError as error:
        sys.exit(f"error: {error}")
    except OSError as error:
        sys.exit(f"error: {error.filename or sweep}: {error.strerror}; mend that and do it again")
    except KeyboardInterrupt:
        sys.exit(130)  # as shells have it


if __name__ == "__main__":
    main()
