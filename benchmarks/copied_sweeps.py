"""Sweeps of copied runs: large ones at the cost of two real runs."""

import json
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from posfuse.runs.configs import read_config
from posfuse.runs.records import PREDICTIONS, RESULT, SUMS, digest, fingerprint

RUN = [
    "data=bbc_lead_paragraph", "fusion=add,concat", "model.n_layers=1",
    "model.attention_dropout=0", "trainer.max_epochs=2", "trainer.accelerator=cpu",
    "trainer.threads=1", "trainer.progress=none", "logger=none",
]  # fmt: skip
TRAIN = "from posfuse.train import main; main()"
# Composes and checks the config of each run, and does no more.
COMPOSE = """
from posfuse import train
train.train = lambda cfg, folder: {"test": {"accuracy": 0.0}}
train.main()
"""


def trained(root: Path) -> Path:
    """The folder of a finished sweep with one run of each of two operators."""
    folders = [f"output_dir={root}", f"cache_dir={root / 'cache'}"]
    command = [sys.executable, "-c", TRAIN, "-m", *RUN, *folders, "seed=0", "sweep_id=one"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return root / "one"


def copies(sweep: Path, target: Path, seeds: int, documents: int | None = None) -> None:
    """A sweep with `seeds` copies of each run, with so many predictions (None: as they are)."""
    for result in sorted(sweep.rglob(RESULT)):
        record, cfg = json.loads(result.read_text(encoding="utf-8")), read_config(result.parent)
        table = pd.read_parquet(result.parent / PREDICTIONS)
        if documents:
            table = table.iloc[np.arange(documents) % len(table)]
            table = table.assign(index=np.arange(documents), group=np.arange(documents))
            right = float((table["label"] == table["predicted"]).mean())
            record["test"]["accuracy"] = right
        for seed in range(seeds):
            folder = target / result.parent.parent.relative_to(sweep) / f"seed={seed}"
            shutil.copytree(result.parent, folder, ignore=shutil.ignore_patterns("checkpoints"))
            record |= {"seed": seed, "sweep_id": target.name}
            record["fingerprint"] = fingerprint(replace(cfg, seed=seed))
            record["settings"]["seed"] = seed
            (folder / RESULT).write_text(json.dumps(record), encoding="utf-8")
            if documents:
                table.to_parquet(folder / PREDICTIONS, index=False)
            names = [
                line.split("  ")[1]
                for line in (folder / SUMS).read_text(encoding="utf-8").splitlines()
            ]
            kept = [name for name in names if (folder / name).exists()]
            lines = [f"{digest(folder / name)}  {name}\n" for name in kept]
            (folder / SUMS).write_text("".join(lines), encoding="utf-8")


def skipping(sweep: Path, compose: bool) -> float:
    """Seconds of posfuse-train of a copied sweep, which is finished; with `compose`, of a command
    that composes its configs and does not look at its runs."""
    seeds = len(list(sweep.rglob(RESULT))) // 2  # two operators
    code = COMPOSE if compose else TRAIN
    own = [f"seed=range(0,{seeds})", f"sweep_id={sweep.name}", f"output_dir={sweep.parent}"]
    start = time.perf_counter()
    command = [sys.executable, "-c", code, "-m", *RUN, *own]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start
