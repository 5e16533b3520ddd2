"""The LaTeX files of a report compile without a change."""

import shutil
import subprocess

import pandas as pd
import pytest

from posfuse.report.formats import latex, latex_document
from posfuse.report.table import Table
from small_records import posfuse_report, write_sweep

ODD = "Caption $x^2$ \\ ~ # | † ‡ ± 50% & {more} <b> a_b"


@pytest.mark.skipif(not shutil.which("pdflatex"), reason="pdflatex is not installed")
def test_the_latex_document_of_a_report_compiles(tmp_path):
    root = write_sweep(tmp_path / "sweep", {"add": [0.5, 0.6, 0.7], "concat": [0.6, 0.65, 0.8]})
    posfuse_report(root)
    tables = root / "report" / "tables"
    odd = Table("odd", ODD, ODD, ["na_me", ODD], [[ODD, "+1.50 ± 0.20"]] * 40, pd.DataFrame())
    (tables / "odd.tex").write_text(latex(odd))
    (tables / "odd_document.tex").write_text(latex_document([odd]))
    for name in ("tables", "odd_document"):
        done = subprocess.run(
            ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", f"{name}.tex"],
            cwd=tables, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-2000:]
        assert "Overfull \\hbox" not in done.stdout
        assert (tables / f"{name}.pdf").stat().st_size > 1000
