"""A report as one HTML page that opens from disk without a network."""

import importlib.metadata
import math
import platform
import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from filelock import FileLock
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

import posfuse
from posfuse.report import formats
from posfuse.report.figures.svg import save
from posfuse.report.sections.section import CHAPTERS, Answer, Section
from posfuse.report.table import narrow
from posfuse.runs import records

PAGE, TABLES = "index.html", "tables/tables.tex"
RUNS = "runs.csv"  # a row for each run
TITLE = "<title>posfuse: "  # as in page.html.j2
# A sign beside the word, for readers who cannot distinguish colours.
SIGNS = {
    "supported": "✓", "refuted": "✗", "ahead": "▲", "behind": "▼", "equivalent": "=",
    "undecided": "?", "exploratory": "·", "not tested": "·",
}  # fmt: skip
MOST = 18  # answers on a first screen of 1280 x 800; further ones are folded
WIDTH, EDGE = 180.0, 6.0  # of an interval's drawing, in pixels
NARROWEST = 6.0  # pixels of the margin's band; a narrower one would be hidden by the line at 0
LONG = 5  # an interval this many times as long as the median interval is cut
# To a file of the report, as in table.html.j2 and page.html.j2.
LINK = re.compile(r'<a href="((?:tables|figures)/\w+\.\w+)">(?:CSV|Markdown|LaTeX|PNG|SVG)</a>')
LIBRARIES = ("scipy", "scikit-learn", "pandas", "matplotlib")
TEMPLATES = Environment(
    loader=PackageLoader("posfuse.report", "."),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def write(
    sections: Sequence[Section],
    title: str,
    command: str,
    made: pd.DataFrame,
    out: Path,
    rows: pd.DataFrame | None = None,
) -> Path:
    """Write the page, the tables, the figures and runs.csv into `out`, after another process that
    writes there. Returns the path of the page. `made` are the records of the runs, and `rows` those
    of runs.csv, if there is one."""
    path = out / PAGE
    out.mkdir(parents=True, exist_ok=True)
    with FileLock(out / ".lock"):
        for file in files_of(out):
            file.unlink(missing_ok=True)
        if rows is not None:
            formats.write_csv(rows, out / RUNS)
        formats.write_tables([table for s in sections for table in s.tables], out / "tables")
        drawn = draw_all(sections, out / "figures")
        html = page_of(sections, title, command, _made_with(made), drawn, has_files=True)
        with records.replacing(path) as part:  # a link is replaced, and its target is not changed
            part.write_text(html, encoding="utf-8")
    return path


def remove(out: Path) -> None:
    """Remove the report of an earlier command in `out`."""
    if files := files_of(out):
        with FileLock(out / ".lock"):
            for file in (*files, out / PAGE):
                file.unlink(missing_ok=True)


def files_of(out: Path) -> list[Path]:
    """runs.csv, and the tables and figures that the page of the report in `out` links to. Other
    files in their folders may be the user's. Empty without such a page."""
    page = out / PAGE
    text = page.read_text("utf-8", "replace") if page.exists() else ""
    names = [RUNS, TABLES, *LINK.findall(text)] if TITLE in text else []
    return [out / name for name in names]


def page_of(
    sections: Sequence[Section],
    title: str,
    command: str,
    made: Sequence[tuple[str, str]],
    drawn: Mapping[str, str],
    has_files: bool = False,
) -> str:
    """The page as HTML. `drawn` has the SVG of each figure by name. With `has_files` each table and
    figure links to its files."""
    top = top_of(sections)
    shown = [s for s in sections if s.drawings or s.tables or s.html]
    chapters = {name: [s for s in shown if s.chapter == name] for name in CHAPTERS}
    return TEMPLATES.get_template("page.html.j2").render(
        title=title,
        top=top,
        marks=marks(top.answers, top.margin) if top.answers else None,
        most=MOST,
        width=WIDTH,
        chapters={name: own for name, own in chapters.items() if own},
        drawn=drawn,
        narrow=narrow,
        count_names=formats.count_names,
        has_files=has_files,
        problems=problems_of(sections),
        notes=notes_of(sections),
        command=command,
        made=made,
    )


def marks(answers: Sequence[Answer], margin: float) -> dict[str, Any]:
    """The rows of the table, and the places of zero and of the margin's band. All places are in
    pixels on one axis, which contains 0 and the margin. The ends of a row are None without an
    interval; is_cut_low and is_cut_high: the interval is longer than the drawing. The band is None
    if it is too narrow to be seen."""
    lengths = [a.high - a.low for a in answers if math.isfinite(a.high - a.low)]
    longest = LONG * statistics.median(lengths) if lengths else 0.0
    values = [a.mean for a in answers if math.isfinite(a.mean)]
    values += [v for a in answers if a.high - a.low <= longest for v in (a.low, a.high)]
    first, last = min([*values, -margin, 0.0]), max([*values, margin, 0.0])
    scale = (WIDTH - 2 * EDGE) / ((last - first) or 1.0)

    def at(value: float) -> float:
        inside = min(max(value, first), last)
        return round(EDGE + (inside - first) * scale, 1)

    rows = [
        {
            "answer": a, "sign": SIGNS[a.verdict], "mean": at(a.mean),
            "ends": None if math.isnan(a.low) else (at(a.low), at(a.high)),
            "is_cut_low": a.low < first, "is_cut_high": a.high > last,
        }
        for a in answers
    ]  # fmt: skip
    band = (at(-margin), at(margin))
    is_visible = band[1] - band[0] >= NARROWEST
    return {"rows": rows, "zero": at(0.0), "band": band if is_visible else None}


def draw_all(sections: Sequence[Section], folder: Path) -> Mapping[str, str]:
    """Write NAME.png and NAME.svg of each figure, and return the SVG of each. Matplotlib has
    escaped the texts of an SVG, so it is safe inside a page."""
    drawings = [drawing for s in sections for drawing in s.drawings]
    return {d.name: Markup(save(d.draw(), folder, d.name)) for d in drawings}


def top_of(sections: Sequence[Section]) -> Section:
    """The section with the answer: its first lines and its table."""
    return next((s for s in sections if s.lead), Section())


def problems_of(sections: Sequence[Section]) -> list[str]:
    return list(dict.fromkeys(line for s in sections for line in s.problems))


def notes_of(sections: Sequence[Section]) -> list[str]:
    return list(dict.fromkeys(line for s in sections for line in s.notes))


def _made_with(runs: pd.DataFrame) -> list[tuple[str, str]]:
    """Versions, commit and device of the runs, and the versions that made the report."""
    rows = []
    for column in map(str, runs):
        if column.startswith("versions.") or column in ("commit", "host.device"):
            values = ", ".join(sorted({str(value) for value in runs[column]}))
            rows.append((f"runs: {column.removeprefix('versions.')}", values))
    made = {"posfuse": posfuse.__version__, "python": platform.python_version()}
    made |= {name: importlib.metadata.version(name) for name in LIBRARIES}
    return rows + [(f"report: {name}", version) for name, version in made.items()]
