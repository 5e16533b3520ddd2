"""Cells and paired comparisons from records written by hand; what is left out is listed."""

import math
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from posfuse.evidence.collect import collect, varying
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
from posfuse.statistics.power import seeds_for_decision, seeds_for_difference, seeds_for_equivalence
from refusals import refusal
from small_records import write_record, write_sweep


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
    write_sweep(tmp_path, {"concat": {2: 0.8, 0: 0.6, 1: 0.65}, "add": {1: 0.6, 0: 0.5, 2: 0.7}})
    frame, notes = compared(tmp_path)
    assert notes == []
    (row,) = frame.to_dict("records")
    assert (row["fusion"], row["n"], row["seeds"]) == ("concat", 3, [0, 1, 2])
    assert row["deltas"] == pytest.approx([10, 5, 10])
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
    write_sweep(tmp_path, accuracies)
    write_sweep(tmp_path, {"add": [0.5, 0.6], "concat": [0.6, 0.8]}, encoding="learned")
    frame, notes = compared(tmp_path)
    assert any(line.startswith(f"tiny sinusoidal concat: {note}") for line in notes), notes
    other, *found = frame.sort_values("encoding")["deltas"]
    assert other == pytest.approx([10, 20])
    assert found == [pytest.approx(own) for own in deltas]


@pytest.mark.parametrize(
    ("n_documents", "base", "gain"),
    [(600, [122, 351, 298], 7), (425, [349, 344, 351], 5), (7600, [3795, 6001], 11)],
)
def test_differences_that_are_equal_but_for_rounding(tmp_path, n_documents, base, gain):
    """They are tested with the spread of one document, where their number is known."""
    scores = {"add": np.array(base) / n_documents, "concat": np.add(base, gain) / n_documents}
    write_sweep(tmp_path / "known", scores, documents={"test": n_documents})
    frame, notes = compared(tmp_path / "known")
    row, step, n = frame.iloc[0], 100 / n_documents, len(base)
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


def test_settings_that_vary_are_shown_in_place_of_a_name_that_was_cut(tmp_path):
    for layers, digest in ((1, "49e653d6"), (2, "7cff40c7")):
        settings = {"data.labels": "topic", "model.n_layers": layers}
        own = {"settings": settings, "variant": f"data.labels=topic__data.split-{digest}"}
        write_sweep(tmp_path / "sweep", {"add": [0.5], "concat": [0.6]}, **own)
    runs, _ = collect(tmp_path)
    assert set(runs["variant"]) == {"model.n_layers=1", "model.n_layers=2"}
    layers = runs["settings.model.n_layers"].astype(str)
    assert (runs["variant"] == "model.n_layers=" + layers).all()


def test_whole_numbers_that_some_runs_lack_are_shown_as_whole_numbers():
    runs = pd.DataFrame({"data": "a", "seeds.init": [0, 1, np.nan], "optim.lr": [0.5, 1.0, np.nan]})
    shown = varying(runs, ["data"], ["seeds.init", "optim.lr"])
    assert shown.tolist() == ["seeds.init=0 optim.lr=0.5", "seeds.init=1 optim.lr=1.0", ""]


def test_a_variant_and_an_encoding_pair_with_their_own_baseline(tmp_path):
    scale = {"settings": {"model.token_scale": 1.0}, "variant": "model.token_scale=1"}
    write_sweep(tmp_path, {"add": [0.5, 0.6], "concat": [0.51, 0.63]})
    write_sweep(tmp_path, {"add": [0.1, 0.2], "concat": [0.3, 0.5]}, **scale)
    learned = {"encoding": "learned", "settings": {"encoding.std": 0.02}}
    write_sweep(tmp_path, {"add": [0.4, 0.4], "concat": [0.3, 0.2]}, **learned)
    wordy = {"data": "wordy", "tokens": 80.0, "settings": {"data.max_len": 9}}
    write_sweep(tmp_path, {"add": [0.9, 0.8], "concat": [0.9, 0.85]}, **wordy)
    option = {"settings": {"fusion.half_width": 4}, "variant": "fusion.half_width=4"}
    write_sweep(tmp_path, {"gate_cnn": [0.52, 0.61]}, **option)  # it pairs with the plain baseline
    frame, notes = compared(tmp_path)
    assert notes == []
    assert len(frame) == 5
    for labels, deltas in (
        ({"data": "tiny", "encoding": "sinusoidal", "variant": ""}, [1, 3]),
        ({"variant": "model.token_scale=1", "baseline_variant": "model.token_scale=1"}, [20, 30]),
        ({"encoding": "learned"}, [-10, -20]),
        ({"data": "wordy"}, [0, 5]),
        ({"variant": "fusion.half_width=4", "baseline_variant": ""}, [2, 1]),
    ):
        assert row_of(frame, **labels)["deltas"] == pytest.approx(deltas)


def test_the_primary_operators_of_all_encodings_are_adjusted_together(tmp_path):
    add = {"add": [0.5, 0.6, 0.7]}
    gains = {"concat": [0.60, 0.71, 0.80], "gate": [0.52, 0.66, 0.71], "mul": [0.1, 0.3, 0.2]}
    write_sweep(tmp_path, add | gains | {"mlp": [0.6, 0.7, 0.8]})  # its differences are equal
    write_sweep(tmp_path, add | {"concat": [0.4, 0.4, 0.71]}, encoding="learned")
    every, _ = compared(tmp_path)
    assert set(every["role"]) == {"primary"}
    assert every["p_t"].notna().sum() == 4
    assert every["p_holm"].tolist() == pytest.approx(st.holm(every["p_t"]), nan_ok=True)
    frame, _ = compared(tmp_path, primary=("concat", "gate"))
    of_family = frame["fusion"].isin(["concat", "gate"])
    assert frame["role"].tolist() == of_family.map({True: "primary", False: "exploratory"}).tolist()
    assert frame["p_t"].tolist() == pytest.approx(every["p_t"].tolist(), nan_ok=True)
    assert frame.loc[of_family, "p_holm"].tolist() == st.holm(frame.loc[of_family, "p_t"]).tolist()
    assert frame.loc[~of_family, ["p_holm", "p_equivalence_holm"]].isna().all(axis=None)
    assert strictest_level(frame, Criteria()) == 0.05 / 3
    other = row_of(frame, fusion="mul")
    assert other["seeds_effect"] == seeds_for_difference(1.0, other["std_limit"], 0.05 / 3)


SCORES = {"add": [0.5, 0.6, 0.7], "concat": [0.6, 0.65, 0.8]}


def encoded(table):
    return {"encoding.table._target_": f"posfuse.model.encoding.{table}"}


def test_runs_without_position_are_in_the_family_only_if_nothing_else_was_run(tmp_path):
    write_sweep(tmp_path, SCORES, encoding="blank", settings=encoded("NoTable"))
    assert compared(tmp_path)[0]["role"].tolist() == ["primary"]
    write_sweep(tmp_path, SCORES, data="wordy", settings=encoded("Sinusoidal"))
    assert set(compared(tmp_path)[0]["role"]) == {"primary"}  # of another corpus
    write_sweep(tmp_path, SCORES, encoding="mine", settings=encoded("Sinusoidal"))
    roles = compared(tmp_path)[0].set_index(["data", "encoding"])["role"].to_dict()
    placebo = roles.pop(("tiny", "blank"))
    assert (placebo, set(roles.values())) == ("placebo", {"primary"})


def test_tables_and_tasks_are_those_of_the_settings(tmp_path):
    story = {"data.corpus._target_": "posfuse.data.bbc.lead_story", "data.corpus.split_seed": 0}
    story |= encoded("Sinusoidal")
    long = story | {"data.corpus.words": 40, "data.name": "b", "data.max_len": 99}
    target = "posfuse.model.attention_encoding.RelativeKeys"
    attention = {"encoding.attention._target_": target, "encoding.attention.clip": 16}
    for data, encoding, settings in (
        ("short", "sinusoidal", story | {"data.corpus.words": 8, "data.name": "a"}),
        ("long", "sinusoidal", long),
        ("long", "relative", long | attention),
        ("other", "sinusoidal", long | {"data.corpus.split_seed": 1}),
        ("wide", "sinusoidal", long | {"model.d_model": 16}),
    ):
        write_sweep(tmp_path, SCORES, data=data, encoding=encoding, settings=settings)
    frame = compared(tmp_path)[0].set_index(["data", "encoding"])
    assert set(frame["table"]) == {"Sinusoidal"}
    same = [("long", "relative"), ("long", "sinusoidal"), ("short", "sinusoidal")]
    assert frame.loc[same, "attention"].tolist() == ["RelativeKeys clip=16", "", ""]
    (task,) = set(frame.loc[same, "task"])
    assert task.startswith("lead_story-")
    assert frame["task"].nunique() == 3
    assert frame.loc[same[:2], "other_settings"].nunique() == 1
    assert frame["other_settings"].nunique() == 4


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
    rows = pd.DataFrame([found, found, judge([0.3], criteria)])
    rows = rows.assign(data="tiny", fusion="concat", table="Sinusoidal", other_settings="same")
    seeds = in_families(rows, criteria)[
        [f"seeds_{what}" for what in ("observed", "effect", "equivalence", "decision")]
    ]
    assert seeds.iloc[0].tolist() == [
        seeds_for_difference(mean, limit, alpha / 2),
        seeds_for_difference(effect, limit, alpha / 2),
        seeds_for_equivalence(limit, margin, 0.0, alpha / 2),
        seeds_for_decision(mean, limit, margin, alpha / 2),
    ]
    assert seeds.iloc[2].isna().all()


def test_a_length_is_that_of_the_same_sweep_and_setting(tmp_path):
    tokens = {("one", ""): 10, ("one", "data.max_len=64"): 40, ("two", ""): 90}
    for (sweep, variant), n in tokens.items():
        for seed in (0, 1):
            write_record(tmp_path / sweep, 0.5, seed=seed, variant=variant, tokens=n + seed)
    runs, _ = collect(tmp_path)
    lengths = runs.groupby(["sweep_id", "variant"])["length"].unique().map(list).to_dict()
    assert lengths == {cell: [n + 0.5] for cell, n in tokens.items()}


def test_one_task_at_several_lengths_has_a_row_of_its_own(tmp_path):
    """Over the seeds that all corpora have."""
    story = {"data.corpus._target_": "posfuse.data.bbc.lead_story"}
    gains = {"short": [2, 4, 3, 99], "long": [6, 6, 6], "longer": [7, 11, 9], "article": [1, 2, 1]}
    for i, (data, of) in enumerate(gains.items()):
        settings = {"data.max_len": 9 * (i + 1)} | (story if i < 3 else {})
        cells_of = {"add": [0.0] * len(of), "concat": [gain / 100 for gain in of]}
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
    assert (task["n"], task["mean"], task["p_sign_flip"]) == (3, pytest.approx(1.5), 0.25)
    assert task["p_t"] == pytest.approx(stats.ttest_1samp([5, 7, 6], 0).pvalue)
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
    of_bins = {"mean_length": [8, 16, 32, 32], "gains": [[1, 0], [2, 3], [3, 6], [3, 6]]}
    bins = pd.DataFrame(of_bins | {"fusion": ["concat"] * 3 + ["one bin"]})
    bins = bins.assign(data="tiny", encoding="sinusoidal", variant="", n_documents=50)
    found = trends(bins)
    assert found["fusion"].tolist() == ["concat"]
    assert found["slopes"][0] == pytest.approx([1, 3])
    assert (found["n"][0], found["mean"][0]) == (2, pytest.approx(2))
    # Over 8, 16, 32 tokens the slope is half the last gain less the first, in steps of 2 points.
    assert found["resolution"][0] == pytest.approx(2 * math.sqrt(0.25 + 0.25))
    rising = bins[:3].assign(gains=[[1, 1], [2, 2], [3, 3]])
    error = found["resolution"][0] / math.sqrt(2)
    assert trends(rising)["p_t"][0] == pytest.approx(2 * stats.t.sf(1 / error, 1))


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"settings": {"model.d_model": 16}}, "one cell with two configurations (model.d_model 8, "
         "16); the cell is left out, give one of them a sweep_id of its own"),
        ({"settings": {"optim.lr": 0.1}}, "one cell with two configurations (optim.lr "),
        ({"settings": {"data.path": "b2", "data.limit": 9}}, "one cell with two configurations "
         "(two corpora named 'tiny'); the cell is left out, run one of them again with data.name="),
        ({"code": "new"}, "one cell with two versions of your code; the cell is left out, run"),
        ({"seed": 0}, "two different runs with seed 0; the cell is left out, remove one of them"),
    ],
)  # fmt: skip
def test_a_cell_that_is_ambiguous_is_left_out_and_both_folders_named(tmp_path, more, problem):
    sweep = tmp_path / "mine"
    write_sweep(sweep, {"add": [0.5, 0.6]})
    own = {"fusion": "concat", "sweep_id": "mine", "code": "old"}
    one = write_record(sweep, 0.6, **own)
    other = write_record(sweep / "x", 0.8, **{"seed": 1, "fingerprint": "x", **own, **more})
    runs, (line,) = collect(sweep)
    assert runs["fusion"].tolist() == ["add", "add"]
    assert line.startswith(f"{one} and {other}: {problem}")
    shutil.rmtree(sweep / "tiny" / "sinusoidal" / "add")
    assert refusal(collect, sweep) == line  # no run is left


def test_learning_curves_are_in_percent_and_a_damaged_one_is_named(tmp_path):
    """A task of the user with trainer.monitor=loss need not validate the metric."""
    write_sweep(tmp_path, {"add": [0.5, 0.6, 0.7]})
    runs, _ = collect(tmp_path)
    _, damaged, other = (Path(folder, "history.csv") for folder in runs["folder"])
    damaged.write_text("epoch,val_accuracy\n1,much\n")
    other.write_text("epoch,val_loss\n1,0.5\n")
    curves, (problem,) = learning_curves(runs)
    assert curves[["seed", "epoch", "value"]].to_numpy().tolist() == [[0, 1, 25], [0, 2, 50]]
    assert problem.startswith(f"{damaged}: no learning curve")
