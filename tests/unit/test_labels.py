"""Which labels are classes, and which are refused with their file, row and the fix."""

import datetime
import decimal

import numpy as np
import pandas as pd
import pytest

from posfuse.config import DataConfig
from posfuse.data.corpora import SPLITS, load
from posfuse.data.splits import splits
from posfuse.errors import InputError

ENDS = ("parquet", "csv", "jsonl")


def write(root, labels, end="parquet", only=SPLITS):
    frame = pd.DataFrame({"text": ["some words"] * len(labels), "label": labels})
    for split in only:
        path = root / f"{split}.{end}"
        if end == "parquet":
            frame.to_parquet(path)
        elif end == "csv":
            frame.to_csv(path, index=False)
        else:
            frame.to_json(path, orient="records", lines=True)
    return root


def read(root):
    cfg = DataConfig(name="tiny", path=str(root))
    parts, names = splits(load(cfg), cfg)
    return parts["train"].labels.tolist(), names


def refusal(root) -> str:
    with pytest.raises(InputError) as caught:
        read(root)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("label", [" x", "x ", "x\t", " ", "\u00a0x"])
def test_a_label_with_white_space_around_it_is_refused(tmp_path, end, label) -> None:
    write(tmp_path, ["x", "y", label, "y"], end)
    assert refusal(tmp_path) == (
        f"{tmp_path}/train.{end}: label {label!r} in row 2 begins or ends with white space; "
        "remove the white space"
    )


@pytest.mark.parametrize("end", ENDS)
def test_white_space_inside_a_label_is_part_of_it(tmp_path, end) -> None:
    assert read(write(tmp_path, ["two words", "x"], end)) == ([0, 1], ["two words", "x"])


@pytest.mark.parametrize("end", ENDS)
def test_an_empty_label_is_no_label(tmp_path, end) -> None:
    message = refusal(write(tmp_path, ["x", "y", "", "y"], end))
    assert message.startswith(f"{tmp_path}/train.{end}: no label in row 2; ")


DAY = datetime.date(2024, 1, 1)
TYPES = {
    "Timestamp": pd.to_datetime(["2024-01-01", "2024-01-02"]).as_unit("ns"),
    "Timedelta": pd.to_timedelta(["1s", "2s"]),
    "date": [DAY, DAY + datetime.timedelta(1)],
    "float": [0.0, 1.0],
    "Decimal": [decimal.Decimal("1.5"), decimal.Decimal("2.5")],
    "list": [np.array([1, 2]), np.array([3])],
    "bytes": [b"a", b"b"],
    "dict": [{"a": 1}, {"a": 2}],
}


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("split", ["train", "test"])
def test_labels_of_another_type_are_refused_with_its_name(tmp_path, kind, split) -> None:
    write(tmp_path, [0, 1])
    write(tmp_path, TYPES[kind], only=(split,))
    assert refusal(tmp_path) == (
        f"{tmp_path}/{split}.parquet: labels are of type {kind}; use integers or strings"
    )


@pytest.mark.parametrize("end", ENDS)
def test_boolean_labels_are_the_classes_false_and_true(tmp_path, end) -> None:
    assert read(write(tmp_path, [True, False, True], end)) == ([1, 0, 1], ["False", "True"])


def test_booleans_among_integers_are_refused(tmp_path) -> None:
    write(tmp_path, [0, 1])
    write(tmp_path, [False, True], only=("test",))
    assert "labels are of type bool, int; use" in refusal(tmp_path)


ALIKE = {
    "composition": ("caf\u00e9", "cafe\u0301", "'caf\u00e9' (U+00E9) and 'cafe\u0301' (U+0301)"),
    "zero width": ("sport", "sp\u200bort", "'sport' and 'sp\\u200bort' (U+200B)"),
    "a mark of byte order": ("sport", "\ufeffsport", "'sport' and '\\ufeffsport' (U+FEFF)"),
    "full width": ("a1", "\uff411", "'a1' and '\uff411' (U+FF41)"),
    "a blank": ("two words", "two\u00a0words", "'two words' and 'two\\xa0words' (U+00A0)"),
}


@pytest.mark.parametrize("case", ALIKE)
@pytest.mark.parametrize("split", SPLITS)
def test_labels_that_look_alike_are_refused_in_a_split_and_across(tmp_path, case, split) -> None:
    one, other, shown = ALIKE[case]
    write(tmp_path, [one, "y"] * 2)
    write(tmp_path, [one, "y", other, "y"], only=(split,))
    assert refusal(tmp_path) == (
        f"{tmp_path}/{split}.parquet: labels: {shown} look alike but differ; write them alike, "
        "or give one another name"
    )


def test_a_label_that_shows_nothing_is_refused(tmp_path) -> None:
    write(tmp_path, ["x", "\u200b", "y"])
    assert refusal(tmp_path) == (
        f"{tmp_path}/train.parquet: label '\\u200b' in row 1 shows nothing; name the class"
    )


def test_labels_in_any_script_are_classes_if_they_look_different(tmp_path) -> None:
    names = ["A", "a", "b", "\u4f53\u80b2", "\u8d22\u7ecf"]  # small and large letters differ
    assert read(write(tmp_path, names))[1] == names
