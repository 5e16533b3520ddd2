"""Readers of YAML files that users write. Their schemas are dataclasses with `Strict`, which
pydantic checks."""

import reprlib
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar, get_args, get_type_hints

from omegaconf import OmegaConf
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from posfuse.errors import InputError, input_errors
from posfuse.runs.nearest import nearest
from posfuse.untrusted import read_yaml

Schema = TypeVar("Schema")
UNKNOWN = ": unknown key; "


class Strict:
    """A part of a schema: unknown keys, NaN and infinity are errors."""

    __pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False, validate_default=True)


def requiring(*keys: str) -> ConfigDict:
    """The config of `Strict`. The JSON schema also requires these keys, although the dataclass
    has defaults for them."""
    return Strict.__pydantic_config__ | ConfigDict(json_schema_extra={"required": list(keys)})


def one_of(names: Iterable[str]) -> Any:
    """A field whose text must be one of these names."""
    return Field(pattern=f"^({'|'.join(names)})$", json_schema_extra={"enum": list(names)})


def read_as(schema: type[Schema], path: Path) -> Schema:
    """The content of a YAML file.

    Raises InputError with a line for each error of the file. Each line names the file and the key.
    A key that is missing because its name is misspelt has one line, about the unknown key.
    """
    with input_errors(f"{path}: cannot be read", "give a YAML file in UTF-8"):
        content = OmegaConf.to_container(OmegaConf.create(read_yaml(path)))
    try:
        return TypeAdapter(schema).validate_python(content)
    except ValidationError as error:
        lines = [(problem["loc"], _line(schema, **problem)) for problem in error.errors()]
        meant = {line.partition(UNKNOWN)[2] for _, line in lines}
        refuse(
            str(path),
            [
                line
                for loc, line in lines
                if f"use {_key(loc)}" not in meant or _is_given(loc, content)
            ],
        )


def refuse(file: str, problems: Iterable[str]) -> NoReturn:
    """Raise InputError with a line for each problem of a file."""
    lines = (" ".join(problem.split()) for problem in problems)
    raise InputError("\n".join(f"{file}: {line}" for line in lines)) from None


class Problems(list[str]):
    """Collects the problems of a file that its schema cannot check."""

    def check(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The result of the function. If it raises InputError, adds a problem and returns None."""
        try:
            return function(*arguments)
        except InputError as error:
            self.append(str(error))


def _line(schema: Any, loc: tuple[Any, ...], msg: str, type: str, input: Any, **more: Any) -> str:
    key, problem = _key(loc), f"{msg} (got {reprlib.repr(input)})"
    if type == "missing":
        problem = f"{msg}; add it"
    elif loc[-1:] == ("[key]",):
        key, problem = (
            _key((*loc[:-2], str(loc[-2]))),
            "in YAML this is not a text; put it in quotes",
        )
    elif type == "string_pattern_mismatch":
        names = more["ctx"]["pattern"].strip("^()$").split("|")
        problem = f"no {input!r}; {nearest(input, names)}"
    elif type == "unexpected_keyword_argument":
        for part in loc[:-1]:
            hint = get_type_hints(schema).get(part) if isinstance(part, str) else None
            schema = _dataclass_in(hint) or schema
        return f"{key}{UNKNOWN}{nearest(key, [f.name for f in fields(schema)])}"
    return f"{key}: {problem}".removeprefix(": ")


def _key(loc: tuple[Any, ...]) -> str:
    """A place in a file, such as hypotheses[0].arm."""
    return "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in loc).lstrip(".")


def _is_given(loc: tuple[Any, ...], content: Any) -> bool:
    """True if the file has this key."""
    for part in loc[:-1]:
        content = content[part]
    return loc[-1] in content


def _dataclass_in(hint: Any) -> Any:
    """The dataclass in a type such as list[Hypothesis]."""
    if is_dataclass(hint):
        return hint
    return next(filter(None, map(_dataclass_in, get_args(hint))), None)
