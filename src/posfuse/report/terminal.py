"""The sections of a report on the terminal: the answer, a part of each section, and the path of the
page."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from posfuse.report import formats, page
from posfuse.report.sections.section import Answer, Section
from posfuse.report.table import Table
from posfuse.statistics.contrasts import DECIDED

MOST = 8  # decided comparisons


def show(sections: Sequence[Section], console: Console, path: Path | None = None) -> None:
    """Print the answer with its decided rows (of a study with all rows) and their basis, the
    terminal's part of each section, the notes, and the path of the page, if there is one."""
    top = page.top_of(sections)
    rows = [a for a in top.answers if top.is_listed or a.verdict in DECIDED]
    most = len(rows) if top.is_listed else MOST
    more = [f"and {len(rows) - most} more, on the page"] * (len(rows) > most)
    _print(top.lead[:1], console, "bold")
    _print(top.lead[1:], console)
    lines = [(a.verdict, _line(a, top)) for a in rows[:most]]
    if lines and console.is_terminal:  # where a long line continues below its first words
        grid = Grid.grid(padding=(0, 1))
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        for verdict, text in lines:
            grid.add_row(Text(verdict, "bold"), Text(text))
        console.print(grid)
    else:
        _print([f"{verdict}: {text}" for verdict, text in lines], console)
    _print([*more, *top.basis], console)
    console.print()
    shown = [part for s in sections for part in s.shown]
    for part in [*shown, *page.notes_of(sections)]:
        if isinstance(part, str):
            _print([part], console)
        else:
            console.print(formats.Fitted(part) if isinstance(part, Table) else part)
    if path:
        console.print(Text(f"results: {path}; next: open it in a browser"), soft_wrap=True)


def _print(lines: Iterable[str], console: Console, style: str = "") -> None:
    """Print lines that wrap in a terminal. A file or a pipe gets them whole."""
    for line in lines:
        console.print(Text(line, style), soft_wrap=not console.is_terminal)


def _line(answer: Answer, top: Section) -> str:
    """An answer without its verdict."""
    if top.is_listed:
        caution = f" Caution: {answer.cautions}." if answer.cautions else ""
        return f"{answer.comparison} {answer.details}{caution}"
    return f"{answer.comparison}: {answer.difference}, {answer.n} {top.counted}"
