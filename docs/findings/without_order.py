"""Store what is reached without order on the documents of a study, for docs/findings.

    python docs/findings/without_order.py text_agnews data.path=FOLDER  # -> text_agnews/bags.csv
    python docs/findings/without_order.py extrapolation  # -> extrapolation/strings.csv

bags.csv: test accuracy of a bag of words with the splits of each test seed. strings.csv: the number
of test strings, how many of them stand in the training split too, and how many labels a rule
without order gives on average. `most_frequent` names a symbol that occurs most often in the string,
`near_mark` one that occurs most often among the `farthest` letters to the left of x. Symbols that
occur equally often are equally likely answers. docs/findings/studies.py makes tables of both files.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from hydra import compose, initialize_config_dir

from finding_tables import BAGS, FOLDER, STRINGS
from posfuse.config import CONF_DIR, Config, DataConfig
from posfuse.data.corpora import load
from posfuse.data.tasks import LETTERS, MARK
from posfuse.errors import InputError
from posfuse.evidence.bag_of_words import bag_of_words
from posfuse.runs.checks import checked
from posfuse.runs.identity import settings
from posfuse.runs.seeds import with_split_seed
from posfuse.study.arm_sweep import ArmSweep
from posfuse.study.plan import PLAN, load_plan

TEXTS = ["text_agnews", "text_imdb", "text_bbc", "long_published", "long_scotus"]
# One of each task.
ARMS = {"missing_duplicate": "add_duplicate", "indirect_index": "add_index", "parity": "add_parity"}


def configs(study: str, arm: str, extra: list[str]) -> Iterator[tuple[int, Config]]:
    """The config of an arm of a committed plan with each test seed."""
    plan = load_plan(FOLDER / study / PLAN)
    sweep, seeds = ArmSweep(plan.study, study, "test", plan.arms(), {}), plan.study.test_seeds
    with tempfile.TemporaryDirectory() as folder:
        common = [*sweep.write_experiment(Path(folder), [arm], seeds, extra), *sweep.arms[arm]]
        for seed in seeds:
            own = [f"seed={seed}", f"cache_dir={folder}"]
            with initialize_config_dir(str(CONF_DIR), version_base="1.3"):
                yield seed, checked(compose("train", common + own))


def bags(study: str, extra: list[str]) -> pd.DataFrame:
    """One row per test seed."""
    found = {s: bag_of_words(cfg, settings(cfg), Path()) for s, cfg in configs(study, "add", extra)}
    rows = [(seed, bag.documents, bag.accuracy) for seed, bag in found.items()]
    return pd.DataFrame(rows, columns=["seed", "test_documents", "bag_of_words"])


def task_strings(study: str, extra: list[str]) -> pd.DataFrame:
    """One row per task, test seed, split and length."""
    return pd.DataFrame(
        {"task": task, "seed": seed, **row}
        for task, arm in ARMS.items()
        for seed, cfg in configs(study, arm, extra)
        for row in counted(task, with_split_seed(cfg))
    )


def counted(task: str, data: DataConfig) -> list[dict[str, Any]]:
    """One row per test split and length of one draw of the strings."""
    frames, corpus = load(data).read(), data.corpus or {}
    tables = {name: frame for name, frame in frames.items() if isinstance(frame, pd.DataFrame)}
    seen = set(tables["train"]["text"])
    rows = []
    for split in (name for name in tables if name.startswith("test")):
        frame = tables[split]
        for n, own in frame.groupby((frame["text"].str.len() + 1) // 2):
            texts = own["text"].str.replace(" ", "")
            row = {"split": split, "length": n, "strings": len(own)}
            row["in_training"] = int(own["text"].isin(seen).sum())
            labels = own["label"].to_numpy()
            if task == "indirect_index":
                letters = LETTERS[: corpus["symbols"]]
                row["most_frequent"] = answered([t[1:] for t in texts], labels, letters)
                # The first symbol is the digit.
                near = [
                    t[max(1, t.index(MARK) - corpus["farthest"]) : t.index(MARK)] for t in texts
                ]
                row["near_mark"] = answered(near, labels, letters)
            elif task == "missing_duplicate":
                row["most_frequent"] = answered(list(texts), labels, "ab")
            rows.append(row)
    return rows


def answered(texts: list[str], labels: np.ndarray, symbols: str) -> float:
    """How many labels are the most frequent symbol of their text, on average over ties."""
    counts = np.array([[text.count(symbol) for symbol in symbols] for text in texts])
    is_most = counts == counts.max(axis=1, keepdims=True)
    return float((is_most[np.arange(len(labels)), labels] / is_most.sum(axis=1)).sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("study", choices=[*TEXTS, "extrapolation"])
    arguments, extra = parser.parse_known_args()
    study = arguments.study
    count, name = (bags, BAGS) if study in TEXTS else (task_strings, STRINGS)
    try:
        count(study, extra).to_csv(FOLDER / study / name, index=False)
    except InputError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
