"""How fast the strings of the generated tasks are made, and how long a training run on them takes.

    python benchmarks/tasks.py

On one core. Every task of conf/data is made with its own sizes and with test strings of 40, 80 and
160 symbols. The runs are some of experiment=positions: d = 64, two layers, strings of up to 40
symbols, 2,000 steps of 128 strings. Prints one line per task and per run.
"""

import json
import pkgutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

import results
from posfuse.config import CONF_DIR
from posfuse.data.corpora import Corpus
from posfuse.runs import records

MEASURES = (
    "data.tasks data.strings model.network model.fusion model.encoder model.attention "
    "model.kernels model.dropout model.attention_encoding model.encoding model.biases "
    "data.token_store data.batching data.datamodule training.build training.module "
    "training.classifier training.run conf/experiment/positions.yaml"
)
TEST_LENGTHS = [40, 80, 160]
STEPS = 2000  # of a run
RUNS = [
    ("missing_duplicate", "sinusoidal", "add"),
    ("indirect_index", "t5", "concat"),
]


def corpora() -> dict[str, Corpus]:
    """The tasks of conf/data, by their names."""
    found = {}
    for file in sorted((CONF_DIR / "data").glob("*.yaml")):
        given = yaml.safe_load(file.read_text()).get("corpus") or {}
        target = given.pop("_target_", "")
        if target.startswith("posfuse.data.tasks."):
            given |= {"split_seed": 0, "test_lengths": TEST_LENGTHS}
            found[file.stem] = pkgutil.resolve_name(target)(**given)
    return found


def measure(corpus: Corpus, repeats: int) -> dict[str, float]:
    """Its strings, and how many of them are made per second of CPU time (median)."""
    rates = []
    for _ in range(repeats):
        start = time.process_time()
        n = sum(map(len, corpus.read().values()))
        rates.append(n / (time.process_time() - start))
    return {"strings": n, "per_second": round(statistics.median(rates))}


def run_seconds(task: str, encoding: str, fusion: str) -> dict[str, float]:
    """The seconds of a run of experiment=positions in a process of its own, by part."""
    argv = [sys.executable, "-m", "posfuse.train", "-m", "experiment=positions", "seed=0"]
    argv += [f"data={task}", f"encoding={encoding}", f"fusion={fusion}"]
    argv += ["logger=none", "hydra/launcher=basic"]
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        subprocess.run(argv, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        seconds = time.perf_counter() - start
        (result,) = Path(folder).rglob(records.RESULT)
        return {"process": seconds, **records.read_result(result)["seconds"]}


def main() -> None:
    parser = results.parser(__file__, __doc__)
    parser.add_argument("--repeats", type=int, default=5, help="of making strings")
    parser.add_argument("--runs", type=int, default=1, help="repeats of each run")
    arguments = parser.parse_args()
    made = {name: measure(corpus, arguments.repeats) for name, corpus in corpora().items()}
    for name, found in made.items():
        print(json.dumps({"task": name, **found}), flush=True)
    raw: dict[str, list[dict[str, float]]] = {}
    for _ in range(arguments.runs):
        for case in RUNS:
            raw.setdefault(" ".join(case), []).append(run_seconds(*case))
            print(json.dumps({"run": case, **raw[" ".join(case)][-1]}), flush=True)
    strings = results.table(
        "Generated tasks",
        ["task", "strings", "strings/s"],
        [[name, found["strings"], found["per_second"]] for name, found in made.items()],
        "Texts and labels of all splits, with test strings of 40, 80 and 160 symbols; CPU time "
        "of one core, median over the repeats. Token ids are not included.",
    )
    runs = results.table(
        "Runs on generated tasks",
        ["task", "encoding", "operator", "seconds", "training", "ms per step"],
        [_row(case, parts) for case, parts in raw.items()],
        "A run of experiment=positions on one core: 2,000 steps of 128 strings of up to 40 "
        "symbols, d = 64, two layers. Seconds of the whole process, with imports, data, "
        "validation and tests at 40, 80 and 160 symbols, and of its training alone. Medians.",
    )
    results.write(arguments, [strings, runs], {"tasks": made, "runs": raw})


def _row(case: str, parts: list[dict[str, float]]) -> list[str | float]:
    whole, fit = (statistics.median(part[name] for part in parts) for name in ("process", "fit"))
    return [*case.split(), round(whole, 1), round(fit, 1), round(1000 * fit / STEPS, 1)]


if __name__ == "__main__":
    main()
