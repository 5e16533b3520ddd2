"""Saved predictions: reading, pairing, and statistics by document, length and class, by hand."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from posfuse.evidence.saved import OF_DOCUMENTS, read_predictions
from posfuse.statistics import over_documents as over
from posfuse.statistics import paired as st
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


def write(folder, predicted=LABEL, label=LABEL, length=LENGTH, without=(), **more):
    """predictions.parquet as a run writes it, C = 3 log-probabilities among its columns."""
    folder.mkdir(parents=True, exist_ok=True)
    of_model = dict.fromkeys(("log_p_0", "log_p_1", "log_p_2"), np.full(len(label), -1.0986))
    numbers = dict.fromkeys(("index", "group"), np.arange(len(label)))
    columns = numbers | {"length": length, "label": label, "predicted": predicted} | of_model | more
    table = pd.DataFrame(columns).drop(columns=[*without])
    table.to_parquet(folder / "predictions.parquet", index=False)
    return str(folder)


def turned(places, label=LABEL):
    """The labels, wrong at these places."""
    return [1 - y if i in places else y for i, y in enumerate(label)]


def runs_of(tmp_path, predictions):
    """Runs and the comparison of concat with add; predictions[fusion] has a column per seed."""
    rows = [
        {**CELL, "fusion": fusion, "seed": seed,
         "folder": write(tmp_path / fusion / f"seed={seed}", predicted)}
        for fusion, by_seed in predictions.items()
        for seed, predicted in enumerate(by_seed)
    ]  # fmt: skip
    return pd.DataFrame(rows), {**CELL, "baseline_variant": "", "seeds": [0, 1]}


@pytest.fixture
def two_seeds(tmp_path):
    """Seed 0: concat 5 of 6 right, add 3; seed 1: concat 4, add 5."""
    wrong = {"add": [[0, 1, 2], [5]], "concat": [[0], [1, 2]]}
    return runs_of(tmp_path, {name: list(map(turned, own)) for name, own in wrong.items()})


def paired_of(correct, base_correct, length=None):
    """A Paired of documents of class 0 from rows of right (1) and wrong (0)."""
    n = np.shape(correct)[1]
    length = np.arange(1, n + 1) if length is None else length
    return confusions(np.zeros(n, int), 1 - np.array(correct), 1 - np.array(base_correct), length)


def read(folder, **record):
    return read_predictions({"folder": str(folder), **record})


def listed(*folders):
    """Runs of one cell with the columns that `read_all` uses."""
    labels = {"data": "tiny", "encoding": "sinusoidal", "variant": ""}
    return pd.DataFrame([{**labels, "folder": str(folder)} for folder in folders])


def test_predictions_are_read_as_written_and_lengths_end_at_max_len(tmp_path):
    folder = write(tmp_path / "run", turned([0, 4]))
    found = read(folder)
    columns = {"index": range(6), "length": LENGTH, "label": LABEL, "predicted": turned([0, 4])}
    for name, values in (columns | {"group": range(6)}).items():
        assert found[name].tolist() == list(values)
    cut = read(folder, **{"settings.data.max_len": 7})
    assert cut["length"].tolist() == [min(n, 7) for n in LENGTH]
    groups = [9, 9, 1, 1, 1, 2]
    assert read(write(tmp_path, LABEL, group=groups))["group"].tolist() == groups


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        *(({"without": [name]}, f"has no {name}") for name in OF_DOCUMENTS),
        ({"label": list("abcdef")}, "label is not a whole number"),
        ({"predicted": [0.0, 1.0, np.nan, 0.0, 1.0, 0.0]}, "predicted is not a whole number"),
        ({"predicted": [-1, 0, 0, 0, 0, 0]}, "predicted is not a whole number from 0"),
        ({"predicted": [[0]] * 6}, "predicted is not a whole number"),
        ({"predicted": [], "label": [], "length": []}, "index is not a whole number"),
    ],
)
def test_a_file_with_other_columns_is_an_error_that_names_it(tmp_path, columns, reason):
    write(tmp_path, **columns)
    text = refusal(read, tmp_path)
    assert text.startswith(f"{tmp_path / 'predictions.parquet'}: not usable ({reason}")
    assert text.endswith("remove it to run again")


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
        folder = write(tmp_path / fusion / "seed=1", **others[column])
        read, notes = read_all(runs)
        paired = pair(comparison, runs, "add", read)
        assert paired.seeds == [0]
        assert paired.difference.tolist() == [[0, 100, 100, 0, 0, 0]]
        assert len(notes) == 1
        assert notes[0].startswith(f"{folder}/predictions.parquet: its documents are not those")
        assert "left out of the statistics over documents" in notes[0]
        write(tmp_path / fusion / "seed=1")


@pytest.fixture
def own_documents(tmp_path):
    """Runs of three seeds with data.split_seed=seed, their comparison, and the documents of each
    seed with what add and concat predict."""
    rng = np.random.default_rng(0)
    documents = pd.DataFrame(rng.integers(0, 2, (120, 3)), columns=["label", "add", "concat"])
    documents = documents.assign(length=rng.integers(1, 30, 120), seed=np.repeat([0, 1, 2], 40))
    rows = [
        {**CELL, "fusion": fusion, "seed": seed, "folder": write_own(tmp_path, fusion, seed, own)}
        for seed, own in documents.groupby("seed")
        for fusion in ("add", "concat")
    ]
    runs = pd.DataFrame(rows).assign(**{"settings.data.split_seed": "seed"})
    comparison = {**CELL, "baseline_variant": "", "seeds": [0, 1, 2]}
    return runs, comparison, documents


def write_own(root, fusion, seed, documents):
    columns = (documents[name].to_numpy() for name in (fusion, "label", "length"))
    return write(root / fusion / f"seed={seed}", *columns)


def test_seeds_with_documents_of_their_own_are_kept(own_documents):
    """Every statistic from all documents."""
    runs, comparison, documents = own_documents
    found, notes = document_evidence(pd.DataFrame([comparison]), runs, "add")
    assert notes == []
    right = documents[["add", "concat"]].eq(documents["label"], axis=0)
    gains = 100.0 * right["concat"] - 100.0 * right["add"]
    row = found.statistics.iloc[0]
    assert row[list(CELL)].to_dict() == found.bins[list(CELL)].iloc[0].to_dict() == CELL
    assert (row["document_seeds"], row["n_documents"]) == ([0, 1, 2], 40)
    assert row["documents_mean"] == pytest.approx(gains.mean())
    assert row["documents_low"] < gains.mean() < row["documents_high"]
    for part in found.bins.to_dict("records"):
        inside = documents["length"].between(part["shortest"], part["longest"])
        by_seed = gains[inside].groupby(documents["seed"]).mean()
        assert part["gains"] == pytest.approx(by_seed.tolist())
        assert part["n_documents"] == round(inside.sum() / 3)
    confusion = found.confusions[tuple(CELL.values())]
    for label, of_label in right.groupby(documents["label"]):
        shares = of_label.mean()
        assert confusion[label, label] == pytest.approx(100 * (shares["concat"] - shares["add"]))


def test_with_one_split_such_seeds_are_left_out_and_a_pair_must_share_its_documents(
    own_documents, tmp_path
):
    runs, comparison, documents = own_documents
    read, notes = read_all(runs.assign(**{"settings.data.split_seed": 0}))
    assert (len(read), len(notes)) == (2, 4)
    write_own(tmp_path, "concat", 1, documents[documents["seed"] == 0])
    read, notes = read_all(runs)
    assert (len(read), len(notes)) == (5, 1)
    assert pair(comparison, runs, "add", read).seeds == [0, 2]
    other = runs.assign(variant=np.where(runs["fusion"] == "concat", "x=1", ""))
    read, _ = read_all(other)  # seed 1 of concat is the only run of its group
    assert pair({**comparison, "variant": "x=1"}, other, "add", read) is None


def test_seeds_with_different_numbers_of_documents_give_no_statistics(own_documents, tmp_path):
    runs, comparison, documents = own_documents
    for fusion in ("add", "concat"):
        write_own(tmp_path, fusion, 1, documents[:30])
    assert pair(comparison, runs, "add", read_all(runs)[0]) is None


def test_documents_of_a_group_are_judged_together(tmp_path):
    wrong = {"add": [turned([0, 1, 2, 5]), turned([0, 1, 2])], "concat": [LABEL, LABEL]}
    runs, comparison = runs_of(tmp_path, wrong)
    alone = judge_documents(pair(comparison, runs, "add", read_all(runs)[0]))
    assert (alone["n_documents"], alone["n_groups"]) == (6, 6)
    assert alone["p_mcnemar"] == [2 / 2**4, 2 / 2**3]
    groups = [7, 7, 7, 2, 3, 3]
    for fusion, seeds in wrong.items():
        for seed, predicted in enumerate(seeds):
            write(tmp_path / fusion / f"seed={seed}", predicted, group=groups)
    paired = pair(comparison, runs, "add", read_all(runs)[0])
    assert paired.seeds == [0, 1]
    assert paired.group.tolist() == groups
    found = judge_documents(paired)
    assert (found["n_documents"], found["n_groups"]) == (6, 3)
    # Three documents of one group, in the first seed also one of another: signs of 3 and 1, or 3.
    assert found["p_mcnemar"] == [0.5, 1]
    assert judge_documents(replace(paired, group=None))["p_mcnemar"] == [0.5, 1]  # a split each
    expected = over.hierarchical_bootstrap(paired.difference, groups=groups)
    assert (found["documents_low"], found["documents_high"]) == expected
    expected = over.hierarchical_bootstrap(paired.difference, 0.9, groups=groups)
    assert (found["documents_low_90"], found["documents_high_90"]) == expected


def test_seeds_with_equal_differences_have_the_spread_of_one_document():
    """Two seeds, four documents: the t interval with df 1 and a standard deviation of 25 points."""
    found = judge_documents(paired_of([[1, 0, 1, 1]] * 2, [[1, 0, 1, 1]] * 2))
    t = 12.706204736 * 25 / 2**0.5
    assert (found["documents_low"], found["documents_high"]) == pytest.approx((-t, t))
    t = 6.313751515 * 25 / 2**0.5
    assert (found["documents_low_90"], found["documents_high_90"]) == pytest.approx((-t, t))


def test_one_document_is_enough_and_one_seed_has_no_interval():
    paired = paired_of([[1], [1]], [[0], [1]])
    found = judge_documents(paired)
    assert found["documents_mean"] == 50
    assert found["documents_low"] < 50 < found["documents_high"]
    assert found["p_mcnemar"] == [1.0, 1.0]
    assert by_length(paired)["n_documents"].tolist() == [1]
    one_seed = judge_documents(paired_of([[1, 1, 1, 0]], [[0, 0, 1, 0]]))
    assert one_seed["p_mcnemar"] == pytest.approx([0.5])
    assert np.isnan(one_seed["documents_low"])


LENGTHS = {
    "all different": np.random.default_rng(0).permutation(50) + 1,
    "few": np.random.default_rng(0).permutation(9) ** 2 + 1,
    "repeated": np.random.default_rng(0).integers(1, 7, 50),
    "skewed": np.array([512] * 45 + [1, 2, 3, 4, 5]),
    "one": np.full(50, 512),
}


@pytest.mark.parametrize("bins", [1, 2, 3, 4, 10])
@pytest.mark.parametrize("lengths", LENGTHS)
def test_each_document_is_in_one_bin_and_bins_are_pandas_quantiles(lengths, bins):
    length = LENGTHS[lengths]
    right, base = np.random.default_rng(0).integers(0, 2, (2, 3, len(length)))
    if lengths == "few":  # equal seeds have the spread of one document
        right[:], base[:] = right[0], base[0]
    table = by_length(paired_of(right, base, length), bins)
    if bins == 4:
        pd.testing.assert_frame_equal(by_length(paired_of(right, base, length)), table)
    assert table["n_documents"].sum() == len(length)
    assert 0 < len(table) <= bins
    for row in table.to_dict("records"):
        inside = (length >= row["shortest"]) & (length <= row["longest"])
        assert inside.sum() == row["n_documents"] > 0
        assert row["mean_length"] == pytest.approx(length[inside].mean())
        gains = 100 * (right - base)[:, inside].mean(1)
        assert (row["gains"], row["n"]) == (pytest.approx(gains), 3)
        ends = st.t_interval(gains, resolution=100 / inside.sum())
        assert (row["mean"], row["low"], row["high"]) == pytest.approx((gains.mean(), *ends))
    if len(set(length)) == len(length):
        quantiles = pd.Series(length).groupby(pd.qcut(length, bins, labels=False))
        assert table["longest"].tolist() == quantiles.max().tolist()


def confusions(label, predicted, baseline, length=1):
    """A Paired from the classes that each operator predicts with each seed."""
    group = np.arange(len(label))
    documents = pd.DataFrame({"length": length, "label": label, "group": group})
    fused, base = (
        [documents.assign(predicted=row, value=100.0 * np.equal(row, label)) for row in rows]
        for rows in (predicted, baseline)
    )
    return Paired(list(range(len(fused))), fused, base, group)


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
    parts = [draws.shape for _, draws in over.draw_blocks(150, 20)]
    assert parts == [(7, 150), (7, 150), (6, 150)]
    assert over.hierarchical_bootstrap(difference, groups=groups) == pytest.approx(whole, rel=1e-5)
