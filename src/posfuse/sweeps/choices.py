"""Checks of the protocol and of the user's own classes that a composed config chooses."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from posfuse.config import CONF_DIR
from posfuse.errors import InputError
from posfuse.process.arguments import check_protocol
from posfuse.runs.checks import import_part

PARTS = ("data.corpus", "task", "encoding.table", "encoding.attention", "fusion")


def check_chosen_protocol(config: DictConfig) -> None:
    """Raise InputError for a protocol that does not exist, on the command line or in the file of an
    experiment."""
    runtime = config.hydra.runtime
    name, data = (str(runtime.choices.get(group) or "null") for group in ("protocol", "data"))
    given = [o.partition("=")[2] for o in config.hydra.overrides.task if o.startswith("protocol=")]
    folders = [
        source.path if source.schema == "file" else f"{source.schema}://{source.path}"
        for source in runtime.config_sources
        if source.provider not in ("hydra", "schema") and source.path != str(CONF_DIR)
    ]
    is_of_corpus = all("${data}" in value for value in given)
    # ${data}, also with other parts as in quickstart/${data}: that of the corpus, if there is one
    at = re.search(rf"(?<![^/_-]){re.escape(data)}(?![^/_-])", name)
    if is_of_corpus and at and _has_any(name[: at.start()], name[at.end() :], folders):
        return
    try:
        check_protocol(name, folders)
    except InputError as error:
        experiment = runtime.choices.get("experiment")
        place = f"experiment={experiment}: " if experiment else ""
        raise InputError(f"{place}{error}") from error


def _has_any(start: str, end: str, folders: Sequence[str]) -> bool:
    """True if a protocol has a name that consists of `start`, the name of a corpus and `end`."""
    places = [Path(folder) for folder in (str(CONF_DIR), *folders)]
    corpora = [file.stem for place in places for file in (place / "data").glob("*.yaml")]
    names = [f"protocol/{start}{corpus}{end}.yaml" for corpus in corpora]
    return any((place / name).is_file() for place in places for name in names)


def check_own_classes(config: DictConfig) -> None:
    """Raise InputError for a class or function outside posfuse that Python cannot find, or whose
    module has a wrong syntax. Other errors may depend on the machine of the run, which raises
    them."""
    for key in PARTS:
        target = OmegaConf.select(config, f"{key}._target_")
        if target is None or str(target).startswith("posfuse."):  # would import torch
            continue
        try:
            import_part(key, target)
        except InputError as error:
            if _is_absent(str(target), error.__cause__):
                raise InputError(f"{_file_of(key, target, config)}{error}") from error


def _is_absent(target: str, cause: BaseException | None) -> bool:
    """True if an import failed on the path itself. False if it failed within the module, as for
    another module that this one imports."""
    module, _, name = target.rpartition(".")
    if isinstance(cause, ModuleNotFoundError):
        return f"{module}.".startswith(f"{cause.name}.")
    if isinstance(cause, AttributeError):
        return cause.name == name
    return not module or isinstance(cause, SyntaxError)


def _file_of(key: str, target: Any, config: DictConfig) -> str:
    """The chosen config file that names the class, with a colon: that of the key, or that of the
    experiment. Empty if there is none, because the command names the class."""
    runtime = config.hydra.runtime
    places = [Path(source.path) for source in runtime.config_sources if source.schema == "file"]
    files = [
        place / group / f"{runtime.choices.get(group)}.yaml"
        for group in (key.partition(".")[0], "experiment")
        for place in places
    ]
    naming = [file for file in files if file.is_file() and str(target) in file.read_text("utf-8")]
    return f"{naming[0]}: " if naming else ""
