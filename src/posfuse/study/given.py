"""The arguments of posfuse study: the study's file, folders of config files, and overrides."""

from collections.abc import Sequence
from pathlib import Path

from posfuse.config import CONF_DIR
from posfuse.errors import InputError
from posfuse.runs.identity import is_neutral
from posfuse.runs.nearest import nearest

SET_BY_STUDY = ("seed", "experiment", "arm", "sweep_id", "output_dir", "sweep.plan")
PATH = "data.path="


def study_file(name: str, searchpath: Sequence[str] = ()) -> Path:
    """The file of a study: NAME, or a path to a file. NAME.yaml is in conf/study, in the current
    folder, or in a folder of `searchpath` or its study/. Raises InputError if it is in none of them
    or in several."""
    path = Path(name)
    if is_path := path.suffix in (".yaml", ".yml"):
        if path.exists():
            return path
        name = path.stem
    given = [Path(folder.removeprefix("file://")) for folder in searchpath]
    places = [CONF_DIR / "study", Path(), *given, *(folder / "study" for folder in given)]
    files = [file for place in places if (file := place / f"{name}.yaml").is_file()]
    if is_path:
        if files:
            raise InputError(f"{path}: no such file; use {name}, the name of {files[0]}")
        raise InputError(f"{path}: no such file; give its path; docs/studies.md has an example")
    if len(different := {file.resolve(): file for file in files}) > 1:
        raise InputError(
            f"{name}: several files have this name ({', '.join(map(str, different.values()))}); "
            "give the path of one"
        )
    if files:
        return files[0]
    if path.is_file():
        raise InputError(f"{path}: the name of a study's file must end in .yaml; rename it")
    known = [p.stem for p in sorted((CONF_DIR / "study").glob("*.yaml"))]
    raise InputError(
        f"{name}: no such study; {nearest(name, known)}, or write {name}.yaml in this folder or in "
        "--config-dir"
    )


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
        if "=" not in override and not override.startswith("~"):
            raise InputError(f"{override}: not an override, such as logger=none; give one study")
        if is_set_by_study(key):
            raise InputError(f"{override}: a study sets this key itself; remove it")
        if not (is_of_launcher(key) or is_neutral(key) or override.startswith(PATH)):
            raise InputError(f"{override}: would change the study; put {key} into its file instead")
