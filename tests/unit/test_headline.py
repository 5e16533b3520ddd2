"""The first lines of a report: the verdicts of a sweep in sentences."""

import pandas as pd

from posfuse.report.sections.answer import MOST_LINES, headline
from posfuse.statistics import paired as st
from posfuse.statistics.comparisons import (
    Criteria,
    in_families,
    judge,
    seeds_for_difference,
    seeds_for_equivalence,
)


def compared(deltas, criteria, **more):
    """Comparisons from the differences of each fusion, in points by seed; `more` are columns."""
    labels = {"data": "tiny", "encoding": "sinusoidal", "variant": "", "baseline_variant": ""}
    rows = [
        {"fusion": fusion, "seeds": list(range(len(values))), **judge(values, criteria)}
        for fusion, values in deltas.items()
    ]
    return pd.DataFrame(rows).assign(**{**labels, "role": "primary", **more})


def lines(*frames, margin=0.5, cells=None, scaled=False, criteria=None):
    """The headline; Holm's adjustment is over the primary rows of all frames together."""
    criteria = criteria or Criteria(margin=margin)
    frame = in_families(pd.concat(frames, ignore_index=True), criteria)
    best = frame if scaled else frame.iloc[:0]
    cells = frame[["data", "encoding", "fusion", "n", "mean"]] if cells is None else cells
    return headline(cells, frame, best, criteria)


def about(seeds):
    return f"{float(f'{seeds:.2g}'):,.0f}"


def test_a_decided_difference_and_an_undecided_one():
    deltas = {"gate_cnn_linear_start": [10, 10.5, 11], "mul": [-2.5, 5, 0]}
    low, high = st.t_interval([10, 10.5, 11])
    other = st.t_interval([-2.5, 5, 0])
    limit = st.spread_limit([-2.5, 5, 0])
    seeds = seeds_for_difference(2.5 / 3, limit, 0.05 / 2)
    if_zero = seeds_for_equivalence(limit, 0.5, 0.0, 0.05 / 2)
    assert lines(compared(deltas, Criteria())) == [
        "Decided: 1 of 2 differences to add: p ≤ 0.05 after Holm's adjustment, for a difference "
        "or for equivalence within ±0.5 points on these test documents.",
        "On tiny (sinusoidal): gate_cnn_linear_start is ahead of add by 10.50 points of test "
        f"accuracy ({low:.2f} to {high:.2f}), 3 seeds. mul - add: +0.83 points ({other[0]:+.2f} to "
        f"{other[1]:+.2f}), 3 seeds, undecided. About {about(seeds)} seeds would "
        "settle this if the true difference is as measured, and about "
        f"{about(if_zero)} if it is 0.",
    ]


def test_each_verdict_has_its_sentence():
    for deltas, margin, sentence in (
        ([-10, -10.5, -11], 0.5, "concat is behind add by 10.50 points"),
        ([0.1, -0.1, 0.05], 20, "3 seeds, equivalent within ±20 points on these test documents."),
        ([10, 10.5, 11], 20, "to 11.74), 3 seeds, also within ±20 points."),
        ([5, 5, 5], 0.5, "+5.00 points of test accuracy with each of 3 seeds. Equal differences"),
        ([0, 0, 0], 0.5, "+0.00 points of test accuracy with each of 3 seeds. Equal differences"),
        ([-1e9, 1e9 + 1, 0], 0.5, "No feasible number of seeds would settle this."),
        ([10], 0.5, "with seed 0. One seed gives no interval and no test; run more, for example"),
    ):
        frame = compared({"concat": deltas}, Criteria(margin=margin))
        assert sentence in lines(frame, margin=margin)[1], deltas


def test_exploratory_differences_are_named_without_a_verdict():
    deltas = {"concat": [10, 10.5, 11], "mul": [3, 3.1, 3.2], "none": [-1, 4, 0]}
    frame = compared(deltas, Criteria())
    outside = frame["fusion"] != "concat"
    frame.loc[outside, "role"] = "exploratory"
    p = [f"{st.p_paired_t(deltas[name]):.3f}" for name in ("mul", "none")]
    p[0] = "< 0.001" if p[0] == "0.000" else f"= {p[0]}"
    found = lines(frame, criteria=Criteria(primary=("concat",)))
    assert found[0].startswith("Decided: 1 of 1 differences to add")
    assert found[0].endswith("on these test documents. 2 more are exploratory.")
    assert found[1].endswith(
        f"Exploratory, not adjusted: mul +3.10 (p {p[0]}), none +1.00 (p = {p[1]}) points."
    )
    alone = lines(frame[outside], criteria=Criteria(primary=("concat",)))
    assert alone[0] == "No difference to add could be tested. 2 more are exploratory."


def test_without_a_comparison_the_line_names_what_to_run():
    none = compared({"concat": [1]}, Criteria())[:0]
    absent = "add was not run, so nothing can be compared: run fusion=add, or choose another "
    for fusions, sentence in (
        (["add"], "Only add was run; run another operator with the same seeds."),
        (["mul"], f"{absent}operator with --baseline."),
        (["mul", "add"], "No operator can be compared with add; see the notes."),
    ):
        cells = pd.DataFrame(
            [("tiny", "sinusoidal", fusion, 3, 60.0) for fusion in fusions],
            columns=["data", "encoding", "fusion", "n", "mean"],
        )
        listed = ", ".join(f"{fusion} 60.00 % (n = 3)" for fusion in fusions)
        assert lines(none, cells=cells) == [
            "No difference to add could be tested.",
            f"On tiny (sinusoidal): {listed}. {sentence}",
        ]


def test_many_operators_and_many_corpora_are_folded():
    frames = [
        compared({"mul": [5, -5, 1]}, Criteria(), data=f"corpus{i:02}")
        for i in range(MOST_LINES + 3)
    ]
    gates = {f"gate{i}": [5, -5, i] for i in range(6)}
    frames.append(compared(gates, Criteria(), data="corpus00"))
    frames.append(compared({"concat": [10, 10.01, 10.02]}, Criteria(), data="corpus10"))
    found = lines(*frames)
    assert len(found) == MOST_LINES + 2
    assert found[1].startswith("On corpus10 (sinusoidal): concat is ahead of add by 10.01 points")
    assert found[2].startswith("On corpus00 (sinusoidal): gate5 - add: +1.67 points")
    assert found[2].endswith("Also undecided: gate4 +1.33, gate3 +1.00, gate2 +0.67, "
                             "mul +0.33, gate1 +0.33, gate0 +0.00.")  # fmt: skip
    assert found[-1] == (
        "3 more combinations of corpus, encoding and settings are in the tables; none of them with "
        "a decided difference."
    )


def test_settings_are_named_if_lines_differ_in_nothing_else():
    frames = [
        compared({"mul": [10, 10.5, 11]}, Criteria(), variant=name, baseline_variant=name)
        for name in ("model.d_model=16", "model.d_model=8")
    ]
    assert lines(frames[1])[1].startswith("On tiny (sinusoidal): mul is ahead of add")
    assert [line.split(":")[0] for line in lines(*frames)[1:]] == [
        "On tiny (sinusoidal, model.d_model=16)", "On tiny (sinusoidal, model.d_model=8)",
    ]  # fmt: skip


def test_operators_at_several_scales_are_compared_at_their_best():
    chosen = {"at": "2", "baseline_scale": "4", "baseline_at": "4"}
    best = compared({"mul": [10, 10.5, 11]}, Criteria(), **chosen, choices=3, baseline_choices=3)
    assert lines(best, scaled=True)[1].startswith(
        "On tiny (sinusoidal), each operator at its own best model.token_scale (chosen by the same "
        "seeds that are tested), add at 4: mul (at 2) is ahead of add by 10.50 points"
    )
    both = best.assign(at="2, lr 0.1", baseline_lr="0.3", baseline_at="4, lr 0.3")
    assert lines(both, scaled=True)[1].startswith(
        "On tiny (sinusoidal), each operator at its own best model.token_scale and optim.lr "
        "(chosen by the same seeds that are tested), add at 4, lr 0.3: mul (at 2, lr 0.1) is ahead"
    )
