"""Copy the benchmarks' results into docs/performance.md.

    python benchmarks/performance.py

The results of benchmarks/results/NAME.json replace the text between the line <!-- NAME --> and the
next <!-- end -->. Results without such a line are appended. Other text does not change.
"""

import argparse
import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS, DOCUMENT = ROOT / "benchmarks" / "results", ROOT / "docs" / "performance.md"
MARKED = r"<!-- {name} -->\n.*?<!-- end -->"


def with_results(document: str, files: list[Path]) -> str:
    """The document with these results in it."""
    for file in sorted(files):
        marked = f"<!-- {file.stem} -->\n{section(file)}<!-- end -->"
        place = re.compile(MARKED.format(name=re.escape(file.stem)), re.DOTALL)
        if not place.search(document):
            document += f"\n{marked}\n"
        else:
            document = place.sub(lambda _, text=marked: text, document)
    return document


def section(file: Path) -> str:
    """Command, machine and tables of a results file."""
    found = json.loads(file.read_text())
    lines = [f"`{found['command']}`", "", provenance(found), ""]
    for table in found["tables"]:
        lines += [f"**{table['title']}**", "", *markdown(table["columns"], table["rows"]), ""]
        lines += [table["note"], ""] if table["note"] else []
    return "\n".join(lines)


def provenance(found: dict[str, Any]) -> str:
    """Machine, versions, commit and date of a results file, as one sentence."""
    m = found["machine"]
    device = f"{m['cpu']}, {m['cores']} cores, {m['threads']} threads, {m['memory_gib']:.0f} GiB"
    if m["gpu"]:
        device += f", {m['gpu']}"
    commit = found["commit"]
    source = "outside a checkout" if commit is None else f"commit {spelt(commit)}"
    return f"{device}; torch {m['torch']}, Python {m['python']}; {source}, {found['date']}."


def spelt(commit: str) -> str:
    head, _, changes = commit.partition("+")
    return f"{head[:10]} with {changes}" if changes else head[:10]


def markdown(columns: list[str], rows: list[list[str | float]]) -> list[str]:
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the JSON files")
    parser.add_argument("--document", type=Path, default=DOCUMENT)
    arguments = parser.parse_args()
    files = list(arguments.results.glob("*.json"))
    text = with_results(arguments.document.read_text(), files)
    arguments.document.write_text(text)
    print(f"{arguments.document}: {', '.join(sorted(f.stem for f in files)) or 'no results'}")


if __name__ == "__main__":
    main()
