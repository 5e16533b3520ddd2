"""A user's own columns, names of splits, TSV files and plain texts."""

import pandas as pd
import pytest

from posfuse.config import DataConfig, SplitsConfig
from posfuse.data.corpora import SPLITS, load
from posfuse.data.sources import LONGEST_LINE
from posfuse.data.splits import splits
from posfuse.data.token_store import open_store
from posfuse.errors import InputError
from posfuse.runs.checks import checked
from posfuse.runs.coverage import repetition
from posfuse.runs.identity import fingerprint, settings
from small_runs import composed, write_splits

FRAME = pd.DataFrame(
    {
        "id": range(20),
        "body": [f'word{i} "said", and\tmore' for i in range(20)],
        "topic": ["sport", "politics"] * 10,
    }
)


def read(path, labelled=True, **options):
    cfg = DataConfig("mine", path=str(path), **options)
    return splits(load(cfg), cfg, labelled=labelled)


def texts(parts):
    return {split: [*part.texts()] for split, part in parts.items()}


def write(folder, end, names=SPLITS, frame=FRAME):
    if end == "tsv":
        for name in names:
            frame.to_csv(folder / f"{name}.tsv", sep="\t", index=False)
        return folder
    return write_splits(folder, end, **dict.fromkeys(names, frame))


# Columns


@pytest.mark.parametrize("end", ["parquet", "csv", "tsv", "jsonl"])
def test_columns_of_any_name_are_read_as_pandas_wrote_them(tmp_path, end) -> None:
    parts, names = read(write(tmp_path, end), text="body", labels="topic")
    assert names == ["politics", "sport"]
    for part in parts.values():
        assert [*part.texts()] == FRAME["body"].tolist()
        assert [names[i] for i in part.labels] == FRAME["topic"].tolist()
    before = texts(parts)
    identity = load(DataConfig("mine", path=str(tmp_path))).fingerprint
    for path in [*tmp_path.iterdir()]:
        path.rename(path.with_suffix(path.suffix.upper()))
    again, _ = read(tmp_path, text="body", labels="topic")
    assert texts(again) == before
    assert load(DataConfig("mine", path=str(tmp_path))).fingerprint == identity


def test_a_missing_column_names_the_key_that_chooses_it(tmp_path) -> None:
    write(tmp_path, "csv")
    among = f"{tmp_path}/train.csv: no column {{}} among id, body, topic; set data.{{}}=COLUMN"
    for options, missing in (({}, ("'text'", "text")), ({"text": "body"}, ("'label'", "labels"))):
        with pytest.raises(InputError) as caught:
            read(tmp_path, **options)
        assert str(caught.value) == among.format(*missing)


def test_white_space_around_the_name_of_a_column_is_seen(tmp_path) -> None:
    for split in SPLITS:
        (tmp_path / f"{split}.csv").write_text("text, label,\na, x,\n")
    with pytest.raises(
        InputError, match=r"no column 'label' among text, ' label', ''; set data.lab"
    ):
        read(tmp_path)


@pytest.mark.parametrize("end", ["csv", "tsv", "jsonl"])
def test_an_empty_file_is_called_empty(tmp_path, end) -> None:
    for split in SPLITS:
        (tmp_path / f"{split}.{end}").write_text("\n")
    with pytest.raises(InputError, match=rf"train\.{end}: is empty; give one with text and label"):
        read(tmp_path)


def test_columns_and_splits_count_for_a_runs_identity_only_if_they_are_set(tmp_path) -> None:
    write(tmp_path, "csv", frame=FRAME.assign(text=FRAME["body"], label=FRAME["topic"]))
    own = ["data=folder", "data.name=mine", f"data.path={tmp_path}"]
    usual = checked(composed(*own))
    own_keys = ("data.text", "data.labels", "data.splits.")
    assert not [key for key in settings(usual) if key.startswith(own_keys)]
    same = ["data.text=text", "data.labels=label", "data.splits.test=test"]
    assert fingerprint(checked(composed(*own, *same))) == fingerprint(usual)
    for key in ("data.text=body", "data.labels=topic", "data.splits.validation=validation"):
        assert fingerprint(checked(composed(*own, key))) != fingerprint(usual)


def test_token_ids_of_another_column_have_a_store_of_their_own(tmp_path) -> None:
    frame = FRAME.assign(text=[f"w{i % 3} w{i % 5}" for i in range(20)], label=FRAME["topic"])
    write(tmp_path, "csv", frame=frame)
    stores = [
        open_store(DataConfig("mine", path=str(tmp_path), text=column), tmp_path / "cache")
        for column in ("text", "body")
    ]
    assert stores[0].folder != stores[1].folder
    assert [s.splits["test"].lengths[0] for s in stores] == [2, 4]


# Names of splits


def test_splits_of_any_name_are_read(tmp_path) -> None:
    for i, name in enumerate(("training", "Eval", "held-out")):
        write(tmp_path, "tsv", [name], FRAME.assign(body=f"text{i}"))
    write(tmp_path, "csv", ["test"])  # is not read, since another file was named
    names = SplitsConfig("training", "Eval", "held-out")
    parts, _ = read(tmp_path, text="body", labels="topic", splits=names)
    assert [each[0] for each in texts(parts).values()] == ["text0", "text1", "text2"]


def test_a_split_that_is_named_and_missing_is_refused(tmp_path) -> None:
    write(tmp_path, "csv", ["train", "test"])
    for split in SPLITS:
        name = "NAME" if split == "validation" else split  # the only file that is not read
        with pytest.raises(InputError) as caught:
            read(tmp_path, splits=SplitsConfig(**{split: split.upper()}))
        assert str(caught.value) == (
            f"{tmp_path}: no {split} split; add {split.upper()}.parquet, .csv, .tsv, .jsonl or "
            f".txt, or set data.splits.{split}={name}"
        )


def test_the_name_of_a_split_has_no_ending(tmp_path) -> None:
    write(tmp_path, "csv", ["train", "eval"])
    with pytest.raises(InputError) as caught:
        read(tmp_path, splits=SplitsConfig(test="eval.csv"))
    assert str(caught.value) == (
        "data.splits.test: eval.csv has an ending; give the name alone, data.splits.test=eval"
    )


# TSV


@pytest.mark.parametrize(
    ("end", "content", "expected"),
    [
        ("tsv", "text,label\na,x\n", "the header has no tab; separate the columns by tabs"),
        ("csv", "text\tlabel\na\tx\n", "by commas, as in text,label, or name the file .tsv"),
        ("tsv", "text\tlabel\na\tb\tx\n", "line 2 and the header differ in their number of fields "
         "(3 and 2); put a text with tabs or line ends in quotes"),
        ("tsv", 'text\tlabel\n"Great" film\tx\n', "line 2 has a misplaced quotation mark"),
    ],
)  # fmt: skip
def test_a_file_with_another_separator_is_refused(tmp_path, end, content, expected) -> None:
    for split in SPLITS:
        (tmp_path / f"{split}.{end}").write_text(content)
    with pytest.raises(InputError) as caught:
        read(tmp_path)
    assert f"{tmp_path}/train.{end}: " in str(caught.value)
    assert expected in str(caught.value)


# Plain texts

PLAY = "\n \nFirst Citizen:\nBefore we proceed any further, hear me speak.\r\n\n\nAll:\n" + "".join(
    f"Speak, speak: line {i} é.\n" + "\n" * (i % 3) for i in range(40)
)


def test_the_lines_of_a_text_in_a_row_are_the_text_and_its_end_is_tested(tmp_path) -> None:
    """As nanoGPT divides input.txt: in the order of the text."""
    file = tmp_path / "input.txt"
    file.write_bytes(b"\xef\xbb\xbf" + PLAY.encode())
    found = texts(read(file, labelled=False)[0])
    assert "".join(text for split in SPLITS for text in found[split]) == PLAY
    assert [len(found[split]) for split in SPLITS] == [35, 4, 4]
    assert all(text.strip() for each in found.values() for text in each)
    assert texts(read(file.rename(tmp_path / "UP.TXT"), labelled=False)[0]) == found


def test_a_folder_of_texts_has_its_own_splits(tmp_path) -> None:
    for i, name in enumerate(("train", "valid", "test")):
        (tmp_path / f"{name}.txt").write_text(PLAY * (i + 1))
    found = texts(read(tmp_path, labelled=False)[0])
    assert {split: "".join(each) for split, each in found.items()} == {
        "train": PLAY, "validation": PLAY * 2, "test": PLAY * 3,
    }  # fmt: skip
    (tmp_path / "valid.txt").unlink()
    found = texts(read(tmp_path, labelled=False)[0])
    assert "".join(found["train"] + found["validation"]) == PLAY


def test_limit_takes_the_beginning_of_a_text(tmp_path) -> None:
    file = tmp_path / "input.txt"
    file.write_text(PLAY)
    whole = texts(read(file, labelled=False)[0])
    few = texts(read(file, labelled=False, limit=3)[0])
    assert few == {split: each[:3] for split, each in whole.items()}


def test_a_text_without_line_ends_can_be_divided(tmp_path) -> None:
    file = tmp_path / "text8.txt"
    file.write_text("one two " * LONGEST_LINE)
    found = texts(read(file, labelled=False)[0])
    assert "".join(text for split in SPLITS for text in found[split]) == "one two " * LONGEST_LINE
    assert [len(found[split]) for split in SPLITS] == [6, 1, 1]


def test_a_text_is_refused_where_it_cannot_be_used(tmp_path) -> None:
    file = tmp_path / "input.txt"
    file.write_text(PLAY)
    for options, message in (
        ({}, "a text without labels; set task=language_model, or give .csv with text and label"),
        ({"splits": SplitsConfig(test="eval")}, "has all splits; remove it, or give a folder"),
    ):
        with pytest.raises(InputError) as caught:
            read(file, **options)
        assert message in str(caught.value)
    file.write_text("")
    with pytest.raises(InputError, match=r"input\.txt: no documents; give at least one with text"):
        read(file, labelled=False)
    with pytest.raises(InputError, match=r"no folder .*x\.csv; give one .* or a \.txt file"):
        read(tmp_path / "x.csv")


# Test documents that occur in train


def test_test_documents_that_occur_in_train_are_counted(tmp_path) -> None:
    train = pd.DataFrame({"text": [f"a text {i}" for i in range(20)], "label": [0, 1] * 10})
    test = pd.DataFrame({"text": ["a text 3", "a text 3", "A text 4", "new", "a text 5"],
                         "label": [0, 1, 0, 1, 0]})  # fmt: skip
    write_splits(tmp_path, train=train, validation=test, test=test)
    cfg = DataConfig("mine", path=str(tmp_path))
    for _ in ("built", "read"):
        store = open_store(cfg, tmp_path / "cache")
        assert store.repeated == test["text"].isin(train["text"]).sum() == 3
    write_splits(tmp_path, test=test[2:4])
    assert open_store(cfg, tmp_path / "cache").repeated == 0
    (tmp_path / "input.txt").write_text(PLAY + PLAY)  # lines of a text occur again and again
    text = DataConfig("play", path=str(tmp_path / "input.txt"))
    assert open_store(text, tmp_path / "cache", labelled=False).repeated == 0


def test_repeated_documents_are_one_line() -> None:
    row = {"data": "mine", "repeated.documents": 3.0, "repeated.share": 0.6}
    assert repetition(row) == "mine: 3 of the test documents (60.0%) occur in train word for word"
    for other in ({}, {"repeated.documents": float("nan"), "repeated.share": float("nan")}):
        assert repetition({"data": "mine", **other}) is None
