"""Store the evidence of studies for docs/findings.md.

    python benchmarks/studies.py multirun/operator_or_scale multirun/length
    python benchmarks/studies.py      # after a change of the code: from the committed files alone

For each study it writes docs/findings/<study>/: the frozen plan, one row per run, the report's page
and figures, and the texts that docs/findings.md shows, computed from the plan and the rows. Then it
computes the texts of all committed studies again, also on their pages, and the tables of
finding_tables.py. It replaces the text between each line <!-- <study>/<text> --> of
docs/findings.md and the next <!-- end --> by that text. tests/unit/test_studies.py computes all of
them again.
"""

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from markupsafe import escape

import finding_tables
from finding_tables import judged
from posfuse.analysis import page
from posfuse.analysis.evidence.metric import Metric
from posfuse.analysis.tables import formats
from posfuse.analysis.tables.cautions_table import cautions_tables
from posfuse.study import cautions, tables
from posfuse.study.plan import PLAN, Plan
from posfuse.study.run_table import RUNS

DOCS = Path(__file__).resolve().parents[1] / "docs"
DOCUMENT, FOLDER, DEMO = DOCS / "findings.md", DOCS / "findings", DOCS / "example-study"
SHOWN = re.compile(r"<!-- (?P<study>\w+)/(?P<text>\w+) -->\n.*?<!-- end -->", re.DOTALL)
DEGREE = 4  # of the polynomials that describe the metric by ratio


def keep(study: Path) -> None:
    """Copy a study's plan, rows, page and figures. Exits if a row names a commit that is not in the
    repository: its code could not be read again."""
    commits = pd.read_csv(study / "report" / RUNS, dtype={"commit": str})["commit"].dropna()
    if unknown := [commit for commit in commits.unique() if not exists(commit)]:
        sys.exit(f"error: {study}: no commit {', '.join(unknown)} here; run it at a commit of main")
    target, report = FOLDER / study.name, study / "report"
    target.mkdir(parents=True, exist_ok=True)
    for path in (study / PLAN, report / RUNS, report / "index.html", *report.glob("figures/*.svg")):
        shutil.copy(path, target / path.name)


def exists(commit: str) -> bool:
    """Whether the repository has this commit, without changes."""
    asked = ["git", "-C", str(DOCS), "cat-file", "-e", f"{commit}^{{commit}}"]
    return subprocess.run(asked, capture_output=True, check=False).returncode == 0


def compute(folder: Path) -> None:
    """Write the texts of a committed study, and its page with them."""
    within = folder / "tables"  # of the demo, which has the whole report
    for name, text in texts(folder).items():
        path = (within if within.exists() else folder) / f"{name}.md"
        if path.exists() or path.parent == folder:
            path.write_text(text, encoding="utf-8")
    path = folder / "index.html"
    path.write_text(with_answers(path.read_text(encoding="utf-8"), folder), encoding="utf-8")


def with_answers(html: str, folder: Path) -> str:
    """The page of a study with its answers and its table of hypotheses, from the plan and rows."""
    plan, results, state = judged(folder)
    study, metric = plan.study, plan.study.measured
    of_each, of_all = cautions.sentences(cautions.of_verdicts(plan, state, results))
    lines = [study.question, *tables.headline(study, state)]
    for v in state.verdicts:
        caution = of_each.get(v.hypothesis.name, "")
        lines.append(f"{tables.sentence(v, metric)} {caution}".rstrip())
    lines += filter(None, [of_all])
    answer = "".join(f"<p>{escape(line)}</p>\n" for line in lines)
    shown = str(page.template("table.html.j2").module.show(tables.verdict_table(study, state)))
    for pattern, new in (
        (r'<div class="answer">\n.*?</div>', f'<div class="answer">\n{answer}</div>'),
        (r'<h3 id="hypotheses">.*?</p>\n', shown),
    ):
        html = re.sub(pattern, lambda _, new=new: new, html, count=1, flags=re.DOTALL)
    return html


def texts(folder: Path) -> dict[str, str]:
    """The texts of a study by name, computed from its plan and its rows: answers (of its first
    family), further (the other families), cost, curve, and the report's tables."""
    plan, results, state = judged(folder)
    metric, runs = plan.study.measured, pd.read_csv(folder / RUNS)
    first = plan.study.hypotheses[0].family
    sentences = {family: [] for family in plan.study.families}
    for v in state.verdicts:
        sentences[v.hypothesis.family].append(f"- {tables.sentence(v, metric)}\n")
    found = {"answers": "".join(sentences[first])}
    found["further"] = "".join(
        line for name in sentences if name != first for line in sentences[name]
    )
    found["cost"] = cost(folder.name, plan, runs)
    leans = cautions_tables(cautions.of_verdicts(plan, state, results), "hypotheses")
    shown = [tables.verdict_table(plan.study, state), *leans, tables.arms_table(plan, results)]
    further = [tables.lengths_table(results, metric), tables.bags_table(plan.study, runs)]
    further.append(tables.budget_table(plan))
    shown += [table for table in further if table]
    found |= {table.name: formats.markdown(table) for table in shown}
    measured = runs[(runs["stage"] == "testing") & (runs["norm_ratio"] > 0)]
    if len(measured):
        operators = measured["arm"].map(lambda arm: plan.study.arms[arm].get("fusion", "add"))
        found["curve"] = curve(measured, operators, metric)
    return found


def cost(name: str, plan: Plan, runs: pd.DataFrame) -> str:
    """The command that reproduces a study, its digest, its runs and their core hours."""
    hours = runs["core_seconds"].sum() / 3600
    counts = runs["stage"].value_counts()
    tuned = f"{counts['tuning']} tuning and " if "tuning" in counts else ""
    return (
        f"`posfuse-study run {name}`: {tuned}{counts['testing']} test runs, {hours:.1f} core "
        f"hours, plan `{plan.digest[:16]}`.\n"
    )


def curve(runs: pd.DataFrame, operators: pd.Series, metric: Metric) -> str:
    """The share of the metric's variance that the ratio of token to position explains."""
    x, y = np.log(runs["norm_ratio"]), runs[f"test_{metric.name}"]

    def rest(own: pd.Series) -> float:
        fit = np.polynomial.Polynomial.fit(x[own], y[own], DEGREE)
        return float(((y[own] - fit(x[own])) ** 2).sum())

    total = float(((y - y.mean()) ** 2).sum())
    names = list(dict.fromkeys(operators))
    one = 100 * (1 - rest(y.notna()) / total)
    own = 100 * (1 - sum(rest(operators == name) for name in names) / total)
    return (
        f"Of the variance of {metric.title} over {len(runs)} test runs, one polynomial of degree "
        f"{DEGREE} in the logarithm of the ratio explains {one:.0f} %. One polynomial for each of "
        f"{', '.join(names)} explains {own:.0f} %.\n"
    )


def with_texts(document: str) -> str:
    """The document with its marked texts replaced by those of docs/findings."""

    def text(found: re.Match[str]) -> str:
        path = FOLDER / found["study"] / f"{found['text']}.md"
        content = path.read_text(encoding="utf-8")
        return f"<!-- {found['study']}/{found['text']} -->\n{content}<!-- end -->"

    return SHOWN.sub(text, document)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("studies", type=Path, nargs="*", help="as multirun/operator_or_scale")
    for study in parser.parse_args().studies:
        try:
            keep(study)
        except FileNotFoundError as error:
            sys.exit(f"error: {error.filename}: missing; run posfuse-study run {study.name} first")
    for plan in (DEMO / PLAN, *sorted(FOLDER.glob(f"*/{PLAN}"))):
        if plan.with_name(RUNS).exists():
            compute(plan.parent)
    finding_tables.write()
    DOCUMENT.write_text(with_texts(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
