"""Texts and labels of a folder: how they are split, and what is refused with its file and row."""

from itertools import cycle, islice
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import train_test_split

from posfuse.config import DataConfig
from posfuse.data.corpora import SPLITS, Corpus, folder_files
from posfuse.data.splits import splits
from refusals import refusal
from small_corpora import labelled, read_splits, write_splits

TEXTS = [f"word{i} and more" for i in range(40)]


def of_labels(*labels) -> pd.DataFrame:
    """Forty documents with these labels in turn."""
    return labelled(TEXTS, [*islice(cycle(labels), 40)])


@pytest.mark.parametrize("end", ["parquet", "csv", "jsonl"])
@pytest.mark.parametrize(
    "classes",
    [
        [-1, 9, 10],  # integers go by their size
        ["10", "9", "x"],  # strings go by the alphabet
        ["01", "1"],
        ["1000", "1e3"],
        [f"{2**64}", "7"],
        [False, True],
        ["A", "a", "b", "\u4f53\u80b2", "\u8d22\u7ecf"],
    ],
)
def test_labels_are_numbered_in_the_order_of_their_values(tmp_path, end, classes) -> None:
    frame = labelled(["some words"] * len(classes), classes[::-1])
    parts, names = read_splits(write_splits(tmp_path, frame, end))
    assert names == [str(label) for label in classes]
    assert [names[i] for i in parts["test"].labels] == names[::-1]


def test_labels_that_one_csv_file_alone_has_as_integers_are_strings_too(tmp_path) -> None:
    own, others = labelled([*"abc"], ["1", "01", "2"]), labelled([*"ab"], ["2", "1"])
    parts, names = read_splits(write_splits(tmp_path, others, "csv", train=own))
    assert names == ["01", "1", "2"]
    assert parts["test"].labels.tolist() == [2, 1]


def test_a_language_model_needs_labels_in_no_split(tmp_path) -> None:
    plain, two = of_labels(0), of_labels(0, 1)
    for train, test in (
        (two, plain[["text"]]),
        (two, of_labels(None, 1)),
        (two, of_labels(0.5, 1.5)),
        (two, of_labels(0, 2)),  # a class that train lacks
        (pd.concat([plain, two[1:2]])[1:], plain),  # a class with one document
        (of_labels(*range(20)), plain),  # more classes than documents of the validation split
    ):
        write_splits(tmp_path, train=train, test=test)
        parts, names = read_splits(tmp_path, labelled=False)
        assert names == [""]
        assert [len(part) for part in parts.values()] == [36, 4, 40]


def test_a_missing_validation_split_can_be_a_plain_shuffle(tmp_path) -> None:
    """A stratified one: test_sources.py."""
    plain = {"validation_stratified": False, "split_seed": 5}
    write_splits(tmp_path, train=of_labels("a", "a", "a", "b"), test=of_labels("a", "b"))
    parts, _ = read_splits(tmp_path, validation_fraction=0.2, **plain)
    expected = train_test_split(np.arange(40), test_size=8, random_state=5)
    drawn = [parts[split].rows.tolist() for split in ("train", "validation")]
    assert drawn == [sorted(rows) for rows in expected]
    write_splits(tmp_path, train=labelled(["a", "b"]))
    message = refusal(read_splits, tmp_path, validation_fraction=0.9, **plain)
    assert "cannot take 2 of 2 documents (" in message


def test_a_class_that_a_plain_shuffle_leaves_without_training_documents_is_named(tmp_path) -> None:
    _, drawn = train_test_split(np.arange(40), test_size=8, random_state=5)
    alone = labelled(TEXTS, ["b" if row == drawn[0] else "a" for row in range(40)])
    write_splits(tmp_path, train=alone, test=of_labels("a", "b"))
    plain = {"validation_fraction": 0.2, "validation_stratified": False}
    message = f"{tmp_path}/train.parquet: no document of class 'b' remains for training; give a "
    assert refusal(read_splits, tmp_path, split_seed=5, **plain).startswith(message)
    other = next(seed for seed in range(9) if drawn[0] not in
                 train_test_split(np.arange(40), test_size=8, random_state=seed)[1])  # fmt: skip
    assert read_splits(tmp_path, split_seed=other, **plain)[1] == ["a", "b"]


@pytest.mark.parametrize(("names", "wrong"), [(["x"], 1), (["x", "y"], 2), (["x", "y"], "a")])
def test_labels_that_have_no_name_in_a_corpus_with_names_are_refused(names, wrong) -> None:
    frame = labelled(["one", "two"], ["b", wrong] if wrong == "a" else [0, wrong])
    corpus = Corpus("mine", lambda: dict.fromkeys(SPLITS, frame), names)
    line = refusal(splits, corpus, DataConfig("mine"))
    assert line.startswith(f"mine (train): its corpus has {len(names)} label_names, so labels must")
    assert f"from 0 to {len(names) - 1} (got {wrong!r})" in line


def test_drop_empty_leaves_out_documents_without_text(tmp_path) -> None:
    empty = labelled([None, "", "  ", *TEXTS], [None, None, "a", *"ab" * 20])
    write_splits(tmp_path, of_labels("a", "b"), train=empty)
    parts, _ = read_splits(tmp_path, drop_empty=True)
    assert [*parts["train"].texts()] == TEXTS


def test_one_text_cannot_be_divided_unless_there_is_a_validation_file(tmp_path) -> None:
    one = labelled(["the cat sat on a mat"])
    for part in (one, one[["text"]]):
        write_splits(tmp_path, train=part, test=part)
        message = f"{tmp_path}/train.parquet: has too few documents to divide; give a validation"
        assert refusal(read_splits, tmp_path, labelled=False).startswith(message)
    parts, _ = read_splits(write_splits(tmp_path, one), labelled=False)
    assert [len(part) for part in parts.values()] == [1, 1, 1]


OF_TYPE = {
    "Timestamp": pd.to_datetime(["2024-01-01", "2024-01-02"]).as_unit("ns"),
    "float": [0.0, 1.0],
    "list": [np.array([1, 2]), np.array([3])],
}


@pytest.mark.parametrize(
    ("split", "part", "message"),
    [
        ("test", of_labels("a")[["text"]], "no column 'label' among text; "),
        ("train", labelled(TEXTS)[:0], "no documents"),
        ("train", labelled([None, *TEXTS]), "no text in row 0"),
        ("train", labelled([*TEXTS, " \n"]), "no text in row 40"),
        ("train", labelled([*range(40)]), "text in row 0 is 0"),
        ("train", labelled([["word"] * 60] * 40), "text in row 0 is ['word', 'word', "),
        ("train", of_labels(None, "a"), "no label in row 0"),
        ("train", of_labels("a", "b", ""), "no label in row 2"),
        ("train", of_labels("a", "b", "\u00a0a"), r"label '\xa0a' in row 2 begins or ends with "
         "white space; remove the white space"),
        ("train", of_labels("a", "\u200b"), r"label '\u200b' in row 1 is invisible; name the c"),
        ("train", of_labels("a"), "only one class"),
        ("train", of_labels(*"a" * 39, "b"),
         "cannot take 4 of 40 documents with every class in proportion: class 'b' has one docume"),
        ("test", of_labels("a", "c"), "class 'c' in row 1 is not in the training split; add it "
         "there or remove it from test, or let a generated corpus have more training documents"),
        *((split, of_labels("a", "b", "\u200ba"), r"labels: 'a' and '\u200ba' (U+200B) look alike "
           "but differ; write them alike, or rename one") for split in SPLITS),
        *(("test", of_labels(*labels), f"labels are of type {name}; use")
          for name, labels in OF_TYPE.items()),
    ],
)  # fmt: skip
def test_bad_documents_are_refused_in_one_short_line_with_the_file(
    tmp_path, split, part, message
) -> None:
    write_splits(tmp_path, **{"train": labelled(TEXTS), "test": labelled(TEXTS), split: part})
    refused = refusal(read_splits, tmp_path)
    assert refused.startswith(f"{tmp_path}/{split}.parquet: {message}")
    assert ";" in refused  # what is wrong; the cure
    assert refused.isprintable()
    assert len(refused) < len(str(tmp_path)) + 300


@pytest.mark.parametrize(("labels", "kind"), [((False, True), "bool"), (("0", "1"), "str")])
def test_labels_of_two_types_are_refused_with_both_files(tmp_path, labels, kind) -> None:
    write_splits(tmp_path, train=of_labels(0, 1), test=of_labels(*labels))
    train, test = (f"{tmp_path}/{split}.parquet" for split in ("train", "test"))
    wanted = f"labels are of type int in {train} and {kind} in {test}; use one type"
    assert refusal(read_splits, tmp_path) == f"{train}: {wanted}"


def test_labels_of_two_types_in_one_file_are_refused_with_their_rows(tmp_path) -> None:
    write_splits(tmp_path, labelled([*"wxyz"], ["a", "b", 1, 2]), "jsonl")
    wanted = "labels are of type str in row 0 and int in row 2; use one type"
    assert refusal(read_splits, tmp_path) == f"{tmp_path}/train.jsonl: {wanted}"


@pytest.mark.parametrize("validation", ["val.csv", "valid.jsonl", "dev.parquet"])
def test_a_validation_file_may_have_a_short_name_among_other_files(tmp_path, validation) -> None:
    found = {"train": "train.csv", "validation": validation, "test": "test.csv"}
    others = ("README.md", "labels.csv", "train.py", "test_notes.txt", "devices.csv", ".x.csv")
    for name in (*found.values(), *others):
        (tmp_path / name).touch()
    (tmp_path / "val").mkdir()
    assert folder_files(str(tmp_path)) == {split: tmp_path / name for split, name in found.items()}


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], ": no train split; add train.parquet"),
        (["train.csv"], ": no test split; add test.parquet"),
        (["train.csv", "train.parquet"], "/train.csv: train.parquet is also a file of the"),
        (["test.PARQUET", "test.parquet"], "/test.PARQUET: test.parquet is also a file of the"),
        (["validation.csv", "val.csv"], "/val.csv: validation.csv is also a file of the"),
    ],
)
def test_a_folder_without_one_file_of_each_split_is_refused(tmp_path, names, message) -> None:
    for name in names:
        (tmp_path / name).touch()
    assert refusal(folder_files, str(tmp_path)).startswith(f"{tmp_path}{message}")


IGNORED = "is not read; name a split's file train, validation (or val, "
NO_FILE = "is a folder or a broken link; write the split as one file, or "


@pytest.mark.parametrize(
    ("name", "make", "message"),
    [
        *((name, Path.touch, IGNORED) for name in (
            "Val.csv", "Train.CSV", "test.json", "test.XLSX", "training.csv", "eval.csv",
            "train-00000-of-00002.parquet", "dev.csv.gz", "train2.csv", "test.v2.jsonl",
            "validation_set.csv", "validate.csv", "test-split.parquet",
        )),
        ("val.parquet", Path.mkdir, NO_FILE),  # as Spark writes it
        ("val.parquet", lambda path: path.symlink_to("gone"), NO_FILE),
    ],
)  # fmt: skip
def test_what_is_named_like_a_split_is_not_ignored(tmp_path, name, make, message) -> None:
    for own in ("train.csv", "test.csv"):
        (tmp_path / own).touch()
    make(tmp_path / name)
    assert refusal(folder_files, str(tmp_path)).startswith(f"{tmp_path / name}: {message}")
