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

from posfuse.data.corpora import SPLITS
from posfuse.data.sources import file_source
from refusals import refusal
from small_corpora import labelled, read_splits, write_splits


def write(root: Path, content: str | bytes, end: str = "csv") -> Path:
    """A file of this content for each split."""
    raw = content.encode() if isinstance(content, str) else content
    for split in SPLITS:
        (root / f"{split}.{end}").write_bytes(raw)
    return root


def read(root: Path):
    """Texts and labels of training, and the names of the classes."""
    parts, names = read_splits(root)
    return [*parts["train"].texts()], parts["train"].labels.tolist(), names


ROWS = [{"text": "some words", "label": "pos"}, {"text": "other", "label": "neg"}]
PLAIN = "".join(json.dumps(row) + "\n" for row in ROWS)
FIELDS = "and the header differ in their number of fields"
IN_QUOTES = "put a text with commas or line ends in quotes, or add the missing field"
OF_TABS = "put a text with tabs or line ends in quotes"
HALF = "which is half of a character; remove it or write the whole"
EMPTY = "is empty; give one with text and label"
COMMAS = "the header has no comma; separate the columns by commas, as in text,label"
NO_OBJECT = "is not a JSON object"
OPEN = "Unterminated string starting at column 10"
TWICE = "it has the key 'text' twice"
ONE_LINE = "write each document as one object on one line"
REFUSED = {
    "csv, no comma": ('text,label\n"a\nb",x\n\nc\n', f"line 5 {FIELDS} (1 and 2); {IN_QUOTES}"),
    "csv, open quote": ('text,label\na,x\n"b,y\nc,y\n', "line 3 has a misplaced quotation mark"),
    "csv, a word in quotes": ('text,label\n"a" b,x\n', "line 2 has a misplaced quotation mark"),
    "csv, two texts": ("text,text,label\na,b,x\nc,d,y\n", "2 columns are named 'text'; "),
    "csv, blanks": ("text, label,\na, x,\n", "no column 'label' among text, ' label', ''; set "),
    "csv, no text": ('text,label\na,x\n,y\n"",y\n', "no text in row 1 (2 such rows); "),
    "csv, no label": ("text,label\na,x\nb,\n", "no label in row 1; "),
    "csv, Latin-1": (b"text,label\na,x\n\xe9,y\n", "line 3 is not UTF-8; save the file as UTF-8"),
    "csv, semicolons": ("text;label\na;x\nb;y\n", COMMAS),
    "csv, tabs": ("text\tlabel\na\tx\nb, c\ty\n", f"{COMMAS}, or name the file .tsv"),
    "csv, empty": ("\n", EMPTY),
    "tsv, commas": ("text,label\na,x\n", "the header has no tab; separate the columns by tabs"),
    "tsv, a tab in a text": ("text\tlabel\na\tb\tx\n", f"line 2 {FIELDS} (3 and 2); {OF_TABS}"),
    "jsonl, a number": (f"{PLAIN}\n7\n", f"line 4 {NO_OBJECT} (it is 7); {ONE_LINE}"),
    "jsonl, cut": (PLAIN + '{"text": "hal', f"line 3 {NO_OBJECT} ({OPEN}); {ONE_LINE}"),
    "jsonl, two keys": (PLAIN + '{"text": 1, "text": 2}',
                        f"line 3 {NO_OBJECT} ({TWICE}); {ONE_LINE}"),
    "jsonl, half a character": (PLAIN + '{"text": "a\\ud800"}', f"line 3 has '\\ud800', {HALF}"),
    "jsonl, a long integer": (PLAIN + "1" * 5_000, f"line 3 {NO_OBJECT} (Exceeds the limit (4300 "),
    "jsonl, Latin-1": (PLAIN.encode() + b'{"text": "\xe9"}\n', "line 3 is not UTF-8; save the "),
    "jsonl, empty": ("\n", EMPTY),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_file_is_refused_with_its_row_and_the_fix(tmp_path, case: str) -> None:
    (content, expected), end = REFUSED[case], case.partition(",")[0]
    message = refusal(read, write(tmp_path, content, end))
    assert message.startswith(f"{tmp_path}/train.{end}: {expected}")
    assert "; " in message  # what is wrong; the fix


def test_a_parquet_file_whose_bytes_were_changed_is_named(tmp_path) -> None:
    frame = labelled(["some words é", "others"])
    write_splits(tmp_path, frame)
    frame.to_parquet(tmp_path / "train.parquet", compression="none", index=False)
    raw = (tmp_path / "train.parquet").read_bytes()
    (tmp_path / "train.parquet").write_bytes(raw.replace("é".encode(), b"\xc3\xff"))
    message = refusal(read, tmp_path)
    assert message.startswith(f"{tmp_path}/train.parquet: not readable (")


@pytest.mark.parametrize("end", ["csv", "jsonl", "parquet"])
def test_lack_of_memory_is_not_reported_as_a_bad_file(tmp_path, monkeypatch, end) -> None:
    def no_memory(*_, **__):
        raise pa.ArrowMemoryError("malloc of size 64 failed")  # a MemoryError

    for module, name in ((pq, "ParquetFile"), (csv, "reader"), (json, "loads")):
        monkeypatch.setattr(module, name, no_memory)
    with pytest.raises(MemoryError):
        file_source(write(tmp_path, PLAIN, end) / f"train.{end}")


def test_words_quotes_commas_and_lines_are_read_as_they_stand(tmp_path) -> None:
    texts = ["NA", "null", "nan", 'a "b", c', "two\nlines", "two\r\nlines", " spaces ", "it's", "é"]
    frame = pd.DataFrame({"id": range(9), "text": texts, "label": ["NA", "null", "x"] * 3})
    write_splits(tmp_path, frame, "csv")
    assert read(tmp_path) == (texts, [0, 1, 2] * 3, ["NA", "null", "x"])
    for split in SPLITS:  # with the mark that Excel writes
        frame.to_csv(tmp_path / f"{split}.csv", index=False, encoding="utf-8-sig")
    assert read(tmp_path) == (texts, [0, 1, 2] * 3, ["NA", "null", "x"])


def test_blank_lines_are_no_documents_and_lines_may_end_as_on_windows(tmp_path) -> None:
    content = "text,label\r\n\r\nsome words,pos\r\n  \r\nother,neg\r\n\r\n"
    assert read(write(tmp_path, content)) == (["some words", "other"], [1, 0], ["neg", "pos"])


def test_an_empty_text_in_a_file_of_one_column_is_no_blank_line(tmp_path) -> None:
    write_splits(tmp_path, pd.DataFrame({"text": ["first", "", "third"]}), "csv")
    assert "no text in row 1 " in refusal(read_splits, tmp_path, labelled=False)
    test = read_splits(tmp_path, labelled=False, drop_empty=True)[0]["test"]
    assert ([*test.texts()], test.rows.tolist()) == (["first", "third"], [0, 2])


def test_a_text_without_labels_may_have_two_columns_of_that_name(tmp_path) -> None:
    write(tmp_path, "text,label,label\nsome words,a,b\n")
    assert "2 columns are named 'label'" in refusal(read_splits, tmp_path)
    assert [*read_splits(tmp_path, labelled=False)[0]["test"].texts()] == ["some words"]


def test_jsonl_may_have_blank_lines_a_mark_and_whole_surrogate_pairs(tmp_path) -> None:
    content = "\ufeff" + PLAIN.replace("\n", "\r\n\r\n").replace("other", "\\ud83d\\ude00")
    write(tmp_path, content, "jsonl")
    assert read(tmp_path) == (["some words", "\U0001f600"], [1, 0], ["neg", "pos"])


def test_a_column_that_begins_late_is_named_with_the_searched_rows(tmp_path) -> None:
    rows = ['{"text": "some words"}\n'] * 500
    write(tmp_path, "".join([*rows, '{"text": "other", "label": "a"}\n']), "jsonl")
    found = refusal(read_splits, tmp_path)
    assert "jsonl: no column 'label' among text in the first 500 rows; set data.labels=" in found


any_text = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(st.tuples(any_text, st.sampled_from("ab")), min_size=1))
def test_what_pandas_writes_is_what_is_read(tmp_path, rows) -> None:
    frame = pd.DataFrame(rows, columns=["text", "label"])
    frame.to_csv(tmp_path / "train.csv", index=False, quoting=csv.QUOTE_ALL)
    frame.to_json(tmp_path / "train.jsonl", orient="records", lines=True)
    for end in ("csv", "jsonl"):
        for column in ("text", "label"):
            read = pd.concat(file_source(tmp_path / f"train.{end}").read(column))
            assert read.tolist() == frame[column].tolist()
