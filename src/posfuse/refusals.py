"""Lines for what Hydra raises without naming a file or key."""

import traceback
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path

from yaml import MarkedYAMLError, YAMLError

from posfuse.config import CONF_DIR, one_line
from posfuse.errors import NO_MEMORY, lacks_memory

# Hydra's functions that check a key by themselves, and the fix.
KEY_OF = {
    "configure_log": "hydra.verbose: use true, false or the names of loggers",
    "instantiate_launcher": "hydra.launcher: null runs nothing; use hydra/launcher=basic",
    "instantiate_sweeper": "hydra.sweeper: null runs nothing; use hydra/sweeper=posfuse",
}


def of_file(error: YAMLError | UnicodeDecodeError) -> str:
    """One line for a config file that cannot be read."""
    if isinstance(error, UnicodeDecodeError):
        file = next(_not_utf8(), "a config file")
        return f"{file}: not UTF-8 (byte {error.object[error.start]:#x}); save it as UTF-8"
    if isinstance(error, MarkedYAMLError) and (mark := error.problem_mark):
        place = f"line {mark.line + 1}, column {mark.column + 1}"
        return f"{mark.name}: not YAML ({place}: {error.problem}); correct that line"
    return f"not YAML ({one_line(error)}); correct the file"


def _not_utf8() -> Iterator[Path]:
    """The config files that are not UTF-8, those that an override chooses first."""
    parser = ArgumentParser(add_help=False)
    parser.add_argument("--config-dir", "-cd")
    parser.add_argument("--cfg", "-c")  # else -c is taken for the start of -cd
    given, others = parser.parse_known_args()
    pairs = (argument.lstrip("+").partition("=") for argument in others)
    chosen = {f"{group}/{name}.yaml" for group, _, names in pairs for name in names.split(",")}
    for folder in (Path(given.config_dir or CONF_DIR).resolve(), CONF_DIR):
        by_name = sorted(folder.rglob("*.yaml"))
        for file in sorted(by_name, key=lambda f: str(f.relative_to(folder)) not in chosen):
            try:
                file.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                yield file
            except OSError:  # a folder or a link to nothing, which no config is read from
                continue


def of_hydra(error: Exception) -> str:
    """One line for any other error that leaves Hydra."""
    if lacks_memory(error):
        return NO_MEMORY
    function = traceback.extract_tb(error.__traceback__)[-1].name
    if function in KEY_OF:
        return KEY_OF[function]
    return (
        f"{type(error).__name__}: {one_line(error)}; HYDRA_FULL_ERROR=1 posfuse-train ... shows "
        "the traceback"
    )
