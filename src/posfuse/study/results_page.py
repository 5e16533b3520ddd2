"""The report of a study: a page, its tables and its figures, in the study's folder."""

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

import pandas as pd

from posfuse.evidence.metric import Metric
from posfuse.report import formats, page
from posfuse.report.sections.cautions_table import cautions_section
from posfuse.report.sections.run_list import run_of, runs_html
from posfuse.report.sections.section import PLAN as THE_PLAN
from posfuse.report.sections.section import RESULTS, Drawing, Section
from posfuse.report.sections.section import RUNS as LIST_OF_RUNS
from posfuse.report.table import Table
from posfuse.runs.identity import flatten
from posfuse.runs.records import Record
from posfuse.statistics.cautions import Cautions
from posfuse.study import (
    caveats,
    figure,
    tables,
    tables_of_arms,
    tables_of_solved,
    tables_of_tuning,
)
from posfuse.study.looks import Progress, samples_of
from posfuse.study.plan import PLAN, Plan, provenance
from posfuse.study.repeats import units_of
from posfuse.study.run_table import RUNS
from posfuse.study.scores import Results
from posfuse.study.spec import Study
from posfuse.study.sweeps import OUTPUT


def write(
    name: str, plan: Plan, state: Progress, results: Results, runs: pd.DataFrame, folder: Path,
    command: str,
) -> list[str]:  # fmt: skip
    """Write the report into folder/report. Returns its first lines: the plan and the answer.

    `runs` has one row per run; `command` runs the study.
    """
    study, out = plan.study, folder / "report"
    sections = [*sections_of(plan, state, results, runs), _runs(runs, study.measured, out)]
    sections.append(plan_section(plan, folder))
    records = pd.DataFrame([flatten(record) for record in results.values() if record])
    page.write(sections, name, command, records, out, plan_line(plan, results.values()))
    formats.write_csv(runs, out / RUNS)
    headline = " ".join(tables.headline(study, state))
    return [f"Study {name}, plan {plan.digest[:16]}: {study.question}", headline]


def _runs(runs: pd.DataFrame, metric: Metric, out: Path) -> Section:
    rows = runs.to_dict("records")
    parts = [(row["stage"], row.get("repeat"), row["arm"], row["trial"]) for row in rows]
    names = [" ".join(filter(None, of_run)) for of_run in parts]
    values = runs.get(f"test_{metric.name}", pd.Series(float("nan"), runs.index))
    listed = [
        run_of(row, name, metric, value, out, OUTPUT)
        for row, name, value in zip(rows, names, values, strict=True)
    ]
    return Section(LIST_OF_RUNS, html=runs_html(listed, metric))


def plan_line(plan: Plan, records: Iterable[Record | None]) -> str:
    """The plan's digest, its time and the times of the records, as HTML."""
    line = page.template("plan_line.html.j2", __package__)
    return line.render(digest=plan.digest, provenance=provenance(plan, records))


def plan_section(plan: Plan, folder: Path) -> Section:
    """The section with the hypotheses and the plan's file."""
    text = (folder / PLAN).read_text(encoding="utf-8")
    html = page.template("plan.html.j2", __package__).render(study=plan.study, plan=text)
    return Section(THE_PLAN, html=html)


def sections_of(plan: Plan, state: Progress, results: Results, runs: pd.DataFrame) -> list[Section]:
    """What the study found, in the order of the page; `runs` are rows of `run_table`."""
    study, metric = plan.study, plan.study.measured
    leans = caveats.of_verdicts(plan, state, results)
    drawn, lengths = [], []
    if len(measured := runs[runs["norm_ratio"] > 0]):
        draw = partial(figure.ratios, measured, study.arms, metric)
        drawn = [Drawing("ratios", draw, f"{metric.heading} and the ratio of token to position.")]
    if table := tables_of_arms.lengths_table(results, metric):
        tested = runs[(runs["stage"] == "testing") & ~runs["diverged"]]
        draw = partial(figure.by_length, tested, study)
        drawing = Drawing("lengths", draw, f"{metric.heading} by test length.")
        lengths = [Section(RESULTS, drawings=[drawing], tables=[table])]
    return [
        _hypotheses(study, state, results, leans),
        *_alone(tables_of_solved.solved_table(study, state)),
        cautions_section(leans, "hypotheses", RESULTS),
        Section(RESULTS, drawings=drawn, tables=[tables_of_arms.arms_table(plan, results)]),
        *_alone(tables_of_tuning.tuning_table(plan, results)),
        *lengths,
        *_alone(tables_of_arms.bags_table(study, runs)),
        *_alone(tables_of_tuning.budget_table(plan)),
    ]


def _alone(table: Table | None) -> list[Section]:
    return [Section(RESULTS, tables=[table])] if table else []


def _hypotheses(
    study: Study, state: Progress, results: Results, leans: Mapping[str, Cautions]
) -> Section:
    metric, margins = study.measured, {h.margin for h in study.hypotheses}
    of_each, of_all = caveats.sentences(leans)
    samples, units = samples_of(study, results), units_of(study)
    per_unit = {name: dict(zip(units, own, strict=False)) for name, own in samples.items()}
    draw = partial(figure.hypotheses, state.verdicts, per_unit, metric)
    return Section(
        RESULTS,
        lead=[study.question, tables.headline(study, state)[0], *filter(None, [of_all])],
        answers=[
            tables.answer(v, metric, of_each.get(v.hypothesis.name, "")) for v in state.verdicts
        ],
        margin=min(margins) if len(margins) == 1 else 0,
        unit=metric.unit,
        drawings=[Drawing("hypotheses", draw, "Each hypothesis and its difference.")],
        tables=[tables.verdict_table(study, state)],
    )
