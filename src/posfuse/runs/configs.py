"""config.yaml of a run: written, read, and the folders that it names."""

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from posfuse import untrusted
from posfuse.config import Config
from posfuse.data.pretrained_folder import pretrained_digest
from posfuse.data.vocabulary import tokenizer_file_digest
from posfuse.errors import InputError, input_errors
from posfuse.runs.hydra_errors import one_line
from posfuse.runs.identity import texts_digest
from posfuse.runs.records import replacing

CONFIG = "config.yaml"


def write_config(folder: Path, cfg: Config) -> None:
    """config.yaml of a run. Its paths are absolute, so that they mean the same in any directory,
    and in UTF-8, so that they mean the same in any locale."""

    def absolute(path: str) -> str:
        return os.fsencode(os.path.abspath(path)).decode(errors="surrogateescape")

    data, host, own = cfg.data.path, cfg.host.path, cfg.data.vocabulary
    own = replace(own, file=own.file and absolute(own.file))
    cfg = replace(
        cfg,
        output_dir=absolute(cfg.output_dir),
        cache_dir=absolute(cfg.cache_dir),
        data=replace(cfg.data, path=data and absolute(data), vocabulary=own),
        host=replace(cfg.host, path=host and absolute(host)),
    )
    with replacing(folder / CONFIG) as part:
        OmegaConf.save(OmegaConf.structured(cfg), part)


def read_config(folder: Path) -> Config:
    """The config.yaml of a run. `with_folders` replaces folders that have moved.

    Raises InputError if the file is missing or does not fit the schema.
    """
    path = folder / CONFIG
    with input_errors(f"{path}: cannot be read", "give a finished run's folder"):
        text = untrusted.read_yaml(path)
    try:
        cfg = config_of(text)
    except (OmegaConfBaseException, ValueError, YAMLError) as error:
        raise InputError(
            f"{path}: does not fit this version ({one_line(error)}); run it again"
        ) from error
    # The content of cache_dir has digests, so any folder is right.
    places = _places(cfg, folder, cfg.cache_dir)
    cfg.cache_dir = str(next((place for place in places if place.is_dir()), places[-1]))
    return cfg


def with_folders(cfg: Config, folder: Path, recorded: dict[str, Any]) -> Config:
    """The config of a run with the folders of the texts and of the pretrained model that it read.

    `recorded` are the settings of the run's record, which have the digests of both. Raises
    InputError if no folder with this content is where config.yaml says.
    """

    def folder_with(key: str, path: str, digest_of: Callable[[str], str]) -> str:
        changed = None
        for place in filter(Path.exists, _places(cfg, folder, path)):
            try:
                if digest_of(str(place)) == recorded.get(key):
                    return str(place)
            except (InputError, OSError):
                continue  # no texts or no model in this folder
            changed = changed or place
        if changed:
            raise InputError(
                f"{changed}: its files are not those of the run {folder}; restore them, or run "
                "with data.name=NAME for the new ones"
            )
        raise InputError(
            f"{folder / CONFIG}: {key}: no folder {path} with the run's files; restore it, or "
            "write its new place into this file"
        )

    data, host, own = cfg.data.path, cfg.host.path, cfg.data.vocabulary
    texts = partial(texts_digest, names=cfg.data.splits)
    data = data and folder_with("data.path", data, texts)
    host = host and folder_with("host.path", host, pretrained_digest)
    key = "data.vocabulary.file"
    own = replace(own, file=own.file and folder_with(key, own.file, tokenizer_file_digest))
    data_cfg = replace(cfg.data, path=data, vocabulary=own)
    return replace(cfg, data=data_cfg, host=replace(cfg.host, path=host))


def _places(cfg: Config, folder: Path, path: str) -> list[Path]:
    """Where a folder of a run's config.yaml may be, the one to create last.

    Older versions wrote relative paths; the directory of their command is above the run's folder.
    An absolute path is as written. If output_dir was moved, the folder may have moved with it.
    """
    path = os.fsdecode(path.encode(errors="surrogateescape"))  # as in `write_config`
    above = folder.resolve().parents
    if not os.path.isabs(path):
        return [*(parent / path for parent in above), Path(path)]
    own = [sweep.parent for sweep in above if sweep.name == cfg.sweep_id]
    within = os.path.relpath(path, cfg.output_dir)
    return [Path(path), *(Path(os.path.normpath(output / within)) for output in own)]


def config_of(content: Any) -> Config:
    """A config from plain values, or from the checked text of a YAML file; raises
    OmegaConfBaseException or ValueError if they do not fit the schema."""
    config = OmegaConf.merge(OmegaConf.structured(Config), OmegaConf.create(content))
    cfg = OmegaConf.to_object(config)
    assert isinstance(cfg, Config)
    return cfg
