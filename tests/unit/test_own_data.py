"""A user's own columns, names of splits, and plain texts."""

from itertools import chain

import pandas as pd
import pytest

from posfuse.config import DataConfig, SplitsConfig
from posfuse.data.corpora import SPLITS, folder
from posfuse.data.sources import LONGEST_LINE
from posfuse.data.token_store import open_store
from posfuse.runs.checks import checked
from posfuse.runs.coverage import repetition
from posfuse.runs.identity import fingerprint, settings
from refusals import refusal
from small_corpora import labelled, read_splits, write_splits
from small_runs import composed

BODY = [f'word{i} "said", and\tmore' for i in range(20)]
FRAME = pd.DataFrame({"id": range(20), "body": BODY, "topic": ["sport", "politics"] * 10})
OWN = {"text": "body", "labels": "topic"}


def texts(path, **options):
    """The texts of each split."""
    return {split: [*part.texts()] for split, part in read_splits(path, **options)[0].items()}


@pytest.mark.parametrize("end", ["parquet", "csv", "tsv", "jsonl"])
def test_columns_of_any_name_are_read_as_pandas_wrote_them(tmp_path, end) -> None:
    parts, names = read_splits(write_splits(tmp_path, FRAME, end), **OWN)
    assert names == ["politics", "sport"]
    for part in parts.values():
        assert [*part.texts()] == BODY
        assert [names[i] for i in part.labels] == FRAME["topic"].tolist()
    identity = folder(str(tmp_path)).fingerprint
    for path in [*tmp_path.iterdir()]:  # other names of the same files
        path.rename(tmp_path / f"{path.stem.removesuffix('idation')}{path.suffix.upper()}")
    assert texts(tmp_path, **OWN) == dict.fromkeys(SPLITS, BODY)
    assert folder(str(tmp_path)).fingerprint == identity


def test_splits_of_any_name_are_read(tmp_path) -> None:
    for i, name in enumerate(("training", "Eval", "held-out")):
        write_splits(tmp_path, end="tsv", **{name: FRAME.assign(body=f"text{i}")})
    write_splits(tmp_path, test=FRAME)  # is not read, since another file was named
    found = texts(tmp_path, splits=SplitsConfig("training", "Eval", "held-out"), **OWN)
    assert [each[0] for each in found.values()] == ["text0", "text1", "text2"]


NO_COLUMN = "/train.csv: no column {} among id, body, topic; set data.{}=COLUMN"
NO_SPLIT = ": no {0} split; add mine.parquet, .csv, .tsv, .jsonl or .txt, or set data.splits.{0}="


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, NO_COLUMN.format("'text'", "text")),
        ({"text": "body"}, NO_COLUMN.format("'label'", "labels") + ", or task=language_model"),
        ({"splits": SplitsConfig(train="mine")}, NO_SPLIT.format("train") + "train"),
        ({"splits": SplitsConfig(test="mine")}, NO_SPLIT.format("test") + "test"),
        # All files are read, so the one to take is not known.
        ({"splits": SplitsConfig(validation="mine")}, NO_SPLIT.format("validation") + "NAME"),
        ({"splits": SplitsConfig(test="test.csv")},
         "data.splits.test: test.csv has an ending; give the name alone, data.splits.test=test"),
    ],
)  # fmt: skip
def test_a_name_that_a_folder_lacks_is_refused(tmp_path, options, message) -> None:
    write_splits(tmp_path, end="csv", train=FRAME, test=FRAME)
    assert refusal(read_splits, tmp_path, **options).removeprefix(str(tmp_path)) == message


def test_columns_and_splits_count_for_a_runs_identity_only_if_they_are_set(tmp_path) -> None:
    own = ["data=folder", "data.name=mine", f"data.path={write_splits(tmp_path, FRAME)}"]
    usual = checked(composed(*own))
    own_keys = ("data.text", "data.labels", "data.splits.")
    assert not [key for key in settings(usual) if key.startswith(own_keys)]
    same = ["data.text=text", "data.labels=label", "data.splits.test=test"]
    assert fingerprint(checked(composed(*own, *same))) == fingerprint(usual)
    for key in ("data.text=body", "data.labels=topic", "data.splits.validation=validation"):
        assert fingerprint(checked(composed(*own, key))) != fingerprint(usual)


PLAY = "\n \nFirst Citizen:\nBefore we proceed any further, hear me speak.\r\n\n\nAll:\n" + "".join(
    f"Speak, speak: line {i} é.\n" + "\n" * (i % 3) for i in range(40)
)
NO_SPACES = "x" * 3 * LONGEST_LINE
TEXTS = {
    "lines": (PLAY, [35, 4, 4]),
    "a cut after a word": ("one two " * LONGEST_LINE, [6, 1, 1]),
    "a cut inside a word": ("longer " * LONGEST_LINE, [6, 1, 1]),
    "no spaces": (NO_SPACES, [1, 1, 1]),
}


@pytest.mark.parametrize(("text", "sizes"), TEXTS.values(), ids=TEXTS)
def test_the_lines_of_a_text_in_a_row_are_the_text_and_its_end_is_tested(
    tmp_path, text, sizes
) -> None:
    """As nanoGPT divides input.txt: in the order of the text. Long lines are cut between words."""
    file = tmp_path / "input.txt"
    file.write_bytes(b"\xef\xbb\xbf" + text.encode())
    found = texts(file, labelled=False)
    assert "".join(line for split in SPLITS for line in found[split]) == text
    assert [len(found[split]) for split in SPLITS] == sizes
    lines = [*chain(*found.values())]
    assert all(line.strip() for line in lines)
    assert max(map(len, lines)) <= LONGEST_LINE
    assert text == NO_SPACES or set(" ".join(lines).split()) == set(text.split())
    few = texts(file, labelled=False, limit=3)
    assert few == {split: each[:3] for split, each in found.items()}
    assert texts(file.rename(tmp_path / "UP.TXT"), labelled=False) == found


def test_a_folder_of_texts_has_its_own_splits(tmp_path) -> None:
    for i, name in enumerate(("train", "valid", "test")):
        (tmp_path / f"{name}.txt").write_text(PLAY * (i + 1))
    found = texts(tmp_path, labelled=False)
    assert ["".join(found[split]) for split in SPLITS] == [PLAY, PLAY * 2, PLAY * 3]
    (tmp_path / "valid.txt").unlink()
    found = texts(tmp_path, labelled=False)
    assert "".join(found["train"] + found["validation"]) == PLAY


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("input.txt", {}, "a text without labels; set task=language_model, or give .csv with text"),
        ("input.txt", {"splits": SplitsConfig(test="eval")},
         "has all splits; remove data.splits, or give"),
        ("empty.txt", {"labelled": False}, "empty.txt: no documents; give at least one with text"),
        ("absent.csv", {}, "absent.csv; give one with train.parquet, test.parquet, or a .txt file"),
    ],
)  # fmt: skip
def test_a_text_is_refused_where_it_cannot_be_used(tmp_path, name, options, message) -> None:
    (tmp_path / "input.txt").write_text(PLAY)
    (tmp_path / "empty.txt").write_text("")
    assert message in refusal(read_splits, tmp_path / name, **options)


@pytest.mark.parametrize("limit", [17, 19])
def test_a_limit_may_be_just_below_the_number_of_documents(tmp_path, limit) -> None:
    write_splits(tmp_path, labelled([f"text {i}" for i in range(20)], [*"abcd" * 5]))
    for part in read_splits(tmp_path, limit=limit)[0].values():
        assert len(part) == limit
        assert len(set(part.rows)) == limit


def test_test_documents_that_occur_in_train_are_counted(tmp_path) -> None:
    test = labelled(["a text 3", "a text 3", "A text 4", "new", "a text 5"])
    write_splits(tmp_path, test, train=labelled([f"a text {i}" for i in range(20)]))
    cfg = DataConfig("mine", path=str(tmp_path))
    for _ in ("built", "read"):
        assert open_store(cfg, tmp_path / "cache").repeated == 3
    write_splits(tmp_path, test=test[2:4])
    assert open_store(cfg, tmp_path / "cache").repeated == 0


def test_lines_of_a_text_are_counted_only_if_all_of_them_occur_in_train(tmp_path) -> None:
    """Some lines of a text occur again and again."""
    cfg = DataConfig("play", path=str(tmp_path / "play"))
    (tmp_path / "play").mkdir()
    for test, share in ((f"{PLAY}A new line.\n", 0), (PLAY, 1)):
        for split, text in {"train": PLAY, "validation": PLAY, "test": test}.items():
            (tmp_path / "play" / f"{split}.txt").write_text(text)
        store = open_store(cfg, tmp_path / "cache", labelled=False)
        assert store.repeated == share * len(store.splits["test"].lengths)


def test_repeated_documents_are_one_line() -> None:
    row = {"data": "mine", "repeated.documents": 3.0, "repeated.share": 0.6}
    assert repetition(row) == "mine: 3 of the test documents (60.0%) occur in train word for word"
    for other in ({}, {"repeated.documents": float("nan"), "repeated.share": float("nan")}):
        assert repetition({"data": "mine", **other}) is None
