"""Tables for the terminal and as CSV, Markdown and LaTeX files."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd
from pandas.api.types import is_numeric_dtype
from rich import box
from rich.table import Table as RichTable
from rich.text import Text

from posfuse.report.table import Table

LATEX = {
    "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}",
    "<": "$<$", ">": "$>$", "|": r"\textbar{}", "±": r"$\pm$", "†": r"$^\dagger$",
    "‡": r"$^\ddagger$",
}  # fmt: skip
ROWS_ON_A_PAGE = 30
# The first letters of a formula; the last four are as wide as Chinese letters.
FORMULA = ("=", "+", "-", "@", "\t", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
NUMBER = r"[+-]?(\d+\.?\d*(e[+-]?\d+)?|inf|nan)"
DOCUMENT = r"""% To \input one table elsewhere: \usepackage{{booktabs, longtable}}
\documentclass{{article}}
\usepackage[a4paper, landscape, margin=12mm]{{geometry}}
\usepackage{{booktabs, longtable}}
\begin{{document}}
\footnotesize\setlength{{\tabcolsep}}{{3.5pt}}
{tables}
\end{{document}}
"""


def terminal(table: Table) -> RichTable:
    """Numbers are aligned right; a line separates the groups of the first column."""
    title = Text(table.title)
    shown = RichTable(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column, numeric in zip(table.columns, table.numeric, strict=True):
        shown.add_column(
            Text(column), justify="right" if numeric else "left", overflow="fold", no_wrap=numeric
        )
    for row, following in zip(table.rows, [*table.rows[1:], None], strict=True):
        ends = following is not None and following[0] != row[0]
        shown.add_row(*map(Text, row), end_section=ends)
    return shown


def markdown(table: Table) -> str:
    """A GitHub table between its title and its caption."""
    lines = [_pipes(table.columns), _pipes(["---"] * len(table.columns)), *map(_pipes, table.rows)]
    return "\n".join([f"**{table.title}**", "", *lines, "", table.caption, ""])


def _pipes(cells: Iterable[str]) -> str:
    lines = (" ".join(cell.split()) for cell in cells)  # a row is one line
    escaped = (re.sub(r"([\\|<*_`\[\]&])", r"\\\1", cell) for cell in lines)
    return f"| {' | '.join(escaped)} |"


def latex(table: Table) -> str:
    """A booktabs tabular for \\input; a longtable if it may be longer than a page."""
    kinds = "".join("r" if numeric else "l" for numeric in table.numeric)
    long = len(table.rows) > ROWS_ON_A_PAGE
    environment = "longtable" if long else "tabular"
    lines = [rf"\begin{{{environment}}}{{{kinds}}}", r"\toprule", _ampersands(table.columns)]
    lines.append(r"\midrule\endhead" if long else r"\midrule")
    for row, previous in zip(table.rows, [None, *table.rows], strict=False):
        if previous is not None and previous[0] != row[0]:
            lines.append(r"\addlinespace")
        lines.append(_ampersands(row))
    return "\n".join([*lines, r"\bottomrule", rf"\end{{{environment}}}", ""])


def latex_document(tables: Iterable[Table]) -> str:
    """A document that inputs the files of all tables, with their titles and captions."""
    texts = []
    for table in tables:
        put = rf"\input{{{table.name}.tex}}"
        text = rf"\textbf{{{_latex(table.title)}}} {_latex(table.caption)}"
        if len(table.rows) > ROWS_ON_A_PAGE:
            texts.append(rf"\clearpage\noindent {text}\par {put}")
        else:
            texts.append(
                rf"\begin{{table}}[p]\centering {put}\par\medskip"
                rf"\parbox{{0.9\linewidth}}{{{text}}}\end{{table}}"
            )
    return DOCUMENT.format(tables="\n\n".join(texts))


def _ampersands(cells: Iterable[str]) -> str:
    return " & ".join(map(_latex, cells)) + r" \\"


def _latex(text: str) -> str:
    escaped = "".join(LATEX.get(letter, letter) for letter in text)
    return re.sub(r"(?<![\w.$])([+-][\d.,]+)", r"$\1$", escaped)  # a real minus sign


def write_csv(frame: pd.DataFrame, path: Path) -> None:
    """Write a CSV file in which a spreadsheet finds no formula."""
    safe = frame.apply(lambda cells: cells if is_numeric_dtype(cells) else cells.map(_no_formula))
    safe.rename(columns=_no_formula).to_csv(path, index=False)


def _no_formula(cell: Any) -> Any:
    """Put an apostrophe before a text that starts like a formula, but not before numbers such as
    "-1 2". A carriage return, which would start a row, is written as \\r."""
    if not isinstance(cell, str):
        return cell
    cell = cell.replace("\r", "\\r")
    if not cell.startswith(FORMULA):
        return cell
    return cell if re.fullmatch(f"{NUMBER}( {NUMBER})*", cell, re.ASCII) else f"'{cell}"


def write_tables(tables: list[Table], folder: Path) -> None:
    """Write NAME.csv, NAME.md and NAME.tex of each table, and tables.tex with all of them."""
    folder.mkdir(parents=True, exist_ok=True)
    for table in tables:
        write_csv(table.numbers, folder / f"{table.name}.csv")
        (folder / f"{table.name}.md").write_text(markdown(table), encoding="utf-8")
        (folder / f"{table.name}.tex").write_text(latex(table), encoding="utf-8")
    (folder / "tables.tex").write_text(latex_document(tables), encoding="utf-8")
