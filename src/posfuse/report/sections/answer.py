"""The results of a sweep in sentences: the first lines of the terminal and of the page."""

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from posfuse.evidence.collect import standing
from posfuse.evidence.metric import Metric
from posfuse.report.sections.section import Answer, Section
from posfuse.report.sweep import Sweep
from posfuse.report.table import Row, interval, p_value
from posfuse.statistics.comparisons import EXPLORATORY, PLACEBO, PRIMARY, Criteria
from posfuse.statistics.contrasts import AHEAD, BEHIND, EQUIVALENT, UNDECIDED
from posfuse.statistics.own_best import chosen_by, keys_of
from posfuse.verdicts.sentences import Size, decided, to_settle

MOST_LINES = 8  # lines of a corpus and an encoding
MOST_UNDECIDED = 3  # with more in a line, only the first has its numbers
DECIDED = (AHEAD, BEHIND, EQUIVALENT)
SECOND = {"placebo": "Position adds", "scratch": "Pretraining adds"}  # by the second gain's name


def section(sweep: Sweep) -> Section:
    best, criteria = sweep.best.best, sweep.criteria
    second, second_best = [sweep.placebos, sweep.survival], [sweep.best_placebos]
    lines = headline(sweep.cells, sweep.comparisons, best, criteria, second, second_best)
    plan = standing(sweep.folder, str(sweep.runs["sweep_id"].iloc[0]))
    return Section(
        sentences=[*lines, plan],
        lead=[lines[0], *_uncompared(sweep.cells, sweep.comparisons, best, criteria), plan],
        answers=answers(by_place(sweep.comparisons, best, second, second_best), criteria),
        margin=criteria.margin,
        unit=criteria.metric.points,
    )


Places = dict[tuple[str, ...], list[Row]]  # by corpus, encoding and setting


def by_place(
    comparisons: pd.DataFrame,
    best: pd.DataFrame,
    second: Sequence[pd.DataFrame] = (),
    second_best: Sequence[pd.DataFrame] = (),
) -> tuple[Places, list[Places]]:
    """The rows of the answer, and those of each frame of what position or pretraining adds. Where
    operators ran with several values of a tuned key, the rows are those at their best values.

    `comparisons` is a frame of comparisons.py, `best` that of `OwnBest`; `second` are frames of
    second_differences.py for `comparisons`, and `second_best` those for `best`.
    """
    tuned = set(zip(best["data"], best["encoding"], strict=True))

    def places(at_best: pd.DataFrame, frame: pd.DataFrame) -> Places:
        rows: Places = {}
        untuned = (r for r in _rows(frame) if (r["data"], r["encoding"]) not in tuned)
        for row in [*_rows(at_best), *untuned]:
            rows.setdefault((row["data"], row["encoding"], row["setting"]), []).append(row)
        return rows

    further = [places(best.iloc[:0], frame) for frame in second]
    further += [places(frame, comparisons.iloc[:0]) for frame in second_best]
    return places(best, comparisons), further


def answers(rows: tuple[Places, list[Places]], criteria: Criteria) -> list[Answer]:
    """A row for each comparison, the decided ones first."""
    groups, further = rows
    has_settings = len(groups) > len({key[:2] for key in groups})
    table = []
    for key, group in groups.items():
        data, encoding, setting = key
        where = f"{data}, {' '.join(filter(None, (encoding, setting * has_settings)))}"
        for row in group:
            same = [[r for r in f.get(key, []) if r["fusion"] == row["fusion"]] for f in further]
            added = [_second(own, criteria.metric) for own in same]
            table.append(_answer(row, where, added, criteria))
    return sorted(table, key=lambda answer: answer.verdict not in DECIDED)


def _answer(row: Row, where: str, added: Sequence[str], criteria: Criteria) -> Answer:
    base, metric = criteria.baseline, criteria.metric
    if "baseline_at" in row:
        base = f"{base} (at {row['baseline_at']})"
    verdict = EXPLORATORY if row["role"] == EXPLORATORY else row["verdict"]
    if np.isnan(row["p_t"]):
        verdict = "not tested"
    ends = interval(row["low"], row["high"], metric.digits)
    return Answer(
        verdict,
        f"{where}: {row['operator']} - {base}",
        f"{metric.signed(row['mean'])} {f'({ends})' if ends else ''}".rstrip(),
        row["mean"],
        row["low"],
        row["high"],
        str(row["n"]),
        " ".join([_sentence(row, criteria), *filter(None, added)]),
    )


def headline(
    cells: pd.DataFrame,
    comparisons: pd.DataFrame,
    best: pd.DataFrame,
    criteria: Criteria,
    second: Sequence[pd.DataFrame] = (),
    second_best: Sequence[pd.DataFrame] = (),
) -> list[str]:
    """How many differences to the baseline are decided, then a line for each corpus and encoding.

    `cells` is a frame of comparisons.py; the other frames are those of `by_place`. If operators ran
    with several values of a tuned key, the line compares each at its best values. Exploratory
    differences have a short sentence without a verdict.
    """
    groups, further = by_place(comparisons, best, second, second_best)
    corpora, metric = {key[:2] for key in groups}, criteria.metric
    lines = []
    for key, group in groups.items():
        data, encoding, setting = key
        named = setting if len(groups) > len(corpora) else ""
        where = f"On {data} ({', '.join(filter(None, (encoding, named)))})"
        if "baseline_at" in group[0]:
            keys = f"{keys_of(best)} ({chosen_by(best, criteria)})"
            at = f"{criteria.baseline} at {group[0]['baseline_at']}"
            where += f", each operator at its own best {keys}, {at}"
        texts = [_sentences(group, criteria), *(_second(f.get(key, []), metric) for f in further)]
        is_decided = any(row["verdict"] in DECIDED for row in group)
        lines.append((is_decided, f"{where}: {' '.join(filter(None, texts))}"))
    lines += [(False, line) for line in _uncompared(cells, comparisons, best, criteria)]
    rows = [row for group in groups.values() for row in group]
    return [_count(rows, criteria), *_fold(lines)]


def _uncompared(
    cells: pd.DataFrame, comparisons: pd.DataFrame, best: pd.DataFrame, criteria: Criteria
) -> list[str]:
    """A line for each corpus and encoding without a comparison."""
    compared = {
        place
        for frame in (best, comparisons)
        for place in zip(frame["data"], frame["encoding"], strict=True)
    }
    return [
        _why_not_compared(str(data), str(encoding), group, criteria)
        for (data, encoding), group in cells.groupby(["data", "encoding"], sort=False)
        if (data, encoding) not in compared
    ]


def _rows(frame: pd.DataFrame) -> Iterator[Row]:
    """The rows with the names of their operator and setting."""
    for row in frame[frame["role"] != PLACEBO].to_dict("records"):
        operator, setting = row["fusion"], row.get("baseline_variant", row["variant"])
        if "baseline_at" in row:
            operator, setting = f"{operator} (at {row['at']})", row["variant"]
        elif row["variant"] != setting:
            operator = f"{operator} {row['variant']}".strip()
        yield {**row, "setting": setting, "operator": operator}


def _count(rows: list[Row], criteria: Criteria) -> str:
    tested = [row for row in rows if not np.isnan(row["p_t"]) and row["role"] == PRIMARY]
    others = sum(row["role"] == EXPLORATORY for row in rows)
    more = f" {others} more {'is' if others == 1 else 'are'} exploratory." if others else ""
    base = criteria.baseline
    if not tested:
        return f"No difference to {base} could be tested.{more}"
    number = sum(row["verdict"] in DECIDED for row in tested)
    return (
        f"{decided(number, len(tested), f'differences to {base}')}: p ≤ {criteria.alpha:g} after "
        f"Holm's adjustment, for a difference or for equivalence within ±{criteria.within} on "
        f"these test documents.{more}"
    )


def _fold(lines: list[tuple[bool, str]]) -> list[str]:
    """All lines; if they are too many, the decided ones first and the number of the others."""
    if len(lines) <= MOST_LINES:
        return [text for _, text in lines]
    ranked = sorted(lines, key=lambda line: not line[0])
    shown, left = ranked[:MOST_LINES], ranked[MOST_LINES:]
    more = (
        f"{len(left)} more combinations of corpus, encoding and settings are in the tables; "
        f"{sum(line[0] for line in left) or 'none'} of them with a decided difference."
    )
    return [*(text for _, text in shown), more]


def _sentences(every: list[Row], criteria: Criteria) -> str:
    metric = criteria.metric
    rows = [row for row in every if row["role"] == PRIMARY]
    ranked = sorted(rows, key=lambda r: (r["verdict"] == UNDECIDED, -metric.gain(r["mean"])))
    undecided = [row for row in ranked if row["verdict"] == UNDECIDED]
    # The undecided rows are the last ones.
    folded = undecided[1:] if len(undecided) > MOST_UNDECIDED else []
    texts = [_sentence(row, criteria) for row in ranked[: len(ranked) - len(folded)]]
    texts += _line_of("Also undecided", folded, metric)
    if others := [row for row in every if row["role"] == EXPLORATORY]:
        listed = ", ".join(_exploratory(row, metric) for row in others)
        texts.append(f"Exploratory, not adjusted: {listed} {metric.points}.")
    text = " ".join(texts)
    # In full the first time, then shorter.
    end = text.index(metric.points) + len(metric.points)
    return text[:end] + text[end:].replace(metric.points, metric.unit)


def _line_of(what: str, rows: list[Row], metric: Metric) -> list[str]:
    listed = ", ".join(f"{row['operator']} {metric.signed(row['mean'])}" for row in rows)
    return [f"{what}: {listed}."] if rows else []


def _sentence(row: Row, criteria: Criteria) -> str:
    metric, n = criteria.metric, row["n"]
    size = Size(
        row["operator"], criteria.baseline, row["mean"], row["low"], row["high"], metric,
        metric.digits, unit=metric.points,
    )  # fmt: skip
    if n == 1:
        more = "One seed gives no interval and no test; run more, for example seed=0,1,2,3,4."
        return f"{size.difference} with seed {row['seeds'][0]}. {more}"
    if np.isnan(row["p_t"]):
        more = "Equal differences give no interval and no test; run more seeds."
        return f"{size.difference} with each of {n} seeds. {more}"
    within, verdict = f"within ±{criteria.within}", row["verdict"]
    if verdict == UNDECIDED:
        return f"{size.difference}, {n} seeds, undecided. {_to_settle(row)}".rstrip()
    if verdict == EQUIVALENT:
        return f"{size.difference}, {n} seeds, equivalent {within} on these test documents."
    return f"{size.relation}, {n} seeds{f', also {within}' if row['small'] else ''}."


def _second(rows: list[Row], metric: Metric) -> str:
    """What position or pretraining adds to the differences, the decided ones first."""
    primary = [row for row in rows if row["role"] == PRIMARY]
    ranked = sorted(primary, key=lambda row: (row["verdict"] not in DECIDED, -abs(row["mean"])))
    texts = []
    for row in ranked:
        suffix = row["variant"] if "scratch" in row else ""  # names the pretraining
        operator = row["operator"].removesuffix(suffix).strip()
        verdict = "not tested" if np.isnan(row["p_t"]) else f"{row['n']} seeds, {row['verdict']}"
        ends = interval(row["low"], row["high"], metric.digits)
        shown = ", ".join(filter(None, (ends, verdict)))
        texts.append(f"{operator} {metric.signed(row['mean'])} ({shown})")
    what = next((text for name, text in SECOND.items() if ranked and name in ranked[0]), "")
    return f"{what} to the differences: {'; '.join(texts)}." if texts else ""


def _exploratory(row: Row, metric: Metric) -> str:
    p = "" if np.isnan(row["p_t"]) else f" (p {_equals(row['p_t'])})"
    return f"{row['operator']} {metric.signed(row['mean'])}{p}"


def _equals(p: float) -> str:
    text = p_value(p)
    return text.replace("<", "< ") if text.startswith("<") else f"= {text}"


def _to_settle(row: Row) -> str:
    return to_settle(row["seeds_observed"], row["seeds_equivalence"])


def _why_not_compared(data: str, encoding: str, group: pd.DataFrame, criteria: Criteria) -> str:
    """Why a corpus and encoding has no comparison, and what to run."""
    base, metric = criteria.baseline, criteria.metric
    ranked = group.sort_values("mean", ascending=metric.lower_is_better).to_dict("records")
    listed = ", ".join(
        f"{c['fusion']} {metric.number(c['mean'])}{metric.percent} (n = {c['n']})"
        for c in ranked[:3]
    )
    results = f"On {data} ({encoding}): {listed}."
    if base not in set(group["fusion"]):
        fix = f"run fusion={base}, or choose another operator with --baseline"
        return f"{results} {base} was not run, so nothing can be compared: {fix}."
    if set(group["fusion"]) == {base}:
        return f"{results} Only {base} was run; run another operator with the same seeds."
    return f"{results} No operator can be compared with {base}; see the notes."
