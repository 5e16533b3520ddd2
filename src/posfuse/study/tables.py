"""The verdicts on a study's hypotheses, as tables and as sentences."""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import pandas as pd

from posfuse.evidence.metric import Metric
from posfuse.report import table
from posfuse.report.sections.section import Answer
from posfuse.report.table import Column, Table, interval, p_value, table_of
from posfuse.statistics.contrasts import EQUIVALENT, REFUTED, SUPPORTED, UNDECIDED
from posfuse.study.looks import HypothesisVerdict, Progress, Solved
from posfuse.study.spec import Hypothesis, Study
from posfuse.verdicts.sentences import Size, size_text, to_settle

KINDS = (SUPPORTED, REFUTED, EQUIVALENT, UNDECIDED)
NUMBERS = (
    "hypothesis", "family", "difference", "expects", "verdict", "n", "mean", "low", "high",
    "p_difference", "level", "p_equivalence", "margin",
)  # fmt: skip
OF_T = "95 % interval "
OF_ALL_SEEDS = ("all_n", "all_mean", "all_low", "all_high")


def headline(state: Progress) -> str:
    """The number of hypotheses with each verdict, in a sentence."""
    verdicts = [v.verdict for v in state.verdicts]
    counts = [f"{verdicts.count(kind)} {kind}" for kind in KINDS if kind in verdicts]
    total = len(verdicts)
    first = f"{total} {'hypothesis' if total == 1 else 'hypotheses'}: {', '.join(counts)}."
    return first if state.is_finished else f"{first} The study is not finished."


def numbers(v: HypothesisVerdict, metric: Metric) -> str:
    """The difference of a hypothesis in words, with its interval, seeds and margin."""
    h, d = v.hypothesis, v.decision
    if d is None:
        return f"{h.difference}: no look yet."
    within = f"within ±{h.margin:g}"
    small = f", also {within}" if d.also_small and v.verdict != EQUIVALENT else ""
    equal = f" Equivalent: {within} {metric.unit}." if v.verdict == EQUIVALENT else ""
    if h.expects == "equivalent":
        equal = f" Margin: ±{h.margin:g}."
    more = f" {to_settle(*v.seeds, v.units)}" if v.seeds else ""
    is_refuted = v.verdict == REFUTED
    digits, every = metric.digits - 1, ""
    if (a := v.all_seeds) is not None:
        direction = (1 if d.mean > 0 else -1) * is_refuted
        over = size_text(a.mean, a.low, a.high, digits, of=OF_T, direction=direction)
        every = f" All {a.n} {v.units}: {over}."
    size = Size(
        *h.operands, d.mean, d.low, d.high, metric, digits, h.where,
        are_differences=bool(h.minus),
    )  # fmt: skip
    # For a refuted hypothesis: the side that is behind, and by how much.
    shown = size.relation if is_refuted else size.difference
    solved = f" {solved_sentence(v.solved, h, metric)}" if v.solved else ""
    return f"{shown}{small}, {d.n} {v.units}.{equal}{solved}{every}{more.rstrip()}"


def answer(v: HypothesisVerdict, metric: Metric, own: Iterable[str] = ()) -> Answer:
    """The row of a hypothesis in the table at the top of a page. `own` are its cautions. The
    details begin with its name, which the other tables use."""
    details = f"{v.hypothesis.name}: {numbers(v, metric)}"
    words = Answer(
        v.verdict, statement(v), details=details, digits=metric.digits - 1, cautions="; ".join(own)
    )
    if (d := v.shown) is None:
        return words
    return replace(words, mean=d.mean, low=d.low, high=d.high, n=v.counted)


def statement(v: HypothesisVerdict) -> str:
    """The text of a hypothesis; in quotes if the verdict contradicts it."""
    return f'"{v.hypothesis.text}"' if v.verdict in (REFUTED, EQUIVALENT) else v.hypothesis.text


def verdict_table(study: Study, state: Progress) -> Table:
    """One row per hypothesis."""
    looks, metric = ", ".join(map(str, study.looks.seeds)), study.measured
    has_more = any(v.all_seeds for v in state.verdicts)
    names = [*NUMBERS, *OF_ALL_SEEDS * has_more]
    rows = []
    for v in state.verdicts:
        h, every = v.hypothesis, vars(v.all_seeds) if v.all_seeds else {}
        row = {**vars(h), "hypothesis": h.name, "difference": h.difference, "verdict": v.verdict}
        row |= vars(v.decision) if v.decision else {}
        rows.append(row | {f"all_{name}": value for name, value in every.items()})

    def over_all(n: float, mean: float, low: float, high: float) -> str:
        return f"{metric.signed(mean)} ({interval(low, high, digits=metric.digits)}), {n:.0f}"

    caption = (
        " The difference of a look that decides early is too large on average. All "
        f"{study.units}: the difference over all {study.units} that ran, with its 95 % interval "
        "and their number."
    )
    all_seeds: Column = (f"all {study.units}", over_all, *OF_ALL_SEEDS)
    return table_of(
        pd.DataFrame(rows, columns=names),
        [
            ("verdict", str, "verdict"),
            ("n", table.count, "n"),
            (metric.unit, metric.signed, "mean"),
            ("interval", partial(interval, digits=metric.digits), "low", "high"),
            *([all_seeds] * has_more),
            ("p", p_value, "p_difference"),
            ("level", "{:.2g}".format, "level"),
            ("expects", str, "expects"),
            ("margin", "±{:g}".format, "margin"),
            ("p equiv.", p_value, "p_equivalence"),
            ("difference", str, "difference"),
        ],
        keys=["hypothesis"],
        name="hypotheses",
        title="Hypotheses",
        caption=f"{compared(study)} Looks are planned after {looks} {study.units}; a hypothesis "
        "stops at the look that decides it. A difference is decided if p is at most the level of "
        "its look (alpha spending, shared by Holm's rule within the family, for differences and "
        "for equivalences alike). Equivalence uses the level of a one-sided test. The interval "
        "belongs to the test that decided, otherwise to the test of a difference. The interval of "
        "one hypothesis holds at all looks together. Several hypotheses together need wider "
        f"intervals.{caption * has_more}"
        f"{solved_legend(study)}",
    )  # fmt: skip


def solved_legend(study: Study) -> str:
    """The limit for a solved run in words, after a space; empty if no hypothesis is about solved
    runs."""
    asked = [h for h in study.hypotheses if h.solved is not None]
    levels = dict.fromkeys(f"{h.solved:g} %{h.of_lengths}" for h in asked)
    if not levels:
        return ""
    return (
        f" A run is solved if its test {study.measured.title} is at least {' or '.join(levels)}. "
        "A difference in the share of solved runs has exact tests, which assume only that seeds "
        "are independent. An interval that ends at 0 excludes 0, because the test shows the sign."
    )


def compared(study: Study) -> str:
    """The unit of the differences and their intervals, in words."""
    of_means = ", of means over each repeat's seeds" if study.repeats > 1 else ""
    return (
        f"Paired differences in {quantity(study)}{of_means}. In brackets: the interval at the "
        "level of the test."
    )


def quantity(study: Study) -> str:
    """The unit of the differences in full: of the metric, of the share of solved runs, or both."""
    of_shares = [h.solved is not None for h in study.hypotheses]
    if all(of_shares):
        return "points of the share of solved runs"
    metric = study.measured
    return f"{metric.points}{metric.better}{', or of the share of solved runs' * any(of_shares)}"


def solved_sentence(solved: Solved, h: Hypothesis, metric: Metric) -> str:
    """The number of solved runs, and the difference of results over seeds that both arms solve."""
    arm, than = h.operands
    counts = f"Solved runs: {solved.arm} of {arm}, {solved.than} of {than}."
    both = solved.both
    if not both.n:
        return counts
    size = size_text(both.mean, both.low, both.high, metric.digits - 1, of=OF_T)
    of = f"{metric.heading}{h.of_lengths}"
    return f"{counts} {of} where both are solved: {size}, {both.n} seeds, exploratory."
