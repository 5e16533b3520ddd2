"""The limits of a config's fields: declared with the field, checked, and described in words."""

import dataclasses
import math
import re
import typing
from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from posfuse.errors import InputError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]*")
NAME_LETTERS = "must be a folder name of letters (A-Z, a-z), digits and _.-"


def option(default: Any, meaning: str, **limits: Any) -> Any:
    """A field with its meaning and its limits: `least` and `most` (inclusive), `above` and `below`
    (exclusive), `choices`, or `check`, a function of the key and the value."""
    metadata = {"meaning": meaning, **limits}
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


def one_of(meaning: str, *choices: str) -> Any:
    """A field with one of these values, the first by default."""
    return option(choices[0], meaning, choices=choices)


def check_limits(node: Any, prefix: str = "") -> None:
    """Raise InputError for the first value of a config that is outside its field's limits."""
    for f in dataclasses.fields(node):
        key, value = f"{prefix}{f.name}", getattr(node, f.name)
        if dataclasses.is_dataclass(value):
            check_limits(value, f"{key}.")
        elif value is None and type(None) in typing.get_args(f.type):
            continue
        elif check := f.metadata.get("check"):
            check(key, value)
        elif (limits := limits_of(f.metadata)) and (
            (f.type is Any and isinstance(value, list)) or not _is_within(value, f.metadata)
        ):
            raise InputError(f"{key}: must be {limits} (got {_text(value)})")


def check_name(key: str, name: Any) -> None:
    """Raise InputError unless `name` can be the name of a folder on every file system."""
    if not isinstance(name, str):  # the name in fusion is untyped
        raise InputError(f"{key}: must be a string (got {name!r}); for example {key}=my_name")
    if not NAME.fullmatch(name):
        raise InputError(f"{key}: {NAME_LETTERS} (got {name!r})")


def check_project(key: str, name: str) -> None:
    """Raise InputError for a name that W&B refuses when a run starts."""
    if not re.fullmatch(r"[^/\\#?%:]{1,128}", name):
        raise InputError(
            f"{key}: must be a name of 1 to 128 characters without /\\#?%: (got {name!r})"
        )


def check_tags(key: str, tags: list[str]) -> None:
    """Raise InputError for an empty tag, which W&B refuses when a run starts."""
    if not all(tags):
        raise InputError(f"{key}: has an empty tag; remove it")


def check_folder(key: str, folder: str) -> None:
    """Raise InputError for an empty name and for the root of the file system. An unset shell
    variable can give both."""
    place = Path(folder).resolve()
    if not folder.strip() or place == Path(place.anchor):
        what = "the root of the file system" if folder.strip() else "empty"
        raise InputError(f"{key}: {folder!r} is {what}; name a folder with {key}=FOLDER")


def meanings(part: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Each key of a config, or of a part of it, with its meaning."""
    for f in dataclasses.fields(part):
        yield prefix + f.name, f.metadata.get("meaning", "")
        if dataclasses.is_dataclass(f.type):
            yield from meanings(f.type, f"{prefix}{f.name}.")


def limits_of(metadata: Mapping[str, Any]) -> str:
    """A field's limits in words: "adamw or adam", "at least 0 and below 1"; "" without limits."""
    named = list(metadata.get("choices", ()))
    bounds = {"least": "at least", "above": "above", "most": "at most", "below": "below"}
    given = {bound: _text(metadata[bound]) for bound in bounds if bound in metadata}
    if given.keys() == {"least", "most"}:
        named.append(f"between {given['least']} and {given['most']}")
    elif given:
        named.append(" and ".join(f"{bounds[bound]} {limit}" for bound, limit in given.items()))
    comma = "," if len(named) > 2 else ""
    return f"{', '.join(named[:-1])}{comma} or {named[-1]}" if len(named) > 1 else "".join(named)


def _text(value: Any) -> str:
    """1e-06 as 1e-6, 1000000.0 as 1e6, 0.0 as 0."""
    if not isinstance(value, float):
        return str(value)
    return re.sub(r"e([+-])0*", r"e\1", f"{value:g}").replace("e+", "e")


def _is_within(value: Any, metadata: Mapping[str, Any]) -> bool:
    if isinstance(value, str):
        return value in metadata.get("choices", ())
    if isinstance(value, list):
        return all(_is_within(item, metadata) for item in value)
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and metadata.get("least", value) <= value <= metadata.get("most", value)
        and metadata.get("above", -math.inf) < value < metadata.get("below", math.inf)
    )
