"""How fast the strings of the generated tasks are made, on one core.

    python benchmarks/tasks.py --out benchmarks/results/tasks.json

Every task of conf/data is made with its own sizes and with test strings of 40, 80 and 160 symbols.
Prints one line per task.
"""

import argparse
import json
import pkgutil
import statistics
import time
from pathlib import Path

import yaml

import results
from posfuse.config import CONF_DIR
from posfuse.data.corpora import Corpus

TEST_LENGTHS = [40, 80, 160]


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, help="also write a results file")
    arguments = parser.parse_args()
    measured = {}
    for name, corpus in corpora().items():
        measured[name] = measure(corpus, arguments.repeats)
        print(json.dumps({"task": name, **measured[name]}), flush=True)
    if arguments.out:
        table = results.table(
            "Generated tasks",
            ["task", "strings", "strings/s"],
            [[name, found["strings"], found["per_second"]] for name, found in measured.items()],
            "Texts and labels of all splits, with test strings of 40, 80 and 160 symbols; CPU time "
            "of one core, median over the repeats. Token ids are not included.",
        )
        results.write(arguments.out, [table], {"tasks": measured})


if __name__ == "__main__":
    main()
