"""The first lines of a report: what the sweep says, in sentences."""

import sys

import pandas as pd
import pytest

from posfuse.analysis import report
from posfuse.analysis.claims.verdicts import judge_claims, not_judged, read_claims
from posfuse.analysis.evidence.collect import collect
from posfuse.analysis.headline import MOST_LINES, headline
from posfuse.analysis.statistics import paired as st
from posfuse.analysis.statistics.comparisons import (
    Criteria,
    cells,
    compare,
    seeds_for_difference,
    seeds_for_equivalence,
)
from posfuse.analysis.statistics.scales import scales_of
from small_records import write_record, write_sweep

CRITERIA = Criteria()
ADD = [0.5, 0.6, 0.7]


def lines(root, criteria=CRITERIA):
    runs, _ = collect(root)
    has_baseline = criteria.baseline in set(runs["fusion"])
    comparisons, _ = compare(runs if has_baseline else runs.iloc[:0], criteria)
    return headline(cells(runs), comparisons, scales_of(runs, criteria).best, criteria)


def plus(*points):
    return [a + p / 100 for a, p in zip(ADD, points, strict=True)]


def test_a_decided_difference_and_an_undecided_one(tmp_path):
    root = write_sweep(
        tmp_path / "mine",
        {"add": ADD, "gate_cnn_linear_start": plus(10, 10.5, 11), "mul": plus(-2.5, 5, 0)},
    )
    low, high = st.t_interval([10, 10.5, 11])
    p = st.holm([st.p_paired_t([10, 10.5, 11]), st.p_paired_t([-2.5, 5, 0])])
    other = st.t_interval([-2.5, 5, 0])
    seeds = seeds_for_difference(2.5 / 3, st.spread([-2.5, 5, 0]), 0.05 / 2)
    assert lines(root) == [
        "1 of 2 differences to add is decided: p ≤ 0.05 after Holm's adjustment, for a difference "
        "or for equivalence within ±0.5 points.",
        "On tiny (sinusoidal): gate_cnn_linear_start is ahead of add by 10.50 points of test "
        f"accuracy (95 % t interval {low:+.2f} to {high:+.2f}, n = 3, Holm-adjusted p = "
        f"{p[0]:.3f}). mul minus add is +0.83 points (95 % t interval {other[0]:+.2f} to "
        f"{other[1]:+.2f}, n = 3, Holm-adjusted p = {p[1]:.3f}), undecided. About {seeds:.0f} "
        "seeds would show such a difference at 80 % power.",
    ]


@pytest.mark.parametrize(
    ("points", "margin", "says"),
    [
        ((-10, -10.5, -11), 0.5, "concat is behind add by 10.50 points"),
        (
            (0.1, -0.1, 0.05),
            20,
            "concat is equivalent to add within ±20 points: the difference is +0.02",
        ),
        ((10, 10.5, 11), 20, "p < 0.001), a difference within ±20 points."),
        ((5, 5, 5), 0.5, "+5.00 points of test accuracy with each of 3 seeds. Without a spread"),
        ((0, 0, 0), 0.5, "+0.00 points of test accuracy with each of 3 seeds. Without a spread"),
    ],
)
def test_each_conclusion_has_its_sentence(tmp_path, points, margin, says):
    root = write_sweep(tmp_path / "mine", {"add": ADD, "concat": plus(*points)})
    assert says in lines(root, Criteria(margin=margin))[1]


def test_a_mean_of_zero_asks_for_the_seeds_of_equivalence(tmp_path):
    root = write_sweep(tmp_path / "mine", {"add": ADD, "concat": plus(-5, 5, 0)})
    seeds = seeds_for_equivalence(5.0, 0.5, 0.0, 0.05)
    assert f"About {seeds:,.0f} seeds would show equivalence at 80 % power" in lines(root)[1]


def test_one_seed_has_no_test(tmp_path):
    root = write_sweep(tmp_path / "mine", {"add": [0.5], "concat": [0.6]})
    assert lines(root) == [
        "No difference to add could be tested.",
        "On tiny (sinusoidal): concat minus add is +10.00 points of test accuracy with seed 0. One "
        "seed gives no interval and no test: run more, as seed=0,1,2,3,4.",
    ]


@pytest.mark.parametrize(
    ("fusions", "says"),
    [
        (["add"], "Only add was run: run another operator with the same seeds."),
        (
            ["mul"],
            "There is no add to compare with: run fusion=add too, or name "
            "another operator with --baseline.",
        ),
    ],
)
def test_one_operator_alone_is_compared_with_nothing(tmp_path, fusions, says):
    root = write_sweep(tmp_path / "mine", dict.fromkeys(fusions, ADD))
    first, line = lines(root)
    assert first == "No difference to add could be tested."
    assert line == f"On tiny (sinusoidal): {fusions[0]} 60.00 % (n = 3). {says}"


def test_no_seed_in_common_is_said(tmp_path):
    write_record(tmp_path / "mine", 0.5, "add", 0)
    write_record(tmp_path / "mine", 0.6, "mul", 1)
    assert "No operator can be compared with add: the notes say why." in lines(tmp_path / "mine")[1]


def test_many_operators_and_many_corpora_are_folded(tmp_path):
    root = tmp_path / "mine"
    for i in range(MOST_LINES + 3):
        write_sweep(root, {"add": ADD, "mul": plus(5, -5, 1)}, data=f"corpus{i:02}")
    names = [f"gate{i}" for i in range(6)]
    write_sweep(root, {f: plus(5, -5, i) for i, f in enumerate(names)}, data="corpus00")
    write_sweep(root, {"concat": plus(10, 10.01, 10.02)}, data="corpus10")
    found = lines(root)
    assert len(found) == MOST_LINES + 2
    assert found[1].startswith("On corpus10 (sinusoidal): concat is ahead of add by 10.01 points")
    assert found[2].startswith("On corpus00 (sinusoidal): gate5 minus add is +1.67 points")
    assert found[2].endswith("Undecided too are gate4 +1.33, gate3 +1.00, gate2 +0.67, "
                             "gate1 +0.33, mul +0.33, gate0 +0.00.")  # fmt: skip
    assert found[-1] == (
        "3 more combinations of corpus, encoding and settings are in the tables, none of them with "
        "a decided difference."
    )


def test_settings_are_named_where_they_tell_lines_apart(tmp_path):
    root = tmp_path / "mine"
    for width in (8, 16):
        more = {"variant": f"model.d_model={width}", "settings": {"model.d_model": width}}
        write_sweep(root, {"add": ADD, "mul": plus(5, -5, 1)}, **more)
        if width == 8:
            assert lines(root)[1].startswith("On tiny (sinusoidal): mul minus add")
    assert [line.split(":")[0] for line in lines(root)[1:]] == [
        "On tiny (sinusoidal, model.d_model=16)", "On tiny (sinusoidal, model.d_model=8)",
    ]  # fmt: skip


def test_operators_at_several_scales_are_compared_at_their_best(tmp_path):
    root = tmp_path / "mine"
    for scale, gain in (("1", 0), ("2", 10)):
        more = {
            "variant": f"model.token_scale={scale}",
            "settings": {"model.token_scale": scale},
            "validation": {"accuracy": 0.5 + gain / 100},
        }
        write_sweep(root, {"add": ADD, "mul": plus(gain, gain + 0.5, gain + 1)}, **more)
    _, line = lines(root)
    assert line.startswith(
        "On tiny (sinusoidal), each operator at its own best model.token_scale, add at 2: "
        "mul (at 2) is ahead of add by 10.50 points"
    )


def test_claims_without_runs_are_one_line(tmp_path):
    runs, _ = collect(write_sweep(tmp_path / "mine", {"add": ADD, "gate_scalar": plus(1, 2, 3)}))
    claims = read_claims()
    verdicts = judge_claims(claims, compare(runs, CRITERIA)[0], CRITERIA)
    assert not_judged(verdicts) == [
        "7 claims of the paper match no runs here: negligible_short, negligible_medium, gain_long, "
        "every_seed_long, every_encoding, cnn_less_stable, grows_with_length."
    ]
    other = Criteria(baseline="gate_scalar")
    verdicts = judge_claims(claims, compare(runs, other)[0], other)
    (line,) = not_judged(verdicts)
    assert line.startswith("7 claims of the paper match no comparison (needs --baseline add)")
    assert not_judged([]) == []


def test_a_claim_of_ones_own_keeps_its_verdict_where_no_runs_match(tmp_path, monkeypatch, capsys):
    root = write_sweep(tmp_path / "mine", {"add": ADD, "concat": plus(10, 12.5, 15)})
    own = tmp_path / "claims.yaml"
    own.write_text("claims: [{name: n, text: Mine., kind: gain, where: {data: other}}]")
    monkeypatch.setattr(sys, "argv", ["posfuse-report", str(root), "--claims", str(own)])
    monkeypatch.setattr(report, "draw_all", lambda *_: [])
    report.main()
    shown = capsys.readouterr().out
    assert "INCONCLUSIVE Mine." in shown
    assert "To settle it: needs runs with data=other" in " ".join(shown.split())
    assert "match no runs" not in shown
    assert (root / "report" / "index.html").read_text().count('class="verdict ') == 1


def test_terminal_and_page_begin_with_the_sweep(tmp_path, monkeypatch, capsys):
    root = write_sweep(tmp_path / "mine", {"add": ADD, "concat": plus(10, 12.5, 15)})
    monkeypatch.setattr(sys, "argv", ["posfuse-report", str(root)])
    monkeypatch.setattr(report, "draw_all", lambda *_: [])
    report.main()
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("1 of 1 difference to add is decided")
    assert shown[1].startswith("On tiny (sinusoidal): concat is ahead of add by 12.50 points")
    assert "INCONCLUSIVE" not in "".join(shown)
    assert sum("match no runs here" in line for line in shown) == 1
    page = (root / "report" / "index.html").read_text()
    assert page.index("concat is ahead of add") < page.index('id="verdicts"')
    assert page.count("match no runs here") == 1
    assert 'class="verdict ' not in page


def test_the_headline_of_no_rows_needs_no_columns():
    runs = pd.DataFrame({"data": ["a"], "encoding": ["b"], "fusion": ["add"], "n": 1, "mean": 50.0})
    none, _ = compare(pd.DataFrame(columns=["data", "encoding", "fusion", "variant"]), CRITERIA)
    best = scales_of(pd.DataFrame({"data": []}), CRITERIA).best
    assert len(headline(runs, none, best, CRITERIA)) == 2
