"""One line for each error of Hydra and OmegaConf, with the key or the file in front."""

import dataclasses
import os
import re
import sys
import traceback
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import yaml
from hydra.errors import HydraException, OverrideParseException
from omegaconf.errors import OmegaConfBaseException
from yaml import MarkedYAMLError, YAMLError

from posfuse import config
from posfuse.config import CONF_DIR, NAME_LETTERS
from posfuse.errors import NO_MEMORY, lacks_memory

# Names of tokens in the messages of Hydra's parser.
GRAMMAR = re.compile("LexerNoViableAlt|mismatched input|extraneous input|no viable|missing .+ at")
NAMES = ("data.name", "encoding.name", "fusion.name", "sweep_id")
# Patterns of messages of Hydra and OmegaConf, and what is shown instead.
SHOWN = {
    r"\s*See https://hydra.cc\S* for details": "",
    r"\s*Config search path:.*": "",
    r"In '[^']*': (\w+ raised while composing config: ?)?": "",
    r"^field '(\S+)' is not Optional$": r"\1: null is not allowed; give a value",
    r"^Could not find '(.+)/(.*)' .+ in '\1':": r"\1: no '\2'; use one of",
    r"^Invalid value assigned: \w+ is not a ListConfig, list or tuple\.?$": (
        "must be a list, such as [80]"
    ),
    r"^(Invalid type assigned: NoneType|Non optional \w+ cannot be|Incompatible value 'None').*": (
        "null is not allowed; give a value"
    ),
    r"^Cannot convert '(?:list|dict)' to string: '(.*)'$": r"must be one word (got \1)",
    r"^Value (.+) of type '\w+' could not be converted to Integer$": r"must be an integer (got \1)",
    r"^Value (.+) of type '\w+' could not be converted to Float$": r"must be a number (got \1)",
    r"^Value (.+) is not a valid bool .+": r"must be true or false (got \1)",
    r"^Config group override must .+": "a group takes one of its names, such as fusion=add",
    r"^force-add of .+: '\+\+(.+)'$": r"++\1: a group cannot be added by force; use \1",
    r"^Could not append to .+ remove \+ prefix: '(.+?)' .+": r"+\1: the key has a value; use \1",
    r"^Could not delete .*'(.+)'.* (No match .+|does not exist\.)$": (
        r"~\1: not in the config; remove this override"
    ),
    r"^\w+ \(DictConfig\) does not support deletion$": "cannot be removed; set another value",
    r"^Ambiguous value for argument '(.+)' 1\. .+": r"\1: several values need -m",
    r"^Additional config directory (.+) not found$": r"--config-dir: no folder \1; name another",
}
# Messages about a key that the name of a run's folder needs, and about a group chosen twice.
MISSING = re.compile(
    r"(?:value: |key ')((?:data|encoding|fusion)\.name|seed|sweep_id|output_dir)\b"
)
TWICE = re.compile(r"Multiple values for ([\w/]+)\.|^([\w/]+) appears more than once in the final")

# Hydra's functions that check a value without naming its key, and the fix.
VERBOSE = "hydra.verbose: use true, false or the names of loggers"
KEY_OF = {
    "configure_log": VERBOSE,
    "getLogger": VERBOSE,
    "instantiate_launcher": "hydra.launcher: null runs nothing; use hydra/launcher=basic",
    "instantiate_sweeper": "hydra.sweeper: null runs nothing; use hydra/sweeper=posfuse",
}


def line_of(error: Exception) -> str:
    """One line for an error of Hydra, of OmegaConf or of a config file."""
    if isinstance(error, HydraException | OmegaConfBaseException):
        return of_no_keys(error) or of_override(error) or one_line(error)
    if isinstance(error, YAMLError | UnicodeDecodeError):
        return of_file(error)
    if isinstance(error, ValueError):
        no_names = [a for a in sys.argv if re.search(r"=([-+.\d]|(true|false|null)$)", a)]
        groups = [a for a in no_names if (CONF_DIR / a.partition("=")[0]).is_dir()]
        return ": ".join([*groups, one_line(error)])
    return of_hydra(error)


def one_line(error: BaseException, *schemas: Any) -> str:
    """The message of an error in one line, with the key in front if it is one of Hydra or
    OmegaConf. `schemas` are dataclasses in addition to those of posfuse.config."""
    if isinstance(error, OverrideParseException) and GRAMMAR.search(error.message):
        key, _, name = error.override.partition("=")
        if key in NAMES and name:
            return f"{key}: {NAME_LETTERS} (got {name!r})"
        return (
            f"{error.override}: not an override that Hydra can read; write key=value or "
            "key=value,value, and put quotes around other characters, as in 'key=\"a:b\"'"
        )
    text = str(error)
    if refused := re.match(r"InputError raised while resolving interpolation: (.*)", text):
        return refused[1]
    if isinstance(error.__cause__, OmegaConfBaseException):  # it names the key
        text = str(error.__cause__)
    key = next(iter(re.findall(r"full_key: (\S+)", text)), "")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if key:
        lines = [line for line in lines if not re.match(r"(full_key|\w+_type|hydra)\b", line)]
    message = " ".join(lines)
    for pattern, shown in SHOWN.items():
        message = re.sub(pattern, shown, message)
    if key and (extra := re.search(r"Error in call to target .* argument '(\w+)'", message)):
        return f"{key}.{extra[1]}: unknown key; remove it"
    if key and (unknown := re.search(r"Key '[^']+' (?:not in|is not in) '?(\w+)'?", message)):
        groups: Any = dataclasses.fields(config.Config)
        nested = [f"{g.name}.{key}" for g in groups if key in _fields_of(g.type.__name__, ())]
        names = _fields_of(unknown[1], schemas)
        known = (
            f"use one of {', '.join(names)}"
            if names
            else f"an option of this part needs a +, as in +{key}=VALUE"
        )
        known = f"use {' or '.join(nested)}" if nested else known
        return f"{key}: unknown key; {known}"
    where = key or getattr(error, "override", None)
    return f"{where}: {message}" if where and where not in message else message


def _fields_of(class_name: str, schemas: tuple[Any, ...]) -> list[str]:
    schema = {s.__name__: s for s in schemas}.get(class_name, getattr(config, class_name, None))
    return [f.name for f in dataclasses.fields(schema)] if dataclasses.is_dataclass(schema) else []


def of_file(error: YAMLError | UnicodeDecodeError) -> str:
    """One line for a config file that cannot be read."""
    if isinstance(error, UnicodeDecodeError):
        files = (file for file in _selected() if error.object in file.read_bytes())
        file = next(files, "a config file")
        return f"{file}: not UTF-8 (byte {error.object[error.start]:#x}); save it as UTF-8"
    if isinstance(error, MarkedYAMLError) and (mark := error.problem_mark):
        place = f"line {mark.line + 1}, column {mark.column + 1}"
        return f"{mark.name}: not YAML ({place}: {error.problem}); correct that line"
    return f"not YAML ({one_line(error)}); correct the file"


def of_no_keys(error: Exception) -> str | None:
    """One line if an override selects a config file that holds no keys, since Hydra's error does
    not name the file; otherwise None."""
    for file in _selected():
        group = file.parent.name
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
        is_empty = content is None and f"{group}.name" in str(error)
        if is_empty or isinstance(content, str | list):
            return f"{file}: holds no keys; write key: value, as in the files of {CONF_DIR / group}"
    return None


def of_override(error: Exception) -> str | None:
    """One line if a key that a run needs is missing (~data removes data.name) or a group is chosen
    twice (+fusion=add), since Hydra's error does not name the override; otherwise None."""
    if found := MISSING.search(str(error)):
        key, group = found[1], found[1].removesuffix(".name")
        fix = f"use {key}=VALUE"
        if group != key:
            fix = f"use {group}={'NAME' if group == 'data' else 'none'}"
        removing = [a for a in sys.argv if a.partition("=")[0] in (f"~{key}", f"~{group}")]
        if removing:
            return f"{removing[0]}: a run needs {key}; {fix} instead, or remove this override"
        return f"{key}: missing; set it, or {fix}"
    if found := TWICE.search(str(error)):
        group = found[1] or found[2]
        adding = [a for a in sys.argv if a.startswith(f"+{group}=")]
        if adding:
            return f"{adding[0]}: {group} has a value already; use {adding[0][1:]} without the +"
        return f"{group}: two files choose it; write `override /{group}: NAME` in the second one"
    return None


def _selected() -> list[Path]:
    """The config files that an override names: fusion=mine is fusion/mine.yaml in the folder of
    --config-dir or in conf/."""
    parser = ArgumentParser(add_help=False)
    parser.add_argument("--config-dir", "-cd")
    parser.add_argument("--cfg", "-c")  # without it, -c is an abbreviation of -cd
    given, others = parser.parse_known_args()
    pairs = [argument.lstrip("+").partition("=") for argument in others]
    names = [f"{group}/{name}.yaml" for group, _, names in pairs for name in names.split(",")]
    folders = [Path(folder).resolve() for folder in (given.config_dir, CONF_DIR) if folder]
    files = [folder / name for folder in folders for name in names]
    return [file for file in files if os.path.isfile(file)]  # False also for a name too long


def of_hydra(error: Exception) -> str:
    """One line for any other error of Hydra."""
    if lacks_memory(error):
        return NO_MEMORY
    functions = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    if functions[-1] in KEY_OF:
        return KEY_OF[functions[-1]]
    if plugin := re.match(r"(?:Invalid plugin|Unknown plugin class :) ('[^']*')", str(error)):
        kind = "launcher" if "instantiate_launcher" in functions else "sweeper"
        known = KEY_OF[f"instantiate_{kind}"].rpartition("; ")[2]
        return f"hydra.{kind}._target_: {plugin[1]} is not a {kind} of Hydra; {known}"
    return f"{type(error).__name__}: {one_line(error)}; set HYDRA_FULL_ERROR=1 to see the traceback"
