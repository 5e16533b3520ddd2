"""The folders with config files of the user: those of --config-dir and of hydra.searchpath."""

from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from posfuse.config import CONF_DIR
from posfuse.errors import InputError
from posfuse.process.arguments import split

OPTION, SHORT, SEARCH = "--config-dir", "-cd", "hydra.searchpath="
FILE, PACKAGE = "file://", "pkg://"  # Hydra's notation of a folder, and of a package


def check_config_folders(arguments: list[str]) -> None:
    """Raise InputError if the arguments of posfuse train name a folder that does not exist, or one
    with a file that Hydra would ignore. Hydra only warns. Other addresses are not checked."""
    overrides, options = split(arguments)
    given = [(OPTION, folder) for folder in _values(options)]
    given += [(SEARCH.removesuffix("="), folder) for folder in split_searchpath(overrides)[0]]
    for key, folder in given:
        if "://" not in folder or folder.startswith((FILE, PACKAGE)):
            config_folder(key, Path(), folder)


def _values(options: list[str]) -> list[str]:
    """The values of --config-dir, which may be shortened."""
    folders = []
    for word, after in pairwise([*options, ""]):
        name, equals, value = word.partition("=")
        if name == SHORT or (name.startswith("--config-d") and OPTION.startswith(name)):
            folders.append(value if equals else after)
    return folders


def config_folder(key: str, start: Path, folder: str) -> str:
    """A folder of config files, or that of a package (`pkg://name`), as an absolute path. Raises
    InputError, which names the key, if there is no such folder, or if Hydra would ignore one of
    its files."""
    path = start / folder.removeprefix(FILE)
    if folder.startswith(PACKAGE):
        path = _package_folder(key, folder.removeprefix(PACKAGE).replace("/", "."))
    if not path.is_dir():
        raise InputError(f"{key}: no folder {path.resolve()}; name another folder")
    _refuse_ignored(path)
    return str(path.resolve())


def _refuse_ignored(folder: Path) -> None:
    """Raise InputError if conf/ has another file with the path of a file in this folder, because
    Hydra reads conf/ first. Files of studies are not read by Hydra."""
    for file in sorted(CONF_DIR.rglob("*.yaml")):
        place = file.relative_to(CONF_DIR)
        own, is_study = folder / place, place.parts[0] == "study"
        if not is_study and own.is_file() and own.read_bytes() != file.read_bytes():
            raise InputError(
                f"{own}: Hydra reads posfuse's own conf/{place.as_posix()} instead; rename this "
                "file, and its key name if it has one"
            )


def _package_folder(key: str, name: str) -> Path:
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise InputError(f"{key}: no package {name!r}; name another package or a folder")
    return Path(next(iter(spec.submodule_search_locations)))


def split_searchpath(extra: list[str]) -> tuple[list[str], list[str]]:
    """The folders that hydra.searchpath=[...] names, and the other overrides. Raises InputError if
    it is not such a list."""
    given = [o for o in extra if o.startswith(SEARCH)]
    folders = []
    for override in given:
        try:
            value = OverridesParser.create().parse_override(override).value()
        except HydraException:
            value = None
        if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
            raise InputError(f"{override}: must be a list of folders, such as {SEARCH}[my_conf]")
        folders += value
    return folders, [o for o in extra if o not in given]
