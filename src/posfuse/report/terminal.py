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
    if console.is_terminal:  # where a long line continues below its first words
        grid = Grid.grid(padding=(0, 1))
        for answer in rows[:most]:
            grid.add_row(Text(answer.verdict, "bold"), Text(_line(answer, top.counted)))
        console.print(grid)
    else:
        _print([f"{a.verdict}: {_line(a, top.counted)}" for a in rows[:most]], console)
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


def _line(answer: Answer, counted: str) -> str:
    """A row of the answer without its verdict. The text of a hypothesis may be a sentence, which
    needs no colon."""
    what = ": ".join(filter(None, (answer.name, answer.comparison)))
    colon = "" if answer.comparison.strip('"').endswith(".") else ":"
    size = f"{answer.difference}, {answer.n} {counted}" if answer.n else "(no result yet)"
    return f"{what}{colon} {size}"
