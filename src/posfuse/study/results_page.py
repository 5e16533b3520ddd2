"""The report of a study: a page, its tables and its figures, in the study's folder."""

from functools import partial
from pathlib import Path

import pandas as pd

from posfuse.report import formats, page
from posfuse.report.sections.cautions_table import cautions_section
from posfuse.report.sections.section import PLAN as THE_PLAN
from posfuse.report.sections.section import RESULTS, Drawing, Section
from posfuse.runs.identity import flatten
from posfuse.study import caveats, figure, tables
from posfuse.study.looks import Progress, deltas
from posfuse.study.plan import PLAN, Plan, provenance
from posfuse.study.run_table import RUNS, at
from posfuse.study.scores import Results, outcomes


def write(
    name: str, plan: Plan, state: Progress, results: Results, runs: pd.DataFrame, folder: Path,
    command: str,
) -> list[str]:  # fmt: skip
    """Write the report into folder/report; returns its first lines: the plan and the answer.

    `runs` has one row per run; `command` runs the study.
    """
    study, out = plan.study, folder / "report"
    lead = page.template("plan_line.html.j2", __package__).render(
        digest=plan.digest, provenance=provenance(plan, results.values())
    )
    text = (folder / PLAN).read_text(encoding="utf-8")
    html = page.template("plan.html.j2", __package__).render(study=study, plan=text)
    sections = [*sections_of(plan, state, results, runs), Section(THE_PLAN, html=html)]
    records = pd.DataFrame([flatten(record) for record in results.values() if record])
    page.write(sections, name, command, records, out, lead)
    formats.write_csv(runs, out / RUNS)
    headline = " ".join(tables.headline(study, state))
    return [f"Study {name}, plan {plan.digest[:16]}: {study.question}", headline]


def sections_of(plan: Plan, state: Progress, results: Results, runs: pd.DataFrame) -> list[Section]:
    """The hypotheses, what they lean on, the arms, and what else the runs have."""
    study, metric = plan.study, plan.study.measured
    leans = caveats.of_verdicts(plan, state, results)
    of_each, of_all = caveats.sentences(leans)
    answers = [
        f"{tables.sentence(v, metric)} {of_each.get(v.hypothesis.name, '')}".rstrip()
        for v in state.verdicts
    ]
    further = [tables.lengths_table(results, metric), tables.bags_table(study, runs)]
    further.append(tables.budget_table(plan))
    return [
        Section(
            RESULTS,
            sentences=[
                study.question, *tables.headline(study, state), *answers, *filter(None, [of_all])
            ],
            drawings=_drawings(plan, state, results, runs),
            tables=[tables.verdict_table(study, state)],
        ),
        cautions_section(leans, "hypotheses", RESULTS),
        Section(RESULTS, tables=[tables.arms_table(plan, results), *filter(None, further)]),
    ]  # fmt: skip


def _drawings(plan: Plan, state: Progress, results: Results, runs: pd.DataFrame) -> list[Drawing]:
    study, metric = plan.study, plan.study.measured
    per_seed = {
        h.name: deltas(h, outcomes(results, metric, h.outcome), study.test_seeds)
        for h in study.hypotheses
    }
    draw = partial(figure.hypotheses, state.verdicts, per_seed, metric)
    drawings = [Drawing("hypotheses", draw, "Each hypothesis and its difference.")]
    measured = runs[runs["norm_ratio"] > 0]
    if len(measured):
        draw = partial(figure.ratios, measured, study.arms, metric)
        caption = f"{metric.heading} and the ratio of token to position."
        drawings.append(Drawing("ratios", draw, caption))
    tested = runs[(runs["stage"] == "testing") & ~runs["diverged"]]
    if any(str(column).startswith(at(metric)) for column in tested):
        draw = partial(figure.by_length, tested, study)
        drawings.append(Drawing("lengths", draw, f"{metric.heading} by test length."))
    return drawings
