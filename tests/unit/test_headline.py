"""The answer of a report: its first lines, and a row for each comparison."""

import pandas as pd

from posfuse.report.sections.answer import answers, counted, rows_of, rules
from posfuse.statistics import paired as st
from posfuse.statistics.comparisons import Criteria, in_families, judge
from posfuse.statistics.power import seeds_for_decision, seeds_for_equivalence


def compared(deltas, margin=0.5, **more):
    """Comparisons from the differences of each fusion, in points by seed; `more` are columns."""
    labels = {"data": "tiny", "encoding": "sinusoidal", "variant": "", "baseline_variant": ""}
    labels |= {"table": "Sinusoidal", "other_settings": "same"}
    rows = [{"fusion": name, **judge(d, Criteria(margin=margin))} for name, d in deltas.items()]
    return pd.DataFrame(rows).assign(**{**labels, "role": "primary", **more})


def answer_of(*frames, **criteria):
    """The first lines and the answers; Holm's adjustment is over the primary rows of all frames."""
    criteria = Criteria(**criteria)
    frame = in_families(pd.concat(frames, ignore_index=True), criteria)
    rows = rows_of(frame)
    best = frame if "baseline_at" in frame else frame.iloc[:0]
    first = [counted(rows, criteria.baseline), *rules(rows, best, criteria)]
    return first, answers(rows, [], criteria)


def about(seeds):
    return f"{float(f'{seeds:.2g}'):,.0f}"


def test_a_decided_difference_comes_before_an_undecided_one():
    deltas = {"concat": [-2.5, 5, 0], "gate_cnn_linear_start": [10, 10.5, 11]}
    low, high = st.t_interval([10, 10.5, 11])
    limit = st.spread_limit([-2.5, 5, 0])
    seeds = seeds_for_decision(2.5 / 3, limit, 0.5, 0.05 / 2)
    if_zero = seeds_for_equivalence(limit, 0.5, 0.0, 0.05 / 2)
    first, (gate, concat) = answer_of(compared(deltas))
    assert first == [
        "2 differences from add: 1 ahead, 1 undecided.",
        "Decided: p ≤ 0.05 after Holm's adjustment, for a difference or for equivalence within "
        "±0.5 points on these test documents.",
    ]
    assert (gate.verdict, gate.comparison) == ("ahead", "tiny: gate_cnn_linear_start - add")
    assert gate.difference == f"+10.50 ({low:+.2f} to {high:+.2f})"
    assert gate.details == (
        "gate_cnn_linear_start is ahead of add by 10.50 points of test accuracy "
        f"({low:.2f} to {high:.2f}), 3 seeds."
    )
    assert (concat.verdict, concat.n) == ("undecided", "3")
    assert concat.details.endswith(
        f", 3 seeds, undecided. About {about(seeds)} seeds would settle this if the true "
        f"difference is as measured, and about {about(if_zero)} if it is 0."
    )


def test_each_verdict_has_its_sentence():
    for deltas, margin, sentence in (
        ([-10, -10.5, -11], 0.5, "concat is behind add by 10.50 points"),
        ([0.1, -0.1, 0.05], 20, "3 seeds, equivalent within ±20 points on these test documents."),
        ([10, 10.5, 11], 20, "to 11.74), 3 seeds, also within ±20 points."),
        ([5, 5, 5], 0.5, "+5.00 points of test accuracy. Equal differences of 3 seeds give no"),
        ([0, 0, 0], 0.5, "+0.00 points of test accuracy. Equal differences of 3 seeds give no"),
        (
            [-10, 10, 0],
            9,
            "undecided. About 49 seeds would settle this if the true difference is 0.",
        ),
        ([-1e9, 1e9 + 1, 0], 0.5, "No feasible number of seeds would settle this."),
        ([10], 0.5, "test accuracy. One seed gives no interval and no test; run more seeds."),
    ):
        _, (row,) = answer_of(compared({"concat": deltas}, margin), margin=margin)
        assert sentence in row.details, deltas


def test_exploratory_differences_have_no_verdict():
    deltas = {"concat": [10, 10.5, 11], "none": [-1, 4, 0]}
    frame = compared(deltas, role=["primary", "exploratory"])
    first, rows = answer_of(frame, primary=("concat",))
    assert first[0] == "1 difference from add: 1 ahead. 1 more is exploratory."
    assert [row.verdict for row in rows] == ["ahead", "exploratory"]
    p = f"{st.p_paired_t(deltas['none']):.3f}"
    assert rows[1].details.endswith(f"3 seeds, exploratory: p {p}, not adjusted.")
    (alone, family), _ = answer_of(frame[1:], primary=("concat",))
    assert family == "Primary family: concat. Differences of other operators are exploratory."
    assert alone == "No difference from add is in the primary family, so all are exploratory."


def test_settings_and_encodings_are_named_if_rows_differ_in_them():
    for columns, values in (
        (["variant", "baseline_variant"], ["model.d_model=16", "model.d_model=8"]),
        (["encoding"], ["sinusoidal", "rope"]),
    ):
        frames = [compared({"mul": [10, 10.5, 11]}, **dict.fromkeys(columns, v)) for v in values]
        _, rows = answer_of(*frames)
        assert [row.comparison for row in rows] == [f"tiny, {v}: mul - add" for v in values]


def test_operators_at_several_scales_are_compared_at_their_best():
    chosen = {"at": "2", "baseline_scale": "4", "baseline_at": "4"}
    best = compared({"mul": [10, 10.5, 11]}, **chosen, choices=3, baseline_choices=3)
    first, (row,) = answer_of(best)
    how = "(chosen by the same seeds that are tested)."
    assert first[2] == f"Each operator has its own best model.token_scale {how}"
    assert row.comparison == "tiny: mul (at 2) - add (at 4)"
    both = best.assign(at="2, lr 0.1", baseline_lr="0.3", baseline_at="4, lr 0.3")
    first, (row,) = answer_of(both)
    assert "its own best model.token_scale and optim.lr (chosen" in first[2]
    assert row.comparison == "tiny: mul (at 2, lr 0.1) - add (at 4, lr 0.3)"


def test_an_operator_with_an_option_has_its_own_sentence_about_position():
    rows = [
        compared({"gate": deltas}, variant=f"fusion.start={start}")
        for start, deltas in (("half", [10, 10.5, 11]), ("linear", [1, 2, 3]))
    ]
    frame = in_families(pd.concat(rows, ignore_index=True), Criteria())
    table = answers(rows_of(frame), rows_of(frame.assign(placebo="none")), Criteria())
    said = {row.comparison: row.details.count("Position adds") for row in table}
    assert said == {f"tiny: gate fusion.start={start} - add": 1 for start in ("half", "linear")}
