"""A sweep of many short jobs on a SLURM of one node, with failures: nothing may be lost.

    python benchmarks/cluster.py    # apt-get install slurm-wlm munge; pip install -e '.[slurm]'

The jobs sleep for a second instead of training (cluster_jobs.py); records, launcher, sweeper and
SLURM are the real ones. Some jobs fail at their first attempt. In the middle the node goes down,
and SLURM requeues its jobs. Then the same command runs the rest.
"""

import math
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import cluster_jobs
import results
import slurm_cluster
from posfuse.runs import records

NEEDS = "SLURM"
MEASURES = (
    "hydra_plugins.posfuse_slurm sweeps.launching sweeps.failures runs.records "
    "hydra_plugins.posfuse_sweeper"
)
JOBS, AT_ONCE = 200, 16
DOWN = 10  # seconds in which the node is down
MOST = 4  # commands
Environment = dict[str, str]
Row = list[str | float]


def command(root: Path, jobs: int, at_once: int) -> list[str]:
    script = str(Path(__file__).with_name("cluster_jobs.py"))
    overrides = [f"seed=range(0,{jobs})", "sweep_id=jobs", f"output_dir={root}", "logger=none"]
    overrides += ["hydra/launcher=slurm", f"hydra.launcher.array_parallelism={at_once}"]
    return [sys.executable, script, "-m", *overrides]


def swept(
    root: Path, argv: list[str], environment: Environment, half: int
) -> tuple[float, list[float]]:
    """Seconds of the command, and seconds per run until `half` of them are finished: with the
    launcher's start, and from the first finished run on. Then the node goes down for a while."""
    start, first, of_run = time.perf_counter(), (0.0, 0), []
    with (root / "log").open("a", encoding="utf-8") as log:
        sweep = subprocess.Popen(argv, env=environment, stdout=log, stderr=log, cwd=root)
        while sweep.poll() is None:
            time.sleep(1)
            seconds, done = time.perf_counter() - start, finished(root)
            if done and not first[1]:
                first = seconds, done
            if not of_run and done >= half:
                # Both counts may be the same if the runs are few.
                of_run = [seconds / done, (seconds - first[0]) / max(done - first[1], 1)]
                node_fails(environment)
    return time.perf_counter() - start, of_run


def node_fails(environment: Environment) -> None:
    """SLURM counts the node as lost, so it ends and requeues the node's jobs."""
    update = ["scontrol", "update", f"nodename={socket.gethostname().split('.')[0]}"]
    subprocess.run([*update, "state=down", "reason=test"], env=environment, check=True)
    time.sleep(DOWN)
    # The node may have come back already, which scontrol calls an error.
    subprocess.run([*update, "state=resume"], env=environment, check=False, capture_output=True)


def finished(root: Path) -> int:
    return len(list(root.rglob(records.RESULT)))


def attempts(root: Path) -> dict[int, int]:
    """The number of attempts of each run, by its seed."""
    found = root.rglob(cluster_jobs.ATTEMPTS)
    return {int(p.parent.name.removeprefix("seed=")): p.stat().st_size for p in found}


def imports() -> float:
    """Seconds in which posfuse-train is imported, which the jobs leave out."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import posfuse.train"], check=True)
    return time.perf_counter() - start


def commands(
    root: Path, jobs: int, at_once: int, environment: Environment
) -> tuple[list[Row], list[float]]:
    """Repeat the command until every run is finished; a row for each time, and the first command's
    seconds per run, as `swept` returns them."""
    rows: list[Row] = []
    argv, half, of_run = command(root, jobs, at_once), jobs // 2, []
    while finished(root) < jobs:
        before = finished(root)
        if len(rows) == MOST or (rows and not rows[-1][2]):  # another would finish nothing either
            log = (root / "log").read_text(encoding="utf-8")[-2000:]
            after = f"after {len(rows)} commands"
            sys.exit(f"error: {jobs - before} runs have no result {after}: {log}")
        seconds, found = swept(root, argv, environment, jobs + 1 if rows else half)
        of_run += found
        failures = len(list(root.rglob(records.FAILURE)))
        rows.append([len(rows) + 1, before, finished(root) - before, failures, seconds])
    return rows, of_run or [math.nan, math.nan]


def by_fault(attempts: dict[int, int]) -> list[Row]:
    """A row for each fault: the runs with it, and their attempts."""
    rows: list[Row] = []
    for fault in (*cluster_jobs.FAULTS, None):
        seeds = [seed for seed in attempts if cluster_jobs.fault_of(seed) == fault]
        tries = [attempts[seed] for seed in seeds]
        rows.append([fault or "none", len(seeds), sum(tries), max(tries, default=0)])
    return rows


def tables(
    jobs: int, at_once: int, rows: list[Row], tried: dict[int, int], of_run: list[float]
) -> list[results.Table]:
    length = cluster_jobs.STEPS * cluster_jobs.STEP
    columns = ["command", "runs finished before", "finished by it", "failures", "seconds"]
    note = (
        f"{jobs:,} jobs of {length:g} s, {at_once} at once. Failures are those recorded when the "
        "command ends. SLURM starts a requeued job after two minutes."
    )
    down = f"none: some of these jobs ran when the node went down for {DOWN} s."
    overhead: list[Row] = [
        ["a job, mean of the first half", of_run[0]],
        ["a job, without the launcher's start", of_run[1]],
        ["import of posfuse-train", imports()],
    ]
    imported = "The jobs import Hydra and the records, but not torch and lightning as a run does."
    faults = ["fault", "runs", "attempts", "most of a run"]
    return [
        results.table("Commands until every run is finished", columns, rows, note),
        results.table("Attempts by fault", faults, by_fault(tried), down),
        results.table("Overhead", ["", "seconds"], overhead, imported),
    ]


def main() -> None:
    parser = results.parser(__file__, __doc__)
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--at-once", type=int, default=AT_ONCE)
    arguments = parser.parse_args()
    jobs, at_once = arguments.jobs, arguments.at_once
    if slurm_cluster.missing():
        sys.exit(f"error: {slurm_cluster.INSTALL}")
    beside = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    with (
        tempfile.TemporaryDirectory(prefix="slurm") as folder,
        slurm_cluster.cluster(Path(folder) / "slurm", at_once) as environment,
    ):
        root = Path(folder) / "runs"
        root.mkdir()
        environment = environment | {"PYTHONPATH": os.pathsep.join(filter(None, beside))}
        rows, of_run = commands(root, jobs, at_once, environment)
        tried = attempts(root)
    found = tables(jobs, at_once, rows, tried, of_run)
    results.write(arguments, found, {"attempts": tried})


if __name__ == "__main__":
    main()
