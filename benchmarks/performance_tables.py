"""The text of docs/performance_tables.md: the tables of every current result."""

import ast
from pathlib import Path

from stored import Result, Row

PICTURES = {"scale": "performance_scale.svg"}  # by benchmark: of its first current result
INTRODUCTION = """# Tables of the benchmarks

`python benchmarks/performance.py` writes this page from `benchmarks/results`;
[performance](performance.md) is its summary. Each table names its machine, date and commit, and is
left out if the code that it measures has changed since.

The settings are small, so that `make bench` takes less than an hour on 2 cores: few repeats, few
seeds, few steps. The options of a script enlarge them (`--help`). Machines share
their hosts with others: ratios within a table are more reliable than rates, and rates of different
tables are not comparable.
"""


def page(scripts: dict[str, Path], results: list[Result]) -> str:
    """A section for each benchmark."""
    sections = [INTRODUCTION]
    for name, script in scripts.items():
        about = (ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or "").split(
            "\n\n"
        )[0]
        sections += [f"## {name}\n", f"{about}\n"]
        own = [result for result in results if result.name == name]
        current = [result for result in own if result.is_current]
        if current and name in PICTURES:
            about = f"Time and memory, {current[0].measured}"
            sections.append(f"![{about}]({PICTURES[name]})\n")
        sections += [section(result) for result in current]
        if not any(result.is_current for result in own):
            sections.append(f"{missing(name, own)}\n")
    return "\n".join(sections)


def missing(name: str, stale: list[Result]) -> str:
    """Why a benchmark has no table, and the command that measures it."""
    measured = " and ".join(f"on {result.measured}" for result in stale)
    why = (
        f"Left out: the code has changed since it was measured {measured}" if stale else "No result"
    )
    return f"{why}. Measure it: `python benchmarks/run.py --only {name}`"


def section(result: Result) -> str:
    """Command, machine and tables of a result."""
    lines = [f"`{result.content['command']}`", "", result.provenance, ""]
    for table in result.content["tables"]:
        lines += [f"**{table['title']}**", "", *markdown(table["columns"], table["rows"]), ""]
        lines += [table["note"], ""] if table["note"] else []
    return "\n".join(lines)


def markdown(columns: list[str], rows: list[Row]) -> list[str]:
    """The lines of a table; columns of numbers are aligned right."""
    numeric = [all(not isinstance(row[i], str) for row in rows) for i in range(len(columns))]
    rule = [("---:" if right else "---") for right in numeric]
    cells = [columns, rule, *([shown(value) for value in row] for row in rows)]
    return [f"| {' | '.join(text.replace('|', '&#124;') for text in row)} |" for row in cells]


def shown(value: str | float) -> str:
    """A number with three significant digits, or all digits before the point; text unchanged."""
    if isinstance(value, str):
        return value
    if isinstance(value, int) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:#.3g}".rstrip(".")
