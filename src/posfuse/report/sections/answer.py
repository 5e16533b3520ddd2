"""The answer of a sweep: the first lines on the terminal and on the page, and their table."""

from collections import Counter
from typing import Any

import numpy as np
import pandas as pd

from posfuse.evidence.collect import plan_status
from posfuse.evidence.metric import Metric
from posfuse.report.sections.section import Answer, Section, answer_of
from posfuse.report.sweep import Sweep
from posfuse.report.table import Row, interval, p_value
from posfuse.statistics.comparisons import EXPLORATORY, PLACEBO, PRIMARY, Criteria
from posfuse.statistics.contrasts import DECIDED, EQUIVALENT, UNDECIDED
from posfuse.statistics.own_best import chosen_by, keys_of
from posfuse.verdicts.sentences import Size, to_settle

MOST = 3  # corpora in the question
SECOND = {"placebo": "Position adds", "scratch": "Pretraining adds"}  # by the second gain's name


def section(sweep: Sweep) -> Section:
    best, criteria = sweep.best, sweep.criteria
    rows = rows_of(best.best, best.others(sweep.comparisons))
    second = rows_of(sweep.best_placebos, best.others(sweep.placebos))
    second += rows_of(best.others(sweep.pretraining_effect))
    status = plan_status(sweep.runs)
    return Section(
        lead=[question(sweep), counted(rows, criteria.baseline), *to_compare(sweep)],
        basis=[*rules(rows, best.best, criteria), f"{runs_of(sweep)} {status}"],
        answers=answers(rows, second, criteria),
        margin=criteria.margin,
        unit=criteria.metric.points,
    )


def question(sweep: Sweep) -> str:
    base, corpora = sweep.criteria.baseline, sorted(set(sweep.runs["data"]))
    more = f" and {len(corpora) - MOST} more" if len(corpora) > MOST else ""
    where = f"{', '.join(corpora[:MOST])}{more}"
    return f"Which operators are better than {base} on {where}, by test {sweep.metric.title}?"


def to_compare(sweep: Sweep) -> list[str]:
    """A line with the runs that a comparison needs, if the sweep has no run of the baseline or of
    another operator."""
    base = sweep.criteria.baseline
    if not sweep.has_baseline:
        return [f"To compare, run fusion={base} with the same settings and seeds."]
    if set(sweep.runs["fusion"]) == {base}:
        return ["To compare, run another operator with the same settings and seeds."]
    return []


def rows_of(*frames: pd.DataFrame) -> list[Row]:
    """The rows of frames of comparisons for the answer, with their place (corpus, encoding and
    setting) and operator in words."""
    rows = []
    for row in (row for frame in frames for row in frame.to_dict("records")):
        operator, setting = row["fusion"], row["baseline_variant"]
        if "baseline_at" in row:
            operator = f"{operator} (at {row['at']})"
        elif row["variant"] != setting:
            operator = f"{operator} {row['variant']}".strip()
        place = (row["data"], row["encoding"], setting)
        if row["role"] != PLACEBO:
            rows.append({**row, "place": place, "operator": operator})
    return rows


def counted(rows: list[Row], base: str) -> str:
    """The number of comparisons with each verdict, in a sentence."""
    tested = Counter(row["verdict"] for row in rows if is_tested(row))
    others = sum(row["role"] == EXPLORATORY for row in rows)
    if others and others == len(rows):
        return f"No difference from {base} is in the primary family, so all are exploratory."
    counts = ", ".join(f"{n} {verdict}" for verdict, n in sorted(tested.items()))
    total = sum(tested.values())
    first = f"{total} difference{'s' * (total != 1)} from {base}: {counts}."
    if not tested:
        first = f"No difference from {base} could be tested."
    more = f" {others} more {'is' if others == 1 else 'are'} exploratory." if others else ""
    return f"{first}{more}"


def is_tested(row: Row) -> bool:
    return row["role"] == PRIMARY and not np.isnan(row["p_t"])


def rules(rows: list[Row], best: pd.DataFrame, criteria: Criteria) -> list[str]:
    """When a difference counts as decided, the declared family, and which keys have values of each
    operator's own."""
    lines = []
    if any(map(is_tested, rows)):
        lines.append(
            f"Decided: p ≤ {criteria.alpha:g} after Holm's adjustment, for a difference or for "
            f"equivalence within ±{criteria.within} on these test documents."
        )
    if criteria.primary and rows:
        family = ", ".join(criteria.primary)
        lines.append(f"Primary family: {family}. Differences of other operators are exploratory.")
    if not best.empty:
        chosen = chosen_by(best, criteria)
        lines.append(f"Each operator has its own best {keys_of(best)} ({chosen}).")
    return lines


def runs_of(sweep: Sweep) -> str:
    """The number of runs, their encodings, and the unit of their differences."""
    metric, runs, missing = sweep.metric, len(sweep.runs), len(sweep.missing)
    encodings = ", ".join(sweep.runs["encoding"].unique())
    left = f", {sweep.left_out} left out" * (sweep.left_out > 0)
    return (
        f"{runs} run{'s' * (runs != 1)}, {missing} missing{left}; encoding {encodings}. "
        f"Differences are in {metric.points}{metric.better}, paired by seed."
    )


def answers(rows: list[Row], second: list[Row], criteria: Criteria) -> list[Answer]:
    """A row for each comparison, decided ones first. `second` has the rows of the parts from
    position or pretraining."""
    places = list(dict.fromkeys(row["place"] for row in rows))
    has_encodings = len({encoding for _, encoding, _ in places}) > 1
    has_settings = len(places) > len({place[:2] for place in places})
    added: dict[Any, list[str]] = {}
    for row in second:
        if row["role"] == PRIMARY:
            own = added.setdefault((row["place"], row["fusion"], row["variant"]), [])
            own.append(_added(row, criteria.metric))
    table = []
    for row in sorted(rows, key=lambda row: places.index(row["place"])):
        data, encoding, setting = row["place"]
        where = ", ".join(filter(None, (data, encoding * has_encodings, setting * has_settings)))
        at = f" (at {row['baseline_at']})" if "baseline_at" in row else ""
        more = added.get((row["place"], row["fusion"], row["variant"]), [])
        details = " ".join([_sentence(row, criteria), *more])
        comparison = f"{where}: {row['operator']} - {criteria.baseline}{at}"
        table.append(answer_of(row, comparison, criteria.metric.digits, details))
    return sorted(table, key=lambda answer: answer.verdict not in DECIDED)


def _sentence(row: Row, criteria: Criteria) -> str:
    metric, n = criteria.metric, row["n"]
    size = Size(
        row["operator"], criteria.baseline, row["mean"], row["low"], row["high"], metric,
        metric.digits, unit=metric.points,
    )  # fmt: skip
    if np.isnan(row["p_t"]):
        few = "One seed gives" if n == 1 else f"Equal differences of {n} seeds give"
        return f"{size.difference}. {few} no interval and no test; run more seeds."
    if row["role"] == EXPLORATORY:
        p = f"p {p_value(row['p_t'])}, not adjusted"
        return f"{size.difference}, {n} seeds, exploratory: {p}."
    within, verdict = f"within ±{criteria.within}", row["verdict"]
    if verdict == UNDECIDED:
        # If the measured difference is 0, only equivalence could be shown.
        decision = row["seeds_decision"] if abs(row["mean"]) > 1e-9 else np.inf
        more = to_settle(decision, row["seeds_equivalence"])
        return f"{size.difference}, {n} seeds, undecided. {more}".rstrip()
    if verdict == EQUIVALENT:
        return f"{size.difference}, {n} seeds, equivalent {within} on these test documents."
    return f"{size.relation}, {n} seeds{f', also {within}' if row['small'] else ''}."


def _added(row: Row, metric: Metric) -> str:
    """A sentence about the part of a difference from position or pretraining."""
    what = next(text for name, text in SECOND.items() if name in row)
    verdict = "not tested" if np.isnan(row["p_t"]) else f"{row['n']} seeds, {row['verdict']}"
    ends = interval(row["low"], row["high"], metric.digits)
    shown = ", ".join(filter(None, (ends, verdict)))
    return f"{what} {metric.signed(row['mean'])} {metric.unit} to this difference ({shown})."
