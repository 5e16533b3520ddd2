"""Runs per hour of a small grid with 1, 2, 4 and as many runs at once as cores.

    python benchmarks/grid.py

The grid has the quickstart's model and settings on BBC's lead paragraphs, two operators, and
--runs / 2 seeds. The time is measured from the start of the first run to the end of the last
one, without the imports of each process.
"""

import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from joblib import cpu_count

import results
from posfuse.runs import records

MEASURES = (
    "model.network model.fusion model.encoder model.attention model.kernels model.dropout "
    "model.attention_encoding model.encoding data.batching data.datamodule training.build "
    "training.module training.classifier training.run training.diagnostics train sweeps.launching "
    "hydra_plugins.posfuse_parallel conf/protocol/quickstart conf/model/small.yaml "
    "conf/quickstart.yaml conf/experiment/quickstart.yaml"
)
AT_ONCE = (1, 2, 4)
OPERATORS = ("add", "gate_scalar")
EXECUTABLE = str(Path(sys.executable).parent / "posfuse-train")


def grid(root: Path, at_once: int, threads: int, runs: int, epochs: int) -> float:
    """Runs per hour."""
    output = root / "runs"
    shutil.rmtree(output, ignore_errors=True)
    command = [EXECUTABLE, "-m", "experiment=quickstart", "data=bbc_lead_paragraph", "logger=none"]
    command += [f"fusion={','.join(OPERATORS)}", f"seed=range({runs // len(OPERATORS)})"]
    command += [f"trainer.max_epochs={epochs}", f"trainer.threads={threads}"]
    command += [f"hydra.launcher.{key}={at_once}" for key in ("n_jobs", "runs_per_core")]
    command += [f"output_dir={output}"]
    command += [f"cache_dir={root / 'cache'}"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    ends, starts = [], []
    for path in output.rglob(records.RESULT):
        ends.append(path.stat().st_mtime)
        starts.append(ends[-1] - sum(records.read_result(path)["seconds"].values()))
    return 3600 * len(ends) / (max(ends) - min(starts))


def main() -> None:
    parser = results.parser(__file__, __doc__)
    parser.add_argument("--runs", type=int, default=16, help="a multiple of 4, to fill all places")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=2)
    arguments = parser.parse_args()
    cores = cpu_count()
    at_once = {*AT_ONCE, min(cores, arguments.runs)}
    cases = {(n, max(cores // n, 1)) for n in at_once}
    raw: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        grid(Path(folder), 1, 1, len(OPERATORS), 1)  # writes the ids
        for _ in range(arguments.repeats):
            for at_once, threads in sorted(cases):
                rate = grid(Path(folder), at_once, threads, arguments.runs, arguments.epochs)
                raw.setdefault(f"{at_once} {threads}", []).append(rate)
    alone = statistics.median(raw[f"1 {cores}"])
    rows: list[list[Any]] = []
    for case, rates in raw.items():
        median = statistics.median(rates)
        rows.append([*map(int, case.split()), round(median), median / alone])
    note = (
        f"Medians of {arguments.repeats} grids of {arguments.runs} runs with "
        f"{arguments.epochs} epochs each; the cases alternate. The ratio is to one run "
        f"at a time with all {cores} cores."
    )
    columns = ["runs at once", "threads per run", "runs per hour", "ratio"]
    table = results.table("Several runs at once", columns, rows, note)
    results.write(arguments, [table], raw)


if __name__ == "__main__":
    main()
