"""Write the tables of docs/performance.md from the stored results.

    python benchmarks/performance.py

A result is left out if the code that it measures has changed (measured_code.py).
"""

import json
from pathlib import Path
from typing import Any

import measured_code
from store import RESULTS, SCRIPTS, Row

PAGE = SCRIPTS.parent / "docs" / "performance.md"
BEGIN, END = "<!-- measured: begin -->\n", "<!-- measured: end -->"
MOST_ROWS = 8  # a longer table is folded
UNITS = {  # of bfloat16, in a CPU
    "amx": "with AMX",
    "broken-amx": "with broken AMX",
    "avx512_bf16": "with AVX-512 BF16",
    "no-bf16": "without bfloat16 units",
}
Result = dict[str, Any]  # the content of a file, its `name` and whether it `is_current`


def read(folder: Path, scripts: dict[str, Path], torch: str) -> list[Result]:
    """The results of a folder, by machine and name; `torch` is a minor version."""
    results = []
    for path in sorted(folder.glob("*/*.json")):
        if path.stem not in scripts:
            raise SystemExit(f"error: {path}: no benchmark has this name; remove the file")
        content = json.loads(path.read_text(encoding="utf-8"))
        is_current = measured_code.is_current(content, scripts[path.stem], torch)
        results.append({**content, "name": path.stem, "is_current": is_current})
    return results


def tables(results: list[Result], scripts: dict[str, Path]) -> str:
    """A section for each benchmark."""
    sections = []
    for name, script in scripts.items():
        about = measured_code.docstring(script).partition("\n\n")[0]
        sections.append(f"## {name}\n\n{about}\n")
        own = [result for result in results if result["name"] == name]
        current = [result for result in own if result["is_current"]]
        sections += map(section, current)
        if not current:
            stale = " and ".join(f"on {measured_on(result)}" for result in own)
            why = f"Left out: the code has changed since it was measured {stale}"
            how = f"`python benchmarks/run.py --only {name}`"
            sections.append(f"{why if own else 'No result'}. Measure it: {how}\n")
    return "\n".join(sections)


def section(result: Result) -> str:
    """Command, machine and tables of a result."""
    m = result["machine"]
    provenance = (
        f"{measured_on(result)}; {m['threads']} threads, {m['memory_gib']:.0f} GiB; torch "
        f"{m['torch']}, Python {m['python']}; measured in {result['seconds']} s."
    )
    lines = [f"`{result['command']}`", "", provenance, ""]
    for table in result["tables"]:
        shown = [*markdown(table["columns"], table["rows"]), ""]
        shown += [table["note"], ""] if table["note"] else []
        title, n = table["title"], len(table["rows"])
        if n <= MOST_ROWS:
            lines += [f"**{title}**", "", *shown]
        else:
            head = f"<details><summary><b>{title}</b>, {n} rows</summary>"
            lines += [head, "", *shown, "</details>", ""]
    return "\n".join(lines)


def measured_on(result: Result) -> str:
    """Machine, date and commit."""
    m, commit = result["machine"], result["commit"] or "unknown"
    machine = [f"{m['cpu']} {UNITS[m['bf16']]}", f"{m['cores']} cores", m["gpu"]]
    where = ", ".join(filter(None, machine))
    return f"{where}; {result['date']}, commit {commit[:10]}{commit[40:]}"


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
    written = tables(read(RESULTS, scripts, torch), scripts)
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return f"{before}{BEGIN}\n{written}\n{END}{rest.partition(END)[2]}"


def main() -> None:
    PAGE.write_text(current_page(measured_code.installed_torch()), encoding="utf-8")
    print("wrote docs/performance.md")


if __name__ == "__main__":
    main()
