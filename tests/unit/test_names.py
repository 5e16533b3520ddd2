"""The rule for names: which look alike, and which cannot be shown."""

import pytest

from posfuse.data.names import canonical, check_distinct, check_printable
from refusals import refusal

ALIKE = [
    ("concat", "concat "),
    ("a b", " a\t\u00a0 b\n"),
    ("concat", "con\u200bcat"),  # zero width space
    ("concat", "\ufeffconcat"),  # byte order mark
    ("concat", "\u202econcat"),  # right-to-left override
    ("é", "e\u0301"),
    ("é", "e\u200d\u0301"),  # composes once the joiner is gone
    ("fine", "\ufb01ne"),
    ("ADD", "\uff21\uff24\uff24"),  # full width
]


@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_names_that_look_alike_are_refused(one, other):
    assert canonical(one) == canonical(other) == one
    error = refusal(check_distinct, ["else", one, other], "x.csv")
    assert error.startswith("x.csv: ")
    assert "look alike but differ; write them alike" in error


def test_other_names_are_distinct_and_can_be_shown():
    check_distinct(iter(["add", "Add", "ad", "add", "a dd", "x-1", "x−1", "加", ""]), "x.csv")
    check_printable(["a b", "é", "加法", "\U0001f600", "a\u00a0b", "a\u200db", ""], "x.csv")


@pytest.mark.parametrize("letter", ["\0", "\x07", "\x1b", "\x7f", "\x85", "\udc80", "\uffff"])
def test_a_name_that_cannot_be_shown_is_refused(letter):
    error = refusal(check_printable, ["add", f"a{letter}"], "x.csv")
    assert error.startswith("x.csv: ")
    assert f"U+{ord(letter):04X}, which" in error
    error.encode()
