"""Write the tables of docs/performance.md from the stored results.

    python benchmarks/performance.py

A result is left out if the code that it measures has changed (measured_code.py).
"""

from pathlib import Path

import measured_code
import store
from store import SCRIPTS, Result, Row

PAGE = SCRIPTS.parent / "docs" / "performance.md"
BEGIN, END = "<!-- measured: begin -->\n", "<!-- measured: end -->"


def page(text: str, results: list[Result], scripts: dict[str, Path]) -> str:
    """The text of the page with its tables replaced; `scripts` are those of all benchmarks."""
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{tables(results, scripts)}\n{END}{rest.partition(END)[2]}"


def tables(results: list[Result], scripts: dict[str, Path]) -> str:
    """A section for each benchmark."""
    sections = []
    for name, script in scripts.items():
        about = measured_code.docstring(script).partition("\n\n")[0]
        sections.append(f"## {name}\n\n{about}\n")
        own = [result for result in results if result.name == name]
        current = [result for result in own if result.is_current]
        sections += map(section, current)
        if not current:
            stale = " and ".join(f"on {result.measured}" for result in own)
            why = f"Left out: the code has changed since it was measured {stale}"
            how = f"`python benchmarks/run.py --only {name}`"
            sections.append(f"{why if own else 'No result'}. Measure it: {how}\n")
    return "\n".join(sections)


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


def current_page(torch: str) -> str:
    """The page of the stored results; `torch` is a minor version."""
    scripts = measured_code.benchmarks(SCRIPTS)
    results = store.read(store.RESULTS, scripts, torch)
    return page(PAGE.read_text(encoding="utf-8"), results, scripts)


def main() -> None:
    PAGE.write_text(current_page(measured_code.installed_torch()), encoding="utf-8")
    print("wrote docs/performance.md")


if __name__ == "__main__":
    main()
