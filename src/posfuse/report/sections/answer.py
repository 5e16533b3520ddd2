"""The answer of a sweep: the first lines on the terminal and on the page, and their table."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from posfuse.evidence.collect import standing
from posfuse.evidence.metric import Metric
from posfuse.report.sections.section import Answer, Section
from posfuse.report.sweep import Sweep
from posfuse.report.table import Row, interval, p_value
from posfuse.statistics.comparisons import EXPLORATORY, PLACEBO, PRIMARY, Criteria
from posfuse.statistics.contrasts import DECIDED, EQUIVALENT, UNDECIDED
from posfuse.statistics.own_best import chosen_by, keys_of
from posfuse.verdicts.sentences import Size, to_settle

SECOND = {"placebo": "Position adds", "scratch": "Pretraining adds"}  # by the second gain's name


def section(sweep: Sweep) -> Section:
    best, criteria = sweep.best.best, sweep.criteria
    rows = rows_of(sweep.comparisons, best, best)
    second = rows_of(sweep.placebos, sweep.best_placebos, best)
    second += rows_of(sweep.survival, sweep.survival[:0], best)
    lines = lead(rows, sweep.cells, sweep.comparisons, best, criteria)
    return Section(
        lead=[*lines, standing(sweep.folder, str(sweep.runs["sweep_id"].iloc[0]))],
        answers=answers(rows, second, criteria),
        margin=criteria.margin,
        unit=criteria.metric.points,
    )


def lead(
    rows: list[Row], cells: pd.DataFrame, comparisons: pd.DataFrame, best: pd.DataFrame,
    criteria: Criteria,
) -> list[str]:  # fmt: skip
    """Lines with the number of decided differences to the baseline, with the keys of which each
    operator has its own best values, and about each corpus and encoding without a comparison."""
    tuned = []
    if len(best):
        chosen = chosen_by(best, criteria)
        tuned = [f"Each operator has its own best {keys_of(best)} ({chosen})."]
    return [_count(rows, criteria), *tuned, *_uncompared(cells, comparisons, best, criteria)]


def rows_of(frame: pd.DataFrame, at_best: pd.DataFrame, best: pd.DataFrame) -> list[Row]:
    """The rows of a frame of comparisons for the answer, with their place and operator in words. If
    operators ran with several values of a tuned key, the rows come from `at_best`, the same frame
    at the best values. `best` is the frame of `OwnBest`."""
    tuned = set(zip(best["data"], best["encoding"], strict=True))
    untuned = (row for row in _rows(frame) if row["place"][:2] not in tuned)
    return [*_rows(at_best), *untuned]


def answers(rows: list[Row], second: list[Row], criteria: Criteria) -> list[Answer]:
    """A row for each comparison, decided ones first. `second` has the rows of the parts from
    position or pretraining."""
    places = list(dict.fromkeys(row["place"] for row in rows))
    has_encodings = len({encoding for _, encoding, _ in places}) > 1
    has_settings = len(places) > len({place[:2] for place in places})
    added: dict[Any, list[str]] = {}
    for row in second:
        if row["role"] == PRIMARY:
            own = added.setdefault((row["place"], row["fusion"]), [])
            own.append(_added(row, criteria.metric))
    table = []
    for row in sorted(rows, key=lambda row: places.index(row["place"])):
        data, encoding, setting = row["place"]
        where = ", ".join(filter(None, (data, encoding * has_encodings, setting * has_settings)))
        more = added.get((row["place"], row["fusion"]), [])
        table.append(_answer(row, where, more, criteria))
    return sorted(table, key=lambda answer: answer.verdict not in DECIDED)


def _answer(row: Row, where: str, added: Sequence[str], criteria: Criteria) -> Answer:
    base = criteria.baseline
    if "baseline_at" in row:
        base = f"{base} (at {row['baseline_at']})"
    verdict = EXPLORATORY if row["role"] == EXPLORATORY else row["verdict"]
    if np.isnan(row["p_t"]):
        verdict = "not tested"
    details = " ".join([_sentence(row, criteria), *added])
    return Answer(
        verdict, f"{where}: {row['operator']} - {base}", row["mean"], row["low"], row["high"],
        str(row["n"]), details, criteria.metric.digits,
    )  # fmt: skip


def _uncompared(
    cells: pd.DataFrame, comparisons: pd.DataFrame, best: pd.DataFrame, criteria: Criteria
) -> list[str]:
    """A line for each corpus and encoding without a comparison: its results, and the runs to
    add."""
    base, metric, lines = criteria.baseline, criteria.metric, []
    places = (zip(frame["data"], frame["encoding"], strict=True) for frame in (best, comparisons))
    compared = {place for frame in places for place in frame}
    for (data, encoding), group in cells.groupby(["data", "encoding"], sort=False):
        if (data, encoding) in compared:
            continue
        ranked = group.sort_values("mean", ascending=metric.lower_is_better).to_dict("records")
        listed = ", ".join(
            f"{c['fusion']} {metric.number(c['mean'])}{metric.percent} (n = {c['n']})"
            for c in ranked[:3]
        )
        fix = "run both with the same seeds and settings"
        if base not in set(group["fusion"]):
            fix = f"run fusion={base}, or choose another operator with --baseline"
        elif set(group["fusion"]) == {base}:
            fix = "run another operator with the same seeds"
        lines.append(f"On {data} ({encoding}): {listed}. Nothing is compared with {base}: {fix}.")
    return lines


def _rows(frame: pd.DataFrame) -> Iterator[Row]:
    """The rows with their operator in words, and their place: corpus, encoding and setting."""
    for row in frame[frame["role"] != PLACEBO].to_dict("records"):
        operator, setting = row["fusion"], row.get("baseline_variant", row["variant"])
        if "baseline_at" in row:
            operator, setting = f"{operator} (at {row['at']})", row["variant"]
        elif row["variant"] != setting:
            operator = f"{operator} {row['variant']}".strip()
        yield {**row, "place": (row["data"], row["encoding"], setting), "operator": operator}


def _count(rows: list[Row], criteria: Criteria) -> str:
    tested = [row for row in rows if not np.isnan(row["p_t"]) and row["role"] == PRIMARY]
    others = sum(row["role"] == EXPLORATORY for row in rows)
    more = f" {others} more {'is' if others == 1 else 'are'} exploratory." if others else ""
    base = criteria.baseline
    if not tested:
        return f"No difference to {base} could be tested.{more}"
    number = sum(row["verdict"] in DECIDED for row in tested)
    return (
        f"Decided: {number} of {len(tested)} differences to {base}: p ≤ {criteria.alpha:g} after "
        f"Holm's adjustment, for a difference or for equivalence within ±{criteria.within} on "
        f"these test documents.{more}"
    )


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
        more = to_settle(row["seeds_observed"], row["seeds_equivalence"])
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
