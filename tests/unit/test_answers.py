"""The table of answers at the top of a page."""

import html
import re
from dataclasses import replace
from pathlib import Path

import pytest

from posfuse.report import page
from posfuse.report.page import EDGE, MOST, SIGNS, WIDTH, marks
from posfuse.report.sections.section import Answer, Section
from posfuse.statistics.contrasts import AHEAD, BEHIND, EQUIVALENT, REFUTED, SUPPORTED, UNDECIDED

AHEAD_BY_3 = Answer(AHEAD, "concat - add", 3.0, 2.0, 4.0, "8", "Because.", digits=1)
UNTESTED = Answer("not tested", "mul - add", 1.0, n="1")


def html_of(*answers, **options):
    section = Section(lead=["The answer."], answers=answers, **options)
    return page.page_of([section], "title", "command", [], {})


def test_intervals_share_one_axis_with_0_and_the_margin():
    """From -1 to 4: 0 is at a fifth of the inner width, 4 at its end."""
    drawn = marks([AHEAD_BY_3, UNTESTED], 1.0)
    inner = WIDTH - 2 * EDGE
    assert drawn["zero"] == pytest.approx(EDGE + inner / 5, abs=0.05)
    assert drawn["band"] == pytest.approx((EDGE, EDGE + 2 * inner / 5), abs=0.05)
    first, second = drawn["rows"]
    places = [*first["ends"], first["mean"]]
    assert places == pytest.approx([EDGE + inner * x / 5 for x in (3, 5, 4)], abs=0.05)
    assert second["ends"] is None


def test_every_verdict_has_a_sign_and_differences_of_0_have_an_axis():
    assert {AHEAD, BEHIND, EQUIVALENT, UNDECIDED, SUPPORTED, REFUTED} <= SIGNS.keys()
    zero = replace(AHEAD_BY_3, mean=0.0, low=0.0, high=0.0)
    assert marks([zero], 0.0)["rows"][0]["mean"] == EDGE


def test_a_row_has_verdict_comparison_difference_interval_and_seeds():
    html = html_of(AHEAD_BY_3, UNTESTED, margin=0.5, unit="points")
    assert "<p>The answer.</p>" in html
    first, second = re.findall(r"<tr class.*?</tr>", html, re.DOTALL)
    for part in ("▲ ahead", "concat - add", "+3.0 (+2.0 to +4.0)", "Because.", 'class="ends"'):
        assert part in first
    for part in ("details", 'class="ends"'):
        assert part not in second
    assert "difference, points" in html


def test_answers_beyond_the_first_screen_are_folded():
    answers = [replace(AHEAD_BY_3, comparison=f"operator{i} - add") for i in range(MOST + 2)]
    shown, _, folded = html_of(*answers).partition('<details class="more">')
    assert "operator17 - add" in shown
    assert "<summary>2 more rows</summary>" in folded
    assert re.findall(r"operator\d+", folded) == ["operator18", "operator19"]
    assert "more rows" not in html_of(*answers[:MOST])


def test_an_interval_much_longer_than_the_others_is_cut():
    """Two of 4 and one of 200: the drawing ends at -3 and 3, beyond the means."""
    ends = ((-1.0, 3.0), (-3.0, 1.0), (-100.0, 100.0))
    answers = [replace(AHEAD_BY_3, mean=(a + b) / 2, low=a, high=b) for a, b in ends]
    first, second, cut = marks(answers, 0.0)["rows"]
    assert cut["ends"] == (second["ends"][0], first["ends"][1]) == (EDGE, WIDTH - EDGE)
    for row in (first, second, cut):
        assert (row["is_cut_low"], row["is_cut_high"]) == (row is cut, row is cut)


def test_a_page_has_the_terms_of_the_glossary():
    """Each page stands alone, so it holds what docs/glossary.md says."""
    glossary = (Path(__file__).parents[2] / "docs" / "glossary.md").read_text()
    main = glossary.partition("Further terms")[0]
    rows = re.findall(r"^\| (\w[\w ]*) \| (.*) \|$", main, re.M)[1:]
    terms = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", html_of(AHEAD_BY_3))
    shown = [(term, html.unescape(re.sub("</?code>", "`", text))) for term, text in terms]
    assert shown == rows
    assert len(rows) == 10
