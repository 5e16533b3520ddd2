"""Files that may come from elsewhere: what posfuse cannot have written is refused in one line."""

import os
import time

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from omegaconf import OmegaConf

from posfuse import seals, untrusted
from posfuse.errors import InputError
from posfuse.runs import configs, measurements, records
from posfuse.runs.measurements import Diagnostic
from posfuse.runs.multirun import read_multirun
from processes import HANG
from refusals import refusal
from small_records import write_failure

DEEP = 100_000
LAUGHS = [f"l{i + 1}: &l{i + 1} [*l{i}, *l{i}]" for i in range(40)]
REFERENCES = [f"l{i + 1}: ${{l{i}}}${{l{i}}}" for i in range(40)]
TABLES = [f"l{i + 1}: ['${{l{i}}}', '${{l{i}}}']" for i in range(40)]
ESCAPED = [line.replace("$", "\\x24").replace(": ", ': "') + '"' for line in REFERENCES]
YAML = {
    "aliases": "\n".join(["l0: &l0 [a]", *LAUGHS]),
    "interpolations": "\n".join(["l0: aaaaaaaa", *REFERENCES]),
    "nested tables": "\n".join(["l0: [a]", *TABLES]),
    "escaped interpolations": "\n".join(["l0: a", *ESCAPED]),
    "lists in lists": "a: " + "[" * DEEP + "]" * DEEP,
    "an integer": "seed: " + "1" * 100_000,
    "base 60": "seed: 1" + ":59" * 100_000,
    "base 60 in quotes": 'seed: !!int "1' + ":59" * 100_000 + '"',
    "a large file": "a: " + "b" * untrusted.LARGEST_YAML,
    "not UTF-8": b"a: \xff",
    "nothing": "",
    "objects": "!!python/object/apply:os.system [exit]",
}
JSON = {
    "lists in lists": "[" * DEEP + "]" * DEEP,
    "lists in a table": '{"schema": 3, "a": ' + "[" * 100 + "]" * 100 + "}",
    "an integer": '{"schema": ' + "1" * 100_000 + "}",
    "a large integer": '{"schema": 3, "a": ' + "1" * 30 + "}",
    "NaN": '{"schema": NaN}',
    "infinity": '{"schema": 3, "a": [1e999]}',
    "half a character": '{"schema": 3, "label_names": ["\\ud800"]}',
    "a large file": '{"a": "' + "b" * untrusted.LARGEST_JSON + '"}',
    "not UTF-8": b'{"a": "\xff"}',
    "a number": "3",
    "nothing": "",
}


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("name", YAML)
def test_a_yaml_file_that_posfuse_cannot_have_written_is_one_line(name, tmp_path):
    path = write(tmp_path / "config.yaml", YAML[name])
    start = time.process_time()
    assert refusal(configs.read_config, tmp_path).startswith(f"{path}: ")
    if name != "nested tables":  # the keys of a multirun.yaml are read one by one
        refusal(read_multirun, path.rename(tmp_path / "multirun.yaml").parent)
    assert time.process_time() - start < HANG  # the aliases stand for 2^40 values


@pytest.mark.parametrize("name", JSON)
def test_a_record_that_posfuse_cannot_have_written_is_one_line(name, tmp_path):
    path = write(tmp_path / "result.json", JSON[name])
    message = refusal(records.read_result, path)
    assert message.startswith(f"{path}: not a readable record (")
    assert len(message) < len(str(path)) + 200
    assert records.read_json(path) == {}
    write(tmp_path / "failure.json", JSON[name])
    found = records.read_failure(tmp_path)["message"]
    assert found == "the run failed, but failure.json is damaged"


def test_what_is_written_is_read(tmp_path):
    content = {"a": [1, -2.5, "é\U0001f600"], "b": {"c": None}}
    records.write_json(tmp_path / "a.json", content)
    assert untrusted.read_json(tmp_path / "a.json") == content
    content = {"a": [1, "é"], "b": "${a}", "c": "-" * 120, "d": "0" * 120}
    OmegaConf.save(content, tmp_path / "a.yaml")
    text = untrusted.read_yaml(tmp_path / "a.yaml", is_interpolated=True)
    read = OmegaConf.create(text)
    assert (read.b, read.c, read.d) == ([1, "é"], "-" * 120, "0" * 120)


def test_bytes_that_are_no_text_in_the_locale_are_read_and_shown(tmp_path):
    """As é in an argument under an ASCII locale."""
    overrides = ["data.path=\udcc3\udca9"]
    write_failure(tmp_path, "failed", "no \udcc3\udca9\rhere", overrides=overrides)
    read = records.read_failure(tmp_path)
    assert read["message"] == r"no \udcc3\udca9 here"
    assert read["overrides"] == overrides
    OmegaConf.save({"a": "\udcc3\udca9"}, tmp_path / "a.yaml")
    assert OmegaConf.create(untrusted.read_yaml(tmp_path / "a.yaml")).a == "\udcc3\udca9"


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "result.json")
    with pytest.raises(InputError, match="not a regular file"):
        records.read_result(tmp_path / "result.json")
    os.mkfifo(tmp_path / "config.yaml")
    with pytest.raises(InputError, match="not a regular file"):
        configs.read_config(tmp_path)
    os.mkfifo(tmp_path / "SHA256SUMS")
    os.mkfifo(tmp_path / "history.csv")
    assert not seals.is_whole(tmp_path / "history.csv")
    with pytest.raises(ValueError, match="not a regular file"):
        untrusted.check_file(tmp_path / "history.csv", untrusted.LARGEST_CSV)


def test_a_table_has_the_columns_and_types_that_posfuse_writes(tmp_path, monkeypatch):
    rows = [Diagnostic(1, "norm_ratio", "", 0, 0, 4, 0.5)]
    table = measurements.table_of(measurements.Diagnostic, rows)
    measurements.write_table(tmp_path / records.DIAGNOSTICS, table)
    path = tmp_path / "diagnostics.parquet"
    assert measurements.read_table(path, Diagnostic).to_dict("records") == [vars(rows[0])]
    empty = tmp_path / "no_rows.parquet"  # of a run that ends before its first epoch does
    measurements.write_table(empty, measurements.table_of(Diagnostic, []))
    assert list(measurements.read_table(empty, Diagnostic)) == list(table)
    good = pd.read_parquet(path)
    for wrong, reason in (
        (good.drop(columns="n"), "has no n"),
        (good.assign(epoch=0.5), "epoch is not a whole number"),
        (good.assign(value="0.5"), "value is not a number"),
        (good.assign(name=3), "name is not a text"),
        (good.assign(n=pd.Series([None], dtype="Int64")), "n has missing values"),
        (good.assign(name=pd.Series([None], dtype="str")), "name has missing values"),
    ):
        wrong.to_parquet(path)
        with pytest.raises(InputError, match=reason):
            measurements.read_table(path, Diagnostic)
    write(path, "PAR1 and no more")
    with pytest.raises(InputError, match=r"diagnostics\.parquet: not readable"):
        measurements.read_table(path, Diagnostic)
    write(tmp_path / "mechanism.parquet", "PAR1 and no more")
    with pytest.raises(InputError, match=r"mechanism\.parquet: not readable"):
        measurements.read_measurements(tmp_path)


def test_a_table_of_a_few_bytes_with_very_many_rows_is_refused(tmp_path):
    path = tmp_path / "a.parquet"
    part = pa.table({"index": pa.array([0] * 2**20, pa.int8())})
    with pq.ParquetWriter(path, part.schema) as file:
        for _ in range(untrusted.MOST_ROWS // 2**20 + 1):
            file.write_table(part)
    assert path.stat().st_size < 100_000
    with pytest.raises(ValueError, match="more than 16777216 rows"):
        untrusted.read_parquet(path, {"index": "a whole number"})


def column_of(path, texts, **options):
    """A Parquet file of texts, and the frame that is read."""
    table = pa.table({"name": texts})
    pq.write_table(table, path, **options)
    return untrusted.read_parquet(path, {"name": "a text"})


def test_a_table_of_a_few_bytes_with_long_texts_is_refused(tmp_path):
    """One text for all rows would fill gigabytes."""
    path, n = tmp_path / "a.parquet", 2**18
    same = pa.DictionaryArray.from_arrays(pa.array([0] * n, pa.int32()), ["x" * 20_000])
    with pytest.raises(ValueError, match="name has a text of more than 64 bytes"):
        column_of(path, same, store_schema=False)
    assert path.stat().st_size < 2000
    with pytest.raises(ValueError, match="name has a text of more than 64 bytes"):
        column_of(path, same)  # the type in the file is also a dictionary
    every = ["x" * 20_000] * (untrusted.LARGEST_TEXTS // 20_000 + 1)
    with pytest.raises(ValueError, match="name has more than 67108864 bytes"):
        column_of(path, every, use_dictionary=False, compression="zstd")
    assert path.stat().st_size < 50_000


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
@pytest.mark.parametrize("encoded", [True, False])
def test_texts_are_read_as_pandas_reads_them(kind, encoded, tmp_path):
    path = tmp_path / "a.parquet"
    for texts in ([], [None], ["a", "é" * 32, None, "a"]):
        options = {"use_dictionary": encoded, "row_group_size": 2}
        read = column_of(path, pa.array(texts, kind), **options)
        pd.testing.assert_frame_equal(read, pd.read_parquet(path))
