"""The results of a sweep in sentences: the first lines of the terminal and of the page."""

from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd

from posfuse.analysis.evidence.metric import Metric
from posfuse.analysis.statistics.comparisons import (
    EXPLORATORY,
    PLACEBO,
    POWER,
    PRIMARY,
    Criteria,
    family_size,
    seeds_for_difference,
    seeds_for_equivalence,
)
from posfuse.analysis.statistics.own_best import chosen_by, keys_of
from posfuse.analysis.tables.paired_tables import conclusion
from posfuse.analysis.tables.table import Row, interval, p_value

MOST_LINES = 8  # lines of a corpus and an encoding
MOST_UNDECIDED = 3  # with more in a line, only the first has its numbers


def headline(
    cells: pd.DataFrame,
    comparisons: pd.DataFrame,
    best: pd.DataFrame,
    placebos: pd.DataFrame,
    best_placebos: pd.DataFrame,
    criteria: Criteria,
    survival: pd.DataFrame | None = None,
) -> list[str]:
    """How many differences to the baseline are decided, then a line for each corpus and encoding.

    `cells` and `comparisons` are frames of comparisons.py, `best` is that of `OwnBest`; `placebos`
    and `best_placebos` are those of placebo.py for `comparisons` and `best`, `survival` is that
    of pretraining.py for `comparisons`. If operators ran with
    several values of a tuned key, the line compares each at its best values. A difference is
    decided by the adjusted p-values, as in the tables (`conclusion`). Exploratory differences have
    a short sentence without a decision.
    """
    tuned = set(zip(best["data"], best["encoding"], strict=True))

    def untuned(frame: pd.DataFrame) -> list[Row]:
        return [r for r in _rows(frame, criteria) if (r["data"], r["encoding"]) not in tuned]

    rows = [*_rows(best, criteria), *untuned(comparisons)]
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["data"], row["encoding"], row["setting"]), []).append(row)
    added: dict[tuple[str, str, str], list[Row]] = {}
    for row in [*_rows(best_placebos, criteria), *untuned(placebos)]:
        added.setdefault((row["data"], row["encoding"], row["setting"]), []).append(row)
    changed: dict[tuple[str, str, str], list[Row]] = {}
    for row in untuned(survival) if survival is not None else []:
        changed.setdefault((row["data"], row["encoding"], row["setting"]), []).append(row)
    compared = {*tuned, *zip(comparisons["data"], comparisons["encoding"], strict=True)}
    corpora = {key[:2] for key in groups}
    lines = []
    for (data, encoding, setting), group in groups.items():
        named = setting if len(groups) > len(corpora) else ""
        where = f"On {data} ({', '.join(filter(None, (encoding, named)))})"
        if "baseline_at" in group[0]:
            keys = f"{keys_of(best)} ({chosen_by(best, criteria)})"
            at = f"{criteria.baseline} at {group[0]['baseline_at']}"
            where += f", each operator at its own best {keys}, {at}"
        decided = any(map(_is_decided, group))
        key, rest = (data, encoding, setting), "Pretraining changes the others by"
        position = _second(
            added.get(key, []), criteria, _position_sentence, "Position adds to the others"
        )
        pretraining = _second(changed.get(key, []), criteria, _pretraining_sentence, rest)
        texts = filter(None, (_sentences(group, criteria), position, pretraining))
        sentences = " ".join(texts)
        lines.append((decided, f"{where}: {sentences}"))
    others = [
        (False, _not_compared(str(data), str(encoding), group, criteria))
        for (data, encoding), group in cells.groupby(["data", "encoding"], sort=False)
        if (data, encoding) not in compared
    ]
    return [_count(rows, criteria), *_folded([*lines, *others])]


def _rows(frame: pd.DataFrame, criteria: Criteria) -> Iterator[Row]:
    """The rows of `compare`, `placebos` or `OwnBest.best`, with their names and conclusions."""
    family = family_size(frame)
    for row in frame[frame["role"] != PLACEBO].to_dict("records"):
        operator, setting = row["fusion"], row.get("baseline_variant", row["variant"])
        if "baseline_at" in row:
            operator, setting = f"{operator} (at {row['at']})", row["variant"]
        elif row["variant"] != setting:
            operator = f"{operator} {row['variant']}".strip()
        decided = conclusion(row, criteria)
        yield {
            **row, "family": family, "setting": setting, "operator": operator, "conclusion": decided
        }  # fmt: skip


def _count(rows: list[Row], criteria: Criteria) -> str:
    tested = [row for row in rows if not np.isnan(row["p_t"]) and row["role"] == PRIMARY]
    others = sum(row["role"] == EXPLORATORY for row in rows)
    more = f" {others} more {'is' if others == 1 else 'are'} exploratory." if others else ""
    if not tested:
        return f"No difference to {criteria.baseline} could be tested.{more}"
    decided = sum(map(_is_decided, tested))
    one = len(tested) == 1
    return (
        f"{decided} of {len(tested)} difference{'' if one else 's'} to {criteria.baseline} "
        f"{'is' if one or decided == 1 else 'are'} decided: p ≤ {criteria.alpha:g} after Holm's "
        f"adjustment, for a difference or for equivalence within ±{criteria.within} on "
        f"these test documents.{more}"
    )


def _is_decided(row: Row) -> bool:
    return row["conclusion"] not in ("undecided", EXPLORATORY)


def _folded(lines: list[tuple[bool, str]]) -> list[str]:
    """All lines; if they are too many, the decided ones first and the number of the others."""
    if len(lines) <= MOST_LINES:
        return [text for _, text in lines]
    shown = sorted(lines, key=lambda line: not line[0])[:MOST_LINES]
    left = len(lines) - len(shown)
    decided = sum(line[0] for line in lines) - sum(line[0] for line in shown)
    more = (
        f"{left} more combinations of corpus, encoding and settings are in the tables; "
        f"{decided or 'none'} of them with a decided difference."
    )
    return [*(text for _, text in shown), more]


def _sentences(every: list[Row], criteria: Criteria) -> str:
    rows = [row for row in every if row["role"] == PRIMARY]
    ranked = sorted(
        rows, key=lambda row: (row["conclusion"] == "undecided", -criteria.metric.gain(row["mean"]))
    )
    undecided = [row for row in ranked if row["conclusion"] == "undecided"]
    # The undecided rows are the last ones.
    folded = undecided[1:] if len(undecided) > MOST_UNDECIDED else []
    metric = criteria.metric
    texts = [_sentence(row, criteria) for row in ranked[: len(ranked) - len(folded)]]
    if folded:
        listed = ", ".join(f"{row['operator']} {metric.signed(row['mean'])}" for row in folded)
        texts.append(f"Also undecided: {listed}.")
    if others := [row for row in every if row["role"] == EXPLORATORY]:
        listed = ", ".join(_exploratory(row, metric) for row in others)
        texts.append(f"Exploratory, not adjusted: {listed} {metric.points}.")
    text = " ".join(texts)
    # In full the first time, then shorter.
    end = text.index(metric.points) + len(metric.points)
    return text[:end] + text[end:].replace(metric.points, metric.unit)


def _sentence(row: Row, criteria: Criteria) -> str:
    name, base, mean, n = row["operator"], criteria.baseline, row["mean"], row["n"]
    metric = criteria.metric
    unit, signed = metric.points, metric.signed(mean)
    minus = f"{name} minus {base}"
    if n == 1:
        seed = row["seeds"][0]
        return (
            f"{minus} is {signed} {unit} with seed {seed}. One "
            "seed gives no interval and no test; run more, for example seed=0,1,2,3,4."
        )
    if np.isnan(row["p_t"]):
        return (
            f"{minus} is {signed} {unit} with each of {n} seeds. "
            "Equal differences give no interval and no test; run more seeds."
        )
    within, numbers = f"within ±{criteria.within}", _numbers(row, metric)
    if row["conclusion"] == "undecided":
        return (
            f"{minus} is {signed} {unit} ({numbers}), undecided. {_seeds_to_decide(row, criteria)}"
        )
    if row["conclusion"] == "equivalent":
        return (
            f"{name} is equivalent to {base} {within} on these test documents: the difference is "
            f"{signed} {unit} ({numbers})."
        )
    side = "ahead of" if metric.gain(mean) > 0 else "behind"
    small = f", a difference {within}" if row["conclusion"] == "both" else ""
    amount = f"{metric.number(abs(mean))} {unit}"
    return f"{name} is {side} {base} by {amount} ({numbers}){small}."


def _second(
    rows: list[Row],
    criteria: Criteria,
    write: Callable[[Row, Criteria], str],
    others: str,
) -> str:
    """Differences of differences: sentences of at most MOST_UNDECIDED operators, the decided ones
    first, and the numbers of the others."""
    primary = [row for row in rows if row["role"] == PRIMARY]
    ranked = sorted(primary, key=lambda row: (not _is_decided(row), -abs(row["mean"])))
    texts = [write(row, criteria) for row in ranked[:MOST_UNDECIDED]]
    if more := ranked[MOST_UNDECIDED:]:
        signed = criteria.metric.signed
        listed = ", ".join(f"{row['operator']} {signed(row['mean'])}" for row in more)
        texts.append(f"{others}: {listed}.")
    return " ".join(texts)


def _position_sentence(row: Row, criteria: Criteria) -> str:
    metric = criteria.metric
    gain, without, added = map(metric.signed, (row["gain"], row["placebo_gain"], row["mean"]))
    start = (
        f"{row['operator']}'s difference is {gain} {metric.unit} with position and "
        f"{without} without: position adds {added}"
    )
    return _ended(start, row, criteria)


def _pretraining_sentence(row: Row, criteria: Criteria) -> str:
    metric = criteria.metric
    gain, scratch, changed = map(metric.signed, (row["gain"], row["scratch_gain"], row["mean"]))
    start = (
        f"{row['operator'].removesuffix(row['variant']).strip()}'s difference is {gain} "
        f"{metric.unit} after pretraining and {scratch} from scratch: pretraining changes it by "
        f"{changed}"
    )
    return _ended(start, row, criteria)


def _ended(start: str, row: Row, criteria: Criteria) -> str:
    """A sentence about a difference of differences, with its numbers and what they decide."""
    if np.isnan(row["p_t"]):
        return f"{start}, not tested."
    more = f" {_seeds_to_decide(row, criteria)}" if row["conclusion"] == "undecided" else ""
    decided = _SECOND[row["conclusion"]]
    return f"{start} ({_numbers(row, criteria.metric)}), {decided}.{more}"


_SECOND = {
    "differs": "decided",
    "both": "decided, but too little to matter",
    "equivalent": "equivalent to zero on this test set",
    "undecided": "undecided",
}


def _numbers(row: Row, metric: Metric) -> str:
    p = "p_equivalence_holm" if row["conclusion"] == "equivalent" else "p_holm"
    of = " of equivalence" if row["conclusion"] == "equivalent" else ""
    ends = interval(row["low"], row["high"], metric.digits)
    return f"95 % t interval {ends}, n = {row['n']}, Holm-adjusted p{of} {_equals(row[p])}"


def _exploratory(row: Row, metric: Metric) -> str:
    p = "" if np.isnan(row["p_t"]) else f" (p {_equals(row['p_t'])})"
    return f"{row['operator']} {metric.signed(row['mean'])}{p}"


def _seeds_to_decide(row: Row, criteria: Criteria) -> str:
    """For the observed mean and the upper limit of the standard deviation, at the strictest level
    of Holm's adjustment."""
    level = criteria.alpha / row["family"]
    mean, std = row["mean"], row["std_limit"]
    difference = seeds_for_difference(mean, std, level)
    equivalence = seeds_for_equivalence(std, criteria.margin, mean, level)
    n = min(difference, equivalence)
    if np.isinf(n):
        return "No feasible number of seeds would decide this."
    shown = "a difference of this size" if n == difference else "equivalence"
    return f"About {n:,.0f} seeds would show {shown} with {100 * POWER:.0f} % power."


def _equals(p: float) -> str:
    text = p_value(p)
    return text.replace("<", "< ") if text.startswith("<") else f"= {text}"


def _not_compared(data: str, encoding: str, group: pd.DataFrame, criteria: Criteria) -> str:
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
