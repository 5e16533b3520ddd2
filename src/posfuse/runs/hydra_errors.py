"""Lines for what Hydra raises without naming a file or key."""

import re
import traceback
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path

import yaml
from yaml import MarkedYAMLError, YAMLError

from posfuse.config import CONF_DIR, one_line
from posfuse.errors import NO_MEMORY, lacks_memory

# Hydra's functions that check a key by themselves, and the fix.
VERBOSE = "hydra.verbose: use true, false or the names of loggers"
KEY_OF = {
    "configure_log": VERBOSE,
    "getLogger": VERBOSE,
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
    for file in sorted(_files(), key=lambda file: not _is_chosen(file)):
        try:
            file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            yield file
        except OSError:  # a folder or a link to nothing, which no config is read from
            continue


def of_no_keys(error: Exception) -> str | None:
    """One line where an override chooses a config file of a list, a text or nothing: `error` names
    no file. None where it does not, or where a file of nothing is not what `error` is about."""
    for file in filter(_is_chosen, _files()):
        group = file.parent.name
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
        is_empty = content is None and f"{group}.name" in str(error)
        if is_empty or isinstance(content, str | list):
            return f"{file}: holds no keys; write key: value, as in the files of {CONF_DIR / group}"
    return None


def _files() -> list[Path]:
    """The config files of --config-dir and of conf/."""
    folders = [Path(f).resolve() for f in (_arguments()[0], CONF_DIR) if f]
    return [file for folder in folders for file in sorted(folder.rglob("*.yaml"))]


def _is_chosen(file: Path) -> bool:
    """Whether an override names the group and the file."""
    pairs = (argument.lstrip("+").partition("=") for argument in _arguments()[1])
    chosen = {f"{group}/{name}.yaml" for group, _, names in pairs for name in names.split(",")}
    return any(file.as_posix().endswith(f"/{name}") for name in chosen)


def _arguments() -> tuple[str | None, list[str]]:
    """The folder of --config-dir, and the other arguments of the command."""
    parser = ArgumentParser(add_help=False)
    parser.add_argument("--config-dir", "-cd")
    parser.add_argument("--cfg", "-c")  # else -c is taken for the start of -cd
    given, others = parser.parse_known_args()
    return given.config_dir, others


def of_hydra(error: Exception) -> str:
    """One line for any other error that leaves Hydra."""
    if lacks_memory(error):
        return NO_MEMORY
    functions = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    if functions[-1] in KEY_OF:
        return KEY_OF[functions[-1]]
    if plugin := re.match(r"(?:Invalid plugin|Unknown plugin class :) ('[^']*')", str(error)):
        kind = "launcher" if "instantiate_launcher" in functions else "sweeper"
        known = KEY_OF[f"instantiate_{kind}"].rpartition("; ")[2]
        return f"hydra.{kind}._target_: {plugin[1]} is no {kind} of Hydra; {known}"
    return (
        f"{type(error).__name__}: {one_line(error)}; HYDRA_FULL_ERROR=1 posfuse-train ... shows "
        "the traceback"
    )
