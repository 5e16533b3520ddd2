"""Saved predictions: reading, pairing, and statistics by document, length and class, by hand."""

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from posfuse.evidence.saved import read_predictions
from posfuse.statistics import over_documents as over
from posfuse.statistics.documents import (
    Paired,
    by_length,
    confusion_difference,
    document_evidence,
    judge_documents,
    pair,
    read_all,
)
from refusals import refusal

LABEL = [0, 1, 1, 0, 1, 0]
LENGTH = [3, 9, 5, 7, 4, 8]
CELL = {"data": "tiny", "encoding": "sinusoidal", "fusion": "concat", "variant": ""}


def write(folder, predicted, label=LABEL, length=LENGTH, index=None, without=(), **more):
    """predictions.parquet as a run writes it, C = 3 log-probabilities among its columns."""
    folder.mkdir(parents=True, exist_ok=True)
    columns = {
        "index": np.arange(len(label)) if index is None else index,
        "length": length,
        "group": np.arange(len(label)),
        "label": label,
        "predicted": predicted,
        **more,
        **{f"log_p_{c}": np.full(len(label), -1.0986) for c in range(3)},
    }
    table = pd.DataFrame({k: v for k, v in columns.items() if k not in without})
    table.to_parquet(folder / "predictions.parquet", index=False)
    return str(folder)


def turned(places, label=LABEL):
    """The labels, wrong at these places."""
    return [1 - y if i in places else y for i, y in enumerate(label)]


def runs_of(tmp_path, predictions, cell=CELL):
    """Runs and the comparison of concat with add; predictions[fusion][seed] is a column."""
    rows = [
        {**cell, "fusion": fusion, "seed": seed,
         "folder": write(tmp_path / fusion / f"seed={seed}", predicted)}
        for fusion, by_seed in predictions.items()
        for seed, predicted in by_seed.items()
    ]  # fmt: skip
    comparison = {
        **cell,
        "fusion": "concat",
        "baseline_variant": "",
        "seeds": sorted(predictions["concat"]),
    }
    return pd.DataFrame(rows), comparison


@pytest.fixture
def two_seeds(tmp_path):
    """Seed 0: concat 5 of 6 right, add 3; seed 1: concat 4, add 5."""
    return runs_of(
        tmp_path,
        {
            "add": {0: turned([0, 1, 2]), 1: turned([5])},
            "concat": {0: turned([0]), 1: turned([1, 2])},
        },
    )


def paired_of(correct, base_correct, length=None, label=None):
    """A Paired of two classes from rows of right (1) and wrong (0)."""
    correct, base_correct = np.array(correct), np.array(base_correct)
    n = correct.shape[1]
    label = np.zeros(n, int) if label is None else np.array(label)
    length = np.arange(1, n + 1) if length is None else np.array(length)
    predicted = (np.where(right == 1, label, 1 - label) for right in (correct, base_correct))
    return confusions(label, *predicted, length)


def read(folder, **record):
    return read_predictions({"folder": str(folder), **record})


def listed(*folders):
    """Runs of one cell with the columns that `read_all` uses."""
    labels = {"data": "tiny", "encoding": "sinusoidal", "variant": ""}
    return pd.DataFrame([{**labels, "folder": str(folder)} for folder in folders])


def test_predictions_are_read_as_written_and_lengths_end_at_max_len(tmp_path):
    folder = write(tmp_path / "run", turned([0, 4]))
    found = read(folder)
    assert found["index"].tolist() == [0, 1, 2, 3, 4, 5]
    assert found["length"].tolist() == LENGTH
    assert found["label"].tolist() == LABEL
    assert found["predicted"].tolist() == turned([0, 4])
    assert found["group"].tolist() == [0, 1, 2, 3, 4, 5]
    cut = read(folder, **{"settings.data.max_len": 7})
    assert cut["length"].tolist() == [min(n, 7) for n in LENGTH]
    groups = [9, 9, 1, 1, 1, 2]
    assert read(write(tmp_path, LABEL, group=groups))["group"].tolist() == groups


@pytest.mark.parametrize(
    "columns",
    [
        *({name: None} for name in ("index", "length", "group", "label", "predicted")),
        {"label": list("abcdef")},
        {"predicted": [0.0, 1.0, float("nan"), 0.0, 1.0, 0.0]},
        {"predicted": [-1, 0, 0, 0, 0, 0]},
        {"predicted": [[0]] * 6},
        {"group": list("abcdef")},
        {"predicted": [], "label": [], "length": []},
    ],
)
def test_a_file_with_other_columns_is_an_error_that_names_it(tmp_path, columns):
    without = [name for name, column in columns.items() if column is None]
    write(tmp_path, **{"predicted": LABEL, **(columns if not without else {})}, without=without)
    text = refusal(read, tmp_path)
    assert text.startswith(f"{tmp_path / 'predictions.parquet'}: not usable (")
    assert text.endswith("remove it to run again")
    assert all(name in text.replace(str(tmp_path), "") for name in without)


def test_predictions_that_contradict_the_record_are_left_out(tmp_path):
    folder = write(tmp_path / "run", turned([3]))
    runs = listed(folder).assign(**{"test.accuracy": 4 / 6})
    found, (line,) = read_all(runs)
    assert found == {}
    assert "83.33 % are right, result.json says 66.67 %" in line
    runs["test.accuracy"] = 5 / 6
    assert list(read_all(runs)[0]) == [folder]
    runs["label_names"] = [["one"]]
    assert "more classes than result.json names" in read_all(runs)[1][0]


def test_a_flipped_byte_is_reported_or_read_but_never_a_crash(tmp_path):
    folder = tmp_path / "run"
    write(folder, LABEL)
    path = folder / "predictions.parquet"
    whole = path.read_bytes()
    for place in range(4, len(whole), max(1, len(whole) // 60)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        found, problems = read_all(listed(folder))
        assert len(found) + len(problems) == 1
        assert all(str(path) in line and "\n" not in line for line in problems)


def test_another_cells_runs_are_not_taken(tmp_path, two_seeds):
    runs, comparison = two_seeds
    others = []
    for axis in ("data", "encoding", "variant"):
        other = runs.assign(**{axis: "another"})
        other["folder"] = [write(tmp_path / axis / str(i), turned(range(6))) for i in range(4)]
        others.append(other)
    mixed = pd.concat([*others, runs], ignore_index=True)
    paired = pair(comparison, mixed, "add", read_all(mixed)[0])
    assert paired.difference.mean() == pytest.approx(50 / 6)


def test_a_seed_of_other_documents_is_left_out_with_a_line(tmp_path, two_seeds):
    runs, comparison = two_seeds
    others = {
        "label": {"label": turned([3])},
        "length": {"length": [*LENGTH[:-1], 99]},
        "index": {"index": [0, 1, 2, 3, 4, 6]},
        "count": {"label": LABEL[:5], "length": LENGTH[:5], "predicted": LABEL[:5]},
    }
    for fusion, column in [*(("add", c) for c in others), ("concat", "label")]:
        folder = write(tmp_path / fusion / "seed=1", **{"predicted": LABEL, **others[column]})
        read, notes = read_all(runs)
        paired = pair(comparison, runs, "add", read)
        assert paired.seeds == [0]
        assert paired.difference.tolist() == [[0, 100, 100, 0, 0, 0]]
        assert len(notes) == 1
        assert notes[0].startswith(f"{folder}/predictions.parquet: its documents are not those")
        assert "left out of the statistics over documents" in notes[0]
        write(tmp_path / fusion / "seed=1", LABEL)


@pytest.fixture
def own_documents(tmp_path):
    """Three seeds with data.split_seed=seed: each has documents of its own."""
    rng, folders, truth = np.random.default_rng(0), [], {}
    for seed in range(3):
        label, length = rng.integers(0, 2, 40).tolist(), rng.integers(1, 30, 40).tolist()
        truth[seed] = label, length
        for fusion in ("add", "concat"):
            predicted = rng.integers(0, 2, 40).tolist()
            truth[seed, fusion] = predicted
            folder = write(tmp_path / fusion / f"seed={seed}", predicted, label, length)
            folders.append({**CELL, "fusion": fusion, "seed": seed, "folder": folder})
    runs = pd.DataFrame(folders).assign(**{"settings.data.split_seed": "seed"})
    comparison = {**CELL, "baseline_variant": "", "seeds": [0, 1, 2]}
    return runs, comparison, truth


def test_seeds_with_documents_of_their_own_are_kept(own_documents):
    """Every statistic by hand, from each seed's own documents."""
    runs, comparison, truth = own_documents
    found, notes = document_evidence(pd.DataFrame([comparison]), runs, "add")
    assert notes == []
    right = {
        (seed, fusion): np.equal(truth[seed, fusion], truth[seed][0])
        for seed in range(3)
        for fusion in ("add", "concat")
    }
    gains = {s: 100.0 * right[s, "concat"] - 100.0 * right[s, "add"] for s in range(3)}
    row = found.statistics.iloc[0]
    assert (row["document_seeds"], row["n_documents"]) == ([0, 1, 2], 40)
    mean = np.mean([gains[s].mean() for s in range(3)])
    assert row["documents_mean"] == pytest.approx(mean)
    assert row["documents_low"] < mean < row["documents_high"]
    lengths = {s: np.array(truth[s][1]) for s in range(3)}
    for part in found.bins.to_dict("records"):
        inside = {s: (n >= part["shortest"]) & (n <= part["longest"]) for s, n in lengths.items()}
        assert part["gains"] == pytest.approx([gains[s][inside[s]].mean() for s in range(3)])
        assert part["n_documents"] == round(sum(i.sum() for i in inside.values()) / 3)
    confusion = found.confusions[tuple(CELL.values())]
    label = np.concatenate([truth[s][0] for s in range(3)])
    for kind in (0, 1):
        shares = [
            np.mean(np.concatenate([truth[s, f] for s in range(3)])[label == kind] == kind)
            for f in ("concat", "add")
        ]
        assert confusion[kind, kind] == pytest.approx(100 * (shares[0] - shares[1]))


def test_with_one_split_such_seeds_are_left_out_and_a_pair_must_share_its_documents(
    own_documents, tmp_path
):
    runs, comparison, truth = own_documents
    read, notes = read_all(runs.assign(**{"settings.data.split_seed": 0}))
    assert (len(read), len(notes)) == (2, 4)
    write(tmp_path / "concat" / "seed=1", truth[1, "concat"], *truth[0])
    read, notes = read_all(runs)
    assert (len(read), len(notes)) == (5, 1)
    assert pair(comparison, runs, "add", read).seeds == [0, 2]
    other = runs.assign(variant=np.where(runs["fusion"] == "concat", "x=1", ""))
    read, _ = read_all(other)  # seed 1 of concat is the only run of its group
    assert pair({**comparison, "variant": "x=1"}, other, "add", read) is None


def test_seeds_with_different_numbers_of_documents_give_no_statistics(own_documents, tmp_path):
    runs, comparison, truth = own_documents
    for fusion in ("add", "concat"):
        label, length = truth[1]
        write(tmp_path / fusion / "seed=1", truth[1, fusion][:30], label[:30], length[:30])
    assert pair(comparison, runs, "add", read_all(runs)[0]) is None


def test_documents_of_a_group_are_judged_together(tmp_path):
    wrong = {"add": [turned([0, 1, 2, 5]), turned([0, 1, 2, 4])], "concat": [LABEL, LABEL]}
    by_seed = {name: dict(enumerate(seeds)) for name, seeds in wrong.items()}
    runs, comparison = runs_of(tmp_path, by_seed)
    alone = judge_documents(pair(comparison, runs, "add", read_all(runs)[0]))
    assert (alone["n_documents"], alone["n_groups"]) == (6, 6)
    assert alone["p_mcnemar"] == [2 / 2**4, 2 / 2**4]
    groups = [7, 7, 7, 2, 3, 3]
    for fusion, seeds in wrong.items():
        for seed, predicted in enumerate(seeds):
            write(tmp_path / fusion / f"seed={seed}", predicted, group=groups)
    paired = pair(comparison, runs, "add", read_all(runs)[0])
    assert paired.seeds == [0, 1]
    assert paired.group.tolist() == groups
    found = judge_documents(paired)
    assert (found["n_documents"], found["n_groups"]) == (6, 3)
    # Seed by seed three documents of one group and one of another: signs of 3 and 1.
    assert found["p_mcnemar"] == [0.5, 0.5]
    expected = over.hierarchical_bootstrap(paired.difference, groups=groups)
    assert (found["documents_low"], found["documents_high"]) == expected
    expected = over.hierarchical_bootstrap(paired.difference, 0.9, groups=groups)
    assert (found["documents_low_90"], found["documents_high_90"]) == expected


def test_one_document_is_enough_and_one_seed_has_no_interval():
    paired = paired_of([[1], [1]], [[0], [1]])
    found = judge_documents(paired)
    assert found["documents_mean"] == 50
    assert found["documents_low"] < 50 < found["documents_high"]
    assert found["p_mcnemar"] == [1.0, 1.0]
    assert by_length(paired)["n_documents"].tolist() == [1]
    one_seed = judge_documents(paired_of([[1, 1, 1, 0]], [[0, 0, 1, 0]]))
    assert one_seed["p_mcnemar"] == pytest.approx([0.5])
    assert np.isnan([one_seed["documents_low"], one_seed["documents_high"]]).all()


def test_length_bins_by_hand():
    right = np.array([[1, 1, 1, 0, 1, 1, 0, 1], [1, 0, 1, 1, 1, 1, 1, 1]])
    base = np.array([[0, 1, 1, 0, 0, 0, 1, 1], [0, 0, 1, 1, 0, 1, 0, 0]])
    order = [5, 2, 7, 0, 1, 6, 3, 4]  # the order of the documents does not count
    table = by_length(paired_of(right[:, order], base[:, order], np.array(order) + 1))
    assert table["gains"].tolist() == [[50, 50], [0, 0], [100, 50], [-50, 100]]
    assert (table["mean"].tolist(), table["n"].tolist()) == ([50, 0, 75, 25], [2] * 4)
    # Equal seeds have the spread of one document, here 50 points.
    reach = stats.t.ppf(0.975, 1) * np.array([50 / np.sqrt(2), 50 / np.sqrt(2), 25])
    assert table["low"][:3].tolist() == pytest.approx(table["mean"][:3] - reach)
    assert table["high"][:3].tolist() == pytest.approx(table["mean"][:3] + reach)


@pytest.mark.parametrize("bins", [1, 2, 3, 4, 10])
@pytest.mark.parametrize(
    "length",
    [
        np.random.default_rng(0).permutation(50) + 1,
        np.random.default_rng(0).integers(1, 7, 50),
        np.array([512] * 45 + [1, 2, 3, 4, 5]),
        np.full(50, 512),
    ],
    ids=["all different", "repeated", "skewed", "one"],
)
def test_each_document_is_in_exactly_one_bin(length, bins):
    right, base = np.random.default_rng(0).integers(0, 2, (2, 3, 50))
    table = by_length(paired_of(right, base, length), bins)
    assert table["n_documents"].sum() == 50
    assert 0 < len(table) <= bins
    assert (table["longest"].to_numpy()[:-1] < table["shortest"].to_numpy()[1:]).all()
    for row in table.to_dict("records"):
        inside = (length >= row["shortest"]) & (length <= row["longest"])
        assert inside.sum() == row["n_documents"] > 0
        assert row["mean_length"] == pytest.approx(length[inside].mean())
        assert row["gains"] == pytest.approx(100 * (right - base)[:, inside].mean(1))


@pytest.mark.parametrize(("n", "bins"), itertools.product([5, 9, 41, 50], [2, 3, 4]))
def test_bins_are_pandas_quantiles(n, bins):
    length = np.random.default_rng(n).permutation(np.arange(1, n + 1) ** 2)
    table = by_length(paired_of(np.ones((2, n)), np.zeros((2, n)), length), bins)
    expected = pd.Series(length).groupby(pd.qcut(length, bins, labels=False))
    assert table["shortest"].tolist() == expected.min().tolist()
    assert table["longest"].tolist() == expected.max().tolist()


def confusions(label, predicted, baseline, length=1):
    """A Paired from the classes that each operator predicts with each seed."""
    documents = pd.DataFrame({"length": length, "label": label})
    fused, base = (
        [documents.assign(predicted=row, value=100.0 * np.equal(row, label)) for row in rows]
        for rows in (predicted, baseline)
    )
    return Paired(list(range(len(fused))), fused, base, np.arange(len(label)))


def test_the_confusion_difference_of_three_classes_is_the_mean_over_seeds():
    label = [0, 0, 1, 1, 2, 2]
    fused = [[0, 0, 1, 2, 2, 2], [0, 1, 1, 1, 2, 0]]
    base = [[0, 1, 1, 1, 0, 2], [2, 1, 1, 1, 1, 1]]
    # shares, seed 0 then 1 -- fused: (2 0 0)(1 1 0) (0 1 1)(0 2 0) (0 0 2)(1 0 1) of 2
    #                        -- base:  (1 1 0)(0 1 1) (0 2 0)(0 2 0) (1 0 1)(0 2 0) of 2
    by_hand = 25 * np.array([[3 - 1, 1 - 2, 0 - 1], [0, 3 - 4, 1 - 0], [1 - 1, 0 - 2, 3 - 1]])
    assert confusion_difference(confusions(label, fused, base)) == pytest.approx(by_hand)


def test_a_class_without_documents_is_nan_and_the_others_sum_to_0():
    paired = confusions([0, 0, 2], [[0, 1, 2]], [[1, 1, 0]])
    found = confusion_difference(paired)
    assert np.isnan(found[1]).all()
    assert found[0] == pytest.approx([50, -50, 0])
    assert found[2] == pytest.approx([-100, 0, 100])


def test_the_evidence_holds_every_comparison(two_seeds):
    runs, comparison = two_seeds
    found, notes = document_evidence(pd.DataFrame([comparison]), runs, "add")
    assert notes == []
    row = found.statistics.iloc[0]
    assert row[list(CELL)].to_dict() == CELL
    assert (row["document_seeds"], row["n_documents"]) == ([0, 1], 6)
    assert row["documents_mean"] == pytest.approx(50 / 6)
    assert row["documents_low"] < 50 / 6 < row["documents_high"]
    # discordant 2 : 0 and 1 : 2
    assert row["p_mcnemar"] == pytest.approx([0.5, stats.binomtest(1, 3).pvalue])
    assert found.bins["n_documents"].sum() == 6
    assert (found.bins["fusion"] == "concat").all()
    matrix = found.confusions[tuple(CELL.values())]
    # class 0 at 0, 3, 5: wrong once in six against twice; class 1 at 1, 2, 4: twice both
    assert matrix == pytest.approx(np.array([[100 / 6, -100 / 6], [0, 0]]))


def test_the_evidence_of_damaged_files_is_empty_and_reported_once(tmp_path, two_seeds):
    runs, comparison = two_seeds
    (tmp_path / "add" / "seed=0" / "predictions.parquet").unlink()
    write(tmp_path / "add" / "seed=1", LABEL, label=turned([2]))
    twice = pd.DataFrame([comparison, comparison])
    found, notes = document_evidence(twice, runs, "add")
    assert found.statistics.empty
    assert found.bins.empty
    assert found.confusions == {}
    assert len(notes) == 2
    assert sum("not usable" in line for line in notes) == 1
    assert sum("its documents are not those" in line for line in notes) == 1
    assert {"document_seeds", *CELL} <= set(found.statistics.columns)


def test_blocks_of_resamples_draw_the_same(monkeypatch):
    difference = np.random.default_rng(0).normal(1, 5, (4, 300))
    groups = np.arange(300) // 2
    whole = over.hierarchical_bootstrap(difference, groups=groups)
    monkeypatch.setattr(over, "MOST_DRAWS", 7 * 150 + 3)
    parts = [draws.shape for _, draws in over.draw_blocks(150, 20, 0)]
    assert parts == [(7, 150), (7, 150), (6, 150)]
    assert over.hierarchical_bootstrap(difference, groups=groups) == pytest.approx(whole, rel=1e-5)
