"""The results of a study as tables and as sentences."""

from functools import partial

import numpy as np
import pandas as pd

from posfuse.evidence.metric import Metric
from posfuse.report import table
from posfuse.report.sections.section import Answer
from posfuse.report.table import Column, Table, interval, p_value, table_of
from posfuse.statistics import paired as st
from posfuse.statistics.contrasts import EQUIVALENT, REFUTED, SUPPORTED, UNDECIDED
from posfuse.study import tables_of_solved
from posfuse.study.looks import Progress, Verdict
from posfuse.study.plan import Plan
from posfuse.study.scores import Results, best_was_last, by_length, outcomes
from posfuse.study.spec import BEYOND, Study
from posfuse.verdicts.sentences import Size, to_settle

KINDS = (SUPPORTED, REFUTED, EQUIVALENT, UNDECIDED)


def headline(study: Study, state: Progress) -> list[str]:
    """The answer in two sentences: the number of decided hypotheses, and their names."""
    of = {kind: [v.hypothesis.name for v in state.verdicts if v.verdict == kind] for kind in KINDS}
    total = len(state.verdicts)
    first = f"Decided: {total - len(of[UNDECIDED])} of {total} hypotheses."
    if not state.is_finished:
        first += " The study is not finished."
    listed = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in of.items() if names)
    return [first, f"{listed[:1].upper()}{listed[1:]}."]


def numbers(v: Verdict, metric: Metric) -> str:
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
    every = _all_seeds(v, metric, (1 if d.mean > 0 else -1) * is_refuted)
    size = Size(
        *h.operands, d.mean, d.low, d.high, metric, metric.digits - 1, h.where,
        are_differences=bool(h.minus),
    )  # fmt: skip
    # For a refuted hypothesis: the side that is behind, and by how much.
    shown = size.relation if is_refuted else size.difference
    solved = f" {tables_of_solved.sentence(v.solved, h, metric)}" if v.solved else ""
    return f"{shown}{small}, {d.n} {v.units}.{equal}{solved}{every}{more.rstrip()}"


def _all_seeds(v: Verdict, metric: Metric, sign: int) -> str:
    """The difference over all seeds, after a space; empty if the look that decided had all of them.
    With a sign, 1 or -1, the difference is in this direction and has no plus."""
    if v.all_seeds is None:
        return ""
    turn, plus = sign or 1, "" if sign else "+"
    ends = sorted((turn * v.all_seeds.low, turn * v.all_seeds.high))
    values = (turn * v.all_seeds.mean, *ends)
    mean, low, high = (f"{value:{plus}.{metric.digits - 1}f}" for value in values)
    return f" All {v.all_seeds.n} {v.units}: {mean} (95 % interval {low} to {high})."


def sentence(v: Verdict, metric: Metric) -> str:
    """The text of a hypothesis, its verdict and its numbers. For a refuted hypothesis the numbers
    are first."""
    if v.verdict == REFUTED:
        return f"{numbers(v, metric)} Refuted: {statement(v)}"
    return f"{v.verdict.capitalize()}: {v.hypothesis.text} {numbers(v, metric)}"


def answer(v: Verdict, metric: Metric, caution: str) -> Answer:
    """The row of a hypothesis in the table at the top of a page."""
    h, d, every = v.hypothesis, v.decision, v.all_seeds
    details = f"{numbers(v, metric)} {caution}".rstrip()
    if d is None:
        return Answer(v.verdict, h.text, details=details)
    shown, digits = every or d, metric.digits - 1
    seeds = f"{every.n}, decided at {d.n}" if every else f"{d.n}"
    seeds += f" {v.units}" * (v.units != "seeds")
    return Answer(v.verdict, h.text, shown.mean, shown.low, shown.high, seeds, details, digits)


def statement(v: Verdict) -> str:
    """The text of a hypothesis; in quotes if it is refuted, because it is then false."""
    return f'"{v.hypothesis.text}"' if v.verdict == REFUTED else v.hypothesis.text


def legend(study: Study) -> str:
    """An explanation of the numbers on the terminal."""
    seen = f"{', '.join(map(str, study.looks.seeds))} {study.units}"
    over = "mean over seeds, paired by seed"
    if study.repeats > 1:
        over = "mean over repeats of tuning, of the means over each repeat's seeds"
    of_solved = tables_of_solved.legend(study)
    normal = " and about normal" * any(h.solved is None for h in study.hypotheses)
    return (
        f"{_differences(study)}, {over}. In brackets: its "
        "interval at the level of the test. The result is tested after "
        f"{seen}. For these settings, the chance of any false difference in a family of hypotheses "
        f"is at most {100 * study.testing.alpha:g} %, and so is that of any false equivalence, if "
        f"differences over {study.units} are independent{normal}.{of_solved}"
    )


def _differences(study: Study) -> str:
    metric = study.measured
    if all(h.solved is not None for h in study.hypotheses):
        return "Points: difference of the share of solved runs in percent"
    if metric.is_share:
        return f"Points: difference of test {metric.title} in percent"
    return f"{metric.heading}: difference on the test split{metric.better}"


def verdict_table(study: Study, state: Progress) -> Table:
    """One row per hypothesis."""
    looks, metric = ", ".join(map(str, study.looks.seeds)), study.measured
    has_more = any(v.all_seeds for v in state.verdicts)
    rows = []
    for v in state.verdicts:
        h, d = v.hypothesis, v.decision
        row: dict[str, object] = {
            "hypothesis": h.name,
            "family": h.family,
            "difference": h.difference,
        }
        row |= {"expects": h.expects, "verdict": v.verdict}
        values = vars(d) if d else dict.fromkeys(NUMBERS, np.nan)
        row |= {name: values[name] for name in NUMBERS} | {"margin": h.margin}
        every = vars(v.all_seeds) if v.all_seeds else dict.fromkeys(OF_ALL_SEEDS, np.nan)
        rows.append(row | {f"all_{name}": every[name] for name in OF_ALL_SEEDS * has_more})

    def over_all(n: float, mean: float, low: float, high: float) -> str:
        ends = interval(low, high, digits=metric.digits)
        return "" if np.isnan(n) else f"{metric.signed(mean)} ({ends}), {n:.0f}"

    caption = (
        " The difference of a look that decides early is too large on average. All "
        f"{study.units}: the difference over all {study.units} that ran, with its 95 % interval "
        "and their number."
    )
    all_seeds: Column = (f"all {study.units}", over_all, *(f"all_{name}" for name in OF_ALL_SEEDS))
    return table_of(
        pd.DataFrame(rows),
        [
            ("verdict", str, "verdict"),
            ("family", str, "family"),
            ("difference", str, "difference"),
            ("expects", str, "expects"),
            ("n", table.count, "n"),
            (metric.unit, partial(table.signed, digits=metric.digits), "mean"),
            ("interval", partial(interval, digits=metric.digits), "low", "high"),
            *([all_seeds] * has_more),
            ("p", p_value, "p_difference"),
            ("level", lambda level: "" if np.isnan(level) else f"{level:.2g}", "level"),
            ("margin", lambda margin: f"±{margin:g}", "margin"),
            ("p equivalence", p_value, "p_equivalence"),
        ],
        keys=["hypothesis"],
        name="hypotheses",
        title="Hypotheses",
        caption=f"Paired differences in {tables_of_solved.quantity(study.hypotheses, metric)}. "
        f"Looks are planned after {looks} {study.units}; a hypothesis stops at the look that "
        "decides it. A difference is decided if p is at most the level of its look (alpha "
        "spending, shared by Holm's rule within the family, for differences and for equivalences "
        "alike). Equivalence uses the level of a one-sided test. The interval belongs to the test "
        "that decided, otherwise to the test of a difference. For one hypothesis it holds at all "
        f"looks together; several hypotheses together need wider ones.{caption * has_more}"
        f"{tables_of_solved.legend(study)}",
    )  # fmt: skip


OF_ALL_SEEDS = ("n", "mean", "low", "high")
NUMBERS = ("n", "mean", "low", "high", "p_difference", "level", "p_equivalence")


def arms_table(plan: Plan, results: Results) -> Table:
    """The chosen settings of each arm, and its test results."""
    metric, has_repeats = plan.study.measured, plan.study.repeats > 1
    parts = [(place, own, arm) for place, own in plan.parts().items() for arm in own.choices]
    if has_repeats:  # the repeats of an arm are below each other
        parts.sort(key=lambda part: list(plan.study.arms).index(part[2]))
    by_outcome = {name: outcomes(results, metric, name) for name in (metric.name, BEYOND)}
    rows = []
    for place, own, arm in parts:
        choice, keys = own.choices[arm], [(arm, seed) for seed in own.study.test_seeds]
        runs = [results[key] for key in keys if key in results]
        values, beyond = (
            frame.get(arm, pd.Series(dtype=float)).reindex(own.study.test_seeds).dropna()
            for frame in by_outcome.values()
        )
        last = [best_was_last(record) for record in runs if record is not None]
        chosen = [f"{k}={v}{'†' if k in choice.edges else ''}" for k, v in choice.values.items()]
        rows.append(
            {
                "arm": arm,
                "repeat": place,
                "chosen": " ".join(chosen),
                "validation": np.nan if choice.validation is None else choice.validation,
                "n": len(values),
                "mean": values.mean(),
                "std": st.spread(values),
                "beyond_n": len(beyond),
                "beyond_mean": beyond.mean(),
                "beyond_std": st.spread(beyond),
                "diverged": sum(record is None for record in runs),
                "last": np.mean(last) if last else np.nan,
            }
        )
    most = plan.study.convergence.most_last
    tuned: list[Column] = []
    choice_caption = ""
    if any(choice.values for choice in plan.choices.values()):
        tuned = [
            ("chosen", str, "chosen"),
            ("validation", partial(table.unsigned, digits=metric.digits), "validation"),
        ]
        choice_caption = (
            f"The choice and its validation {metric.title} come from the tuning seeds alone. † the "
            "value is the smallest or the largest that was tried, so a better one may lie beyond. "
        )
    cell = partial(table.over_seeds, digits=metric.digits)
    longer: list[Column] = []
    if any(h.outcome == BEYOND for h in plan.study.hypotheses):
        longer = [("beyond", cell, "beyond_mean", "beyond_std", "beyond_n")]
        choice_caption += f"Beyond: mean {metric.title} beyond the trained length. "
    return table_of(
        pd.DataFrame(rows),
        [
            *tuned,
            (f"test {metric.title}", cell, "mean", "std", "n"),
            *longer,
            ("diverged", table.count, "diverged"),
            ("best was last", partial(_share, most), "last"),
        ],
        keys=["arm", *["repeat"] * has_repeats],
        name="arms",
        title="Arms",
        caption=f"{_capital(metric.level)}: mean ± standard deviation over test seeds, number of "
        f"seeds in brackets. {choice_caption}A run that diverged counts as {guess_text(metric)}. "
        "Best was last: share of test runs whose best evaluation was their last one; * is above "
        f"{100 * most:g} %, so the arm may not have converged.",
    )


def lengths_table(results: Results, metric: Metric) -> Table | None:
    """Results by test length of each arm; None without data.test_lengths."""
    cells = [
        {"arm": arm, "length": length, "value": value}
        for (arm, _), record in results.items()
        if record
        for length, value in by_length(record, metric).items()
    ]
    if not cells:
        return None
    frame = pd.DataFrame(cells)
    lengths = sorted(frame["length"].unique())
    cell = partial(table.over_seeds, digits=metric.digits)
    rows = []
    for arm, own in frame.groupby("arm", sort=False):
        row: dict[str, object] = {"arm": arm}
        for length in lengths:
            values = own.loc[own["length"] == length, "value"]
            row[f"{length} n"] = len(values)
            row[f"{length} mean"] = values.mean()
            row[f"{length} std"] = st.spread(values) if len(values) else np.nan
        rows.append(row)
    return table_of(
        pd.DataFrame(rows),
        [(str(n), cell, f"{n} mean", f"{n} std", f"{n} n") for n in lengths],
        keys=["arm"],
        name="lengths",
        title=f"{metric.heading} by test length",
        caption=f"{_capital(metric.level)} by the length of the test documents in tokens: mean ± "
        "standard deviation over test seeds, number of seeds in brackets. Runs that diverged are "
        "left out.",
    )


def bags_table(study: Study, runs: pd.DataFrame) -> Table | None:
    """The accuracies of the bags of words by task; None if no run has them. `runs` are rows of
    `run_table`."""
    if "bag_of_words" not in runs:
        return None
    tested = runs[runs["bag_of_words"].notna()]
    tested = tested.assign(task=tested["arm"].map(study.corpus))
    rows = tested.drop_duplicates(["task", "seed"]).groupby("task", sort=False)
    return table_of(
        rows[["bag_of_words", "bag_with_ends"]].mean().reset_index(),
        [
            ("bag of words", "{:.2f}".format, "bag_of_words"),
            ("with first and last symbol", "{:.2f}".format, "bag_with_ends"),
        ],
        keys=["task"],
        name="bags",
        title="Bags of words",
        caption="Test accuracy in %, mean over the test seeds' strings, of logistic regression on "
        "TF-IDF: without position, and with the pair of the first and the last symbol as a word.",
    )


def _share(most: float, share: float) -> str:
    return "" if np.isnan(share) else f"{100 * share:.0f} %{' *' * (share > most)}"


def guess_text(metric: Metric) -> str:
    """The words for the value of a run that diverged."""
    return f"{metric.guess:g} {metric.unit}" if metric.guess else "chance"


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"
