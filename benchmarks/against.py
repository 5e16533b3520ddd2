"""Runs per hour of a small cell with this code and with an older commit, in turn.

    python benchmarks/against.py COMMIT

A turn is a sweep of a few seeds with one thread, from its command to its end: imports, training,
validation, diagnostics, test and records. The older code runs from a worktree of its own, with the
same packages, settings and seeds. The cells are those of step_budget.py.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from posfuse.runs import records
from step_budget import CELLS

ROOT = Path(__file__).resolve().parents[1]


def runs_per_hour(tree: Path, cell: str, seeds: int, root: Path, overrides: list[str]) -> float:
    """Runs per hour of a sweep with the code of a checkout."""
    output = root / "runs"
    command = [sys.executable, "-m", "posfuse.train", "-m", f"data={cell}"]
    command += [f"seed=range({seeds})", f"output_dir={output}", f"cache_dir={root / 'cache'}"]
    environment = os.environ | {"PYTHONPATH": str(tree / "src")}
    start = time.perf_counter()
    last = {override.partition("=")[0]: override for override in [*CELLS[cell], *overrides]}
    command += last.values()
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL, env=environment)
    seconds = time.perf_counter() - start
    found = len(list(output.rglob(records.RESULT)))
    if found != seeds:
        raise SystemExit(f"error: {found} of {seeds} runs of {cell} have a result with {tree}")
    shutil.rmtree(output)
    return 3600 * seeds / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("commit", help="the older code, as git names it")
    parser.add_argument("--cell", choices=CELLS, default="lead_story_long")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--overrides", nargs="*", default=[], help="of this code's runs alone")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        old = Path(folder) / "old"
        git = ["git", "-C", str(ROOT), "worktree"]
        added = subprocess.run(
            [*git, "add", "-q", "--detach", old, arguments.commit],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if added.returncode:
            raise SystemExit(f"error: {arguments.commit}: {added.stderr.strip()}; see git log")
        try:
            trees = {"old": (old, []), "new": (ROOT, arguments.overrides)}
            places = {name: Path(folder) / f"of_{name}" for name in trees}
            for name, (tree, own) in trees.items():  # writes the ids, which count in no turn
                short = [*own, "trainer.max_epochs=1", "trainer.limit_batches=2"]
                runs_per_hour(tree, arguments.cell, arguments.seeds, places[name], short)
            ratios = []
            for _ in range(arguments.repeats):
                rates = {
                    name: runs_per_hour(tree, arguments.cell, arguments.seeds, places[name], own)
                    for name, (tree, own) in trees.items()
                }
                ratios.append(rates["new"] / rates["old"])
                shown = ", ".join(f"{name} {rate:.1f}" for name, rate in rates.items())
                print(f"{arguments.cell}: runs per hour {shown}; {ratios[-1]:.2f}×", flush=True)
        finally:
            subprocess.run([*git, "remove", "--force", old], check=True)
    print(f"median {statistics.median(ratios):.2f}× of {arguments.commit}")


if __name__ == "__main__":
    main()
