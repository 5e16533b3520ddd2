"""The report of a study: a page, its tables and a figure, in the study's folder."""

from pathlib import Path

import pandas as pd

from posfuse.analysis import page
from posfuse.analysis.drawings import Drawing
from posfuse.analysis.figures.svg import save
from posfuse.analysis.tables import formats
from posfuse.runs.records import flatten
from posfuse.study import figure, tables
from posfuse.study.plan import PLAN, Plan
from posfuse.study.spec import seeds_of
from posfuse.study.tables import Results
from posfuse.study.verdicts import Progress, accuracies, deltas


def write(name: str, plan: Plan, state: Progress, results: Results, folder: Path) -> list[str]:
    """Write the report into folder/report; returns its first lines: the plan and the answer."""
    study, out = plan.study, folder / "report"
    budget = tables.budget_table(plan)
    shown = [tables.verdict_table(study, state), tables.arms_table(plan, results)]
    shown += [budget] if budget else []
    formats.write_tables(shown, out / "tables")
    seeds, accuracy = seeds_of("testing.seeds", study.testing.seeds), accuracies(results)
    per_seed = {h.name: deltas(h, accuracy, seeds) for h in study.hypotheses}
    svg = save(figure.hypotheses(state.verdicts, per_seed), out / "figures", "hypotheses")
    drawing = Drawing("hypotheses", svg, "Each hypothesis and its difference.")
    headline = tables.headline(study, state)
    runs = pd.DataFrame([flatten(record) for record in results.values() if record])
    html = page.template("study.html.j2", __package__).render(
        name=name,
        digest=plan.digest,
        study=study,
        headline=[study.question, *headline, *map(tables.sentence, state.verdicts)],
        figures=[drawing],
        tables=shown,
        notes=[],
        command=f"posfuse-study run {name}",
        plan=(folder / PLAN).read_text(encoding="utf-8"),
        made=page.made_with(runs),
    )
    (out / "index.html").write_text(html, encoding="utf-8")
    return [f"Study {name}, plan {plan.digest[:16]}: {study.question}", " ".join(headline)]
