"""Run the benchmarks whose results of this machine are missing or stale, then write the page.

    make bench AGNEWS=FOLDER IMDB=FOLDER
    python benchmarks/run.py --only grid training

Each benchmark writes its result when it ends, so the same command continues after an interruption.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import measured_code
import performance
import store

SCRIPTS = Path(__file__).resolve().parent
INTERRUPTED = 130  # the exit status after Ctrl-C


def reason(script: Path, given: dict[str, Path]) -> str | None:
    """Why a benchmark must run; None if its result of this machine is current."""
    path = store.default_path(script.stem)
    if not path.exists():
        return "no result of this machine"
    found = json.loads(path.read_text(encoding="utf-8"))
    if not measured_code.is_current(found, script, measured_code.installed_torch()):
        return "the code has changed"
    missing = given.keys() & set(measured_code.folders(script)) - set(found["folders"])
    return f"measured without {', '.join(sorted(missing))}" if missing else None


def failure(script: Path, given: dict[str, Path]) -> str | None:
    """Run a benchmark; says what went wrong, if anything did."""
    options = []
    for name in measured_code.folders(script):
        options += [f"--{name}", str(given[name])] if name in given else []
    status = subprocess.run([sys.executable, str(script), *options], check=False).returncode
    if status:
        return f"exit status {status}; see its message above"
    left = reason(script, given)
    return f"it ended, but {left}; run the same command again" if left else None


def run(scripts: list[Path], given: dict[str, Path]) -> dict[str, str]:
    """Run what is due; the failures by benchmark."""
    failures = {}
    for script in scripts:
        why = reason(script, given)
        if why is None:
            print(f"{script.stem}: skipped, its result is current", flush=True)
            continue
        print(f"{script.stem}: {why}", flush=True)
        if failed := failure(script, given):
            failures[script.stem] = failed
    return failures


def main() -> int:
    scripts = measured_code.benchmarks(SCRIPTS)
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    corpora = sorted(set().union(*map(measured_code.folders, scripts.values())))
    for name in corpora:
        parser.add_argument(f"--{name}", type=store.folder, help="a folder")
    parser.add_argument("--only", nargs="+", choices=[*scripts], default=[*scripts])
    arguments = parser.parse_args()
    given = {name: path for name in corpora if (path := getattr(arguments, name))}
    try:
        failures = run([scripts[name] for name in arguments.only], given)
    except KeyboardInterrupt:
        print("interrupted; run the same command to continue", file=sys.stderr)
        return INTERRUPTED
    performance.main()
    for name, failed in failures.items():
        print(f"error: {name}: {failed}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
