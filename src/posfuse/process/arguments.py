"""The overrides of posfuse train, and its options that name config files."""

import os
import shlex
from argparse import ArgumentParser
from collections.abc import Iterable
from itertools import pairwise

from posfuse.errors import InputError

# Options of Hydra that take a value. Its parser also accepts an abbreviated long option.
LONG = (
    "--config-dir", "--config-path", "--config-name", "--package", "--cfg", "--info",
    "--experimental-rerun",
)  # fmt: skip
CONFIG_OPTIONS = (("--config-dir", "-cd"), ("--config-path", "-cp"), ("--config-name", "-cn"))
SHORT = ("-cd", "-cp", "-cn", "-p", "-c", "-i")


def overrides_first(arguments: list[str]) -> list[str]:
    """The arguments with all overrides before the options: Hydra's parser refuses overrides on both
    sides of an option. Raises InputError for a key that is given twice."""
    overrides: list[str] = []
    options: list[str] = []
    for previous, argument in pairwise(["", *arguments]):
        is_option = argument.startswith("-") or _takes(previous, argument)
        (options if is_option else overrides).append(argument)
    refuse_twice(overrides)
    return [*overrides, *options]


def refuse_twice(overrides: Iterable[str]) -> None:
    """Raise InputError if two overrides set one key, since Hydra ignores the first of them.

    A key may be removed and then set: that replaces a dictionary.
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


def config_options(arguments: list[str]) -> list[str]:
    """The options that say which config files the command reads, each with its value."""
    parser = ArgumentParser(add_help=False)
    parser.add_argument("--cfg", "-c")  # without it, -c is an abbreviation of -cd
    for option in CONFIG_OPTIONS:
        parser.add_argument(*option)
    given = vars(parser.parse_known_args(arguments)[0])
    del given["cfg"]
    return [f"--{name.replace('_', '-')}={value}" for name, value in given.items() if value]


def shell_line(words: Iterable[str], has_own_files: bool) -> str:
    """These words as a line for the shell.

    Config files of the user's own may name classes of their own, which PYTHONPATH finds.
    """
    path = os.environ.get("PYTHONPATH") if has_own_files else None
    modules = [f"PYTHONPATH={shlex.quote(path)}"] if path else []
    return " ".join([*modules, shlex.join(words)])


def _takes(option: str, argument: str) -> bool:
    """Whether `argument` is the value of the option before it."""
    if option == "-i" or option.startswith("--i"):  # its value is optional
        return "=" not in option + argument and not argument.startswith("~")
    is_long = len(option) > 2 and any(name.startswith(option) for name in LONG)
    return is_long or option in SHORT
