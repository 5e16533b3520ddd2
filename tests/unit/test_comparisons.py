"""Cells and paired comparisons from records written by hand; what is left out is listed."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from posfuse.evidence.collect import collect
from posfuse.evidence.saved import learning_curves
from posfuse.report.sections.by_document import interactions_table
from posfuse.statistics import paired as st
from posfuse.statistics.comparisons import (
    Criteria,
    cells,
    compare,
    in_families,
    judge,
    strictest_level,
)
from posfuse.statistics.lengths import interactions, trends
from posfuse.statistics.power import seeds_for_difference, seeds_for_equivalence
from refusals import refusal
from small_records import write_record, write_sweep


def write_cells(root, accuracies, **more):
    """A run for each seed of each fusion: {"add": {0: 0.5, 1: 0.6}, ...}."""
    for fusion, by_seed in accuracies.items():
        for seed, accuracy in by_seed.items():
            write_record(root, accuracy, fusion, seed, **more)


def compared(root, **criteria):
    runs, problems = collect(root)
    assert problems == []
    return compare(runs, Criteria(**criteria))


def row_of(frame, **labels):
    found = frame[(frame[list(labels)] == list(labels.values())).all(axis=1)]
    assert len(found) == 1
    return found.iloc[0]


def test_cells_are_means_over_seeds_and_one_seed_has_no_spread(tmp_path):
    for seed, accuracy, latency in ((0, 0.5, 1.0), (1, 0.6, 2.0), (2, 0.7, 6.0)):
        write_record(tmp_path, accuracy, "add", seed, latency_ms=latency, fusion_parameters=None)
    write_record(tmp_path, 0.9, "concat", 0, latency_ms=4.0, fusion_parameters=20)
    table = cells(collect(tmp_path)[0])
    names = ["fusion", "length", "n", "mean", "std", "latency_mean", "latency_std"]
    assert table[names].to_numpy().tolist() == [
        ["add", 10, 3, pytest.approx(60), pytest.approx(10), 3, pytest.approx(math.sqrt(7))],
        ["concat", 10, 1, pytest.approx(90), pytest.approx(math.nan, nan_ok=True), 4,
         pytest.approx(math.nan, nan_ok=True)],
    ]  # fmt: skip
    assert table["fusion_parameters"].tolist() == pytest.approx([math.nan, 20], nan_ok=True)


def test_differences_are_paired_by_seed_whatever_the_order(tmp_path):
    write_cells(tmp_path, {"concat": {2: 0.8, 0: 0.6, 1: 0.65}, "add": {1: 0.6, 0: 0.5, 2: 0.7}})
    frame, notes = compared(tmp_path)
    assert notes == []
    row = row_of(frame, fusion="concat")
    assert len(frame) == 1
    assert row["seeds"] == [0, 1, 2]
    assert row["deltas"] == pytest.approx([10, 5, 10])
    assert row["n"] == 3
    assert row["mean"] == pytest.approx(25 / 3)
    assert row["std"] == pytest.approx(5 / math.sqrt(3))
    assert row["d_z"] == pytest.approx(5 / math.sqrt(3))
    t = 25 / 3 / (5 / 3)
    assert row["p_t"] == pytest.approx(2 * stats.t.sf(t, 2))
    reach = stats.t.ppf(0.975, 2) * 5 / 3
    assert (row["low"], row["high"]) == pytest.approx((25 / 3 - reach, 25 / 3 + reach))
    assert row["p_sign_flip"] == row["smallest_p"] == 0.25
    assert row["p_equivalence"] == pytest.approx(stats.t.cdf((25 / 3 - 0.5) / (5 / 3), 2))


@pytest.mark.parametrize(
    ("accuracies", "deltas", "note"),
    [
        ({"add": {0: 0.5, 1: 0.6, 2: 0.1, 11: 0.1}, "concat": {7: 0.9, 1: 0.66, 0: 0.52}}, [[2, 6]],
         "only one of concat and add has these seeds, so they are left out: 2, 7, 11"),
        ({"add": {0: 0.5}, "concat": {1: 0.6}}, [],
         "not compared, because it has no seed in common with add"),
        ({"concat": {0: 0.6}}, [],
         "not compared, because add has no run with this data and encoding"),
        ({"add": {0: 0.5}, "concat": {0: 0.6}}, [[10]], "no test, because there is only one seed"),
    ],
)  # fmt: skip
def test_what_cannot_be_paired_is_left_out_and_named(tmp_path, accuracies, deltas, note):
    write_cells(tmp_path, accuracies)
    write_sweep(tmp_path, {"add": [0.5, 0.6], "concat": [0.6, 0.8]}, encoding="learned")
    frame, notes = compared(tmp_path)
    assert any(line.startswith(f"tiny sinusoidal concat: {note}") for line in notes), notes
    other, *found = frame.sort_values("encoding")["deltas"]
    assert other == pytest.approx([10, 20])
    assert found == [pytest.approx(own) for own in deltas]


def judged(root, base, gains, n_documents):
    """The one comparison of runs with so many right documents, and its note."""
    for fusion, counts in (("add", base), ("concat", np.add(base, gains))):
        write_sweep(root, {fusion: counts / n_documents}, documents={"test": n_documents})
    frame, notes = compared(root)
    return frame.iloc[0], notes


@pytest.mark.parametrize(
    ("n_documents", "base", "gain"),
    [(600, [122, 351, 298], 7), (425, [349, 344, 351], 5), (7600, [3795, 6001], 11)],
)
def test_differences_that_are_equal_but_for_rounding(tmp_path, n_documents, base, gain):
    """They are tested with the spread of one document, where their number is known."""
    row, notes = judged(tmp_path / "known", np.array(base), [gain] * len(base), n_documents)
    step, n = 100 / n_documents, len(base)
    line = f"tiny sinusoidal concat: the difference is the same in all {n} seeds; "
    assert notes == [f"{line}the test uses one test document, {step:.2f} points, as standard "
                     "deviation"]  # fmt: skip
    assert (row["resolution"], row["mean"]) == (step, pytest.approx(gain * step))
    assert np.isnan(row["d_z"])
    expected = judge(row["deltas"], Criteria(), step)
    names = ["p_t", "low", "high", "p_equivalence", "std_limit"]
    assert row[names].tolist() == [expected[name] for name in names]
    # t = gain documents / (1 document / sqrt(n))
    assert row["p_t"] == pytest.approx(2 * stats.t.sf(gain * math.sqrt(n), n - 1))
    assert row["seeds_effect"] == seeds_for_difference(1.0, row["std_limit"], 0.05)
    write_sweep(tmp_path / "unknown", {"add": [0.5, 0.6], "concat": [0.6, 0.7]})
    frame, notes = compared(tmp_path / "unknown")
    assert notes == [line.replace(f"all {n}", "all 2") + "there is no test"]
    assert frame[["p_t", "low", "d_z", "p_equivalence"]].isna().all(axis=None)


@pytest.mark.parametrize(
    ("n_documents", "base", "gains"),
    [
        (425, [250, 253, 215, 215, 233, 233, 235], [3, -1, -2, 3, 2, 5, -3]),
        (600, [301, 355, 122, 351, 298, 410], [-3, 4, 7, -2, 4, 0]),
    ],
)
def test_rank_and_sign_tests_find_ties_in_spite_of_rounding(tmp_path, n_documents, base, gains):
    row, _ = judged(tmp_path, np.array(base), gains, n_documents)
    exact = judge([float(gain) for gain in gains], Criteria())
    for p in ("p_t", "p_wilcoxon", "p_sign_flip"):
        assert row[p] == pytest.approx(exact[p], rel=1e-4)


@pytest.mark.parametrize(
    ("settings", "variant", "difference"),
    [
        ({"model.d_model": 16}, "", "model.d_model 16, 8"),
        ({"model.d_model": 16}, "model.d_model=16", "model.d_model 16, 8"),
        ({"optim.lr": 0.1}, "", "optim.lr 0.1"),  # which only one of them has
    ],
)
def test_a_cell_of_other_settings_is_not_compared_and_the_key_is_named(
    tmp_path, settings, variant, difference
):
    write_sweep(tmp_path, {"add": [0.5, 0.6], "mlp": [0.6, 0.8]})
    write_sweep(tmp_path, {"concat": [0.6, 0.8]}, settings=settings, variant=variant)
    frame, (note,) = compared(tmp_path)
    assert frame["fusion"].tolist() == ["mlp"]
    assert note.startswith(f"tiny sinusoidal concat{variant and f' {variant}'}: not compared, ")
    assert f"because its settings differ from add's: {difference}" in note


def test_a_variant_and_an_encoding_pair_with_their_own_baseline(tmp_path):
    scale = {"settings": {"model.token_scale": 1.0}, "variant": "model.token_scale=1"}
    write_sweep(tmp_path, {"add": [0.5, 0.6], "concat": [0.51, 0.63]})
    write_sweep(tmp_path, {"add": [0.1, 0.2], "concat": [0.3, 0.5]}, **scale)
    learned = {"encoding": "learned", "settings": {"encoding.std": 0.02}}
    write_sweep(tmp_path, {"add": [0.4, 0.4], "concat": [0.3, 0.2]}, **learned)
    wordy = {"data": "wordy", "tokens": 80.0, "settings": {"data.max_len": 9}}
    write_sweep(tmp_path, {"add": [0.9, 0.8], "concat": [0.9, 0.85]}, **wordy)
    frame, notes = compared(tmp_path)
    assert notes == []
    assert len(frame) == 4
    for labels, deltas in (
        ({"data": "tiny", "encoding": "sinusoidal", "variant": ""}, [1, 3]),
        ({"variant": "model.token_scale=1"}, [20, 30]),
        ({"encoding": "learned"}, [-10, -20]),
        ({"data": "wordy"}, [0, 5]),
    ):
        assert row_of(frame, **labels)["deltas"] == pytest.approx(deltas)


def test_an_option_of_the_fusion_pairs_with_the_plain_baseline(tmp_path):
    write_sweep(tmp_path, {"add": [0.5, 0.6]}, settings={"optim.lr": 1})
    own = {"optim.lr": 1, "fusion.half_width": 4}
    write_sweep(tmp_path, {"gate_cnn": [0.51, 0.63]}, variant="fusion.half_width=4", settings=own)
    frame, notes = compared(tmp_path)
    assert notes == []
    assert frame["deltas"][0] == pytest.approx([1, 3])
    assert frame[["variant", "baseline_variant"]].values.tolist() == [["fusion.half_width=4", ""]]


def test_p_holm_is_holms_over_all_encodings_and_leaves_out_what_has_no_test(tmp_path):
    gains = {"concat": [0.60, 0.71, 0.80], "gate": [0.52, 0.66, 0.71], "mlp": [0.60, 0.70, 0.80]}
    add = {"add": [0.5, 0.6, 0.7]}
    write_sweep(tmp_path, add | gains)  # the differences of mlp are equal
    write_sweep(tmp_path, add | {"concat": [0.4, 0.4, 0.71]}, encoding="learned")
    frame, _ = compared(tmp_path)
    assert frame["p_t"].notna().sum() == 3
    assert frame["p_holm"].tolist() == pytest.approx(st.holm(frame["p_t"]), nan_ok=True)


def test_only_the_primary_operators_are_adjusted_together(tmp_path):
    add = [0.5, 0.6, 0.7]
    others = {"concat": [0.60, 0.71, 0.80], "gate": [0.52, 0.66, 0.71], "mul": [0.1, 0.3, 0.2]}
    write_sweep(tmp_path, {"add": add, **others})
    every, _ = compared(tmp_path)
    assert set(every["role"]) == {"primary"}
    frame, _ = compared(tmp_path, primary=("concat", "gate"))
    assert frame["role"].tolist() == ["primary", "primary", "exploratory"]
    small, large = sorted(frame["p_t"][:2])
    assert sorted(frame["p_holm"][:2]) == pytest.approx([2 * small, max(2 * small, large)])
    assert frame["p_t"].tolist() == every["p_t"].tolist()
    other = row_of(frame, fusion="mul")
    assert np.isnan(other[["p_holm", "p_equivalence_holm"]].astype(float)).all()
    assert strictest_level(frame, Criteria()) == 0.05 / 2
    planned = seeds_for_difference(1.0, other["std_limit"], 0.05 / 2)
    assert other["seeds_effect"] == planned


def encoded(table, **more):
    """Settings of an encoding with this table."""
    attention = {f"encoding.attention.{key}": value for key, value in more.items()}
    return {"settings": {"encoding.table._target_": f"posfuse.model.encoding.{table}"} | attention}


def test_runs_without_position_are_in_the_family_only_if_nothing_else_was_run(tmp_path):
    cells_of = {"add": [0.5, 0.6, 0.7], "concat": [0.6, 0.65, 0.8]}
    write_sweep(tmp_path, cells_of, encoding="blank", **encoded("NoTable"))
    assert compared(tmp_path)[0]["role"].tolist() == ["primary"]
    write_sweep(tmp_path, cells_of, data="wordy", **encoded("Sinusoidal"))
    assert set(compared(tmp_path)[0]["role"]) == {"primary"}  # of another corpus
    write_sweep(tmp_path, cells_of, encoding="mine", **encoded("Sinusoidal"))
    frame, _ = compared(tmp_path)
    roles = {(row["data"], row["encoding"]): row["role"] for row in frame.to_dict("records")}
    assert roles == {("tiny", "blank"): "placebo", ("tiny", "mine"): "primary",
                     ("wordy", "sinusoidal"): "primary"}  # fmt: skip


def test_tables_and_tasks_are_those_of_the_settings(tmp_path):
    target = "posfuse.model.attention_encoding.RelativeKeys"
    story = {"data.corpus._target_": "posfuse.data.bbc.lead_story", "data.corpus.split_seed": 0}
    cells_of = {"add": [0.5, 0.6], "concat": [0.6, 0.8]}
    short = story | {"data.corpus.words": 8, "data.name": "a"}
    long = story | {"data.corpus.words": 40, "data.name": "b", "data.max_len": 99}
    for data, settings in (
        ("short", short), ("long", long), ("other", long | {"data.corpus.split_seed": 1}),
        ("wide", long | {"model.d_model": 16}),
    ):  # fmt: skip
        of = encoded("Sinusoidal")["settings"]
        write_sweep(tmp_path, cells_of, data=data, settings=settings | of)
    relative = encoded("Sinusoidal", _target_=target, clip=16)["settings"]
    write_sweep(tmp_path, cells_of, data="long", encoding="relative", settings=long | relative)
    frame, _ = compared(tmp_path)
    rows = {(r["data"], r["encoding"]): r for r in frame.to_dict("records")}
    assert {r["table"] for r in rows.values()} == {"Sinusoidal"}
    assert rows["long", "relative"]["attention"] == "RelativeKeys clip=16"
    assert rows["long", "sinusoidal"]["attention"] == ""
    tasks = {key: row["task"] for key, row in rows.items()}
    assert tasks["short", "sinusoidal"].startswith("lead_story-")
    assert tasks["short", "sinusoidal"] == tasks["long", "sinusoidal"] == tasks["long", "relative"]
    assert len(set(tasks.values())) == 3
    others = {key: row["other_settings"] for key, row in rows.items()}
    assert others["long", "relative"] == others["long", "sinusoidal"]
    assert len(set(others.values())) == 4


@pytest.mark.parametrize(("margin", "effect", "alpha"), [(0.5, 1.0, 0.05), (1.0, 0.25, 0.01)])
def test_the_criteria_reach_the_statistics(margin, effect, alpha):
    deltas = [0.3, -0.2, 0.4, 0.1]
    std, mean = np.std(deltas, ddof=1), np.mean(deltas)
    criteria = Criteria(margin=margin, effect=effect, alpha=alpha)
    found = judge(deltas, criteria)
    # The lower tail of chi-squared with 3 degrees of freedom has 20 % below 1.005174.
    assert (limit := found["std_limit"]) == pytest.approx(std * math.sqrt(3 / 1.005174), rel=1e-6)
    error = std / 2
    edges = (stats.t.sf((mean + margin) / error, 3), stats.t.cdf((mean - margin) / error, 3))
    assert found["p_equivalence"] == pytest.approx(max(edges))
    # Two comparisons have a test, so the strictest of Holm's levels is alpha / 2.
    rows = pd.DataFrame([found, found, judge([0.3], criteria)]).assign(fusion="concat")
    seeds = in_families(rows, criteria)[["seeds_observed", "seeds_effect", "seeds_equivalence"]]
    assert seeds.iloc[0].tolist() == [
        seeds_for_difference(mean, limit, alpha / 2),
        seeds_for_difference(effect, limit, alpha / 2),
        seeds_for_equivalence(limit, margin, 0.0, alpha / 2),
    ]
    assert seeds.iloc[2].isna().all()


def test_interactions_are_the_slopes_of_the_seeds_that_all_corpora_have(tmp_path):
    write_sweep(tmp_path, {"add": [0.5] * 4, "concat": [0.52, 0.51, 0.54, 0.51]})
    wordy = {"add": dict.fromkeys(range(4), 0.5), "concat": {0: 0.60, 2: 0.56, 3: 0.59}}
    write_cells(tmp_path, wordy, data="wordy", tokens=40.0)
    (row,) = interactions(compare(collect(tmp_path)[0], Criteria())[0]).to_dict("records")
    # 10 to 40 tokens are two doublings; gains go 2 -> 10, 4 -> 6, 1 -> 9
    assert row["slopes"] == pytest.approx([4, 1, 4])
    assert (row["n"], row["mean"]) == (3, pytest.approx(3))
    assert row["p_t"] == pytest.approx(2 * stats.t.sf(3, 2))
    assert row["p_sign_flip"] == pytest.approx(0.25)
    assert row["corpora"] == "tiny (10 tokens, +2.33), wordy (40 tokens, +8.33)"


def test_a_length_is_that_of_the_same_sweep_and_setting(tmp_path):
    for length, variant in ((10.0, ""), (40.0, "data.max_len=64")):
        write_cells(tmp_path / "one", {"add": {0: 0.5, 1: 0.5}}, tokens=length, variant=variant)
    write_cells(tmp_path / "two", {"add": {0: 0.5}}, tokens=90.0)
    runs, _ = collect(tmp_path)
    lengths = runs.groupby(["sweep_id", "variant"])["length"].unique().map(list).to_dict()
    assert lengths == {
        ("one", ""): [10], ("one", "data.max_len=64"): [40], ("two", ""): [90]
    }  # fmt: skip


def test_one_task_at_several_lengths_has_a_row_of_its_own(tmp_path):
    story = {"data.corpus._target_": "posfuse.data.bbc.lead_story"}
    gains = {"short": [2, 4, 3], "long": [6, 6, 6], "longer": [7, 11, 9], "article": [1, 2, 1]}
    for i, (data, of) in enumerate(gains.items()):
        settings = {"data.max_len": 9 * (i + 1)} | (story if i < 3 else {})
        cells_of = {"add": [0.5] * 3, "concat": [0.5 + gain / 100 for gain in of]}
        write_sweep(tmp_path, cells_of, data=data, tokens=10.0 * 4**i, settings=settings)
    found = interactions(compared(tmp_path)[0])
    assert found["task"].tolist() == ["lead_story", ""]
    task, every = found.iloc[0], found.iloc[1]
    assert task["corpora"] == (
        "short (10 tokens, +3.00), long (40 tokens, +6.00), longer (160 tokens, +9.00)"
    )
    assert "article (640 tokens, +1.33)" in every["corpora"]
    # Over 10, 40 and 160 tokens: a quarter of the last gain less the first.
    assert task["slopes"] == pytest.approx([5 / 4, 7 / 4, 6 / 4])
    curvatures = [(2 - 12 + 7) / 8, (4 - 12 + 11) / 8, (3 - 12 + 9) / 8]
    assert task["p_fit"] == pytest.approx(stats.ttest_1samp(curvatures, 0).pvalue)
    assert task["monotone"]
    assert not every["monotone"]
    table = interactions_table(found, Criteria())
    assert table.columns[2:4] == ["one task", "corpora"]
    assert [row[2] for row in table.rows] == ["lead_story", ""]
    assert table.rows[0][-1] == f"{task['p_fit']:.3f}"


def test_one_corpus_and_corpora_of_one_length_have_no_interaction(tmp_path):
    accuracies = {"add": [0.5, 0.6], "concat": [0.6, 0.8]}
    write_sweep(tmp_path, accuracies)
    assert interactions(compared(tmp_path)[0]).empty
    write_sweep(tmp_path, accuracies, data="like")
    found = interactions(compared(tmp_path)[0])
    assert found.empty
    assert {"slopes", "mean", "low", "high", "p_t", "p_sign_flip"} <= set(found.columns)


def test_trends_are_slopes_over_the_bins_of_one_cell():
    cell = {"data": "tiny", "encoding": "sinusoidal", "fusion": "concat", "variant": "",
            "n_documents": 50}  # fmt: skip
    bins = pd.DataFrame(
        [
            {**cell, "mean_length": 8.0, "gains": [1.0, 0.0]},
            {**cell, "mean_length": 16.0, "gains": [2.0, 3.0]},
            {**cell, "mean_length": 32.0, "gains": [3.0, 6.0]},
            {**cell, "fusion": "one bin", "mean_length": 32.0, "gains": [3.0, 6.0]},
        ]
    )
    found = trends(bins)
    assert found["fusion"].tolist() == ["concat"]
    assert found["slopes"][0] == pytest.approx([1, 3])
    assert (found["n"][0], found["mean"][0]) == (2, pytest.approx(2))
    # Over 8, 16, 32 tokens the slope is half the last gain less the first, in steps of 2 points.
    assert found["resolution"][0] == pytest.approx(2 * math.sqrt(0.25 + 0.25))
    rising = bins[:3].assign(gains=[[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]])
    error = found["resolution"][0] / math.sqrt(2)
    assert trends(rising)["p_t"][0] == pytest.approx(2 * stats.t.sf(1 / error, 1))


def sound(root):
    write_sweep(root, {"add": [0.5, 0.6]})


@pytest.mark.parametrize(
    ("settings", "difference"),
    [({"model.d_model": 16}, "model.d_model 8, 16"), ({"optim.lr": 0.1}, "optim.lr")],
)
def test_a_cell_of_two_configurations_is_left_out_and_both_folders_named(
    tmp_path, settings, difference
):
    sound(tmp_path)
    one = write_record(tmp_path, 0.6, "concat", 0)
    other = write_record(tmp_path, 0.6, "concat", 1, settings=settings)
    runs, (problem,) = collect(tmp_path)
    assert runs["fusion"].tolist() == ["add", "add"]
    assert "\n" not in problem
    for part in (str(one), str(other), difference, "two configurations"):
        assert part in problem


def test_two_corpora_of_one_name_are_left_out_and_the_line_asks_for_a_name(tmp_path):
    sound(tmp_path)
    write_record(tmp_path, 0.6, "concat", 0, settings={"data.path": "a1"})
    write_record(tmp_path, 0.6, "concat", 1, settings={"data.path": "b2", "data.limit": 9})
    _, (problem,) = collect(tmp_path)
    assert "two configurations (two corpora named " in problem
    assert problem.endswith("; the cell is left out, run one of them again with data.name=NAME")


def test_two_different_runs_with_one_seed_leave_the_cell_out(tmp_path):
    sound(tmp_path)
    one = write_record(tmp_path, 0.6, "concat", 1)
    other = write_record(tmp_path / "x", 0.8, "concat", 1, fingerprint="x", sweep_id=tmp_path.name)
    runs, (problem,) = collect(tmp_path)
    assert set(runs["fusion"]) == {"add"}
    for part in (str(one), str(other), "two different runs with seed 1"):
        assert part in problem


def test_sweeps_of_their_own_may_hold_the_same_cell(tmp_path):
    write_record(tmp_path / "a", 0.5)
    write_record(tmp_path / "b", 0.6, settings={"model.d_model": 16})
    runs, problems = collect(tmp_path)
    assert problems == []
    assert len(runs) == 2


def test_when_everything_is_left_out_it_is_an_error_of_one_line(tmp_path):
    write_record(tmp_path / "accuracy", 2.0)
    write_record(tmp_path / "seed", 0.5)
    write_record(tmp_path / "seed" / "x", 0.6, fingerprint="x", sweep_id="seed")
    write_record(tmp_path / "configuration", 0.5)
    write_record(tmp_path / "configuration", 0.6, seed=1, settings={"model.d_model": 16})
    for kind in ("accuracy", "seed", "configuration"):
        assert str(tmp_path / kind) in refusal(collect, tmp_path / kind)


def test_learning_curves_are_in_percent_and_a_damaged_one_is_named(tmp_path):
    sound(tmp_path)
    runs, _ = collect(tmp_path)
    good, bad = runs["folder"]
    history = pd.DataFrame({"epoch": [1, 2], "val_accuracy": [0.25, 0.5]})
    history.to_csv(f"{good}/history.csv", index=False)
    with open(f"{bad}/history.csv", "w") as file:
        file.write("epoch,val_accuracy\n1,much\n")
    curves, (problem,) = learning_curves(runs)
    assert curves[["seed", "epoch", "value"]].to_numpy().tolist() == [[0, 1, 25], [0, 2, 50]]
    assert problem.startswith(f"{bad}/history.csv: no learning curve")
