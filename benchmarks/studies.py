"""Store the evidence of studies for docs/findings.md.

    python benchmarks/studies.py multirun/operator_or_scale multirun/length

For each study it writes docs/findings/<study>/: the frozen plan, one row per run, the answers, the
tables and the figures, all computed from the plan and the rows. It replaces the text between each
line <!-- <study>/<table> --> of docs/findings.md and the next <!-- end --> by that table.
tests/unit/test_studies.py computes them again.
"""

import argparse
import shutil
from pathlib import Path

import pandas as pd

from findings import DOCUMENT, FOLDER, with_tables
from posfuse.analysis.figures.svg import save
from posfuse.analysis.tables import formats
from posfuse.study import figure, tables
from posfuse.study.plan import PLAN, Plan, stored
from posfuse.study.run_table import RUNS, read_results
from posfuse.study.scores import accuracies
from posfuse.study.spec import seeds_of
from posfuse.study.verdicts import deltas, progress


def keep(study: Path) -> None:
    """Copy the plan and the rows of a study, and draw its figures from them."""
    target = FOLDER / study.name
    target.mkdir(parents=True, exist_ok=True)
    shutil.copy(study / PLAN, target / PLAN)
    shutil.copy(study / "report" / RUNS, target / RUNS)
    for name, text in texts(target).items():
        (target / f"{name}.md").write_text(text, encoding="utf-8")
    plan, _ = stored(target / PLAN)
    results, runs = read_results(target / RUNS), pd.read_csv(target / RUNS)
    seeds, accuracy = seeds_of("testing.seeds", plan.study.testing.seeds), accuracies(results)
    per_seed = {h.name: deltas(h, accuracy, seeds) for h in plan.study.hypotheses}
    save(figure.hypotheses(progress(plan.study, results).verdicts, per_seed), target, "hypotheses")
    measured = runs[runs["norm_ratio"] > 0]
    if len(measured):
        save(figure.ratios(measured, plan.study.arms), target, "ratios")


def texts(folder: Path) -> dict[str, str]:
    """The answers and the tables of a study by name, computed from its plan and its rows."""
    plan, _ = stored(folder / PLAN)
    results = read_results(folder / RUNS)
    state = progress(plan.study, results)
    found = {"answers": "".join(f"- {tables.sentence(v)}\n" for v in state.verdicts)}
    found["cost"] = cost(folder.name, plan, pd.read_csv(folder / RUNS))
    shown = [tables.verdict_table(plan.study, state), tables.arms_table(plan, results)]
    budget = tables.budget_table(plan)
    shown += [budget] if budget else []
    return found | {table.name: formats.markdown(table) for table in shown}


def cost(name: str, plan: Plan, runs: pd.DataFrame) -> str:
    """The command that reproduces a study, its digest, its runs and their core hours."""
    hours = runs["core_seconds"].sum() / 3600
    counts = runs["stage"].value_counts()
    tuned = f"{counts['tuning']} tuning and " if "tuning" in counts else ""
    return (
        f"`posfuse-study run {name}`: {tuned}{counts['testing']} test runs, {hours:.1f} core "
        f"hours, plan `{plan.digest[:16]}`.\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("studies", type=Path, nargs="+", help="as multirun/operator_or_scale")
    for study in parser.parse_args().studies:
        keep(study)
    DOCUMENT.write_text(with_tables(DOCUMENT.read_text()))


if __name__ == "__main__":
    main()
