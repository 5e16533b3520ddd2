"""Cells and paired comparisons from records written by hand; what is left out is listed."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from posfuse.errors import InputError
from posfuse.evidence.collect import collect
from posfuse.evidence.saved import learning_curves
from posfuse.report.sections.by_document import interactions_table
from posfuse.runs.records import SCHEMA
from posfuse.statistics.comparisons import (
    Criteria,
    cells,
    compare,
    in_families,
    judge,
    seeds_for_difference,
    seeds_for_equivalence,
    strictest_level,
)
from posfuse.statistics.lengths import interactions, trends


def write(
    root, fusion, seed, accuracy, *, data="tiny", encoding="sinusoidal", variant="", tokens=10.0,
    folder=None, settings=None, **more,
):  # fmt: skip
    """One result.json; `settings` are added to the record's, `more` to its keys."""
    folder = root / (folder or f"{data}/{encoding}/{fusion}/{variant}/seed={seed}")
    folder.mkdir(parents=True)
    named = {"seed": seed, "model.d_model": 8, "fusion.name": fusion, "fusion.bias": fusion != "a"}
    record = {
        "schema": SCHEMA,
        "fingerprint": str(folder),
        "sweep_id": "mine",
        "data": data,
        "encoding": encoding,
        "fusion": fusion,
        "variant": variant,
        "seed": seed,
        "settings": named | (settings or {}),
        "test": {"accuracy": accuracy},
        "mean_tokens": {"train": tokens},
        **more,
    }
    (folder / "result.json").write_text(json.dumps(record))
    return folder


def write_cells(root, accuracies, **more):
    """A run for each seed of each fusion: {"add": {0: 0.5, 1: 0.6}, ...}."""
    for fusion, by_seed in accuracies.items():
        for seed, accuracy in by_seed.items():
            write(root, fusion, seed, accuracy, **more)


def compared(root, **criteria):
    runs, problems = collect(root)
    assert problems == []
    return compare(runs, Criteria(**criteria))


def row_of(frame, **labels):
    found = frame[(frame[list(labels)] == list(labels.values())).all(axis=1)]
    assert len(found) == 1
    return found.iloc[0]


def test_cells_are_means_and_standard_deviations_by_hand(tmp_path):
    for seed, accuracy, latency in ((0, 0.5, 1.0), (1, 0.6, 2.0), (2, 0.7, 6.0)):
        write(tmp_path, "add", seed, accuracy, latency_ms=latency, parameters=100)
    write(tmp_path, "concat", 0, 0.9, latency_ms=4.0, parameters=120, fusion_parameters=20)
    table = cells(collect(tmp_path)[0])
    assert len(table) == 2
    add, concat = row_of(table, fusion="add"), row_of(table, fusion="concat")
    assert (add["n"], concat["n"]) == (3, 1)
    assert (add["mean"], add["std"]) == (pytest.approx(60), pytest.approx(10))
    assert (add["latency_mean"], add["latency_std"]) == (3.0, pytest.approx(math.sqrt(7)))
    assert concat["mean"] == pytest.approx(90)
    assert np.isnan(concat["std"])
    assert np.isnan(concat["latency_std"])
    assert (add["parameters"], concat["parameters"]) == (100, 120)
    assert np.isnan(add["fusion_parameters"])
    assert concat["fusion_parameters"] == 20
    assert set(table["length"]) == {10.0}


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


NOTES = {
    "seeds without a partner": (
        {"add": {0: 0.5, 1: 0.6, 2: 0.1, 11: 0.1}, "concat": {7: 0.99, 1: 0.66, 0: 0.52}},
        [2, 6],
        "only one of concat and add has these seeds, so they are left out: 2, 7, 11",
    ),
    "no seed in common": (
        {"add": {0: 0.5}, "concat": {1: 0.6}},
        None,
        "not compared, because it has no seed in common with add",
    ),
    "without its baseline": (
        {"concat": {0: 0.6}},
        None,
        "not compared, because add has no run with this data and encoding",
    ),
}


@pytest.mark.parametrize("case", NOTES)
def test_what_cannot_be_paired_is_left_out_and_named(tmp_path, case):
    accuracies, deltas, note = NOTES[case]
    write_cells(tmp_path, accuracies)
    write_cells(tmp_path, {"add": {0: 0.5, 1: 0.6}, "concat": {0: 0.6, 1: 0.8}}, encoding="learned")
    frame, notes = compared(tmp_path)
    assert any(line.startswith(f"tiny sinusoidal concat: {note}") for line in notes), notes
    other, *found = frame.sort_values("encoding")["deltas"]
    assert other == pytest.approx([10, 20])
    assert found == ([pytest.approx(deltas)] if deltas else [])


def test_one_common_seed_has_a_mean_and_nothing_else(tmp_path):
    write_cells(tmp_path, {"add": {0: 0.5}, "concat": {0: 0.6}})
    frame, notes = compared(tmp_path)
    assert notes == ["tiny sinusoidal concat: no test, because there is only one seed"]
    row = frame.iloc[0]
    assert row["mean"] == pytest.approx(10)
    unknown = ["std", "low", "high", "bca_low", "bca_high", "d_z", "p_t", "p_wilcoxon",
               "p_sign_flip", "p_equivalence", "p_holm", "seeds_observed", "seeds_effect",
               "seeds_equivalence"]  # fmt: skip
    assert row[unknown].isna().all()
    assert row["smallest_p"] == 1


@pytest.mark.parametrize(("gain", "p_values"), [(0.1, [0.25, 0.25]), (0.0, [math.nan, 1])])
def test_equal_differences_are_no_test_and_a_line(tmp_path, gain, p_values):
    add = {0: 0.5, 1: 0.6, 2: 0.7}
    write_cells(tmp_path, {"add": add, "concat": {seed: a + gain for seed, a in add.items()}})
    frame, notes = compared(tmp_path)
    assert notes == [
        "tiny sinusoidal concat: the difference is the same in all 3 seeds; there is no test"
    ]
    assert frame["deltas"][0] == pytest.approx([100 * gain] * 3)
    assert frame[["p_t", "low", "d_z", "p_equivalence"]].isna().all(axis=None)
    found = frame[["p_wilcoxon", "p_sign_flip"]].iloc[0].tolist()
    assert found == pytest.approx(p_values, nan_ok=True)


def write_counts(root, base, gains, n_documents):
    """Accuracies as result.json holds them: shares of the test documents."""
    for fusion, counts in (("add", base), ("concat", np.add(base, gains))):
        by_seed = np.asarray(counts) / n_documents
        write_cells(
            root, {fusion: dict(enumerate(by_seed.tolist()))}, documents={"test": n_documents}
        )


def test_equally_many_documents_more_in_each_seed_are_equal_differences(tmp_path):
    """Their differences are equal only to rounding."""
    for n_documents, base, gain in (
        (600, (122, 351, 298), 7), (425, (349, 344, 351), 5), (7600, (3795, 6001), 11)
    ):  # fmt: skip
        root = tmp_path / str(n_documents)
        write_counts(root, base, [gain] * len(base), n_documents)
        frame, notes = compared(root)
        step, n = 100 / n_documents, len(base)
        assert notes == [
            f"tiny sinusoidal concat: the difference is the same in all {n} seeds; the test uses "
            f"one test document, {step:.2f} points, as standard deviation"
        ]
        row, mean = frame.iloc[0], gain * step
        assert row["resolution"] == step
        assert row["mean"] == pytest.approx(mean)
        assert np.isnan(row["d_z"])
        # t = gain documents / (1 document / sqrt(n))
        assert row["p_t"] == pytest.approx(2 * stats.t.sf(gain * math.sqrt(n), n - 1))
        reach = stats.t.ppf(0.975, n - 1) * step / math.sqrt(n)
        assert (row["low"], row["high"]) == pytest.approx((mean - reach, mean + reach))
        t = (0.5 - mean) / (step / math.sqrt(n))
        assert row["p_equivalence"] == pytest.approx(stats.t.sf(t, n - 1))
        limit = step * math.sqrt((n - 1) / stats.chi2.ppf(0.2, n - 1))
        assert row["std_limit"] == pytest.approx(limit)
        assert row["seeds_effect"] == seeds_for_difference(1.0, limit, 0.05)


def test_rank_and_sign_tests_find_ties_in_spite_of_rounding(tmp_path):
    for n_documents, base, gains in (
        (425, (250, 253, 215, 215, 233, 233, 235), (3, -1, -2, 3, 2, 5, -3)),
        (600, (301, 355, 122, 351, 298, 410), (-3, 4, 7, -2, 4, 0)),
    ):
        write_counts(tmp_path / str(n_documents), base, gains, n_documents)
        row = compared(tmp_path / str(n_documents))[0].iloc[0]
        exact = judge([float(gain) for gain in gains], Criteria())
        assert row["p_t"] == pytest.approx(exact["p_t"], rel=1e-4)
        assert row["p_wilcoxon"] == pytest.approx(exact["p_wilcoxon"])
        assert row["p_sign_flip"] == pytest.approx(exact["p_sign_flip"])


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
    write_cells(tmp_path, {"add": {0: 0.5, 1: 0.6}, "mlp": {0: 0.6, 1: 0.8}})
    write_cells(tmp_path, {"concat": {0: 0.6, 1: 0.8}}, settings=settings, variant=variant)
    frame, (note,) = compared(tmp_path)
    assert frame["fusion"].tolist() == ["mlp"]
    assert note.startswith(f"tiny sinusoidal concat{variant and f' {variant}'}: not compared, ")
    assert f"because its settings differ from add's: {difference}" in note


def test_a_variant_and_an_encoding_pair_with_their_own_baseline(tmp_path):
    scale = {"settings": {"model.token_scale": 1.0}, "variant": "model.token_scale=1"}
    write_cells(tmp_path, {"add": {0: 0.5, 1: 0.6}, "concat": {0: 0.51, 1: 0.63}})
    write_cells(tmp_path, {"add": {0: 0.1, 1: 0.2}, "concat": {0: 0.3, 1: 0.5}}, **scale)
    learned = {"encoding": "learned", "settings": {"encoding.std": 0.02}}
    write_cells(tmp_path, {"add": {0: 0.4, 1: 0.4}, "concat": {0: 0.3, 1: 0.2}}, **learned)
    wordy = {"data": "wordy", "tokens": 80.0, "settings": {"data.max_len": 9}}
    write_cells(tmp_path, {"add": {0: 0.9, 1: 0.8}, "concat": {0: 0.9, 1: 0.85}}, **wordy)
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
    write_cells(tmp_path, {"add": {0: 0.5, 1: 0.6}}, settings={"optim.lr": 1})
    write_cells(
        tmp_path,
        {"gate_cnn": {0: 0.51, 1: 0.63}},
        variant="fusion.half_width=4",
        settings={"optim.lr": 1, "fusion.half_width": 4},
    )
    frame, notes = compared(tmp_path)
    assert notes == []
    assert frame["deltas"][0] == pytest.approx([1, 3])
    assert frame[["variant", "baseline_variant"]].values.tolist() == [["fusion.half_width=4", ""]]


def test_p_holm_is_holms_over_all_rows(tmp_path):
    add = {0: 0.5, 1: 0.6, 2: 0.7}
    write_cells(
        tmp_path,
        {
            "add": add,
            "concat": {0: 0.60, 1: 0.71, 2: 0.80},
            "gate": {0: 0.52, 1: 0.66, 2: 0.71},
            "mlp": {0: 0.60, 1: 0.70, 2: 0.80},  # equal differences: no test, not in the family
        },
    )
    write_cells(tmp_path, {"add": add, "concat": {0: 0.4, 1: 0.4, 2: 0.71}}, encoding="learned")
    frame, _ = compared(tmp_path)
    p = frame["p_t"].to_numpy()
    assert np.isnan(p).sum() == 1
    known = np.sort(p[~np.isnan(p)])
    by_hand = np.minimum(1, np.maximum.accumulate(known * [3, 2, 1]))
    for value, adjusted in zip(known, by_hand, strict=True):
        assert frame["p_holm"][frame["p_t"] == value].iloc[0] == pytest.approx(adjusted)
    assert np.isnan(row_of(frame, fusion="mlp")["p_holm"])


def test_only_the_primary_operators_are_adjusted_together(tmp_path):
    add = {0: 0.5, 1: 0.6, 2: 0.7}
    others = {"concat": [0.60, 0.71, 0.80], "gate": [0.52, 0.66, 0.71], "mul": [0.1, 0.3, 0.2]}
    write_cells(tmp_path, {"add": add, **{name: dict(enumerate(a)) for name, a in others.items()}})
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
    cells_of = {"add": {0: 0.5, 1: 0.6, 2: 0.7}, "concat": {0: 0.6, 1: 0.65, 2: 0.8}}
    write_cells(tmp_path, cells_of, encoding="blank", **encoded("NoTable"))
    assert compared(tmp_path)[0]["role"].tolist() == ["primary"]
    write_cells(tmp_path, cells_of, data="wordy", **encoded("Sinusoidal"))
    assert set(compared(tmp_path)[0]["role"]) == {"primary"}  # of another corpus
    write_cells(tmp_path, cells_of, encoding="mine", **encoded("Sinusoidal"))
    frame, _ = compared(tmp_path)
    roles = {(row["data"], row["encoding"]): row["role"] for row in frame.to_dict("records")}
    assert roles == {("tiny", "blank"): "placebo", ("tiny", "mine"): "primary",
                     ("wordy", "sinusoidal"): "primary"}  # fmt: skip


def test_tables_and_tasks_are_those_of_the_settings(tmp_path):
    target = "posfuse.model.attention_encoding.RelativeKeys"
    story = {"data.corpus._target_": "posfuse.data.bbc.lead_story", "data.corpus.split_seed": 0}
    cells_of = {"add": {0: 0.5, 1: 0.6}, "concat": {0: 0.6, 1: 0.8}}
    short = story | {"data.corpus.words": 8, "data.name": "a"}
    long = story | {"data.corpus.words": 40, "data.name": "b", "data.max_len": 99}
    for data, settings in (
        ("short", short), ("long", long), ("other", long | {"data.corpus.split_seed": 1}),
        ("wide", long | {"model.d_model": 16}),
    ):  # fmt: skip
        of = encoded("Sinusoidal")["settings"]
        write_cells(tmp_path, cells_of, data=data, settings=settings | of)
    relative = encoded("Sinusoidal", _target_=target, clip=16)["settings"]
    write_cells(tmp_path, cells_of, data="long", encoding="relative", settings=long | relative)
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


def test_the_criteria_reach_the_statistics():
    deltas = [0.3, -0.2, 0.4, 0.1]
    std, mean = np.std(deltas, ddof=1), np.mean(deltas)
    # The lower tail of chi-squared with 3 degrees of freedom has 20 % below 1.005174.
    limit = std * math.sqrt(3 / 1.005174)
    for margin, effect, alpha in ((0.5, 1.0, 0.05), (1.0, 0.25, 0.01)):
        criteria = Criteria(margin=margin, effect=effect, alpha=alpha)
        found = judge(deltas, criteria)
        assert found["std_limit"] == pytest.approx(limit, rel=1e-6)
        # Two comparisons have a test, so the strictest of Holm's levels is alpha / 2.
        no_test = judge([0.3], criteria)
        rows = pd.DataFrame([found, found, no_test]).assign(fusion="concat")
        planned = in_families(rows, criteria)
        first, last = planned.iloc[0], planned.iloc[2]
        limit = found["std_limit"]
        assert first["seeds_observed"] == seeds_for_difference(mean, limit, alpha / 2)
        assert first["seeds_effect"] == seeds_for_difference(effect, limit, alpha / 2)
        equivalence = seeds_for_equivalence(limit, margin, 0.0, alpha / 2)
        assert first["seeds_equivalence"] == equivalence
        assert last[["seeds_observed", "seeds_effect", "seeds_equivalence"]].isna().all()
        error = std / 2
        edges = (stats.t.sf((mean + margin) / error, 3), stats.t.cdf((mean - margin) / error, 3))
        assert found["p_equivalence"] == pytest.approx(max(edges))


def two_corpora(tmp_path, wordy_seeds=(0, 1, 2)):
    write_cells(tmp_path, {"add": {0: 0.5, 1: 0.5, 2: 0.5}, "concat": {0: 0.52, 1: 0.51, 2: 0.54}})
    gains = {0: 0.60, 1: 0.59, 2: 0.56}
    write_cells(
        tmp_path,
        {"add": dict.fromkeys(gains, 0.5), "concat": {s: gains[s] for s in wordy_seeds}},
        data="wordy", tokens=40.0, settings={"data.name": "wordy"},
    )  # fmt: skip
    return collect(tmp_path)[0]


def test_interactions_are_each_seeds_slope_by_hand(tmp_path):
    comparisons, _ = compare(two_corpora(tmp_path), Criteria())
    found = interactions(comparisons)
    assert len(found) == 1
    row = found.iloc[0]
    # 10 to 40 tokens are two doublings; gains go 2 -> 10, 1 -> 9, 4 -> 6
    assert row["slopes"] == pytest.approx([4, 4, 1])
    assert (row["n"], row["mean"]) == (3, pytest.approx(3))
    t = 3 / (math.sqrt(3) / math.sqrt(3))
    assert row["p_t"] == pytest.approx(2 * stats.t.sf(t, 2))
    assert row["p_sign_flip"] == pytest.approx(0.25)
    assert row["corpora"] == "tiny (10 tokens, +2.33), wordy (40 tokens, +8.33)"


def test_one_task_at_several_lengths_has_a_row_of_its_own(tmp_path):
    story = {"data.corpus._target_": "posfuse.data.bbc.lead_story"}
    gains = {"short": [2, 4, 3], "long": [6, 6, 6], "longer": [7, 11, 9], "article": [1, 2, 1]}
    for i, (data, of) in enumerate(gains.items()):
        settings = {"data.name": data, "data.max_len": 9 * (i + 1)} | (story if i < 3 else {})
        cells_of = {"add": dict.fromkeys(range(3), 0.5)}
        cells_of["concat"] = {seed: 0.5 + gain / 100 for seed, gain in enumerate(of)}
        write_cells(tmp_path, cells_of, data=data, tokens=10.0 * 4**i, settings=settings)
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


def test_interactions_take_the_seeds_that_all_corpora_have(tmp_path):
    comparisons, _ = compare(two_corpora(tmp_path, wordy_seeds=(0, 2)), Criteria())
    row = interactions(comparisons).iloc[0]
    assert row["n"] == 2
    assert row["slopes"] == pytest.approx([4, 1])


def test_one_corpus_and_corpora_of_one_length_have_no_interaction(tmp_path):
    accuracies = {"add": {0: 0.5, 1: 0.6}, "concat": {0: 0.6, 1: 0.8}}
    write_cells(tmp_path, accuracies)
    assert interactions(compared(tmp_path)[0]).empty
    write_cells(tmp_path, accuracies, data="like")
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
    write_cells(root, {"add": {0: 0.5, 1: 0.6}})


@pytest.mark.parametrize(
    ("settings", "difference"),
    [({"model.d_model": 16}, "model.d_model 8, 16"), ({"optim.lr": 0.1}, "optim.lr")],
)
def test_a_cell_of_two_configurations_is_left_out_and_both_folders_named(
    tmp_path, settings, difference
):
    sound(tmp_path)
    one = write(tmp_path, "concat", 0, 0.6)
    other = write(tmp_path, "concat", 1, 0.6, settings=settings)
    runs, (problem,) = collect(tmp_path)
    assert runs["fusion"].tolist() == ["add", "add"]
    assert "\n" not in problem
    for part in (str(one), str(other), difference, "two configurations"):
        assert part in problem


def test_two_corpora_of_one_name_are_left_out_and_the_line_asks_for_a_name(tmp_path):
    sound(tmp_path)
    write(tmp_path, "concat", 0, 0.6, settings={"data.path": "a1"})
    write(tmp_path, "concat", 1, 0.6, settings={"data.path": "b2", "data.limit": 9})
    _, (problem,) = collect(tmp_path)
    assert "two configurations (two corpora named " in problem
    assert problem.endswith("; the cell is left out, run one of them again with data.name=NAME")


def test_two_different_runs_with_one_seed_leave_the_cell_out(tmp_path):
    sound(tmp_path)
    one = write(tmp_path, "concat", 1, 0.6)
    other = write(tmp_path, "concat", 1, 0.8, folder="elsewhere")
    runs, (problem,) = collect(tmp_path)
    assert set(runs["fusion"]) == {"add"}
    for part in (str(one), str(other), "two different runs with seed 1"):
        assert part in problem


def test_sweeps_of_their_own_may_hold_the_same_cell(tmp_path):
    write(tmp_path, "add", 0, 0.5, folder="a", sweep_id="a")
    write(tmp_path, "add", 0, 0.6, folder="b", sweep_id="b", settings={"model.d_model": 16})
    runs, problems = collect(tmp_path)
    assert problems == []
    assert len(runs) == 2


def test_a_record_with_a_wrong_value_is_left_out_with_a_line(tmp_path):
    sound(tmp_path)
    path = write(tmp_path, "concat", 0, 0.5, folder="wrong") / "result.json"
    whole = json.loads(path.read_text())
    names = ["data", "encoding", "fusion", "seed", "variant", "sweep_id"]
    cases = [("test.accuracy", whole | {"test": {"accuracy": value}})
             for value in (2, None, "0.5", [0.5])]  # fmt: skip
    cases += [("test.accuracy", whole | {"test": None})]
    cases += [(key, whole | {key: None}) for key in names]
    cases += [(key, {k: v for k, v in whole.items() if k != key}) for key in names]
    cases += [("mean_tokens.train", whole | {"mean_tokens": {"train": 0}})]
    cases += [("latency_ms", whole | {"latency_ms": "fast"})]
    cases += [("label_names", whole | {"label_names": value}) for value in ("one", [1])]
    cases = [(f"{key} is ", record) for key, record in cases]
    unreadable = [{"settings": value} for value in (None, [], "text")]
    unreadable += [{"test": {"accuracy": value}} for value in (math.nan, math.inf)]
    cases += [("not a readable record (", whole | wrong) for wrong in unreadable]
    for message, record in cases:
        path.write_text(json.dumps(record))
        runs, (problem,) = collect(tmp_path)
        assert set(runs["fusion"]) == {"add"}
        assert problem.startswith(f"{path}: {message}")
        assert problem.endswith(" to run again" if "(" in message else " to run it again")


def test_when_everything_is_left_out_it_is_an_error_of_one_line(tmp_path):
    write(tmp_path / "accuracy", "add", 0, None)
    write(tmp_path / "seed", "add", 0, 0.5)
    write(tmp_path / "seed", "add", 0, 0.6, folder="elsewhere")
    write(tmp_path / "configuration", "add", 0, 0.5)
    write(tmp_path / "configuration", "add", 1, 0.6, settings={"model.d_model": 16})
    for kind in ("accuracy", "seed", "configuration"):
        with pytest.raises(InputError) as error:
            collect(tmp_path / kind)
        assert "\n" not in str(error.value)
        assert str(tmp_path / kind) in str(error.value)


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
