"""Compare bfloat16 mixed precision with float32, seed by seed.

    python benchmarks/precision.py

The grid has the quickstart's model and settings on BBC's lead paragraphs. With the same seed both
precisions have the same initial weights, batches and dropout, so the difference of the two
accuracies comes from precision. It is tested like any paired difference of a sweep.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import results
from posfuse.runs import records
from posfuse.statistics.paired import spread, t_interval

MEASURES = (
    "model.network model.fusion model.encoder model.attention model.kernels model.dropout "
    "model.attention_encoding model.encoding training.build training.module training.classifier "
    "hydra_plugins.posfuse_parallel conf/model/small.yaml conf/quickstart.yaml "
    "conf/experiment/quickstart.yaml"
)
PRECISIONS = ("32-true", "bf16-mixed")
OPERATORS = ("add", "concat", "gate_scalar")
EXECUTABLE = str(Path(sys.executable).parent / "posfuse-train")
Accuracies = dict[tuple[str, str], dict[int, float]]  # of (fusion, precision), by seed; in points


def sweep(root: Path, seeds: int, accelerator: str) -> Accuracies:
    """Train every cell and read its test accuracy."""
    command = [EXECUTABLE, "-m", "experiment=quickstart", "data=bbc_lead_paragraph", "logger=none"]
    command += [f"fusion={','.join(OPERATORS)}", f"seed=range({seeds})"]
    command += [f"trainer.precision={','.join(PRECISIONS)}", f"trainer.accelerator={accelerator}"]
    command += [f"output_dir={root / 'runs'}", f"cache_dir={root / 'cache'}"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    found: Accuracies = {}
    for path in sorted(root.rglob(records.RESULT)):
        record = records.read_result(path)
        key = record["fusion"], record["settings"]["trainer.precision"]
        found.setdefault(key, {})[record["seed"]] = 100 * record["test"]["accuracy"]
    return found


def rows(accuracies: Accuracies) -> list[list[str | float]]:
    """One row per operator: both means and their spreads, the paired difference, its interval."""
    table: list[list[str | float]] = []
    for fusion in OPERATORS:
        exact, half = (accuracies[fusion, precision] for precision in PRECISIONS)
        columns = [np.array([of[seed] for seed in sorted(exact)]) for of in (exact, half)]
        differences = columns[1] - columns[0]
        low, high = t_interval(differences)
        means = [f"{x.mean():.2f} ± {spread(x):.2f}" for x in columns]
        interval = f"{low:+.2f}..{high:+.2f}"
        table.append([fusion, *means, f"{differences.mean():+.2f}", interval])
    return table


def main() -> None:
    parser = results.parser(__file__, __doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--accelerator", default="auto", help="as trainer.accelerator takes it")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = sweep(Path(folder), arguments.seeds, arguments.accelerator)
    columns = ["fusion", *PRECISIONS, "difference", "95 % t"]
    note = (
        f"Test accuracy in percent, ± the standard deviation over {arguments.seeds} seeds. The "
        "difference is the second minus the first, mean over seeds, in points."
    )
    table = results.table("bfloat16 against float32", columns, rows(found), note)
    raw = {" ".join(key): list(by_seed.values()) for key, by_seed in found.items()}
    results.write(arguments, [table], raw)


if __name__ == "__main__":
    main()
