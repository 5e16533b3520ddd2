"""The tuned keys as axes: the frames by hand, the choice of values, and the report."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from posfuse.report.sections.own_values import learning_rate, own_best_tables
from posfuse.statistics.comparisons import Criteria, compare
from posfuse.statistics.own_best import own_best
from posfuse.statistics.second_differences import placebos
from small_records import posfuse_report, repeated, write_sweep

# (fusion, scale): test and validation accuracies of seeds 0 to 2, in percent. d is 16: sqrt_d = 4.
RUNS = {
    ("add", 1.0): ([60, 62, 67], [61, 63, 65]),
    ("add", 2.0): ([70, 71, 72], [50, 50, 50]),  # the best on test, which must not count
    ("add", "sqrt_d"): ([40, 42, 44], [40, 40, 40]),
    ("concat", 1.0): ([50, 50, 50], [50, 50, 50]),
    ("concat", 2.0): ([61, 65, 69], [70, 70, 70]),
    ("concat", "sqrt_d"): ([55, 56, 63], [60, 60, 60]),
    ("concat", "learned"): ([58, 58, 58], [60, 60, 60]),
}


def frame(runs=RUNS, d_model=16, **more):
    rows = [
        {
            "data": "tiny", "encoding": "sin", "fusion": fusion, "seed": seed, "length": 10.0,
            "variant": f"model.token_scale={scale}", "test.accuracy": test / 100,
            "validation.accuracy": validation / 100, "settings.fusion.name": fusion,
            "settings.seed": seed, "settings.model.d_model": d_model,
            "settings.model.token_scale": scale, **more,
        }
        for (fusion, scale), accuracies in runs.items()
        for seed, (test, validation) in enumerate(zip(*accuracies, strict=True))
    ]  # fmt: skip
    return pd.DataFrame(rows)


def cell(scales, fusion, scale):
    (row,) = scales.cells.query(f"fusion == '{fusion}' and scale == '{scale}'").to_dict("records")
    return row


def test_a_cell_is_the_mean_over_seeds_with_its_t_interval():
    row = cell(own_best(frame(), Criteria()), "add", "1")
    assert (row["n"], row["mean"], row["sqrt_d"]) == (3, pytest.approx(63), False)
    assert row["scale_number"] == 1
    assert row["std"] == pytest.approx(np.sqrt(13))  # -3, -1, 4: 26 over 2
    reach = 4.302652730 * np.sqrt(13 / 3)  # Student's quantile with 2 degrees of freedom
    assert (row["low"], row["high"]) == pytest.approx((63 - reach, 63 + reach))
    assert row["validation"] == pytest.approx(63)


def test_a_value_with_two_spellings_is_no_comparison_of_its_own():
    again = {("add", 4.0): RUNS["add", "sqrt_d"], ("concat", 4.0): RUNS["concat", 1.0]}
    runs = frame({**RUNS, **again}).assign(**{"settings.task.name": "classification"})
    found = own_best(runs, Criteria())
    assert len(found.best) == 1
    assert found.others(compare(runs, Criteria())[0]).empty


def test_scales_are_numbers_in_order_and_a_learned_one_is_its_start():
    """4 is sqrt(16) in another way, so its runs count once."""
    twice = {("add", 4.0): RUNS["add", "sqrt_d"], ("concat", 0.125): ([1], [1])}
    found = own_best(frame({**RUNS, **twice}), Criteria())
    assert cell(found, "add", "sqrt_d = 4")["n"] == 3
    assert len(found.cells) == len(RUNS) + 1
    concat = found.cells[found.cells["fusion"] == "concat"]
    assert concat["scale"].tolist() == ["1/8", "1", "2", "sqrt_d = 4", "learned"]
    assert concat["scale_number"].tolist() == [0.125, 1, 2, 4, 4]
    assert concat["learned"].tolist() == [False] * 4 + [True]
    assert concat["sqrt_d"].tolist() == [False, False, False, True, False]


def test_runs_that_differ_in_other_settings_are_not_compared():
    """Records of runs from scratch have no pretrain.name. At d = 9 one scale was run: no axis."""
    one = {("add", 1.0): RUNS["add", 1.0]}
    others = [frame(**{"settings.pretrain.name": "masked"}), frame(d_model=64), frame(one, 9)]
    found = own_best(pd.concat([frame(), *others], ignore_index=True), Criteria())
    assert sorted(found.best["variant"]) == [
        "model.d_model=16", "model.d_model=16 pretrain.name=masked", "model.d_model=64"
    ]  # fmt: skip
    assert found.cells["n"].tolist() == 3 * own_best(frame(), Criteria()).cells["n"].tolist()
    assert cell(found, "add", "sqrt_d = 8")["variant"] == "model.d_model=64"


def test_equal_accuracies_of_single_precision_are_a_tie():
    """The larger values seem to be better by rounding alone."""
    one, other = [69.9999988, 69.9999988], [70.0000018, 70.0000018]
    runs = {(fusion, scale, lr): ([50, 50], validation)
            for fusion in ("add", "concat")
            for scale, lr, validation in ((1.0, 0.001, one), (2.0, 0.001, other),
                                          (2.0, 0.003, other))}  # fmt: skip
    found = own_best(surface_of(runs), Criteria())
    assert set(found.cells.query("best")["scale"]) == {"1"}
    assert found.best["at"].tolist() == ["1, lr 0.001"]
    assert found.along("scale")["lr"].tolist() == ["0.001"] * 4
    clear = {key: (test, [v + 0.001 * key[1] for v in one]) for key, (test, _) in runs.items()}
    assert own_best(surface_of(clear), Criteria()).best["at"].tolist() == ["2, lr 0.001"]


def test_a_row_holds_both_differences_paired_by_seed():
    (row,) = own_best(frame(), Criteria()).best.to_dict("records")
    assert (row["fusion"], row["scale"], row["baseline_scale"]) == ("concat", "2", "1")
    assert row["deltas"] == pytest.approx([1, 3, 2])  # 61 - 60, 65 - 62, 69 - 67
    reach = 4.302652730 / np.sqrt(3)
    assert (row["mean"], row["low"]) == pytest.approx((2, 2 - reach))
    expected = stats.ttest_rel([61, 65, 69], [60, 62, 67]).pvalue
    assert row["p_t"] == row["p_holm"] == pytest.approx(expected)  # validation chose, not test
    assert row["paper_mean"] == pytest.approx((15 + 14 + 19) / 3)
    assert row["paper_n"] == 3


# With a table of zeros both operators are best at the scale 2: 9, 8 and 10 points of difference.
WITHOUT_POSITION = {
    ("add", 1.0): ([40, 40, 40], [40, 40, 40]),
    ("add", 2.0): ([41, 42, 43], [41, 41, 41]),
    ("concat", 1.0): ([40, 40, 40], [40, 40, 40]),
    ("concat", 2.0): ([50, 50, 53], [50, 50, 50]),
}


def with_placebos(without=WITHOUT_POSITION, **more):
    table = {"settings.encoding.table._target_": "posfuse.model.encoding.NoTable"}
    parts = [frame(), frame(without, **table, **more).assign(encoding="none")]
    return pd.concat(parts, ignore_index=True)


def test_runs_without_position_are_not_in_the_family():
    alone = own_best(frame(), Criteria()).best
    found = own_best(with_placebos(), Criteria(primary=("concat",))).best
    assert found[["encoding", "role"]].to_numpy().tolist() == [
        ["sin", "primary"], ["none", "placebo"]
    ]  # fmt: skip
    row, placebo = found.to_dict("records")
    assert row["p_holm"] == row["p_t"] == pytest.approx(alone["p_t"].item())
    assert placebo["deltas"] == pytest.approx([9, 8, 10])
    assert np.isnan([placebo["p_holm"], placebo["paper_p_holm"]]).all()
    # Other settings that differ make no placebo.
    others = own_best(with_placebos(d_model=64), Criteria()).best
    assert set(others["role"]) == {"primary"}


def test_what_position_adds_at_own_best_values(tmp_path):
    """By hand: the gains at own best values are 1, 3 and 2 with position, and 9, 8, 10 without."""
    (row,) = placebos(own_best(with_placebos(), Criteria()).best, Criteria()).to_dict("records")
    assert (row["encoding"], row["placebo"], row["seeds"]) == ("sin", "none", [0, 1, 2])
    assert row["gains"] == pytest.approx([1, 3, 2])
    assert row["placebo_gains"] == pytest.approx([9, 8, 10])
    assert row["mean"] == pytest.approx(-7)
    assert row["p_holm"] == pytest.approx(stats.ttest_1samp([-8, -5, -8], 0).pvalue)
    both = [("sin", "Sinusoidal", RUNS), ("none", "NoTable", WITHOUT_POSITION)]
    for encoding, table, runs in both:  # in 40ths: differences are 2.5 times as large
        for (fusion, scale), (tests, validations) in runs.items():
            write_sweep(
                tmp_path / "sweep", {fusion: [round(test - 40) / 40 for test in tests]},
                encoding=encoding, variant=f"model.token_scale={scale}", documents={"test": 40},
                validation={"accuracy": np.mean(validations)},
                settings={"model.token_scale": scale, "model.d_model": 16,
                          "encoding.table._target_": f"posfuse.model.encoding.{table}"},
            )  # fmt: skip
    text, _ = posfuse_report(tmp_path / "sweep")
    assert "\n1 difference from add: 1 undecided.\n" in text
    assert "On tiny (none)" not in text
    page = (tmp_path / "sweep" / "report" / "index.html").read_text()
    assert "Position adds -17.50 points to this difference (" in page
    title = "How much of the gain over add comes from position, at own best values"
    assert text.index(title) > text.index("By token scale")
    tables = tmp_path / "sweep" / "report" / "tables"
    assert pd.read_csv(tables / "placebo_best.csv")["mean"].tolist() == [-17.5]
    assert "own highest mean validation accuracy" in (tables / "placebo_best.md").read_text()
    assert len(pd.read_csv(tables / "placebo.csv")) == 2  # a row for each scale


def test_one_scale_gives_empty_frames_and_no_note():
    one = {key: value for key, value in RUNS.items() if key[1] == 1.0}
    for runs in (frame(one), frame().drop(columns="settings.model.token_scale")):
        scales = own_best(runs, Criteria())
        assert scales.cells.empty
        assert scales.best.empty
        assert scales.notes == []
        assert own_best_tables(scales, Criteria()) == []


def test_what_a_reader_must_know_is_a_note():
    add, concat = RUNS["add", 1.0], RUNS["concat", 2.0]
    runs = {("add", 1.0): add, ("add", 2.0): ([1], [1]), ("concat", 2.0): concat}
    scales = own_best(frame(runs), Criteria())
    assert scales.notes == [
        "tiny sin add: its values have different numbers of seeds, 1 to 3",
        "tiny sin concat: was run with other values of model.token_scale than add",
    ]
    scales = own_best(frame(runs), Criteria(baseline="mlp"))
    assert scales.notes[-1] == "tiny sin: not compared, because mlp has no best model.token_scale"
    assert scales.best.empty
    at = {("add", 1.0): ([50, 60, 70], [50] * 3), ("concat", 2.0): ([60, 70, 80], [60] * 3)}
    notes = own_best(frame(at, **{"documents.test": 100}), Criteria()).notes
    equal = "tiny sin concat: the difference is the same in all 3 seeds; the test uses one test "
    assert any(note.startswith(equal) for note in notes)
    apart = frame(runs)
    apart.loc[apart["fusion"] == "concat", "seed"] += 10
    notes = own_best(apart, Criteria()).notes
    assert notes[-1] == "tiny sin concat: not compared, because it has no seed in common with add"
    both = pd.concat([apart, frame(runs).assign(data="wordy")], ignore_index=True)
    assert own_best(both, Criteria()).best["data"].tolist() == ["wordy"]


def edges(found, key="scale"):
    best = found.cells.query("best")
    return dict(zip(best["fusion"], best[f"{key}_edge"], strict=True))


def test_a_best_value_at_the_edge_of_its_grid_is_flagged():
    assert edges(own_best(frame(), Criteria())) == {"add": True, "concat": False}
    without = {key: value for key, value in RUNS.items() if key != ("concat", 1.0)}
    (row,) = own_best(frame(without), Criteria()).best.to_dict("records")
    assert (row["scale_edge"], row["baseline_scale_edge"]) == (True, True)
    # A grid of one value has no edge.
    one = {key: value for key, value in RUNS.items() if key[0] == "add" or key[1] == 2.0}
    assert edges(own_best(frame(one), Criteria())) == {"add": True, "concat": False}
    for table in own_best_tables(own_best(frame(), Criteria()), Criteria()):
        assert table.marks in table.caption
        assert "‡" in table.marks
    inside = own_best(frame(RUNS | {("add", 0.5): ([1], [1])}), Criteria())
    best, by_scale = own_best_tables(inside, Criteria())
    assert "‡" not in best.caption + by_scale.caption + str(best.rows) + str(by_scale.rows)
    assert (best.marks, by_scale.marks[:2]) == ("", "* ")


def test_a_learned_scale_counts_as_the_scale_that_it_starts_from():
    rising = RUNS | {
        ("concat", "sqrt_d"): ([70, 70, 70], [75, 75, 75]),
        ("concat", "learned"): ([70, 70, 70], [76, 76, 76]),
    }
    found = own_best(frame(rising), Criteria())
    assert found.best["scale"].tolist() == ["learned"]
    assert found.best["scale_edge"].tolist() == [True]
    beyond = own_best(frame(rising | {("concat", 8.0): ([60], [60])}), Criteria())
    assert beyond.best["scale_edge"].tolist() == [False]
    equal = rising | {("concat", "learned"): ([70, 70, 70], [75, 75, 75])}
    assert own_best(frame(equal), Criteria()).best["scale"].tolist() == ["sqrt_d = 4"]


def surface_of(lr_by_scale):
    """Runs of each operator at (scale, lr): {(fusion, scale, lr): (tests, validations)}."""
    parts = []
    for lr in {key[2] for key in lr_by_scale}:
        runs = {key[:2]: found for key, found in lr_by_scale.items() if key[2] == lr}
        parts.append(frame(runs, **{"settings.optim.lr": lr}))
    return pd.concat(parts, ignore_index=True)


BOTH = {
    ("add", 1.0, 0.001): ([50, 52], [50, 50]),
    ("add", 1.0, 0.003): ([60, 62], [60, 60]),
    ("add", "sqrt_d", 0.001): ([41, 41], [45, 45]),
    ("add", "sqrt_d", 0.003): ([40, 40], [40, 40]),
    ("concat", 1.0, 0.001): ([70, 75], [70, 70]),
    ("concat", 1.0, 0.003): ([55, 55], [50, 50]),
    ("concat", "sqrt_d", 0.001): ([65, 65], [60, 60]),
    ("concat", "sqrt_d", 0.003): ([66, 66], [65, 65]),
}


def test_scale_and_learning_rate_are_chosen_together():
    found = own_best(surface_of(BOTH), Criteria())
    assert found.keys == ["scale", "lr"]
    (row,) = found.best.to_dict("records")
    chosen = [row[name] for name in ("scale", "lr", "baseline_scale", "baseline_lr")]
    assert chosen == ["1", "0.001", "1", "0.003"]
    assert (row["at"], row["baseline_at"]) == ("1, lr 0.001", "1, lr 0.003")
    assert row["deltas"] == pytest.approx([10, 13])
    assert row["paper_mean"] == pytest.approx(66 - 41)  # at sqrt_d, each at its best lr there
    assert [row[f"{of}{key}_edge"] for of in ("", "baseline_") for key in found.keys] == [True] * 4
    best, by_both = own_best_tables(found, Criteria())
    assert (best.name, by_both.name) == ("best_scale_lr", "by_scale_lr")
    assert best.title == "At each operator's own best scale and learning rate"
    assert best.columns[:5] == ["data", "encoding", "fusion", "verdict", "n"]
    assert best.columns[9:13] == ["scale", "lr", "add's scale", "add's lr"]
    assert best.rows[0][9:13] == ["1‡", "0.001‡", "1‡", "0.003‡"]
    assert by_both.columns == ["data", "encoding", "scale", "lr", "add", "concat"]
    assert [row[2:4] for row in by_both.rows] == [
        ["1", "0.001"], ["1", "0.003"], ["sqrt_d = 4", "0.001"], ["sqrt_d = 4", "0.003"]
    ]  # fmt: skip
    beyond = {**BOTH, ("concat", 1.0, 0.0003): ([1], [1]), ("concat", 0.5, 0.001): ([1], [1])}
    assert not edges(own_best(surface_of(beyond), Criteria()), "lr")["concat"]


def test_operators_that_were_run_with_one_value_each_are_compared():
    frozen = {key: BOTH[key] for key in (("add", 1.0, 0.003), ("concat", 1.0, 0.001))}
    found = own_best(surface_of(frozen), Criteria())
    assert found.best["deltas"].tolist() == [pytest.approx([10, 13])]
    assert not edges(found, "lr")["concat"]
    best, _ = own_best_tables(found, Criteria())
    assert "(not chosen: each operator ran with a single value)" in best.caption
    assert "--select-seeds" not in best.caption


def test_seeds_that_choose_are_not_tested():
    # Over all seeds concat validates best at 1, by seed 0 at 2. Seed 0 has the largest difference.
    runs = {
        ("add", 1.0): ([10, 62, 67], [80, 10, 10]),
        ("add", 2.0): ([70, 71, 72], [50, 50, 50]),
        ("concat", 1.0): ([50, 50, 50], [50, 90, 90]),
        ("concat", 2.0): ([99, 65, 69], [70, 10, 10]),
    }
    (row,) = own_best(frame(runs), Criteria(select=(0,))).best.to_dict("records")
    assert (row["scale"], row["baseline_scale"]) == ("2", "1")
    assert (row["seeds"], row["deltas"]) == ([1, 2], pytest.approx([3, 2]))
    (row,) = own_best(frame(runs), Criteria()).best.to_dict("records")
    assert (row["scale"], row["baseline_scale"], row["n"]) == ("1", "2", 3)


def test_the_choice_needs_no_run_of_the_tested_seeds_elsewhere():
    """A study tunes over a grid and then runs new seeds at the chosen values alone."""
    tuned = frame().query("seed == 0")
    at_best = [("add", 1.0), ("concat", 2.0)]
    frozen = frame({key: RUNS[key] for key in at_best}).query("seed > 0")
    runs = pd.concat([tuned, frozen], ignore_index=True)
    found = own_best(runs, Criteria(select=(0,)))
    (row,) = found.best.to_dict("records")
    assert (row["scale"], row["baseline_scale"], row["seeds"]) == ("2", "1", [1, 2])
    assert np.isnan(row["paper_mean"])  # no tested seed ran there
    assert not any("different numbers" in note for note in found.notes)
    found = own_best(tuned, Criteria(select=(0,)))
    assert found.best.empty
    alone = "not compared, because it has no tested seed in common with add"
    assert f"tiny sin concat: {alone}" in found.notes
    found = own_best(frame(), Criteria(select=(7,)))
    unknown = "no best model.token_scale, because there is no validation accuracy"
    assert f"tiny sin add: {unknown} of seed 7" in found.notes


def test_without_validation_there_is_no_choice():
    scales = own_best(frame().drop(columns="validation.accuracy"), Criteria())
    assert not scales.cells["best"].any()
    unknown = "no best model.token_scale, because there is no validation accuracy"
    assert f"tiny sin add: {unknown}" in scales.notes
    assert [table.name for table in own_best_tables(scales, Criteria())] == ["by_scale"]


def test_a_report_shows_that_a_gain_is_due_to_scale_and_takes_the_seeds_that_choose(tmp_path):
    """Concat is far ahead at sqrt(d) = 4. With each at its best scale it is no better than add:
    +1, -1 and 0 documents of 40."""
    accuracies = {
        ("add", 1): [0.6, 0.65, 0.625],
        ("add", "sqrt_d"): [0.2, 0.225, 0.25],
        ("concat", 1): [0.5, 0.5, 0.525],
        ("concat", "sqrt_d"): [0.625, 0.625, 0.625],
    }
    root = tmp_path / "surface"
    for (fusion, scale), tests in accuracies.items():
        write_sweep(
            root, {fusion: tests}, variant=f"model.token_scale={scale}",
            settings={"model.token_scale": scale, "model.d_model": 16},
            validation={"accuracy": max(tests)},
        )  # fmt: skip
    text, _ = posfuse_report(root, draw=True)
    table = text.split("own best scale")[1]
    assert all(part in table for part in ("+40.00", "+0.00", "undecided"))
    assert text.index("By token scale") < text.index("own best scale")
    assert "Table 1" not in text  # it has a row for every scale, and is on the page
    page = (root / "report" / "index.html").read_text()
    assert "By token scale" in page
    assert 'id="figure-scale"' in page
    assert "‡" in page
    assert repeated(page) == []
    assert "(chosen by the same seeds that are tested)" in text
    text, _ = posfuse_report(root, "--select-seeds", "0", "--out", tmp_path / "out")
    assert "(chosen by seed 0, tested with other seeds)" in text
    assert pd.read_csv(tmp_path / "out/tables/best_scale.csv")["seeds"].tolist() == ["1 2"]


def test_a_setting_with_one_value_keeps_its_comparison_beside_one_with_several(tmp_path):
    sweep = tmp_path / "sweep"
    for limit, rates in ((100, (0.1, 0.2)), (1000, (0.1,))):
        for rate in rates:
            write_sweep(
                sweep, {"add": [0.5, 0.6, 0.7], "concat": [0.6, 0.8, 0.8]},
                variant=f"data.limit={limit}__optim.lr={rate}",
                validation={"accuracy": rate},
                settings={"data.limit": limit, "optim.lr": rate},
            )  # fmt: skip
    text, _ = posfuse_report(sweep)
    assert "\n2 differences from add: 2 undecided.\n" in text
    page = (sweep / "report" / "index.html").read_text()
    assert "tiny, data.limit=100: concat (at 0.2) - add (at 0.2)" in page
    assert "tiny, data.limit=1000__optim.lr=0.1: concat - add" in page
    cautions = pd.read_csv(sweep / "report" / "tables" / "cautions.csv")
    assert cautions["comparisons"].str.contains("limit=1000").any()


def test_the_lines_of_the_learning_rate_go_from_left_to_right():
    """The best learning rate falls and rises with the scale."""
    best = {1.0: 0.01, 2.0: 0.001, 4.0: 0.1}
    runs = {
        ("add", scale, lr): ([50, 60], [60 + 9 * (best[scale] == lr)] * 2)
        for scale in best for lr in best.values()
    }  # fmt: skip
    found = own_best(surface_of(runs), Criteria())
    (axis, *_) = learning_rate(found.along("lr")).axes
    assert [0.001, 0.01, 0.1] in [list(line.get_xdata()) for line in axis.lines]
