"""The report of a study: a page, its tables and its figures, in the study's folder."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup
from matplotlib.figure import Figure

from posfuse.evidence.bag_of_words import task_bags
from posfuse.evidence.metric import Metric
from posfuse.report import page
from posfuse.report.sections.cautions_table import cautions_section
from posfuse.report.sections.differences import forest_of
from posfuse.report.sections.run_list import run_of, runs_html
from posfuse.report.sections.section import RESULTS, RUN_LIST, THE_PLAN, Drawing, Section, drawing
from posfuse.report.table import Table
from posfuse.runs.identity import flatten
from posfuse.runs.measurements import Diagnostic, read_table
from posfuse.runs.records import DIAGNOSTICS
from posfuse.statistics.cautions import Cautions
from posfuse.study import arm_figures, caveats, results_by_arm, tables
from posfuse.study.arm_sweep import OUTPUT
from posfuse.study.looks import HypothesisVerdict, Progress
from posfuse.study.plan import PLAN, Plan, provenance
from posfuse.study.repeats import units_of
from posfuse.study.run_table import RECORD
from posfuse.study.spec import BEYOND, Study


def with_measurements(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs with `norm_ratio` and, of test runs of a classifier on a generated task, with the
    accuracy of both bags of words.

    `norm_ratio` is the mean norm of the token's part of the fused vector divided by that of the
    position's part, at the end of the last whole epoch; NaN if the operator has no such parts.
    """
    more = [_measurements(run) for run in runs.to_dict("records")]
    return runs.join(pd.DataFrame(more, runs.index, dtype=float))


def _measurements(run: dict[Any, Any]) -> dict[str, float]:
    if run["diverged"]:
        return {"norm_ratio": np.nan}
    folder = Path(run["folder"])
    frame = read_table(folder / DIAGNOSTICS, Diagnostic)
    frame = frame[(frame["name"] == "norm_ratio") & (frame["by"] == "")].sort_values("epoch")
    bags = task_bags(folder, run[RECORD]) if run["stage"] == "testing" else {}
    return {"norm_ratio": frame["value"].iloc[-1] if len(frame) else np.nan, **bags}


def write(
    name: str, plan: Plan, state: Progress, runs: pd.DataFrame, folder: Path, command: str
) -> tuple[list[Section], Path]:
    """Write the report of the runs of both stages into folder/report. Returns its sections and the
    path of its page. `command` runs the study."""
    study, out = plan.study, folder / "report"
    sections = [*sections_of(plan, state, runs), _runs(runs, study.measured, out)]
    tested = runs[runs["stage"] == "testing"]
    sections.append(plan_section(plan, tested, folder))
    records = pd.DataFrame(map(flatten, tested[RECORD].dropna()))
    path = page.write(sections, name, command, records, out, runs.drop(columns=RECORD))
    return sections, path


def _runs(runs: pd.DataFrame, metric: Metric, out: Path) -> Section:
    listed = []
    for row in runs.to_dict("records"):
        names = row["stage"], row.get("repeat"), row["arm"], row["trial"]
        result = row[f"test_{metric.name}"]
        listed.append(run_of(row, " ".join(filter(None, names)), metric, result, out, OUTPUT))
    return Section(RUN_LIST, html=runs_html(listed, metric))


def plan_section(plan: Plan, tested: pd.DataFrame, folder: Path) -> Section:
    """The section with the plan's digest, its time, the times of the test runs, and its file."""
    html = Markup(
        "<p>Plan <code>{}</code>. {}</p>"
        "<details><summary>plan.yaml</summary><pre><code>{}</code></pre></details>"
    )
    file = (folder / PLAN).read_text("utf-8")
    return Section(THE_PLAN, html=html.format(plan.digest, provenance(plan, tested), file))


def sections_of(plan: Plan, state: Progress, runs: pd.DataFrame) -> list[Section]:
    """What the study found, in the order of the page."""
    study, metric = plan.study, plan.study.measured
    tested = runs[runs["stage"] == "testing"]
    by_ratio = f"{metric.heading} and the ratio of token to position."
    ratios = drawing(arm_figures.ratios, runs[runs["norm_ratio"] > 0], study, caption=by_ratio)
    by_length = f"{metric.heading} by test length."
    lengths = drawing(arm_figures.lengths, tested, study, caption=by_length)
    return [
        *verdict_sections(plan, state, tested),
        *_of(results_by_arm.arms_table(plan, tested), ratios),
        *_of(results_by_arm.tuning_table(plan, tested)),
        *_of(results_by_arm.lengths_table(tested, metric), lengths),
        *_of(results_by_arm.bags_table(study, runs)),
        *_of(results_by_arm.budget_table(plan)),
    ]


def _of(table: Table | None, drawings: Sequence[Drawing] = ()) -> list[Section]:
    """The section of a table and its figures, if there is a table."""
    return [Section(RESULTS, drawings=drawings, tables=[table])] if table else []


def verdict_sections(plan: Plan, state: Progress, tested: pd.DataFrame) -> list[Section]:
    """The verdicts so far and their cautions. `tested` are the test runs."""
    by_name = caveats.of_verdicts(plan, state, tested)
    return [_hypotheses(plan, state, by_name), cautions_section(by_name, "hypotheses", RESULTS)]


def _hypotheses(plan: Plan, state: Progress, by_name: Mapping[str, Cautions]) -> Section:
    study, frozen = plan.study, f", frozen at {plan.frozen}" if plan.frozen else ""
    metric, margins = study.measured, {h.margins.equivalence for h in study.hypotheses}
    return Section(
        RESULTS,
        lead=[study.question, tables.headline(state)],
        basis=[f"Plan {plan.digest[:16]}{frozen}."],
        answers=[
            tables.answer(v, metric, by_name.get(v.hypothesis.name, ())) for v in state.verdicts
        ],
        margin=min(margins) if len(margins) == 1 else 0,
        unit=metric.unit,
        counted=study.units,
        is_listed=True,
        shown=[tables.compared(study)],
        drawings=drawing(
            hypotheses, state.verdicts, study, caption="Each hypothesis and its difference."
        ),
        tables=[tables.verdict_table(study, state)],
    )


def hypotheses(verdicts: Sequence[HypothesisVerdict], study: Study) -> Figure:
    """A row for each judged hypothesis with the difference of its answer, in a block for each
    family."""
    metric, units, unit = study.measured, units_of(study), study.units.removesuffix("s")
    beyond = any(h.outcome == BEYOND and h.solved is None for h in study.hypotheses)
    longer = ", or of its mean beyond the trained length" if beyond else ""
    early = f', in rows with "decided at" the 95 % interval over all {study.units}'
    has_early = any(v.all_seeds for v in verdicts)
    caption = (
        f"difference in {tables.quantity(study)}{longer}; small mark: one "
        f"{unit}; line: the interval that is valid over all looks{early * has_early}; shaded: the "
        "margin within which a difference does not matter"
    )
    rows = [
        {
            "data": v.hypothesis.family, "encoding": v.hypothesis.name, "fusion": v.verdict,
            "variant": "", "margin": v.hypothesis.margin, "n": v.counted, "mean": d.mean,
            "low": d.low, "high": d.high, "seeds": units[: d.n], "deltas": v.differences[: d.n],
        }
        for v in verdicts
        if (d := v.shown)
    ]  # fmt: skip
    return forest_of(pd.DataFrame(rows), caption, metric, of_each=unit)
