"""The sections of a report on the terminal: the answer, a part of each section, and the path of the
page."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
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
    lines = [_line(answer, top.counted) for answer in rows[:most]]
    lines += [f"and {len(rows) - most} more, on the page"] * (len(rows) > most)
    for i, line in enumerate([*top.lead, *lines, *top.basis]):
        style = "" if i else "bold"
        console.print(Text(line, style=style), soft_wrap=not console.is_terminal)
    console.print()
    shown = [part for s in sections for part in s.shown]
    for part in [*shown, *page.notes_of(sections)]:
        if isinstance(part, str):
            console.print(Text(part), soft_wrap=not console.is_terminal)
        else:
            console.print(formats.Fitted(part) if isinstance(part, Table) else part)
    if path:
        console.print(Text(f"results: {path}; next: open it in a browser"), soft_wrap=True)


def _line(answer: Answer, counted: str) -> str:
    """A row of the answer. The text of a hypothesis may be a sentence, which needs no colon."""
    what = ": ".join(filter(None, (answer.verdict, answer.name, answer.comparison)))
    colon = "" if answer.comparison.strip('"').endswith(".") else ":"
    size = f"{answer.difference}, {answer.n} {counted}" if answer.n else "(no result yet)"
    return f"{what}{colon} {size}"
