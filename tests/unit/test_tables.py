"""The tables: our numbers beside the paper's, paired differences, and every written format."""

import io
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from scipy import stats

from posfuse.evidence.bag_of_words import BagOfWords
from posfuse.evidence.published import Published, published_cell
from posfuse.report import formats
from posfuse.report.sections import by_document, differences
from posfuse.report.sections.paper import MARK, paper_tables
from posfuse.report.table import Table, narrow
from posfuse.statistics import paired as st
from posfuse.statistics.comparisons import Criteria, in_families, judge
from small_records import reported

ARXIV = pd.DataFrame(
    [
        ("sinusoidal", "add", 59.5, 0.4),
        ("sinusoidal", "concat", 50.0, 0.4),
        ("rope_features", "add", 58.0, 2.0),
        ("rope_features", "concat", 64.0, 2.0),
    ],
    columns=["encoding", "fusion", "mean", "std"],
).assign(
    data="arxiv", variant="", n=5, latency_mean=0.5, latency_std=0.1, parameters=1000,
    fusion_parameters=10,
)  # fmt: skip
BAGS = {("arxiv", ""): BagOfWords(71.25, 2500)}


def tables_of(cells, bags):
    return {table.name: table for table in paper_tables(cells, bags)}


def test_what_the_paper_does_not_print_is_none():
    for cell in (
        "1 agnews learned add", "1 bbc_article sinusoidal add", "1 seeds sinusoidal add",
        "1 agnews sinusoidal gate_cnn", "2 imdb sinusoidal add", "2 arxiv sinusoidal encoding",
        "3 arxiv seeds add", "3 agnews sinusoidal add", "3 arxiv alibi add",
    ):  # fmt: skip
        table, *names = cell.split()
        assert published_cell(int(table), *names) is None, cell


def test_disagreement_is_welchs_test():
    theirs = Published(60.0, 1.0, 5)
    for mean in (60.9, 61.5, 62.7, 63.1, 64.0):
        test = stats.ttest_ind_from_stats(mean, 2.0, 4, 60.0, 1.0, 5, equal_var=False)
        assert theirs.disagrees(mean, 2.0, 4) == (test.pvalue < 0.05) == (mean > 63)


def test_one_seed_disagrees_outside_the_prediction_interval():
    theirs = Published(60.0, 1.0, 5)
    reach = 2.776445 * np.sqrt(1.2)  # t(4) at 97.5 %
    assert not theirs.disagrees(60 + reach - 0.001, np.nan, 1)
    assert theirs.disagrees(60 + reach + 0.001, np.nan, 1)
    assert not Published(62.0, np.nan, 3).disagrees(10.0, 1.0, 5)


def test_table_1_has_ours_theirs_and_a_bag_of_words():
    table = tables_of(ARXIV, BAGS)["table1"]
    assert table.columns == ["data", "from", "add", "concat"]
    assert table.rows == [
        ["arxiv", "posfuse", "59.50 ± 0.40 (5)", f"50.00 ± 0.40 (5){MARK}"],
        ["arxiv", "published", "59.22 ± 0.32 (5)", "63.44 ± 0.28 (5)"],
        ["arxiv", "bag of words", "71.25", "71.25"],
    ]
    first = table.numbers.iloc[0]
    assert (first["published_mean"], first["published_std"]) == (59.22, 0.32)
    assert table.numbers["disagrees"].tolist() == [False, True]
    assert table.marks.startswith("† differs")
    assert table.marks in table.caption


def test_table_2_has_latency_and_table_3_every_encoding():
    tables = tables_of(ARXIV, BAGS)
    assert tables["table2"].rows[0] == [
        "arxiv", "add", "59.50 ± 0.40 (5)", "62.00 (3)", "0.500 ± 0.100 (5)", "lowest, 892 ms",
        "1,000", "10",
    ]  # fmt: skip
    changed = tables_of(ARXIV.assign(variant="lr=1"), {})["table2"]  # not as in the paper
    assert changed.rows[0][3:6] == ["", "0.500 ± 0.100 (5)", ""]
    rows = tables["table3"].rows
    assert [row[:3] for row in rows] == [
        ["arxiv", e, s]
        for e in ("sinusoidal", "rope_features")
        for s in ("posfuse", "published", "bag of words")
    ]
    assert rows[4][3] == "58.47 ± 2.58 (5)"
    assert published_cell(3, "arxiv", "relative_table", "gate_mlp") == Published(65.23, 2.34, 5)


def test_a_task_has_a_row_for_the_bag_with_the_first_and_last_symbol():
    frame = pd.concat([ARXIV, ARXIV.assign(data="even_pairs")], ignore_index=True)
    bags = {**BAGS, ("even_pairs", ""): BagOfWords(54.6, 2000, 100.0)}
    tables = tables_of(frame, bags)
    named = "bag of words, first and last symbol"
    rows = [row[:3] for row in tables["table1"].rows if "bag" in row[1]]
    assert rows == [["arxiv", "bag of words", "71.25"], ["even_pairs", "bag of words", "54.60"],
                    ["even_pairs", named, "100.00"]]  # fmt: skip
    plain = tables_of(frame, BAGS)
    assert f"{named}: the pair" in tables["table1"].caption
    assert named not in plain["table1"].caption
    for name in ("table1", "table2", "table3"):
        assert "bag_with_ends" in tables[name].numbers
        assert "bag_with_ends" not in plain[name].numbers


NASTY = Table(
    "nasty", "Title_1 50% & {more} <b>", "Caption $x^2$ \\ ~ # | † ±", ["na_me", "±"],
    [["a|b <i>&amp;*_`$\\", "+1.50 ± 0.20"], ["$HOME {x} #1 ~ ^", "-2.00 ± 0.10"]],
    pd.DataFrame(),
)  # fmt: skip


def test_markdown_escapes_pipes_and_tags():
    lines = [line for line in formats.markdown(NASTY).splitlines() if line.startswith("|")]
    assert len(lines) == 4
    for line in lines:
        assert len(re.findall(r"(?<!\\)\|", line)) == 3
    assert r"\<i>" in lines[2]


def test_latex_escapes_and_has_booktabs_rules():
    text = formats.latex(NASTY)
    rules, texts = (r"\toprule", r"\bottomrule"), (r"na\_me", r"$+1.50$ $\pm$ 0.20")
    for part in (*rules, *texts, r"\textbackslash{}", r"amp;{*}\_"):
        assert part in text
    assert text.count("&") - text.count(r"\&") == 3  # a separator a row


def test_the_terminal_shows_markup_as_text():
    table = Table("t", "[red]t[/]", "", ["[bold]c"], [["[/nonsense]"]], pd.DataFrame())
    console = Console(width=80, file=io.StringIO())
    console.print(formats.Fitted(table))
    words = console.file.getvalue().split()
    assert {"[red]t[/]", "[bold]c", "[/nonsense]"} <= set(words)


FORMULAS = ["=1", "+1+1", "-1-1", "-cmd", "@x", "\t=1", "\n=1", "\uff1d1", "+1 +x", "--1"]
NO_FORMULAS = ["-1.5", "+2", "-1e-05", "-1 2 -3.5", "-inf", "+nan 1", "a=1", "1+1", "", "[-1]"]


def test_a_csv_file_has_no_formulas_and_its_numbers_are_numbers(tmp_path):
    path = tmp_path / "t.csv"
    frame = pd.DataFrame({"=x": FORMULAS, "y": -1 / 3, "-z": [-1, -2.5, "-3", 4, 5] * 2})
    formats.write_csv(frame, path)
    written = pd.read_csv(path, keep_default_na=False)
    assert written.columns.tolist() == ["'=x", "y", "'-z"]
    assert [cell[0] for cell in written["'=x"]] == ["'"] * len(FORMULAS)
    assert written["y"].tolist() == [-1 / 3] * len(FORMULAS)
    assert written["'-z"].tolist() == [-1, -2.5, -3, 4, 5] * 2
    formats.write_csv(pd.DataFrame({"x": ["a\r=1", "\r=1"]}), path)
    assert pd.read_csv(path)["x"].tolist() == ["a\\r=1", "\\r=1"]
    formats.write_csv(pd.DataFrame({"x": NO_FORMULAS}), path)
    assert pd.read_csv(path, keep_default_na=False, dtype=str)["x"].tolist() == NO_FORMULAS


def test_every_csv_file_of_a_report_or_study_is_written_by_one_function():
    source = Path(formats.__file__).parents[1]
    paths = [path for room in ("report", "study") for path in (source / room).rglob("*.py")]
    assert [path.name for path in paths if "to_csv(" in path.read_text()] == ["formats.py"]


def test_a_narrowed_table_names_what_all_rows_have_in_its_caption():
    def narrowed(columns, rows):
        return narrow(Table("t", "T", "Points.", columns, rows, pd.DataFrame()))

    rows = [["tiny", "add", "undecided", "3", ""], ["tiny", "mlp", "undecided", "3", ""]]
    found = narrowed(["data", "fusion", "verdict", "n", "note"], rows)
    assert found.columns == ["fusion", "verdict"]  # the verdict stays
    assert found.rows == [["add", "undecided"], ["mlp", "undecided"]]
    assert found.caption == "All rows: data tiny, n 3. Points."
    numbers = [["tiny", "1"], ["tiny", "2"]]  # without the first column, only numbers would remain
    assert narrowed(["data", "n"], numbers).rows == numbers
    twice = [["a", "1", "1"], ["b", "1", "2"]]  # two columns may have one heading
    assert narrowed(["x", "95 % t", "95 % t"], twice).rows == [["a", "1"], ["b", "2"]]


CELL = {"data": "tiny", "encoding": "sinusoidal", "fusion": "concat", "variant": ""}


def column(table, name):
    return [row[table.columns.index(name)] for row in table.rows]


def test_equivalence_over_documents_is_the_90_percent_interval_inside_the_margin():
    ends = [(-0.4, 0.4), (-0.6, 0.4), (-0.4, 0.6), (-0.5, 0.4), (np.nan, np.nan)]
    frame = pd.DataFrame(
        {
            **CELL, "document_seeds": [0, 1], "n_documents": 1200, "n_groups": groups,
            "documents_mean": 0.1, "documents_low": -3.0, "documents_high": 3.0,
            "documents_low_90": low, "documents_high_90": high, "p_mcnemar": [0.5, 0.04],
        }
        for (low, high), groups in zip(ends, (1200, 323, 1200, 1200, 1200), strict=True)
    )  # fmt: skip
    table = by_document.documents_table(frame, Criteria(margin=0.5))
    assert column(table, "equivalent") == ["yes", "no", "no", "no", ""]
    assert column(table, "documents") == ["1,200", "1,200 (323)", "1,200", "1,200", "1,200"]
    assert column(table, "90 %")[0] == "-0.40 to +0.40"
    assert table.numeric[table.columns.index("documents")]
    assert "within ±0.5 points" in table.caption
    wide = by_document.documents_table(frame, Criteria(margin=1))
    assert column(wide, "equivalent") == ["yes", "yes", "yes", "yes", ""]


def compared(deltas, criteria):
    """The rows of `compare`, from the differences of each fusion."""
    rows = [{**CELL, "fusion": fusion, **judge(d, criteria)} for fusion, d in deltas.items()]
    same = {"table": "Sinusoidal", "other_settings": "same"}
    return in_families(pd.DataFrame(rows).assign(**same), criteria)


def test_exploratory_rows_have_unadjusted_p_values_that_are_marked():
    deltas = {"concat": [3.0, 3.5, 4.0], "mul": [0.9, 3.0, 2.0], "none": [1.0]}
    criteria = Criteria(primary=("concat",))
    frame = compared(deltas, criteria)
    table = differences.short_table(frame, criteria)
    p = [f"{st.p_paired_t(deltas[name]):.3f}" for name in ("concat", "mul")]
    q = [f"{st.p_equivalence(deltas[name], 0.5):.3f}" for name in ("concat", "mul")]
    assert column(table, "p Holm") == [p[0], f"{p[1]} (unadj.)", ""]
    assert column(table, "p equiv.") == [q[0], f"{q[1]} (unadj.)", ""]
    assert column(table, "verdict") == ["ahead", "exploratory", "exploratory"]
    assert table.numeric[table.columns.index("p Holm")]
    assert "exploratory: not in the sweep's primary family (concat)" in table.caption
    tests = differences.tests_table(frame, criteria)
    assert column(tests, "p t") == [*p, ""]
    assert column(tests, "p Holm") == [p[0], "", ""]
    assert "over the 1 comparisons of the family" in tests.caption
    every = compared(deltas, Criteria())
    assert "exploratory" not in differences.short_table(every, Criteria()).caption


@pytest.mark.parametrize(
    ("scale", "shown"), [(1e90, "+1.2000e+91"), (1e-90, "+1.2000e-89"), (1e5, "+1200000.00")]
)
def test_a_long_number_is_in_scientific_notation(scale, shown, tmp_path):
    by_seed = [(seed, noise) for seed, noise in enumerate((-1.0, 0.0, 1.0))]
    rows = [(s, m, scale * (7 + s + (12 + n / 2) * (m == "b"))) for s, n in by_seed for m in "ab"]
    frame = pd.DataFrame(rows, columns=["seed", "method", "loss"])
    frame.to_csv(tmp_path / "mine.csv", index=False)
    options = ["--from", tmp_path / "mine.csv", "--value", "loss", "--unit", "raw"]
    options += ["--margin", scale / 10, "--all-pairs", "--out", tmp_path]
    printed = reported(*options, draw=True)
    assert f"ahead: mine: b - a: {shown} (" in printed
    page = (tmp_path / "index.html").read_text()
    assert f'<td class="number">{shown}</td>' in page
    table = (tmp_path / "tables" / "rankings.md").read_text()
    assert f"{shown} [" in page  # in the figure
    assert not re.search(r"\d{12}", printed + table)
