"""The arguments of posfuse study: the study's file, folders of config files, and overrides."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from posfuse.config import CONF_DIR
from posfuse.errors import InputError
from posfuse.runs.identity import is_neutral
from posfuse.runs.nearest import nearest

PACKAGE = "pkg://"  # Hydra's notation of a package of config files
SET_BY_STUDY = ("seed", "experiment", "arm", "sweep_id", "output_dir", "sweep.plan")
PATH, SEARCH = "data.path=", "hydra.searchpath="


def study_file(name: str, searchpath: Sequence[str] = ()) -> Path:
    """The file of a study: NAME, or a path to a file. NAME.yaml is in conf/study, in the current
    folder, or in a folder of `searchpath` or its study/. Raises InputError if it is in none of them
    or in several."""
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        if not path.exists():
            raise InputError(f"{path}: no such file; docs/studies.md has an example")
        return path
    given = [Path(folder.removeprefix("file://")) for folder in searchpath]
    places = [CONF_DIR / "study", Path(), *given, *(folder / "study" for folder in given)]
    files = [file for place in places if (file := place / f"{name}.yaml").is_file()]
    if len(different := {file.resolve(): file for file in files}) > 1:
        raise InputError(
            f"{name}: several files have this name ({', '.join(map(str, different.values()))}); "
            "give the path of one"
        )
    if files:
        return files[0]
    known = [p.stem for p in sorted((CONF_DIR / "study").glob("*.yaml"))]
    raise InputError(
        f"{name}: no such study; {nearest(name, known)}, or write {name}.yaml in this folder or in "
        "--config-dir"
    )


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


def is_of_launcher(key: str) -> bool:
    """True if an override with this key chooses or sets the launcher."""
    return key == "hydra/launcher" or key.startswith("hydra.launcher.")


def is_set_by_study(key: str) -> bool:
    """True if a study sets this key itself, so a user cannot set it."""
    return key in SET_BY_STUDY or (key.startswith("hydra") and not is_of_launcher(key))


def check_extra(extra: list[str]) -> None:
    """Raise InputError for overrides on the command line that would change a number of the study's
    runs. data.path is allowed, because a folder's name differs between machines and the plan has a
    digest of its texts."""
    for override in extra:
        key = override.lstrip("+~").partition("=")[0]
        if override.startswith("-"):
            raise InputError(f"{override}: unknown option; posfuse study --help shows all")
        if is_set_by_study(key):
            raise InputError(f"{override}: a study sets this key itself; remove it")
        if not (is_of_launcher(key) or is_neutral(key) or override.startswith(PATH)):
            raise InputError(f"{override}: would change the study; put {key} into its file instead")


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
