"""Tables of the shares of solved runs, and of the runs that both arms solve."""

from collections.abc import Iterable
from functools import partial

import pandas as pd

from posfuse.evidence.metric import Metric
from posfuse.report.table import Table, count, interval, signed, table_of
from posfuse.study.looks import Progress, Solved
from posfuse.study.spec import Hypothesis, Study


def legend(study: Study) -> str:
    """The limit for a solved run in words, after a space; empty if no hypothesis is about solved
    runs."""
    levels = dict.fromkeys(limit(h) for h in study.hypotheses if h.solved is not None)
    if not levels:
        return ""
    return (
        f" A run is solved if its test {study.measured.title} is at least {' or '.join(levels)}. "
        "A difference in the share of solved runs has exact tests, which assume only that seeds "
        "are independent. An interval that ends at 0 excludes 0, because the test shows the sign."
    )


def limit(h: Hypothesis) -> str:
    """The result from which on a run is solved."""
    return f"{h.solved:g} %{h.of_lengths}"


def quantity(hypotheses: Iterable[Hypothesis], metric: Metric) -> str:
    """The unit of the differences in full: of the metric, of the share of solved runs, or both."""
    of_shares = [h.solved is not None for h in hypotheses]
    if all(of_shares):
        return "points of the share of solved runs"
    return f"{metric.points}{metric.better}{', or of the share of solved runs' * any(of_shares)}"


def sentence(solved: Solved, h: Hypothesis, metric: Metric) -> str:
    """The number of solved runs, and the difference of results over seeds that both arms solve."""
    counts, both = f"Solved: {solved.arm} and {solved.than} runs.", solved.both
    if not both.n:
        return counts
    ends = interval(both.low, both.high, metric.digits - 1)
    size = f"{both.mean:+.{metric.digits - 1}f}" + f" (95 % interval {ends})" * bool(ends)
    of = f"{metric.heading}{h.of_lengths}"
    return f"{counts} {of} where both are solved: {size}, {both.n} seeds, exploratory."


def solved_table(study: Study, state: Progress) -> Table | None:
    """One row per judged hypothesis about solved runs; None without such a row."""
    metric = study.measured
    rows = [
        {
            "hypothesis": v.hypothesis.name, "from": limit(v.hypothesis), "n": v.decision.n,
            "arm": v.solved.arm, "than": v.solved.than,
            **{f"both_{name}": value for name, value in vars(v.solved.both).items()},
        }
        for v in state.verdicts
        if v.solved and v.decision
    ]  # fmt: skip
    if not rows:
        return None
    return table_of(
        pd.DataFrame(rows),
        [
            ("solved from", str, "from"),
            ("seeds", count, "n"),
            ("arm", count, "arm"),
            ("than", count, "than"),
            ("both", count, "both_n"),
            (metric.unit, partial(signed, digits=metric.digits), "both_mean"),
            ("95 % t", partial(interval, digits=metric.digits), "both_low", "both_high"),
        ],
        keys=["hypothesis"],
        name="solved",
        title="Solved runs",
        caption="How many runs of either arm of a hypothesis are solved, and how many seeds both "
        f"solve. {metric.unit}: over these seeds, the mean paired difference of "
        f"{metric.title} with its t interval. It is exploratory: the arms may solve different "
        "seeds, and no error rate includes it.",
    )
