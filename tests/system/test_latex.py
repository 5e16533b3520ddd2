"""The LaTeX files of a report compile without a change."""

import shutil

import pandas as pd
import pytest

from posfuse.report.formats import latex, latex_document
from posfuse.report.table import Table
from processes import ended
from small_records import posfuse_report, write_sweep

ODD = "Caption $x^2$ \\ ~ # | † ‡ ± 50% & {more} <b> a_b"


@pytest.mark.skipif(not shutil.which("pdflatex"), reason="pdflatex is not installed")
def test_the_latex_document_of_a_report_compiles(tmp_path):
    root = write_sweep(tmp_path / "sweep", {"add": [0.5, 0.6, 0.7], "concat": [0.6, 0.65, 0.8]})
    posfuse_report(root)
    tables = root / "report" / "tables"
    odd = Table("odd", ODD, ODD, ["na_me", ODD], [[ODD, "+1.50 ± 0.20"]] * 40, pd.DataFrame())
    # A rule, and the end of a row, take "[" for an argument, and the end of a row takes "*".
    first = [[start, "1"] for start in ("[0, 128)", "[128, 512)", "* all", "** none")]
    starts = Table("starts", "Bins", "", ["[bin", "value"], first, pd.DataFrame())
    long = Table("long", "Bins", "", ["[bin", "value"], first * 10, pd.DataFrame())
    names = ", ".join(f"lead_story_{n} sinusoidal gate_scalar" for n in range(12))
    heads = [f"a long heading {i}" for i in range(16)]
    wide = Table("wide", "W", "", ["arms", *heads], [[names, *["+12.50"] * 16]] * 3, pd.DataFrame())
    letters = "α ≤5 中文 😀 “é” – ß «» ðþ ą e\u0301\u200b"  # and an invisible one
    foreign = Table("foreign", letters, letters, [letters, "n"], [[letters, "1"]], pd.DataFrame())
    for table in (odd, starts, long, wide, foreign):
        (tables / f"{table.name}.tex").write_text(latex(table))
    (tables / "odd_tables.tex").write_text(latex_document([odd, starts, long, wide, foreign]))
    for name in ("tables", "odd_tables"):
        argv = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", f"{name}.tex"]
        done = ended(argv, tables)
        assert done.returncode == 0, done.stdout[-2000:]
        assert "Overfull \\hbox" not in done.stdout
        assert (tables / f"{name}.pdf").stat().st_size > 1000
