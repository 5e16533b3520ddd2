"""Store the evidence of studies, and write docs/findings from it.

    python docs/findings/studies.py multirun/operator_or_scale multirun/positions
    python docs/findings/studies.py      # after a change of the code: from the committed files

Of each named study it copies the frozen plan and one row per run to docs/findings/<study>/; of a
sweep in GRIDS, rows and a figure of its report. Then it writes, from all committed plans and rows:
README.md (with the hand-written notes.md), index.html and the figures of each folder, the parts of
docs/findings.md, docs/findings/README.md and README.md between <!-- NAME --> and <!-- end -->, and
gain_by_length.svg.
"""

import argparse
import itertools
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

import finding_tables
import questions
from finding_tables import CELL, FOLDER, GRIDS, SECONDS, judged, measured
from posfuse.config import CONF_DIR
from posfuse.report import formats, page
from posfuse.report.sections.section import Section
from posfuse.report.table import Table
from posfuse.statistics.contrasts import EQUIVALENT, REFUTED
from posfuse.study import results_page, tables
from posfuse.study.plan import PLAN, Plan, provenance

TOP = FOLDER.parents[1]
DOCUMENT, STUDIES, README = TOP / "docs/findings.md", FOLDER / "README.md", TOP / "README.md"
DEMO = TOP / "docs/example-study"
PART = re.compile(r"<!-- (?P<name>\w+) -->\n.*?<!-- end -->", re.DOTALL)
FIGURES = {  # and their alternative text
    "hypotheses.svg": "Each hypothesis with its differences over seeds",
    "lengths.svg": "Test result against the length of the test documents, one line per arm",
    "ratios.svg": "Test result against the ratio of token to position, one mark per run",
}
DATA = "FOLDER has the corpus ([format](../../your_text.md)).\n"


def keep(study: Path) -> None:
    """Copy what the page of a study or a sweep needs. Exits if a row names a commit that is not in
    the repository: its code could not be read again."""
    target, report = FOLDER / study.name, study / "report"
    runs = pd.read_csv(report / page.RUNS, dtype={"commit": str})
    if unknown := [commit for commit in runs["commit"].dropna().unique() if not exists(commit)]:
        sys.exit(f"error: {study}: no commit {', '.join(unknown)} here; run it at a commit of main")
    target.mkdir(parents=True, exist_ok=True)
    if study.name in GRIDS:
        own = [*CELL, "seed", *measured(runs, GRIDS[study.name][0]), *SECONDS, "commit"]
        runs[own].to_csv(target / page.RUNS, index=False)
        shutil.copy(report / "figures" / "results_by_length.svg", target / "lengths.svg")
        return
    for path in (study / PLAN, report / page.RUNS):
        shutil.copy(path, target / path.name)


def exists(commit: str) -> bool:
    """Whether the repository has this commit, without changes."""
    asked = ["git", "-C", str(TOP), "cat-file", "-e", f"{commit}^{{commit}}"]
    return subprocess.run(asked, capture_output=True, check=False).returncode == 0


def report(folder: Path, drawn: Mapping[str, str]) -> str:
    """index.html of a study's folder, from its plan and rows; `drawn` as in `page_of`."""
    plan, runs, _ = judged(folder)
    commits = sorted(set(runs["commit"].dropna().astype(str)))
    tested = runs[runs["stage"] == "testing"]
    return page.page_of(
        [*sections_of(folder), results_page.plan_section(plan, tested, folder)],
        "demo" if folder == DEMO else folder.name,
        f"posfuse study run {'demo' if folder == DEMO else folder.name}",
        [("commit of the runs", ", ".join(commits))],
        drawn,
    )


def draw(folder: Path) -> Mapping[str, str]:
    """Draw the figures of a study's page into its folder; returns the SVG of each."""
    target = folder / "figures" if folder == DEMO else folder
    with tempfile.TemporaryDirectory() as name:
        drawn = page.draw_all(sections_of(folder), Path(name))
        for path in Path(name).glob("*" if folder == DEMO else "*.svg"):
            shutil.copy(path, target / path.name)
    return drawn


def sections_of(folder: Path) -> list[Section]:
    """The sections of a study's report, computed from its plan and its rows."""
    plan, runs, state = judged(folder)
    return results_page.sections_of(plan, state, runs)


def tables_of(folder: Path) -> list[Table]:
    """The report's tables of a study."""
    return [table for section in sections_of(folder) for table in section.tables]


def answers(folder: Path) -> str:
    """The text of each hypothesis with its verdict and its numbers, family by family. The numbers
    are first if they contradict the hypothesis."""
    plan, _, state = judged(folder)
    of = {v.hypothesis.name: v for v in state.verdicts}
    lines = []
    for h in (h for own in plan.study.families.values() for h in own):
        shown, verdict = tables.numbers(of[h.name], plan.study.measured), of[h.name].verdict
        line = f"- {verdict.capitalize()}: {h.text} {shown}\n"
        if verdict == REFUTED:
            line = f"- {shown} Refuted: {tables.statement(of[h.name])}\n"
        if verdict == EQUIVALENT:
            line = f"- {shown} Hypothesis: {tables.statement(of[h.name])}\n"
        lines.append(line)
    return "".join(lines)


def further(folder: Path) -> list[str]:
    """All tables of a folder as text."""
    own = [table() for table in finding_tables.TABLES.get(folder.name, ())]
    if not (folder / PLAN).exists():
        return own
    return [*map(formats.markdown, tables_of(folder)), *own, finding_tables.position(folder)]


def design(folder: Path) -> list[str]:
    """The command, the size, what is known of times, and the comment of the study's file."""
    plan, runs, _ = judged(folder)
    name = folder.name
    written = (CONF_DIR / "study" / f"{name}.yaml").read_text(encoding="utf-8")
    head = itertools.takewhile(lambda line: line[:1] == "#", written.splitlines())
    lines = (line[1:].removeprefix(" ") for line in head if "posfuse study run " not in line)
    asks = f"posfuse study run {name} data.path=FOLDER" in written
    given = " data.path=FOLDER" * asks
    shown = "\n".join(lines).strip()
    return [
        "## Design\n", f"    posfuse study run {name}{given}\n", *[DATA] * asks,
        f"{cost(plan, runs)} {provenance(plan, runs[runs['stage'] == 'testing'])}\n",
        "[Plan](plan.yaml), [runs](runs.csv), [report](index.html), "
        f"[study file](../../../conf/study/{name}.yaml), whose first comment is:\n",
        re.sub(r"\n{3,}", "\n\n", shown) + "\n",
    ]  # fmt: skip


def cost(plan: Plan, runs: pd.DataFrame) -> str:
    """The runs of a study, their core hours and the plan's digest."""
    hours = runs["core_seconds"].sum() / 3600
    counts = runs["stage"].value_counts()
    tuned = f"{counts['tuning']} tuning and " if "tuning" in counts else ""
    if plan.study.tuning and not tuned:
        tuned = "Tuning runs whose records are lost, without their core hours; "
    return (
        f"{tuned}{counts['testing']} test runs, {hours:.1f} core hours, plan `{plan.digest[:16]}`."
    )


def study_page(folder: Path) -> str:
    """README.md of a folder of docs/findings: a study, or a sweep without a plan."""
    parts = [f"# {folder.name}\n"]
    if is_study := (folder / PLAN).exists():
        plan, _, state = judged(folder)
        next_look = f"{state.next_look} {plan.study.units}"
        unfinished = f"The study is not finished. The next look is at {next_look}.\n"
        parts += [f"**{plan.study.question}**\n", *[unfinished] * (not state.is_finished)]
        parts.append(answers(folder))
    else:
        parts.append("Exploratory: a sweep without hypotheses and without a frozen plan.\n")
    if (notes := folder / "notes.md").exists():
        parts += ["## Notes\n", notes.read_text(encoding="utf-8")]
    drawn = {name: text for name, text in FIGURES.items() if (folder / name).exists()}
    parts += [*(design(folder) if is_study else []), "## Tables and figures\n", *further(folder)]
    return "\n".join([*parts, *(f"![{text}]({name})\n" for name, text in drawn.items())])


def with_parts(document: str) -> str:
    """The document with its marked parts computed again."""

    def part(found: re.Match[str]) -> str:
        return f"<!-- {found['name']} -->\n{questions.PARTS[found['name']]()}<!-- end -->"

    return PART.sub(part, document)


def write() -> None:
    """Write all pages from the committed files."""
    studied = [path.parent for path in sorted(FOLDER.glob(f"*/{page.RUNS}"))]
    formats.write_tables(tables_of(DEMO), DEMO / "tables")
    for folder in (DEMO, *(folder for folder in studied if (folder / PLAN).exists())):
        (folder / "index.html").write_text(report(folder, draw(folder)), encoding="utf-8")
    for folder in studied:  # shows the figures that have been drawn
        (folder / "README.md").write_text(study_page(folder), encoding="utf-8")
    for path in (DOCUMENT, STUDIES, README):
        path.write_text(with_parts(path.read_text(encoding="utf-8")), encoding="utf-8")
    questions.draw(FOLDER / "gain_by_length")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("studies", type=Path, nargs="*", help="as multirun/operator_or_scale")
    for study in parser.parse_args().studies:
        try:
            keep(study)
        except FileNotFoundError as error:
            how = f"posfuse study run {study.name}, or posfuse report {study} for a sweep"
            sys.exit(f"error: {error.filename}: missing; run {how} first")
    write()


if __name__ == "__main__":
    main()
