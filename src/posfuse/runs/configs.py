"""Writes and reads config.yaml of a run, and finds the folders that it names."""

import os
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from posfuse import untrusted
from posfuse.config import Config
from posfuse.errors import Diverged, InputError, input_errors
from posfuse.runs.identity import CONTENTS, files_of, fingerprint, own_code
from posfuse.runs.records import read_failure, replacing

CONFIG = "config.yaml"


def write_config(folder: Path, cfg: Config) -> None:
    """Write config.yaml of a run. Its paths are absolute and in UTF-8, so they do not depend on the
    current directory and the locale."""
    config = OmegaConf.structured(cfg)
    folders = {"output_dir": cfg.output_dir, "cache_dir": cfg.cache_dir, **files_of(cfg)}
    for key, path in folders.items():
        absolute = os.fsencode(os.path.abspath(path)).decode(errors="surrogateescape")
        OmegaConf.update(config, key, absolute)
    with replacing(folder / CONFIG) as part:
        OmegaConf.save(config, part)


def read_config(folder: Path) -> Config:
    """The config.yaml of a run. `with_folders` replaces folders that have moved.

    Raises InputError if the file is missing or does not fit the schema.
    """
    path = folder / CONFIG
    with input_errors(f"{path}: cannot be read", "give a finished run's folder, or run it again"):
        cfg = config_of(untrusted.read_yaml(path))
    # The content of cache_dir has digests, so any folder may be used.
    *places, last = _places(cfg, folder, cfg.cache_dir)
    cfg.cache_dir = str(next(filter(os.path.isdir, places), last))  # False without permission
    return cfg


def has_diverged(folder: Path, cfg: Config) -> bool:
    """True if the run with this config and today's code diverged in this folder. False if the
    failure does not identify its run."""
    failure = read_failure(folder)
    if failure is None or failure["kind"] != Diverged.kind or not failure.get("run"):
        return False
    run = failure["run"]
    is_own = run["fingerprint"] == fingerprint(cfg)
    return is_own and run.get("code") in (None, own_code(cfg).get("code"))


def with_folders(cfg: Config, folder: Path, recorded: dict[str, Any]) -> Config:
    """The config of a run with the places of the files that it read: of its texts, its tokenizer
    and its pretrained model.

    `recorded` are the settings of the run's record, which have their digests. Raises InputError if
    no files with this content are where config.yaml says.
    """
    config = OmegaConf.structured(cfg)
    for key, path in files_of(cfg).items():
        OmegaConf.update(config, key, _place(key, path, cfg, folder, recorded.get(key)))
    return config_of(config)


def _place(key: str, path: str, cfg: Config, folder: Path, recorded: str | None) -> str:
    """The path of a key's files with the recorded digest."""
    changed = None
    for place in filter(os.path.exists, _places(cfg, folder, path)):
        try:
            if CONTENTS[key](str(place), cfg) == recorded:
                return str(place)
        except (InputError, OSError):
            continue  # no such files in this folder
        changed = changed or place
    if changed:
        raise InputError(
            f"{changed}: its files are not those of the run {folder}; restore them, or run "
            "with data.name=NAME for the new files"
        )
    raise InputError(
        f"{folder / CONFIG}: {key}: no folder {path} with the run's files; restore it, or "
        "write its new place into this file"
    )


def _places(cfg: Config, folder: Path, path: str) -> list[Path]:
    """The possible places of a folder of a run's config.yaml: the written one, and the same place
    beside an output_dir that was moved. If none exists, the folder is created at the last one."""
    path = os.fsdecode(path.encode(errors="surrogateescape"))  # as in `write_config`
    own = [sweep.parent for sweep in folder.resolve().parents if sweep.name == cfg.sweep_id]
    within = os.path.relpath(path, cfg.output_dir)
    return [Path(path), *(Path(os.path.normpath(output / within)) for output in own)]


def config_of(content: Any) -> Config:
    """A config from a composed one, from plain values, or from the checked text of a YAML file.
    Raises OmegaConfBaseException or ValueError if they do not fit the schema."""
    config = content
    if OmegaConf.get_type(content) is not Config:
        config = OmegaConf.merge(_schema(), OmegaConf.create(content))
    cfg = OmegaConf.to_object(config)
    assert isinstance(cfg, Config)
    if asdict(cfg) != (plain := OmegaConf.to_container(config, resolve=True)):
        OmegaConf.merge(_schema(), OmegaConf.create(plain))  # refuses a key that "+key" has added
    return cfg


@cache  # 20 ms
def _schema() -> Any:
    return OmegaConf.structured(Config)
