"""Reads the YAML file of a study and checks it. Nothing is composed or run."""

import re
from collections.abc import Sequence
from pathlib import Path

from posfuse.config import CONF_DIR
from posfuse.errors import InputError
from posfuse.limits import check_name
from posfuse.runs.schemas import Problems, read_as, refuse
from posfuse.study.spec import Study
from posfuse.study.study_checks import check_study

# The endings of the names of a study's sweeps, or the beginnings of these endings.
SWEEPS = re.compile(r"_(tune|test|timing|r\d+|r\d+_null)$")


def read_study(name: str, searchpath: Sequence[str] = ()) -> tuple[str, Study]:
    """The name and the content of a study: NAME, or a path to a file. Raises InputError, which
    names the file and the key.

    `searchpath` are absolute folders with the user's config files, in addition to those that the
    file names. NAME.yaml is in conf/study, in the current folder, or in one of these or its study/.
    """
    path = Path(name)
    if path.suffix not in (".yaml", ".yml"):
        given = [Path(folder.removeprefix("file://")) for folder in searchpath]
        places = [CONF_DIR / "study", Path(), *given, *(folder / "study" for folder in given)]
        files = (place / f"{name}.yaml" for place in places)
        if (path := next(filter(Path.is_file, files), path)) == Path(name):
            known = [p.stem for p in sorted((CONF_DIR / "study").glob("*.yaml"))]
            listed = ", ".join([*known, f"{name}.yaml in this folder or in --config-dir"])
            raise InputError(f"{name}: no such study; use one of {listed}")
    study = read_as(Study, path)
    problems = Problems()
    if SWEEPS.search(path.stem):
        problems.append("the file's name: must not end in _tune, _test, _timing or _r1; rename it")
    problems.check(check_name, "the file's name", path.stem)
    own = [problems.check(config_folder, "searchpath", path.parent, f) for f in study.searchpath]
    study.searchpath = [*filter(None, own), *searchpath]
    check_study(study, problems)
    if problems:
        refuse(str(path), problems)
    return path.stem, study


def config_folder(key: str, start: Path, folder: str) -> str:
    """A folder of config files as an absolute path; `pkg://name` is not changed. Raises InputError,
    which names the key, if there is no such folder."""
    path = (start / folder.removeprefix("file://")).resolve()
    if folder.startswith("pkg://"):
        return folder
    if not path.is_dir():
        raise InputError(f"{key}: no folder {path}; name another")
    return str(path)
