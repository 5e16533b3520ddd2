"""The report of a study: a page, its tables and a figure, in the study's folder."""

from pathlib import Path

import pandas as pd

from posfuse.analysis import page
from posfuse.analysis.drawings import Drawing
from posfuse.analysis.figures.svg import save
from posfuse.analysis.tables import formats
from posfuse.analysis.tables.cautions_table import cautions_tables
from posfuse.runs.records import flatten
from posfuse.study import cautions, figure, tables
from posfuse.study.plan import PLAN, Plan
from posfuse.study.provenance import provenance
from posfuse.study.run_table import RUNS, at
from posfuse.study.scores import Results, outcomes
from posfuse.study.verdicts import Progress, deltas


def write(
    name: str, plan: Plan, state: Progress, results: Results, runs: pd.DataFrame, folder: Path,
    command: str,
) -> list[str]:  # fmt: skip
    """Write the report into folder/report; returns its first lines: the plan and the answer.

    `runs` has one row per run; `command` runs the study.
    """
    study, metric, out = plan.study, plan.study.measured, folder / "report"
    further = [tables.lengths_table(results, metric), tables.bags_table(study, runs)]
    further.append(tables.budget_table(plan))
    leans = cautions.of_verdicts(plan, state, results)
    shown = [tables.verdict_table(study, state), *cautions_tables(leans, "hypotheses")]
    shown += [tables.arms_table(plan, results), *(table for table in further if table)]
    formats.write_tables(shown, out / "tables")
    per_seed = {
        h.name: deltas(h, outcomes(results, metric, h.outcome), study.test_seeds)
        for h in study.hypotheses
    }
    svg = save(figure.hypotheses(state.verdicts, per_seed, metric), out / "figures", "hypotheses")
    drawings = [Drawing("hypotheses", svg, "Each hypothesis and its difference.")]
    measured = runs[runs["norm_ratio"] > 0]
    if len(measured):
        svg = save(figure.ratios(measured, study.arms, metric), out / "figures", "ratios")
        drawings.append(
            Drawing("ratios", svg, f"{metric.heading} and the ratio of token to position.")
        )
    tested = runs[(runs["stage"] == "testing") & ~runs["diverged"]]
    if any(str(column).startswith(at(metric)) for column in tested):
        svg = save(figure.by_length(tested, study), out / "figures", "lengths")
        drawings.append(Drawing("lengths", svg, f"{metric.heading} by test length."))
    headline = tables.headline(study, state)
    of_each, of_all = cautions.sentences(leans)
    answers = [
        f"{tables.sentence(v, metric)} {of_each.get(v.hypothesis.name, '')}".rstrip()
        for v in state.verdicts
    ]
    records = pd.DataFrame([flatten(record) for record in results.values() if record])
    formats.write_csv(runs, out / RUNS)
    html = page.template("study.html.j2", __package__).render(
        name=name,
        digest=plan.digest,
        provenance=provenance(plan, results.values()),
        study=study,
        headline=[study.question, *headline, *answers, *filter(None, [of_all])],
        figures=drawings,
        tables=shown,
        notes=[],
        command=command,
        plan=(folder / PLAN).read_text(encoding="utf-8"),
        made=page.made_with(records),
    )
    (out / "index.html").write_text(html, encoding="utf-8")
    return [f"Study {name}, plan {plan.digest[:16]}: {study.question}", " ".join(headline)]
