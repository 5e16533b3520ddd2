"""Store the evidence of studies for docs/findings.md.

    python benchmarks/studies.py multirun/operator_or_scale multirun/length

For each study it writes docs/findings/<study>/: the frozen plan, one row per run, the report's page
and figures, and the texts that docs/findings.md shows, computed from the plan and the rows. It
replaces the text between each line <!-- <study>/<text> --> of docs/findings.md and the next
<!-- end --> by that text. tests/unit/test_studies.py computes them again.
"""

import argparse
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from posfuse.analysis.evidence.metric import Metric
from posfuse.analysis.tables import formats
from posfuse.analysis.tables.cautions_table import cautions_tables
from posfuse.study import cautions, tables
from posfuse.study.plan import PLAN, Plan, stored
from posfuse.study.run_table import RUNS, read_results
from posfuse.study.verdicts import progress

DOCS = Path(__file__).resolve().parents[1] / "docs"
DOCUMENT, FOLDER = DOCS / "findings.md", DOCS / "findings"
SHOWN = re.compile(r"<!-- (?P<study>\w+)/(?P<text>\w+) -->\n.*?<!-- end -->", re.DOTALL)
DEGREE = 4  # of the polynomials that describe the metric by ratio


def keep(study: Path) -> None:
    """Copy a study's plan, rows, page and figures, and compute its texts from plan and rows."""
    target, report = FOLDER / study.name, study / "report"
    target.mkdir(parents=True, exist_ok=True)
    for path in (study / PLAN, report / RUNS, report / "index.html", *report.glob("figures/*.svg")):
        shutil.copy(path, target / path.name)
    for name, text in texts(target).items():
        (target / f"{name}.md").write_text(text, encoding="utf-8")


def texts(folder: Path) -> dict[str, str]:
    """The texts of a study by name, computed from its plan and its rows: answers (of its first
    family), further (the other families), cost, curve, and the report's tables."""
    plan, _ = stored(folder / PLAN)
    metric = plan.study.measured
    results, runs = read_results(folder / RUNS, metric), pd.read_csv(folder / RUNS)
    state = progress(plan.study, results)
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
    parser.add_argument("studies", type=Path, nargs="+", help="as multirun/operator_or_scale")
    for study in parser.parse_args().studies:
        try:
            keep(study)
        except FileNotFoundError as error:
            sys.exit(f"error: {error.filename}: missing; run posfuse-study run {study.name} first")
    DOCUMENT.write_text(with_texts(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
