"""The overrides of posfuse train, and its options that name config files."""

import os
import shlex
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from posfuse.config import CONF_DIR
from posfuse.errors import InputError

SWEEP = ("-m", "--multirun")  # the options that an invalid override may follow
FILES = ("--config-", "-cd", "-cp", "-cn")  # begin the options that name config files


def split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """The overrides, and the options of Hydra with their values.

    An argument after an option is its value unless it looks like an override: key=value or ~key.
    After an option that names config files it is always the value.
    """
    overrides: list[str] = []
    options: list[str] = []
    for previous, argument in pairwise(["", *arguments]):
        is_open = previous.startswith("-") and "=" not in previous and previous not in SWEEP
        is_override = "=" in argument or argument.startswith("~")
        is_value = is_open and (previous.startswith(FILES) or not is_override)
        (options if argument.startswith("-") or is_value else overrides).append(argument)
    return overrides, options


def overrides_first(arguments: list[str]) -> list[str]:
    """The arguments with all overrides before the options, because Hydra's parser refuses overrides
    on both sides of an option. Raises InputError for a key that is given twice."""
    overrides, options = split(arguments)
    refuse_twice(overrides)
    return [*overrides, *options]


def file_options(arguments: list[str], overrides: Iterable[str]) -> list[str]:
    """The options that name config files, with their values, and the overrides that name folders
    of such files."""
    options = [
        word
        for before, word in pairwise(["", *split(arguments)[1]])
        if word.startswith(FILES) or (before.startswith(FILES) and not word.startswith("-"))
    ]
    return options + [o for o in overrides if o.startswith("hydra.searchpath=")]


def refuse_twice(overrides: Iterable[str]) -> None:
    """Raise InputError if two overrides set one key, because Hydra ignores the first of them.

    A key may be removed and then set, which replaces a dictionary.
    """
    given: dict[str, str] = {}
    for override in overrides:
        key = override.partition("=")[0].lstrip("+~")
        first = given.get(key, "~")
        if not first.startswith("~"):
            raise InputError(
                f"{key}: given twice ({first} and {override}); give it once, and several values as "
                f"{key}=VALUE,VALUE with -m"
            )
        given[key] = override


def check_protocol(name: str, folders: Sequence[str]) -> None:
    """Raise InputError for a protocol without a file in conf/ or in these folders with config
    files. Hydra ignores it, because the protocol is optional: an experiment takes that of its
    corpus if there is one. Nothing is checked if a folder is an address."""
    if name == "null" or any("://" in folder for folder in folders):
        return
    groups = [Path(folder) / "protocol" for folder in (str(CONF_DIR), *folders)]
    files = [file.relative_to(group) for group in groups for file in group.rglob("*.yaml")]
    known = sorted(file.with_suffix("").as_posix() for file in files)
    if name not in known:
        corpora = [own for own in known if "/" not in own]
        raise InputError(f"protocol: no {name!r}; use one of {', '.join(corpora)}")


def shell_line(words: Iterable[str], has_own_files: bool) -> str:
    """These words as a line for the shell.

    With config files of the user it includes PYTHONPATH, because they may name the user's classes.
    """
    path = os.environ.get("PYTHONPATH") if has_own_files else None
    modules = [f"PYTHONPATH={shlex.quote(path)}"] if path else []
    return " ".join([*modules, shlex.join(words)])
