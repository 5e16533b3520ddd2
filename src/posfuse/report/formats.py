"""Tables for the terminal and as CSV, Markdown and LaTeX files."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
from pandas.api.types import is_numeric_dtype
from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table as RichTable
from rich.text import Text

from posfuse.report.table import Table, narrow

LATEX = {
    "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}",
    "<": "$<$", ">": "$>$", "|": r"\textbar{}", "±": r"$\pm$", "†": r"$^\dagger$",
    "‡": r"$^\ddagger$",
    "[": "{[}", "*": "{*}",  # arguments of the rule or the end of the row before them
}  # fmt: skip
NOT_IN_PDFLATEX = re.compile("[«»ÐÞðþĄąĐđĘęĮįĸŊŋŦŧŲų]|[^\x00-\u017f–—‘’“”…]")  # without a package
ROWS_ON_A_PAGE = 30
LONG_TEXT = 40  # letters; a longer cell of a LaTeX table has several lines
GAP = 2  # between the columns of a terminal
# The first letters of a formula; the last four are as wide as Chinese letters.
FORMULA = ("=", "+", "-", "@", "\t", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
NUMBER = r"[+-]?(\d+\.?\d*(e[+-]?\d+)?|inf|nan)"
DOCUMENT = r"""% To \input one table elsewhere: \usepackage{{booktabs, longtable}}
\documentclass{{article}}
\usepackage[a4paper, landscape, margin=12mm]{{geometry}}
\usepackage{{booktabs, graphicx, longtable}}
{letters}\begin{{document}}
\newcommand{{\fitted}}[1]{{\sbox0{{#1}}\ifdim\wd0>\linewidth % smaller letters in a wide table
\resizebox{{\linewidth}}{{!}}{{\usebox0}}\else\usebox0\fi}}
\footnotesize\setlength{{\tabcolsep}}{{3.5pt}}
{tables}
\end{{document}}
"""
LETTERS = r"""% pdflatex lacks these letters. A command such as $\alpha$ can replace a number.
\ifdefined\DeclareUnicodeCharacter % not in xelatex and lualatex
{declared}
\fi
"""


@dataclass(frozen=True)
class Fitted:
    """A table for a terminal of any width. Words are not broken.

    Columns with one text are left out. If the others are too wide, rows are grouped by their first
    names. Columns that still do not fit follow below.
    """

    table: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table, width = narrow(replace(self.table, caption="")), options.max_width
        yield Text(table.title, style="italic")
        if table.caption:  # the texts of all rows
            yield Text(table.caption.rstrip())
        if table.marks:
            yield Text(table.marks)
        names = count_names(table)
        if names > 1 and sum(least for least, _ in widths(table)) > width + GAP:
            table, names = group_rows(table, names), 1
        for block in blocks(table, names, width):
            yield block
            yield ""


def count_names(table: Table) -> int:
    """The number of first columns that name a row: the fewest in which all rows differ, otherwise
    1."""
    for n in range(1, len(table.columns)):
        if len({tuple(row[:n]) for row in table.rows}) == len(table.rows):
            return n
    return 1


def group_rows(table: Table, names: int) -> Table:
    """The last name of each row in the first column, under a row with its other names."""
    rows: list[list[str]] = []
    group = ""
    for row in table.rows:
        *others, last = row[:names]
        if (own := " ".join(filter(None, others))) != group:
            group = own
            rows.append([own, *[""] * (len(row) - names)])
        rows.append([f"  {last}", *row[names:]])
    return replace(table, columns=[table.columns[names - 1], *table.columns[names:]], rows=rows)


def widths(table: Table) -> list[tuple[int, int]]:
    """The smallest and the full width of each column, with the gap after it. Lines break only at
    spaces of headings and texts."""
    both = []
    for i, (heading, numeric) in enumerate(zip(table.columns, table.numeric, strict=True)):
        cells = [row[i] for row in table.rows]
        words = cells if numeric else [w for cell in cells for w in re.findall(r"^ *\S+|\S+", cell)]
        least = max(map(cell_len, ["", *words, *heading.split()]))
        both.append((least + GAP, max(least, *map(cell_len, [heading, *cells])) + GAP))
    return both


def blocks(table: Table, names: int, width: int) -> Iterator[RichTable]:
    """The table in parts with as many columns side by side as fit, each with the names first."""
    both, n = widths(table), len(table.columns)
    end = names
    while True:
        shown = list(range(names))
        room = width + GAP - sum(both[i][0] for i in shown)
        while end < n and (len(shown) == names or both[end][0] <= room):
            room -= both[end][0]
            shown.append(end)
            end += 1
        yield _block(table, shown, [both[i] for i in shown], room)
        if end == n:
            return


def _block(table: Table, shown: list[int], both: list[tuple[int, int]], room: int) -> RichTable:
    """A part of the table with these columns, wider than their smallest widths by up to `room`. A
    line separates the groups of the first column."""
    block = RichTable(
        box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, GAP - 1, 0, 0)
    )
    for at, (i, (least, full)) in enumerate(zip(shown, both, strict=True)):
        more = min(room, full - least) if room > 0 or at == 0 else 0  # below 0: a name is too long
        room -= more
        block.add_column(
            Text(table.columns[i]), width=max(1, least + more - GAP), overflow="fold",
            justify="right" if table.numeric[i] else "left",
        )  # fmt: skip
    first = [row[0] for row in table.rows]
    has_groups = len(set(first)) < len(first)
    for row, following in zip(table.rows, [*first[1:], None], strict=True):
        ends = following not in (None, row[0]) and not str(following).startswith(" ")
        block.add_row(*(Text(row[i]) for i in shown), end_section=ends and has_groups)
    return block


def markdown(table: Table) -> str:
    """A GitHub table between its title and its caption."""
    lines = [_pipes(table.columns), _pipes(["---"] * len(table.columns)), *map(_pipes, table.rows)]
    return "\n".join([f"**{table.title}**", "", *lines, "", table.caption, ""])


def _pipes(cells: Iterable[str]) -> str:
    lines = (" ".join(cell.split()) for cell in cells)  # a row is one line
    escaped = (re.sub(r"([\\|<*_`\[\]&])", r"\\\1", cell) for cell in lines)
    return f"| {' | '.join(escaped)} |"


def latex(table: Table) -> str:
    """A booktabs tabular for \\input, or a longtable if it may be longer than a page."""
    longest = [max(map(len, cells)) for cells in zip(table.columns, *table.rows, strict=True)]
    kinds = "".join(
        "r" if numeric else "p{70mm}" if n > LONG_TEXT else "l"
        for numeric, n in zip(table.numeric, longest, strict=True)
    )
    long = len(table.rows) > ROWS_ON_A_PAGE
    environment = "longtable" if long else "tabular"
    lines = [rf"\begin{{{environment}}}{{{kinds}}}", r"\toprule", _ampersands(table.columns)]
    lines.append(r"\midrule\endhead" if long else r"\midrule")
    for row, previous in zip(table.rows, [None, *table.rows], strict=False):
        if previous is not None and previous[0] != row[0]:
            lines.append(r"\addlinespace")
        lines.append(_ampersands(row))
    return "\n".join([*lines, r"\bottomrule", rf"\end{{{environment}}}", ""])


def latex_document(tables: Sequence[Table]) -> str:
    """A document that inputs the files of all tables, with their titles and captions. It prints
    letters that pdflatex lacks as their numbers."""
    texts = []
    for table in tables:
        put = rf"\input{{{table.name}.tex}}"
        text = rf"\textbf{{{_latex(table.title)}}} {_latex(table.caption)}"
        if len(table.rows) > ROWS_ON_A_PAGE:
            texts.append(rf"\clearpage\noindent {text}\par {put}")
        else:
            texts.append(
                rf"\begin{{table}}[p]\centering\fitted{{{put}}}\par\medskip"
                rf"\parbox{{0.9\linewidth}}{{{text}}}\end{{table}}"
            )
    letters = sorted(set(NOT_IN_PDFLATEX.findall("".join([*texts, *map(latex, tables)]))))
    numbers = [(f"{ord(letter):04X}", letter) for letter in letters]
    lines = [rf"\DeclareUnicodeCharacter{{{n}}}{{U+{n}}} % {letter}" for n, letter in numbers]
    declared = LETTERS.format(declared="\n".join(lines)) if lines else ""
    return DOCUMENT.format(letters=declared, tables="\n\n".join(texts))


def _ampersands(cells: Iterable[str]) -> str:
    return " & ".join(map(_latex, cells)) + r" \\"


def _latex(text: str) -> str:
    escaped = "".join(LATEX.get(letter, letter) for letter in text)
    return re.sub(r"(?<![\w.$])([+-][\d.,]+)", r"$\1$", escaped)  # a real minus sign


def write_csv(frame: pd.DataFrame, path: Path) -> None:
    """Write a CSV file that contains no formula for a spreadsheet."""
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
