"""CSV, JSON Lines and parquet files: what is read as it stands, and what is refused."""

import csv
import json
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from posfuse.config import DataConfig
from posfuse.data.corpora import SPLITS, load
from posfuse.data.sources import in_file
from posfuse.data.splits import splits
from refusals import refusal


def write(root: Path, content: str | bytes, end: str = "csv", only: tuple[str, ...] = SPLITS):
    raw = content.encode() if isinstance(content, str) else content
    for split in only:
        (root / f"{split}.{end}").write_bytes(raw)
    return root


def read(root: Path):
    """Texts and labels of training, and the names of the classes."""
    cfg = DataConfig(name="tiny", path=str(root))
    parts, names = splits(load(cfg), cfg)
    return [*parts["train"].texts()], parts["train"].labels.tolist(), names


def refused(root: Path) -> str:
    message = refusal(read, root)
    assert "; " in message  # what is wrong; the fix
    return message


FIX = "put a text with commas or line ends in quotes, or add the missing field"
COMMAS = "the header has no comma; separate the columns by commas, as in text,label"
CSV = {
    "label first": (
        "label,text\nneg,plain\npos,hello, world\n",
        "line 3 and the header differ in their number of fields (3 and 2); " + FIX,
    ),
    "a field too few": (
        'text,label\n"two\nlines",pos\n\nplain\nother,neg\n',
        "line 5 and the header differ in their number of fields (1 and 2); " + FIX,
    ),
    "a quote that is not closed": (
        'text,label\nplain,pos\n"hello,neg\nother,neg\n',
        "line 3 has a misplaced quotation mark",
    ),
    "a text that is quoted in part": (
        'text,label\n"Great" movie,pos\nother,neg\n',
        "line 2 has a misplaced quotation mark",
    ),
    "two texts": ("text,text,label\na,b,pos\nc,d,neg\n", "2 columns are named 'text'; "),
    "Latin-1": (
        "text,label\nplain,pos\ncafé,neg\n".encode("latin-1"),
        "line 3 is not UTF-8; save the file as UTF-8",
    ),
    "semicolons": ("text;label\na;pos\nb;neg\n", COMMAS),
    "tabs": ("text\tlabel\na\tpos\nb, c\tneg\n", COMMAS),
}


@pytest.mark.parametrize("case", CSV)
def test_a_csv_file_is_refused_with_its_row_and_the_fix(tmp_path, case: str) -> None:
    content, expected = CSV[case]
    assert refused(write(tmp_path, content)).startswith(f"{tmp_path}/train.csv: {expected}")


def test_words_quotes_commas_and_lines_are_read_as_they_stand(tmp_path) -> None:
    texts = ["NA", "null", "nan", 'a "b", c', "two\nlines", "two\r\nlines", " spaces ", "it's", "é"]
    frame = pd.DataFrame({"id": range(9), "text": texts, "label": ["NA", "null", "x"] * 3})
    frame.to_csv(tmp_path / "train.csv", index=False)
    for split in ("validation", "test"):
        frame.to_csv(tmp_path / f"{split}.csv", index=False, encoding="utf-8-sig")
    assert read(tmp_path) == (texts, [0, 1, 2] * 3, ["NA", "null", "x"])
    (label,) = in_file(tmp_path / "test.csv").read("label")  # behind the mark that Excel writes
    assert label.tolist() == frame["label"].tolist()


def test_blank_lines_are_no_documents_and_lines_may_end_as_on_windows(tmp_path) -> None:
    content = "text,label\r\n\r\nsome words,pos\r\n  \r\nother,neg\r\n\r\n"
    assert read(write(tmp_path, content)) == (["some words", "other"], [1, 0], ["neg", "pos"])


def test_an_empty_field_is_a_missing_text_or_label(tmp_path) -> None:
    assert "no text in row 1" in refused(write(tmp_path, 'text,label\na,x\n,y\n"",y\n'))
    assert "no label in row 1" in refused(write(tmp_path, "text,label\na,x\nb,\n"))


any_text = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(any_text, st.sampled_from("ab")), min_size=1))
def test_what_pandas_writes_is_what_is_read(tmp_path_factory, rows) -> None:
    root = tmp_path_factory.mktemp("written")
    frame = pd.DataFrame(rows, columns=["text", "label"])
    frame.to_csv(root / "train.csv", index=False, quoting=csv.QUOTE_ALL)
    frame.to_json(root / "train.jsonl", orient="records", lines=True)
    for end in ("csv", "jsonl"):
        for column in ("text", "label"):
            read = pd.concat(in_file(root / f"train.{end}").read(column))
            assert read.tolist() == frame[column].tolist()


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        ("10 9 -1", ["-1", "9", "10"]),  # integers go by their size
        ("01 1", ["01", "1"]),
        ("10 9 x", ["10", "9", "x"]),  # strings go by the alphabet
        ("True False", ["False", "True"]),
        ("1e3 1000", ["1000", "1e3"]),
        (f"{2**64} 7", [f"{2**64}", "7"]),
    ],
)
def test_labels_of_a_csv_file_are_classes_by_their_spelling(tmp_path, labels, names) -> None:
    spelt = labels.split()
    write(tmp_path, "text,label\n" + "".join(f"word,{label}\n" for label in spelt))
    _, mapped, found = read(tmp_path)
    assert found == names
    assert [found[label] for label in mapped] == spelt


def test_labels_that_one_csv_file_alone_has_as_integers_are_strings_too(tmp_path) -> None:
    write(tmp_path, "text,label\na,1\nb,01\nc,2\n", only=("train",))
    write(tmp_path, "text,label\na,2\nb,1\n", only=("validation", "test"))
    cfg = DataConfig(name="tiny", path=str(tmp_path))
    parts, names = splits(load(cfg), cfg)
    assert names == ["01", "1", "2"]
    assert parts["test"].labels.tolist() == [2, 1]


# JSON Lines

ROWS = [{"text": "some words", "label": "pos"}, {"text": "other", "label": "neg"}]
PLAIN = "".join(json.dumps(row) + "\n" for row in ROWS)
JSONL = {
    "an array": (json.dumps(ROWS), "line 1 is not a JSON object (it is [{"),
    "no object": (PLAIN + "\n7\n", "line 4 is not a JSON object (it is 7); "),
    "cut": (
        PLAIN + '{"text": "hal',
        "line 3 is not a JSON object (Unterminated string starting at column 10); write each",
    ),
    "two texts": (
        PLAIN + '{"text": "a", "text": "b", "label": "pos"}\n',
        "line 3 is not a JSON object (it has the key 'text' twice); write each document as one ",
    ),
    "half a surrogate pair": (
        PLAIN + '{"text": "a\\ud800", "label": "pos"}\n',
        "line 3 has '\\ud800', which is half of a character; remove it or write the whole",
    ),
    "a long integer": (
        PLAIN + '{"text": "a", "label": ' + "1" * 5_000 + "}\n",
        "line 3 is not a JSON object (Exceeds the limit (4300 digits) for integer ",
    ),
    "Latin-1": (
        (PLAIN + '{"text": "café", "label": "pos"}\n').encode("latin-1"),
        "line 3 is not UTF-8; save the file as UTF-8",
    ),
}


@pytest.mark.parametrize("case", JSONL)
def test_a_jsonl_file_is_refused_with_its_line_and_the_fix(tmp_path, case: str) -> None:
    content, expected = JSONL[case]
    message = refused(write(tmp_path, content, "jsonl"))
    assert message.startswith(f"{tmp_path}/train.jsonl: {expected}")


def test_jsonl_may_have_blank_lines_a_mark_and_whole_surrogate_pairs(tmp_path) -> None:
    content = "\ufeff" + PLAIN.replace("\n", "\r\n\r\n").replace("other", "\\ud83d\\ude00")
    write(tmp_path, content, "jsonl")
    assert read(tmp_path) == (["some words", "\U0001f600"], [1, 0], ["neg", "pos"])


# Parquet


def test_a_parquet_file_whose_bytes_were_changed_is_named(tmp_path) -> None:
    frame = pd.DataFrame({"text": ["some words é", "others"], "label": ["pos", "neg"]})
    for split in SPLITS:
        frame.to_parquet(tmp_path / f"{split}.parquet", compression="none", index=False)
    raw = (tmp_path / "train.parquet").read_bytes()
    assert raw.count("é".encode()) > 0
    (tmp_path / "train.parquet").write_bytes(raw.replace("é".encode(), b"\xc3\xff"))
    assert refused(tmp_path).startswith(f"{tmp_path}/train.parquet: not readable (")


# Memory


@pytest.mark.parametrize("end", ["csv", "jsonl", "parquet"])
def test_lack_of_memory_is_not_reported_as_a_bad_file(tmp_path, monkeypatch, end) -> None:
    def no_memory(*_, **__):
        raise pa.ArrowMemoryError("malloc of size 64 failed")  # a MemoryError

    monkeypatch.setattr(pq, "ParquetFile", no_memory)
    monkeypatch.setattr(csv, "reader", no_memory)
    monkeypatch.setattr(json, "loads", no_memory)
    with pytest.raises(MemoryError):
        in_file(write(tmp_path, PLAIN, end) / f"train.{end}")


# Classes


def test_a_class_with_one_document_is_named_by_its_label(tmp_path) -> None:
    content = "text,label\n" + "some words,pos\nother,neg\n" * 20 + "more,rare\n"
    write(tmp_path, content, only=("train", "test"))
    message = refused(tmp_path)
    assert message.startswith(f"{tmp_path}/train.csv: cannot take 4 of 41 documents with every")
    assert "class 'rare' has one document" in message
