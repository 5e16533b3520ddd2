"""Records to one tidy table: a row a run."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from posfuse.errors import InputError
from posfuse.records import FAILURE, RESULT, flatten, read_result

AXES = ["data", "encoding", "fusion", "seed"]
CELL = ["data", "encoding", "fusion", "variant"]


def collect(folder: str | Path) -> tuple[pd.DataFrame, list[str]]:
    """All runs below `folder`, and a line for each record that cannot be read.

    Columns: the record's keys, nested ones joined with dots ("test.accuracy"), `folder`, and
    `length`, the mean number of tokens of the corpus's training documents. The order is that of
    length, data, encoding, fusion, variant, seed. Raises InputError without any run.
    """
    root = Path(folder)
    if not root.is_dir():
        raise InputError(f"{root}: no such folder; give a sweep's, as multirun/quickstart")
    rows: list[dict[str, Any]] = []
    problems = []
    for path in sorted(root.rglob(RESULT)):
        try:
            rows.append({**flatten(read_result(path)), "folder": str(path.parent)})
        except InputError as error:
            problems.append(str(error))
    if not rows:
        found = f" ({problems[0]})" if problems else ""
        raise InputError(f"{root}: no finished runs{found}; run posfuse-train -m first")
    runs = pd.DataFrame(rows)
    runs["length"] = runs.groupby("data")["mean_tokens.train"].transform("mean")
    runs = runs.sort_values(["length", *CELL, "seed"]).reset_index(drop=True)
    copies = runs.duplicated(["sweep_id", *CELL, "seed"])
    problems += [f"{f}: a second record of one run is left out" for f in runs["folder"][copies]]
    return runs[~copies].reset_index(drop=True), problems


def missing(folder: str | Path, runs: pd.DataFrame) -> list[tuple[Any, ...]]:
    """The (data, encoding, fusion, seed) that belong to the grid and have no record.

    The grid is what each sweep's multirun.yaml asks for, joined with what was found.
    """
    absent: list[tuple[Any, ...]] = []
    for sweep_id, found in runs.groupby("sweep_id"):
        axes = {axis: dict.fromkeys(found[axis].tolist()) for axis in AXES}
        for path in [
            Path(folder) / "multirun.yaml",
            Path(folder) / str(sweep_id) / "multirun.yaml",
        ]:
            if path.exists() and path.resolve().parent.name == sweep_id:
                for axis, values in _asked(path).items():
                    axes[axis].update(dict.fromkeys(values))
        done = set(found[AXES].itertuples(index=False, name=None))
        absent += [cell for cell in product(*axes.values()) if cell not in done]
    return absent


def failures(folder: str | Path) -> list[str]:
    """The message of every run that failed and was not run again since."""
    found = sorted(Path(folder).rglob(FAILURE))
    return [f"{path.parent}: {json.loads(path.read_text())['message']}" for path in found]


def _asked(path: Path) -> dict[str, list[Any]]:
    """The values of each axis that a sweep's multirun.yaml asks for."""
    hydra = OmegaConf.load(path).hydra
    asked = [f"{k}={v}" for k, v in (hydra.sweeper.get("params") or {}).items()]
    values = {}
    for override in OverridesParser.create().parse_overrides([*asked, *hydra.overrides.task]):
        values[override.key_or_group] = (
            list(override.sweep_string_iterator())
            if override.is_sweep_override()
            else [override.get_value_element_as_str()]
        )
    # A name given by hand, as in data=folder data.name=mine, is what records hold.
    axes = {axis: values.get(f"{axis}.name", values.get(axis, [])) for axis in AXES}
    return {**axes, "seed": [int(seed) for seed in axes["seed"]]}
