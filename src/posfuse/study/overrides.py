"""The overrides on the command line of a study: those it takes, and those its file must have."""

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from posfuse.errors import InputError
from posfuse.runs.identity import is_neutral

SET_BY_STUDY = ("seed", "experiment", "arm", "sweep_id", "output_dir", "sweep.plan")
PATH, SEARCH = "data.path=", "hydra.searchpath="


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
