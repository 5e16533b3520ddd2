"""Run the benchmarks whose results of this machine are missing or stale, then write the pages.

    make bench AGNEWS=FOLDER IMDB=FOLDER
    python benchmarks/run.py --only grid tasks --force

A folder contains `train` and `test`, as for `data.path`. Each benchmark writes its result when it
ends, so the same command continues after an interruption, which loses the benchmark that ran.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import measured_code
import performance
import results
import slurm_cluster
from timing import DEVICE

SCRIPTS = Path(__file__).resolve().parent
INTERRUPTED = 130  # the exit status after Ctrl-C


def reason(script: Path, given: dict[str, Path]) -> str | None:
    """Why a benchmark must run; None if its result of this machine is current."""
    path = results.default_path(script.stem)
    if not path.exists():
        return "no result of this machine"
    found = json.loads(path.read_text(encoding="utf-8"))
    if not measured_code.is_current(found, script, measured_code.installed_torch()):
        return "the code has changed"
    missing = given.keys() & folders(script) - set(found["folders"])
    return f"measured without {', '.join(sorted(missing))}" if missing else None


def folders(script: Path) -> set[str]:
    """The corpora of which a benchmark takes folders."""
    return set(measured_code.constant(script, "FOLDERS") or ())


def unavailable(needed: str) -> str | None:
    """What this machine lacks of what a benchmark names in NEEDS, if it lacks anything."""
    if needed == "SLURM":
        missing = slurm_cluster.missing()
        return f"{slurm_cluster.INSTALL}; missing: {', '.join(missing)}" if missing else None
    return None if DEVICE.type == "cuda" else f"needs {needed}"


def failure(script: Path, given: dict[str, Path]) -> str | None:
    """Run a benchmark; says what went wrong, if anything did."""
    command = [sys.executable, str(script)]
    for name in sorted(folders(script) & given.keys()):
        command += [f"--{name}", str(given[name])]
    status = subprocess.run(command, check=False).returncode
    if status:
        return f"exit status {status}; see its message above"
    left = reason(script, given)
    return f"it ended, but {left}; run the same command again" if left else None


def run(scripts: list[Path], given: dict[str, Path], force: bool) -> dict[str, str]:
    """Run what is due; the failures by benchmark."""
    failures = {}
    for script in scripts:
        needs = measured_code.constant(script, "NEEDS")
        lacks = needs and unavailable(needs)
        if lacks:
            print(f"{script.stem}: skipped, it {lacks}", flush=True)
            continue
        why = "--force" if force else reason(script, given)
        if why is None:
            print(f"{script.stem}: skipped, its result is current", flush=True)
            continue
        print(f"{script.stem}: {why}", flush=True)
        start = time.monotonic()
        failed = failure(script, given)
        print(f"{script.stem}: {(time.monotonic() - start) / 60:.1f} minutes", flush=True)
        if failed:
            failures[script.stem] = failed
    return failures


def main() -> int:
    # The headline comes first, so that an interrupted command has it.
    paths = sorted(measured_code.benchmarks(SCRIPTS), key=lambda p: p.stem != performance.PICTURED)
    scripts = {path.stem: path for path in paths}
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    corpora = sorted(set().union(*map(folders, scripts.values())))
    for name in corpora:
        parser.add_argument(f"--{name}", type=results.folder, help="as data.path takes it")
    parser.add_argument("--only", nargs="+", choices=scripts, default=list(scripts))
    parser.add_argument("--without", nargs="+", choices=scripts, default=[])
    parser.add_argument("--force", action="store_true", help="current ones too")
    arguments = parser.parse_args()
    given = {name: path for name in corpora if (path := getattr(arguments, name))}
    try:
        names = [name for name in arguments.only if name not in arguments.without]
        failures = run([scripts[name] for name in names], given, arguments.force)
    except KeyboardInterrupt:
        print("interrupted; run the same command to continue", file=sys.stderr)
        return INTERRUPTED
    performance.main()
    for name, failed in failures.items():
        print(f"error: {name}: {failed}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
