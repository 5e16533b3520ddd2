"""The files of classes and functions outside posfuse that a config names."""

import importlib
import inspect
import pkgutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from posfuse import seals
from posfuse.errors import LIBRARIES


def is_own(target: str) -> bool:
    """True for the import path of a class or function that is not posfuse's."""
    return not target.startswith("posfuse.")


def source_files(target: str) -> set[Path]:
    """The files that define a function, or a class and its base classes. Base classes of posfuse
    and of installed packages are left out, except those of the target's own package.

    For another callable, such as a functools.partial, the file of its module; empty without
    Python code.
    """
    part = pkgutil.resolve_name(target)
    package, files = target.partition(".")[0], {_file(part)}
    for base in inspect.getmro(part)[1:] if inspect.isclass(part) else ():
        place, file = base.__module__.partition(".")[0], _file(base)
        if place == package or (place != "posfuse" and not (file or "<").startswith(LIBRARIES)):
            files.add(file)
    if files == {None}:
        files.add(_file(importlib.import_module(target.rpartition(".")[0])))
    return {Path(file) for file in files if file is not None}


# (id of a class or function, its file) -> the object, so that no other gets its id, and the digest
_loaded: dict[tuple[int, Path], tuple[Any, str]] = {}


def code_digests(target: str) -> dict[Path, str]:
    """The digest of each of `source_files` when this process first asked for it. A file that is
    edited later does not change the code that the process has loaded."""
    part = pkgutil.resolve_name(target)
    keys = {(id(part), file) for file in source_files(target)}
    for key in keys - _loaded.keys():
        _loaded[key] = part, seals.digest(key[1])
    return {file: _loaded[part_id, file][1] for part_id, file in keys}


def _file(part: Any) -> str | None:
    with suppress(TypeError):
        return inspect.getsourcefile(part)
    return None
