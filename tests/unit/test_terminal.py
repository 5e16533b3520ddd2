"""What reports print in a narrow terminal: no line is too long and no word is broken."""

import io
import random
import re
from dataclasses import replace
from itertools import product
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from posfuse.report import formats
from posfuse.report.table import Table
from small_records import reported, write_record

FUSIONS = ("add", "concat", "gate_feature_linear_start", "gate_scalar_linear_start")
CORPORA = ("bbc_lead_paragraph", "bbc_lead_story")
COLUMNS = ["data", "encoding", "fusion", "n", "mean difference", "95 % t", "none", "verdict"]


@pytest.fixture(params=[60, 80])
def width(request, monkeypatch, tmp_path):
    """The width of the terminal; the working directory is empty."""
    monkeypatch.setenv("COLUMNS", str(request.param))
    monkeypatch.setenv("FORCE_COLOR", "1")  # as in a terminal: sentences are broken, too
    monkeypatch.delenv("TERM", raising=False)
    monkeypatch.chdir(tmp_path)
    return request.param


def words_of(text, width):
    """The words of what was printed, without control codes."""
    plain = re.sub(r"\x1b\[[\d;]*m", "", text)
    assert max(map(len, plain.splitlines())) <= width
    return plain.split()


def rows_of(table, width):
    """What a terminal of this width shows of a table."""
    console = Console(width=width, file=io.StringIO())
    console.print(formats.Fitted(table))
    text = console.file.getvalue()
    words_of(text, width)
    return [" ".join(line.split()) for line in text.splitlines() if line.strip(" ─")]


def table(columns, rows):
    return Table("name", "Title", "", columns, rows, pd.DataFrame())


WIDE = table(COLUMNS, [
    [data, "rope", f, "8", f"+{n}.83 ± 13.33", "-18.5 to +94.8", "", f"by {n} points"]
    for data, (n, f) in product(CORPORA, enumerate(FUSIONS))
])  # fmt: skip


def test_marks_in_cells_are_explained_above_the_table():
    plain = Table("n", "Title", "A caption.", ["f", "mean"], [["add", "8.20*"]], pd.DataFrame())
    marked = replace(plain, marks="* the best mean.")
    assert rows_of(marked, 80) == ["Title", "* the best mean.", "f mean", "add 8.20*"]
    assert rows_of(plain, 80) == ["Title", "f mean", "add 8.20*"]


def test_a_table_leaves_out_columns_that_say_nothing_and_states_those_of_one_value():
    lines = rows_of(WIDE, 200)
    same = "encoding rope, n 8, 95 % t -18.5 to +94.8"
    assert lines[:3] == ["Title", f"All rows: {same}.", "data fusion mean difference verdict"]
    assert lines[3] == "bbc_lead_paragraph add +0.83 ± 13.33 by 0 points"
    (_, heading, row) = rows_of(table(["a", "b", "c"], [["1", "", "x"]]), 200)
    assert (heading, row) == ("a c", "1 x")  # one row has no others


def test_rows_are_grouped_by_their_first_names_where_they_are_too_wide():
    lines = rows_of(WIDE, 60)
    assert lines[2:6] == [
        "fusion mean difference verdict", CORPORA[0],
        "add +0.83 ± 13.33 by 0 points", "concat +1.83 ± 13.33 by 1 points",
    ]  # fmt: skip
    assert lines.count(CORPORA[1]) == 1


def test_columns_that_do_not_fit_follow_below_with_the_names_again():
    lines = rows_of(WIDE, 44)
    assert lines.count("bbc_lead_story") == 2
    assert f"{FUSIONS[2]} +2.83 ± 13.33" in lines
    assert f"{FUSIONS[2]} by 2 points" in lines


def test_no_heading_is_broken_within_a_word():
    for width in range(36, 120):
        lines = " ".join(rows_of(WIDE, width)).split()
        assert {"fusion", "mean", "difference", "verdict", *FUSIONS} <= set(lines), width


def test_a_name_wider_than_the_terminal_is_broken_and_the_rest_is_there():
    lines = rows_of(table(["arm", "mean"], [["x" * 30, "1.50 ± 0.20"], ["y", "2.00"]]), 24)
    assert lines[2:] == [f"{'x' * 11} 1.50 ± 0.20", "x" * 11, "x" * 8, "y 2.00"]


def test_the_report_of_a_sweep_fits(width, tmp_path):
    draw = random.Random(0)
    for data, fusion, seed in product(CORPORA, FUSIONS, range(3)):
        write_record(tmp_path / "mine", draw.randint(15, 38) / 40, fusion, seed, data)
    words = words_of(reported("mine"), width)
    for word in (*FUSIONS, *CORPORA, "parameters", "difference", "equiv.", "undecided"):
        assert word in words, word


def test_the_report_of_another_studys_table_fits(width):
    tasks = ("scan_addprim_jump", "cogs_structural_generalization")
    rows = [
        f"{seed},{name},{task},{50 + 7 * seed + n * seed}"
        for task, seed, (n, name) in product(tasks, range(4), enumerate(FUSIONS))
    ]
    Path("table.csv").write_text("\n".join(["seed,method,task,accuracy", *rows]))
    options = ["--by", "task", "--all-pairs", "--out", "out"]
    words = words_of(reported("--from", "table.csv", *options), width)
    for word in (*FUSIONS[2:], tasks[1], "difference", "verdict"):
        assert word in words, word
