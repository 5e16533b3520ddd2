"""Texts and labels of a folder: how they are split, and what is refused with its file and row."""

import datetime
import decimal
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import train_test_split

from posfuse.config import DataConfig
from posfuse.data.corpora import SPLITS, folder, load
from posfuse.data.splits import splits
from posfuse.errors import InputError
from refusals import refusal
from small_runs import write_splits

every_form = pytest.mark.parametrize("end", ["parquet", "csv", "jsonl"])
TEXTS = [f"word{i} and more" for i in range(40)]


def frame(texts=TEXTS, labels=None) -> pd.DataFrame:
    labels = [i % 2 for i in range(len(texts))] if labels is None else labels
    return pd.DataFrame({"text": texts, "label": labels})


def write(root, train=None, test=None, validation=None, end="parquet"):
    train, test = (frame() if part is None else part for part in (train, test))
    more = {} if validation is None else {"validation": validation}
    return write_splits(root, end, train=train, test=test, **more)


def read(root, **options):
    cfg = DataConfig(name="tiny", path=str(root), **options)
    return splits(load(cfg), cfg)


def write_labels(root, labels, end="parquet", only=SPLITS):
    part = frame(["some words"] * len(labels), labels)
    return write_splits(root, end, **dict.fromkeys(only, part))


@pytest.mark.parametrize(
    ("labels", "names"),
    [(["b", "a"], ["a", "b"]), ([7, 3], ["3", "7"]), ([1, 0], ["0", "1"]), ([2, 1], ["1", "2"])],
)
def test_labels_are_mapped_to_0_up_and_their_names_kept(tmp_path, labels, names) -> None:
    frames, found = read(write(tmp_path, frame(labels=labels * 20), frame(labels=labels * 20)))
    assert found == names
    first = names.index(str(labels[0]))
    assert frames["test"].labels.tolist() == [first, 1 - first] * 20


def test_a_missing_validation_split_is_taken_from_train_in_proportion(tmp_path) -> None:
    root = write(tmp_path, frame(labels=[0] * 30 + [1] * 10))
    frames, _ = read(root, validation_fraction=0.2)
    assert Counter(frames["validation"].labels) == {0: 6, 1: 2}
    texts = [set(frames[s].texts()) for s in ("train", "validation")]
    assert not texts[0] & texts[1]
    assert texts[0] | texts[1] == set(TEXTS)
    again, _ = read(root, validation_fraction=0.2)
    other, _ = read(root, validation_fraction=0.2, split_seed=1)
    assert again["validation"].rows.tolist() == frames["validation"].rows.tolist()
    assert other["validation"].rows.tolist() != frames["validation"].rows.tolist()


def test_a_missing_validation_split_can_be_a_plain_shuffle(tmp_path) -> None:
    root = write(tmp_path, frame(labels=[0] * 30 + [1] * 10))
    shares = []
    for seed in range(10):
        frames, _ = read(
            root, validation_fraction=0.2, split_seed=seed, validation_stratified=False
        )
        expected = train_test_split(np.arange(40), test_size=8, random_state=seed)[1]
        assert frames["validation"].rows.tolist() == sorted(expected)
        assert len(frames["train"]) == 32
        shares.append(Counter(frames["validation"].labels)[1])
    assert len(set(shares)) > 2  # 2 of 8 each time where it is stratified
    write(tmp_path, frame(TEXTS[:2], [0, 1]))
    with pytest.raises(InputError, match=r"cannot take 2 of 2 documents \("):
        read(tmp_path, validation_fraction=0.9, validation_stratified=False)


def test_limit_takes_a_stratified_sample(tmp_path) -> None:
    frames, _ = read(write(tmp_path, validation=frame()), limit=10)
    assert all(Counter(frames[s].labels) == {0: 5, 1: 5} for s in SPLITS)


def test_drop_empty_leaves_out_documents_without_text(tmp_path) -> None:
    empty = frame([None, "", "  ", *TEXTS], [None, None, "a", *["a", "b"] * 20])
    other = frame(labels=["a", "b"] * 20)
    frames, _ = read(write(tmp_path, empty, other, other), drop_empty=True)
    assert list(frames["train"].texts()) == TEXTS


@pytest.mark.parametrize(
    ("split", "part", "message"),
    [
        ("test", frame()[["text"]], "no column 'label' among text; "),
        ("train", frame([None, *TEXTS]), "no text in row 0"),
        ("train", frame([*TEXTS, " \n"]), "no text in row 40"),
        ("train", frame(list(range(40))), "text in row 0 is 0"),
        ("train", frame([["sentence"] * 60] * 40), "text in row 0 is ['sentence', 'sentence', "),
        ("train", frame(labels=[None] + [1] * 39), "no label in row 0"),
        ("train", frame(labels=[0] * 40), "only one class"),
        ("train", frame().iloc[:0], "no documents"),
        ("train", frame(labels=[0] * 39 + [1]), "every class in"),
        ("test", frame(labels=[0, 2] * 20), "class 2 in row 1 is not in the training"),
        ("train", frame(labels=["x", "\u200b"] * 20),
         r"label '\u200b' in row 1 is invisible; name the class"),
    ],
)  # fmt: skip
def test_bad_documents_are_refused_in_one_short_line_with_the_file(
    tmp_path, split, part, message
) -> None:
    refused = refusal(read, write(tmp_path, **{split: part}))
    assert message in refused
    assert f"{split}.parquet" in refused
    assert ";" in refused  # what is wrong; the cure
    assert refused.isprintable()
    assert len(refused) < len(str(tmp_path)) + 300


def test_one_text_cannot_be_divided_unless_there_is_a_validation_file(tmp_path) -> None:
    def parts(root):
        cfg = DataConfig("one", path=str(root))
        return splits(load(cfg), cfg, labelled=False)[0]

    one = frame(["the cat sat on a mat " * 200], [0])[["text"]]
    for part in (one, one.assign(label="x")):
        assert refusal(parts, write(tmp_path, part, part)) == (
            f"{tmp_path}/train.parquet: has one document, which cannot be divided; give a "
            "validation file, or write a long text as several rows, such as its paragraphs"
        )
    assert [len(p) for p in parts(write(tmp_path, one, one, one)).values()] == [1, 1, 1]


def test_a_language_model_needs_labels_in_no_split(tmp_path) -> None:
    write(tmp_path, test=frame()[["text"]])
    cfg = DataConfig("tiny", path=str(tmp_path))
    parts, names = splits(load(cfg), cfg, labelled=False)
    assert names == [""]
    assert [len(part) for part in parts.values()] == [36, 4, 40]
    for labels in ([None, 1] * 20, [0.5, 1.5] * 20, [0, 2] * 20):  # no classes, or not in train
        write(tmp_path, test=frame(labels=labels))
        assert len(splits(load(cfg), cfg, labelled=False)[0]["test"]) == 40


def test_bad_folders_are_refused(tmp_path) -> None:
    nowhere = str(tmp_path / "nowhere")
    assert f"data.path: no folder {nowhere}; give" in refusal(folder, nowhere)
    assert "no train split; add train.parquet" in refusal(folder, str(tmp_path))
    write(tmp_path)
    (tmp_path / "test.parquet").unlink()
    assert "no test split; add test.parquet" in refusal(folder, str(tmp_path))
    write(tmp_path)
    write(tmp_path, end="csv")
    assert "remove one of the two" in refusal(folder, str(tmp_path))
    for path in tmp_path.glob("*.csv"):
        path.rename(path.with_suffix(".PARQUET"))
    assert "there is test.parquet too; remove one" in refusal(folder, str(tmp_path))


@pytest.mark.parametrize("name", ["val.csv", "valid.jsonl", "dev.parquet"])
def test_a_validation_file_may_have_a_short_name(tmp_path, name: str) -> None:
    end = name.partition(".")[2]
    whole, short = (tmp_path / n for n in ("whole", "short"))
    for root in (whole, short):
        root.mkdir()
        write(root, validation=frame(TEXTS[:10]), end=end)
    (short / f"validation.{end}").rename(short / name)
    assert folder(str(short)).fingerprint == folder(str(whole)).fingerprint
    parts, _ = read(short)
    assert {split: len(part) for split, part in parts.items()} == {
        "train": 40, "validation": 10, "test": 40,
    }  # fmt: skip


@pytest.mark.parametrize("names", [("validation.csv", "val.csv"), ("dev.jsonl", "valid.parquet")])
def test_two_validation_files_are_refused(tmp_path, names) -> None:
    write(tmp_path)
    for name in names:
        (tmp_path / name).touch()
    one, two = sorted(names)
    with pytest.raises(InputError, match=rf"{one}: there is {two} too; remove one of the two"):
        read(tmp_path)


@pytest.mark.parametrize(
    "name",
    ["Val.csv", "Train.CSV", "test.json", "test.XLSX", "training.csv", "eval.csv",
     "train-00000-of-00002.parquet", "dev.csv.gz", "train2.csv", "test.v2.jsonl",
     "validation_set.csv", "validate.csv", "test-split.parquet"],
)  # fmt: skip
def test_a_file_that_is_named_like_a_split_is_not_ignored(tmp_path, name: str) -> None:
    write(tmp_path)
    (tmp_path / name).touch()
    assert refusal(read, tmp_path) == (
        f"{tmp_path / name}: is not read; name a split's file train, validation (or val, valid, "
        "dev) or test with .parquet, .csv, .tsv, .jsonl or .txt, set data.splits, or move this one "
        "elsewhere"
    )


def test_what_is_no_file_but_is_named_like_a_split_is_not_ignored(tmp_path) -> None:
    (write(tmp_path) / "val.parquet").mkdir()  # as Spark writes it
    assert f"{tmp_path}/val.parquet: is not read" in refusal(read, tmp_path)
    (tmp_path / "val.parquet").rmdir()
    (tmp_path / "val.parquet").symlink_to("gone")
    assert f"{tmp_path}/val.parquet: is not read" in refusal(read, tmp_path)


def test_other_files_may_lie_in_the_folder(tmp_path) -> None:
    write(tmp_path)
    for name in ("README.md", "labels.csv", "train.py", "test_notes.txt", "devices.csv", ".x.csv"):
        (tmp_path / name).touch()
    (tmp_path / "val").mkdir()
    assert len(read(tmp_path)[0]["train"]) == 36


@every_form
@pytest.mark.parametrize(
    ("label", "message"),
    [
        (" x", "label ' x' in row 2 begins or ends with white space; remove the white space"),
        ("\u00a0x", r"label '\xa0x' in row 2 begins or ends with white space; remove the white "),
        ("", "no label in row 2; "),
    ],
)
def test_white_space_around_a_label_and_an_empty_one_are_refused(
    tmp_path, end, label, message
) -> None:
    write_labels(tmp_path, ["x", "y", label, "y"], end)
    assert refusal(read, tmp_path).startswith(f"{tmp_path}/train.{end}: {message}")


@every_form
@pytest.mark.parametrize(
    ("labels", "names"),
    [(["two words", "x"], ["two words", "x"]), ([False, True], ["False", "True"])],
)
def test_labels_of_two_words_and_of_truth_values_are_classes(tmp_path, end, labels, names) -> None:
    frames, found = read(write_labels(tmp_path, labels, end))
    assert (frames["train"].labels.tolist(), found) == ([0, 1], names)


DAY = datetime.date(2024, 1, 1)
TYPES = {
    "Timestamp": pd.to_datetime(["2024-01-01", "2024-01-02"]).as_unit("ns"),
    "date": [DAY, DAY + datetime.timedelta(1)],
    "float": [0.0, 1.0],
    "Decimal": [decimal.Decimal("1.5"), decimal.Decimal("2.5")],
    "list": [np.array([1, 2]), np.array([3])],
    "bytes": [b"a", b"b"],
    "bool, int": [False, True],
    "int, str": ["0", "1"],
}


@pytest.mark.parametrize("kind", TYPES)
def test_labels_of_another_type_are_refused_with_its_name(tmp_path, kind) -> None:
    write_labels(tmp_path, [0, 1])
    write_labels(tmp_path, TYPES[kind], only=("test",))
    assert f"labels are of type {kind}; use" in refusal(read, tmp_path)


@pytest.mark.parametrize("split", SPLITS)
def test_labels_that_look_alike_are_refused_in_a_split_and_across(tmp_path, split) -> None:
    write_labels(tmp_path, ["sport", "y"] * 2)
    write_labels(tmp_path, ["sport", "y", "sp\u200bort", "y"], only=(split,))
    assert refusal(read, tmp_path) == (
        f"{tmp_path}/{split}.parquet: labels: 'sport' and 'sp\\u200bort' (U+200B) look alike but "
        "differ; write them alike, or give one another name"
    )


def test_labels_in_any_script_are_classes_if_they_look_different(tmp_path) -> None:
    names = ["A", "a", "b", "\u4f53\u80b2", "\u8d22\u7ecf"]  # small and large letters differ
    assert read(write_labels(tmp_path, names))[1] == names
