"""The report of a study: a page, its tables and its figures, in the study's folder."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import pandas as pd

from posfuse.evidence.metric import Metric
from posfuse.report import formats, page
from posfuse.report.sections.cautions_table import cautions_section
from posfuse.report.sections.run_list import run_of, runs_html
from posfuse.report.sections.section import PLAN as THE_PLAN
from posfuse.report.sections.section import RESULTS, Drawing, Section
from posfuse.report.sections.section import RUNS as LIST_OF_RUNS
from posfuse.runs.identity import flatten
from posfuse.runs.records import Record
from posfuse.statistics.cautions import Cautions
from posfuse.study import caveats, figure, tables, tables_of_tuning
from posfuse.study.looks import Progress, samples_of
from posfuse.study.plan import PLAN, Plan, provenance
from posfuse.study.repeats import units_of
from posfuse.study.run_table import RUNS
from posfuse.study.scores import Results
from posfuse.study.spec import Study
from posfuse.study.sweeps import OUTPUT


@dataclass(frozen=True)
class Outcome:
    """What the sections of a study's page are about."""

    plan: Plan
    state: Progress
    results: Results
    runs: pd.DataFrame  # rows of `run_table`

    @property
    def study(self) -> Study:
        return self.plan.study

    @property
    def metric(self) -> Metric:
        return self.study.measured

    @cached_property
    def cautions(self) -> dict[str, Cautions]:
        return caveats.of_verdicts(self.plan, self.state, self.results)


def write(
    name: str, plan: Plan, state: Progress, results: Results, runs: pd.DataFrame, folder: Path,
    command: str,
) -> list[str]:  # fmt: skip
    """Write the report into folder/report; returns its first lines: the plan and the answer.

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
    """The plan's digest, and what is known of its time and of the records', as HTML."""
    line = page.template("plan_line.html.j2", __package__)
    return line.render(digest=plan.digest, provenance=provenance(plan, records))


def plan_section(plan: Plan, folder: Path) -> Section:
    """The hypotheses, and the plan's file in the study's folder."""
    text = (folder / PLAN).read_text(encoding="utf-8")
    html = page.template("plan.html.j2", __package__).render(study=plan.study, plan=text)
    return Section(THE_PLAN, html=html)


def sections_of(plan: Plan, state: Progress, results: Results, runs: pd.DataFrame) -> list[Section]:
    """The sections for which the study has results; `runs` are rows of `run_table`."""
    outcome = Outcome(plan, state, results, runs)
    sections = (section(outcome) for section in SECTIONS)
    return [section for section in sections if section is not None]


def _hypotheses(of: Outcome) -> Section:
    study, metric, state = of.study, of.metric, of.state
    of_each, of_all = caveats.sentences(of.cautions)
    samples, units = samples_of(study, of.results), units_of(study)
    per_unit = {name: dict(zip(units, own, strict=False)) for name, own in samples.items()}
    draw = partial(figure.hypotheses, state.verdicts, per_unit, metric)
    headline, for_all = tables.headline(study, state), [of_all] if of_all else []
    rows = [tables.answer(v, metric, of_each.get(v.hypothesis.name, "")) for v in state.verdicts]
    return Section(
        RESULTS,
        lead=[study.question, headline[0], *for_all],
        answers=rows,
        margin=study.hypotheses[0].margin if len({h.margin for h in study.hypotheses}) == 1 else 0,
        unit=metric.unit,
        drawings=[Drawing("hypotheses", draw, "Each hypothesis and its difference.")],
        tables=[tables.verdict_table(study, state)],
    )


def _cautions(of: Outcome) -> Section:
    return cautions_section(of.cautions, "hypotheses", RESULTS)


def _arms(of: Outcome) -> Section:
    measured = of.runs[of.runs["norm_ratio"] > 0]
    draw = partial(figure.ratios, measured, of.study.arms, of.metric)
    caption = f"{of.metric.heading} and the ratio of token to position."
    drawings = [Drawing("ratios", draw, caption)] if len(measured) else []
    return Section(RESULTS, drawings=drawings, tables=[tables.arms_table(of.plan, of.results)])


def _lengths(of: Outcome) -> Section | None:
    table = tables.lengths_table(of.results, of.metric)
    if table is None:
        return None
    tested = of.runs[(of.runs["stage"] == "testing") & ~of.runs["diverged"]]
    draw = partial(figure.by_length, tested, of.study)
    drawing = Drawing("lengths", draw, f"{of.metric.heading} by test length.")
    return Section(RESULTS, drawings=[drawing], tables=[table])


def _bags(of: Outcome) -> Section | None:
    table = tables.bags_table(of.study, of.runs)
    return Section(RESULTS, tables=[table]) if table else None


def _tuning(of: Outcome) -> Section | None:
    table = tables_of_tuning.tuning_table(of.plan, of.results)
    return Section(RESULTS, tables=[table]) if table else None


def _budget(of: Outcome) -> Section | None:
    table = tables_of_tuning.budget_table(of.plan)
    return Section(RESULTS, tables=[table]) if table else None


SECTIONS = (
    _hypotheses,
    _cautions,
    _arms,
    _tuning,
    _lengths,
    _bags,
    _budget,
)  # in the order of the page
