"""The folder of a sweep, and of each run in it: data/encoding/fusion[/other overrides]/seed=n."""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from posfuse import seals
from posfuse.limits import check_folder, check_name
from posfuse.runs.identity import CONTENTS, HUB_ID, is_neutral

AXES = ("data", "encoding", "fusion")  # their names are parts of a run's folder
VARIANT_LETTERS = r"A-Za-z0-9._=+\-"  # of the folder that names a run's other overrides


def sweep_folder(output_dir: str, sweep_id: str) -> str:
    """The folder of a sweep. Checks it, because Hydra creates it before any run starts: raises
    InputError."""
    check_folder("output_dir", output_dir)
    check_name("sweep_id", sweep_id)
    return f"{output_dir}/{sweep_id}"


def run_folder(data: str, encoding: str, fusion: Any, seed: int, overrides: Iterable[str]) -> str:
    """The folder of a run in its sweep: data/encoding/fusion[/other overrides]/seed=n."""
    # fusion.name can be of any type here; `check_name` refuses it later.
    parts = (data, encoding, str(fusion), variant_of(overrides), f"seed={seed}")
    return "/".join(part for part in parts if part)


def variant_of(overrides: Iterable[str]) -> str:
    """The part of a run's folder with its other overrides; empty without them.

    They are written in characters that every file system accepts. If characters are replaced or the
    text is long, a hash keeps two different runs apart. For a key that names files only the last
    part of the path is written, so that moving them changes nothing.
    """
    own = sorted(map(_without_place, other_overrides(overrides)))
    text = "__".join(own)
    plain = re.sub(f"[^{VARIANT_LETTERS}]+", "-", text)[:80].strip(".-")
    if plain != text:
        plain += f"-{seals.short_digest(text)}"
    return plain


def other_overrides(overrides: Iterable[str]) -> list[str]:
    """The overrides that can change a result, except data, encoding, fusion and seed."""
    return [override for override in overrides if not _in_path_already(override)]


def _in_path_already(override: str) -> bool:
    key = override.lstrip("+~").split("=")[0]
    # The content identifies a data folder, not its path: the record's settings have its digest.
    named = (*AXES, *(f"{axis}.name" for axis in AXES), "seed", "data.path")
    return key.startswith(("hydra.", "hydra/")) or key in named or is_neutral(key)


def _without_place(override: str) -> str:
    key, _, value = override.partition("=")
    plain = key.lstrip("+")
    is_place = plain in CONTENTS and plain != HUB_ID  # two repositories may have one last part
    return f"{key}={Path(value).name}" if is_place else override


def folder_of(overrides: list[str], cfg: Any) -> str:
    """The folder of the run with these overrides, relative to its sweep. `cfg` is the composed
    config in the sweep's multirun.yaml."""
    return folders_of([overrides], cfg)[0]


def folders_of(jobs: list[list[str]], cfg: Any) -> list[str]:
    """`folder_of` of each job. A file of data, encoding or fusion must have the name in it."""
    usual = {axis: str((cfg.get(axis) or {}).get("name")) for axis in AXES}
    usual_seed = OmegaConf.select(cfg, "seed")
    folders = []
    for overrides in jobs:
        values = _values(overrides)
        data, encoding, fusion = (
            values.get(f"{axis}.name") or values.get(axis, usual[axis]) for axis in AXES
        )
        seed = int(values.get("seed", usual_seed))
        folders.append(run_folder(data, encoding, fusion, seed, overrides))
    return folders


def _values(overrides: list[str]) -> dict[str, str]:
    """The values by key, without prefixes and quotes."""
    pairs = (o.lstrip("+").split("=", 1) for o in overrides if "=" in o and not o.startswith("~"))
    return {key: value.strip("'\"") for key, value in pairs}


def with_file(name: str, folder: Path) -> list[Path]:
    """The folders that have a file of this name: the folder itself and those below it."""
    # os.walk, because Path.rglob fails if another process removes a folder in the meantime. It
    # opens each folder, so a network disk shows the new files of other machines too.
    return sorted(Path(place) for place, _, files in os.walk(folder) if name in files)


def started_in(folder: Path) -> list[Path]:
    """The folders of the started runs below a folder. Folders of W&B have a config.yaml too."""
    return [run for run in with_file("config.yaml", folder) if run.name.startswith("seed=")]


def results_in(folder: Path) -> list[Path]:
    """The records of the finished runs below a folder. Hidden folders hold those of pretraining."""
    runs = with_file("result.json", folder)
    shown = (r for r in runs if not any(n[0] == "." for n in r.relative_to(folder).parts))
    return [run / "result.json" for run in shown]


def without_runs(folder: Path, what: str = "finished runs") -> str:
    """The message for a folder without runs."""
    if (folder / "index.html").exists():
        return (
            f"{folder}: a report without its runs; open index.html in it, or give the folder of a "
            "sweep"
        )
    if (folder / "plan.yaml").exists():
        return (
            f"{folder}: is a study; open its report/index.html, or give the folder of its test "
            "runs, whose name ends in _test"
        )
    return f"{folder}: no {what}; run posfuse train -m first"


def own_place(record: dict[str, Any]) -> Path:
    """The path that a sweep gives to the run of this record, relative to the sweep's folder."""
    named = (part for key in (*AXES, "variant") if (part := record.get(key)))
    return Path(*named, f"seed={record.get('seed')}")


def lies_in(record: dict[str, Any], folder: Path) -> bool:
    """True if the folder ends with the path that a sweep gives to the run of this record."""
    parts = own_place(record).parts
    return folder.parts[-len(parts) :] == parts


OmegaConf.register_new_resolver("posfuse.sweep_folder", sweep_folder, replace=True)
OmegaConf.register_new_resolver("posfuse.run_folder", run_folder, replace=True)
