"""Write docs/performance.md and the tables of docs/benchmarks.md from the stored results.

    python benchmarks/performance.py

A result is left out if the code that it measures has changed (measured_code.py).
"""

import json
import re
from pathlib import Path
from typing import Any

import measured_code
from store import RESULTS, SCRIPTS, Row

SUMMARY, TABLES = (SCRIPTS.parent / "docs" / name for name in ("performance.md", "benchmarks.md"))
BEGIN, END = "<!-- measured: begin -->\n", "<!-- measured: end -->"
MOST_ROWS = 8  # a longer table is folded
UNITS = {  # of bfloat16, in a CPU
    "amx": "with AMX",
    "broken-amx": "with broken AMX",
    "avx512_bf16": "with AVX-512 BF16",
    "no-bf16": "without bfloat16 units",
}
Result = dict[str, Any]  # the content of a file, its `name` and whether it `is_current`
PEERS, SPEEDS, BOUND = ("Trainer", "loop"), ("exact", "fast"), "products alone"
HALF = "Trainer, bfloat16"
# The main figures of a benchmark: {number of the table|row|column}. A row is named by its first
# column, or by its first two if two rows have the same first one.
SENTENCES = {
    "grid": "Two runs at once with one thread each: {0|2|ratio} times the runs per hour of one "
    "run with two threads.",
    "language_model": "CPU time of a training step of a language model on bytes, as a multiple of "
    "a plain loop's: exact {0|posfuse|× plain}, fast {0|posfuse, fast|× plain}, nanoGPT "
    "{0|nanoGPT|× plain}.",
    "long_documents": "A training step on a document of 4,096 tokens: {0|4,096 exact|step ms} ms "
    "with speed=exact, {0|4,096 fast|step ms} ms with speed=fast.",
    "operators": "Time of a training step, compared with addition: the scalar gate "
    "{0|imdb, batch 8 gate_scalar|more than add, of add's step}, concatenation "
    "{0|imdb, batch 8 concat|more than add, of add's step} (IMDB).",
    "overhead": "A command with one run takes {0|a command with one run, logger=none|seconds} s "
    "besides training, a further run {0|a further run in the process, logger=none|seconds} s. A "
    "command skips 10,000 finished runs in {1|10,000|command CPU s} CPU s.",
}


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


def summary(results: list[Result]) -> str:
    """The main figures of the current results."""
    current = [result for result in results if result["is_current"]]
    parts = [rates(result) for result in current if result["name"] == "training"]
    for result in current:
        if sentence := SENTENCES.get(result["name"]):
            parts.append(f"- {filled(sentence, result['tables'])} {source(result)}")
    return "\n".join(parts) + "\n"


def rates(result: Result) -> str:
    """The ratios of training and evaluation to both alternatives, at both speeds, with the Trainer
    in bfloat16, if it was measured, and the bound."""
    trainer, loop = map(cells, result["tables"][:2])
    has_half = any(column.endswith(HALF) for column in result["tables"][0]["columns"])
    of_trainer = (*SPEEDS, *[HALF] * has_half, BOUND)
    shown = [(0, of) for of in of_trainer] + [(1, speed) for speed in SPEEDS]
    columns = ["settings", "tokens", "", *(f"× {PEERS[i]}: {of}" for i, of in shown)]
    rows: list[Row] = []
    for phase in ("training", "evaluation"):
        for name, row in trainer.items():
            both = trainer[name], loop.get(name, {})
            ratios = [both[i].get(f"{phase}: {of}", "–") for i, of in shown]
            rows.append([name, row["tokens"], phase, *ratios])
    return "\n".join([*markdown(columns, rows), "", source(result), ""])


def filled(sentence: str, results: list[dict[str, Any]]) -> str:
    """A sentence of SENTENCES with its figures; a dash for one that was not measured."""

    def figure(place: re.Match[str]) -> str:
        row = cells(results[int(place[1])]).get(place[2], {})
        return row.get(place[3], "–")

    return re.sub(r"\{(\d)\|(.+?)\|(.+?)\}", figure, sentence)


def cells(table: dict[str, Any]) -> dict[str, dict[str, str]]:
    """The cells of a table by row and column."""
    rows = [[*map(shown, row)] for row in table["rows"]]
    is_unique = len({row[0] for row in rows}) == len(rows)
    names = [row[0] if is_unique else f"{row[0]} {row[1]}" for row in rows]
    named = (dict(zip(table["columns"], row, strict=True)) for row in rows)
    return dict(zip(names, named, strict=True))


def source(result: Result) -> str:
    """Where a result was measured, with a link to its tables."""
    return f"([{result['name']}](benchmarks.md#{result['name']}): {measured_on(result)})"


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


def current_pages(torch: str) -> dict[Path, str]:
    """Both pages with the stored results; `torch` is a minor version."""
    scripts = measured_code.benchmarks(SCRIPTS)
    results, pages = read(RESULTS, scripts, torch), {}
    for page, written in ((SUMMARY, summary(results)), (TABLES, tables(results, scripts))):
        before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
        pages[page] = f"{before}{BEGIN}\n{written}\n{END}{rest.partition(END)[2]}"
    return pages


def main() -> None:
    for page, text in current_pages(measured_code.installed_torch()).items():
        page.write_text(text, encoding="utf-8")
        print(f"wrote docs/{page.name}")


if __name__ == "__main__":
    main()
