"""Write docs/performance.md, its picture and docs/performance_tables.md from the stored results.

    python benchmarks/performance.py

All figures of these pages come from benchmarks/results. A result is left out if the code that it
measures has changed (measured_code.py).
"""

import argparse
import re
from pathlib import Path

import headlines
import measured_code
import performance_figure
import performance_tables
import scale_figure
import stored
from stored import Result

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS, RESULTS, DOCS = ROOT / "benchmarks", ROOT / "benchmarks" / "results", ROOT / "docs"
PAGE, TABLES, PICTURE = "performance.md", "performance_tables.md", "performance.svg"
PICTURED = "training"  # the benchmark of the page's picture
PICTURES = {  # by benchmark: a file of docs, and the function that draws it
    PICTURED: (PICTURE, performance_figure.draw),
    "scale": (performance_tables.PICTURES["scale"], scale_figure.draw),
}

BEGIN = """# Performance

    make bench AGNEWS=FOLDER IMDB=FOLDER    # speed: within an hour on 2 cores
    make bench-scale                        # how cost grows; with SLURM, many jobs: half an hour
    python benchmarks/run.py --only grid    # one of the benchmarks

They run each benchmark that has no current result of this machine and skip the others, so the same
command continues after an interruption. Then they write this page. Benchmarks that need SLURM or a
GPU are skipped where these are missing. A folder contains `train` and `test`, as for
`data.path`; a corpus without a folder is skipped. Keep the machine otherwise idle.

On a machine with an NVIDIA GPU, `make bench-gpu` measures it: training against the plain loop with
the share of the GPU's rate, a step and its alternatives (a stack of seeds among them), the IMDB row
of Table 1 (15 runs), 24 seeds of a small run by several processes, and bfloat16 against float32.
The tables show one machine: the one with the most current results.

The plain loop, [plain.py](../benchmarks/plain.py), is that of the paper's notebooks, written from
their description: it splits every text at every epoch, pads to `max_len` and leaves the rest to
`nn.TransformerEncoder`. With posfuse's weights it gives posfuse's logits (tested). Both get the
same documents and settings, and take turns in processes of their own.
"""
LIMITS = """
The share of the machine's rate of matrix products limits what faster code could still gain in
training: at 50 %, twice the speed. Memory limits the batch; the time besides training limits sweeps
of small runs.
"""
END = """
[Tables of the benchmarks](performance_tables.md): training and memory, operators, 4,096 tokens,
language models, tasks, bfloat16, sweeps.

A result stores a digest of what it measures: the code of the modules and the configs that its
benchmark names (`MEASURES`), the benchmark's own script, and torch's minor version. Comments and
docstrings do not count. A result with another digest than that of today is left out of these pages.
A test fails if they still show it; `python benchmarks/performance.py` writes them without it.
"""


def page(results: list[Result], scripts: dict[str, Path]) -> str:
    """The text of docs/performance.md; `scripts` are those of all benchmarks, by name."""
    machines = list(stored.by_machine(results).values())
    current, *others = machines or [{}]
    lines = [BEGIN, *table("ratio", headlines.RATIOS, current)]
    lines += [line for other in others if PICTURED in other for line in ("", in_one_line(other))]
    lines += [LIMITS, *table("limit", headlines.LIMITS, current)]
    if PICTURED in current:
        lines += ["", f"![Speed against the plain loop]({PICTURE})", ""]
        lines.append(f"{current[PICTURED].measured}. Bars begin at the speed of the plain loop.")
    lines.append(END)
    left_out = [name for name in scripts if name not in current]
    if left_out:
        found = {name: measured_code.constant(scripts[name], "NEEDS") for name in left_out}
        has_gpu = any(r.content["machine"]["gpu"] for m in machines for r in m.values())
        no_gpu = "" if has_gpu else " No GPU has been measured with this code."
        needs = [f" {name} needs {needed}." for name, needed in found.items() if needed]
        lines.append(
            "Left out, since their code has changed or this machine has not measured them: "
            f"{', '.join(left_out)}. The commands above measure them."
            f"{''.join(needs)}{no_gpu}\n"
        )
    return "\n".join(lines)


def table(kind: str, rows: list[headlines.Headline], current: dict[str, Result]) -> list[str]:
    lines = [f"| {kind} | value | measured |", "|---|---|---|"]
    for row in rows:
        result = current.get(row.benchmark)
        value = row.value(result) if result else "not measured on this machine with this code"
        how = result.measured if result else f"`python benchmarks/run.py --only {row.benchmark}`"
        lines.append(f"| {row.title} | {value} | {how} |")
    return lines


def in_one_line(current: dict[str, Result]) -> str:
    """The ratios of a machine that the tables do not show, as one line."""
    result = current[PICTURED]
    rows = [row for row in headlines.RATIOS if row.benchmark in current]
    titles = [re.split(", | /", row.title)[0] for row in rows]
    values = [row.value(current[row.benchmark]) for row in rows]
    ratios = "; ".join(f"{title}: {value}" for title, value in zip(titles, values, strict=True))
    return f"{result.machine}; {result.content['date']}. {ratios}."


def pages(results: list[Result], scripts: dict[str, Path]) -> dict[str, str]:
    """The texts of both pages by file name."""
    tables = performance_tables.page(scripts, results)
    return {PAGE: page(results, scripts), TABLES: tables}


def read(torch: str) -> tuple[list[Result], dict[str, Path]]:
    """All results, and the scripts of all benchmarks; `torch` is a minor version."""
    scripts = {path.stem: path for path in measured_code.benchmarks(SCRIPTS)}
    return stored.read(RESULTS, scripts, torch), scripts


def main() -> None:
    results, scripts = read(measured_code.installed_torch())
    for name, text in pages(results, scripts).items():
        (DOCS / name).write_text(text, encoding="utf-8")
        print(f"wrote docs/{name}")
    machines = list(stored.by_machine(results).values())
    for name, (picture, draw) in PICTURES.items():
        shown = machines[:1] if name == PICTURED else machines
        pictured = [current[name] for current in shown if name in current]
        if pictured:
            draw(pictured[0], DOCS / picture)
        else:
            (DOCS / picture).unlink(missing_ok=True)


if __name__ == "__main__":
    # Not in main(), which run.py calls with its own options.
    argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]).parse_args()
    main()
