"""Finds the file of a study and the folders of the user's config files."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from posfuse.config import CONF_DIR
from posfuse.errors import InputError

PACKAGE = "pkg://"  # Hydra's notation of a package of config files


def study_file(name: str, searchpath: Sequence[str] = ()) -> Path:
    """The file of a study: NAME, or a path to a file. NAME.yaml is in conf/study, in the current
    folder, or in a folder of `searchpath` or its study/. Raises InputError if it is in none."""
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        if not path.exists():
            raise InputError(f"{path}: no such file; docs/studies.md has an example")
        return path
    given = [Path(folder.removeprefix("file://")) for folder in searchpath]
    places = [CONF_DIR / "study", Path(), *given, *(folder / "study" for folder in given)]
    for file in (place / f"{name}.yaml" for place in places):
        if file.is_file():
            return file
    known = [p.stem for p in sorted((CONF_DIR / "study").glob("*.yaml"))]
    listed = ", ".join([*known, f"{name}.yaml in this folder or in --config-dir"])
    raise InputError(f"{name}: no such study; use one of {listed}")


def config_folder(key: str, start: Path, folder: str) -> str:
    """A folder of config files, or that of a package (`pkg://name`), as an absolute path. Raises
    InputError, which names the key, if there is no such folder."""
    path = start / folder.removeprefix("file://")
    if folder.startswith(PACKAGE):
        path = _package_folder(key, folder.removeprefix(PACKAGE).replace("/", "."))
    if not path.is_dir():
        raise InputError(f"{key}: no folder {path.resolve()}; name another")
    return str(path.resolve())


def _package_folder(key: str, name: str) -> Path:
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise InputError(f"{key}: no package {name!r}; name another, or a folder")
    return Path(next(iter(spec.submodule_search_locations)))
