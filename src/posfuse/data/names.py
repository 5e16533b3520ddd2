"""Checks of names that users give: methods, groups, labels."""

import re
import unicodedata
from collections.abc import Iterable

from posfuse.errors import InputError

# Control characters, halves of a surrogate pair, and characters that XML cannot contain.
NOT_SHOWN = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def canonical(name: str) -> str:
    """A form that is equal for two names that look alike.

    It is the name in Unicode's form NFKC, without invisible characters (category Cf), with one
    blank for any white space inside and none around.
    """
    shown = "".join(letter for letter in name if unicodedata.category(letter) != "Cf")
    return " ".join(unicodedata.normalize("NFKC", shown).split())


def check_distinct(names: Iterable[str], where: str) -> None:
    """Raises InputError for two names that differ but look alike. `where` names their place."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(canonical(name), name)
        if other != name:
            raise InputError(
                f"{where}: {_spelling(other)} and {_spelling(name)} look alike but differ; write "
                "them alike, or rename one"
            )


def check_printable(names: Iterable[str], where: str) -> None:
    """Raises InputError for a name that no page or figure can contain."""
    for name in names:
        if hidden := NOT_SHOWN.search(name):
            raise InputError(
                f"{where}: {_spelling(name)} has the character U+{ord(hidden[0]):04X}, which "
                "cannot be shown; remove it"
            )


def _spelling(name: str) -> str:
    """The name in quotes, with the code points of its letters that are not in ASCII."""
    points = " ".join(f"U+{ord(letter):04X}" for letter in name if not letter.isascii())
    return f"{name!r} ({points})" if points else f"{name!r}"
