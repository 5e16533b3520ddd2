"""The names in docs/records.md."""

import json
import re
from pathlib import Path

import pandas as pd

NAMES = {*re.findall(r"`([\w.]+)`", (Path(__file__).parents[1] / "docs/records.md").read_text())}
FREE = {"settings", "versions"}  # entries whose keys are the config's and packages
SPLITS = {"train", "validation", "test"}


def undocumented(folder: Path) -> set[str]:
    """The keys, columns and names in the files of a run that docs/records.md lacks."""
    found = keys(json.loads((folder / "result.json").read_text()))
    for path in [*folder.glob("*.parquet"), *folder.glob("*.csv")]:
        table = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)
        found |= {*table.columns.str.removeprefix("val_")} | {*table.get("name", ())}
    return {name for name in found if not name.isdigit()} - NAMES - {"log_p_2", "log_p_3"}


def keys(node: dict) -> set[str]:
    """All keys below a node, without those of FREE entries and the names of splits."""
    below = (keys(v) for k, v in node.items() if isinstance(v, dict) and k not in FREE)
    return ({*node} - SPLITS).union(*below)
