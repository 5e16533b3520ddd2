"""From records to the report: the table of runs, holes, what is left out, what is written."""

import csv
import json
import subprocess
import sys
from itertools import product
from pathlib import Path

import pandas as pd
import pytest

from posfuse.analysis import report
from posfuse.analysis.evidence.collect import collect, failures, missing
from posfuse.config import run_folder
from posfuse.errors import InputError
from small_records import write_predictions, write_record, write_sweep


@pytest.fixture
def sweep(tmp_path):
    """Two fusions; concat lacks seed 2, gate_scalar has one seed that add lacks."""
    root = tmp_path / "sweep"
    for seed, accuracy in ((0, 0.50), (1, 0.60), (2, 0.70)):
        write_record(root, accuracy, "add", seed)
    for seed, accuracy in ((1, 0.66), (0, 0.52)):
        write_record(root, accuracy, "concat", seed)
    write_record(root, 0.9, "gate_scalar", 7)
    return root


def ask(root, params, task=()):
    hydra = {"sweeper": {"params": params}, "overrides": {"task": list(task)}}
    (root / "multirun.yaml").write_text(json.dumps({"hydra": hydra}))  # JSON is YAML too


def run_report(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["posfuse-report", *map(str, arguments)])
    report.main()
    return capsys.readouterr().out


def test_collect_gives_one_row_a_run_with_flat_columns(sweep):
    runs, problems = collect(sweep)
    assert problems == []
    assert len(runs) == 6
    assert {"test.accuracy", "test.macro_f1", "mean_tokens.train", "folder"} <= set(runs.columns)
    row = runs[(runs["fusion"] == "concat") & (runs["seed"] == 1)].iloc[0]
    assert row["test.accuracy"] == 0.66
    assert row["folder"] == str(sweep / "tiny" / "sinusoidal" / "concat" / "seed=1")


def test_collect_sorts_by_length_then_cell_then_seed(tmp_path):
    write_record(tmp_path, 0.5, "concat", 10, data="a_long", tokens=300.0)
    write_record(tmp_path, 0.5, "concat", 10, data="z_short", tokens=5.0)
    write_record(tmp_path, 0.5, "concat", 9, data="z_short", tokens=5.0)
    write_record(tmp_path, 0.5, "add", 11, data="z_short", tokens=5.0)
    runs, _ = collect(tmp_path)
    found = list(runs[["data", "fusion", "seed"]].itertuples(index=False, name=None))
    assert found == [
        ("z_short", "add", 11),
        ("z_short", "concat", 9),
        ("z_short", "concat", 10),
        ("a_long", "concat", 10),
    ]


@pytest.mark.parametrize("text", ['{"schema": 2, "data', "[]", '{"schema": 99}', "{}"])
def test_an_unreadable_record_is_reported_and_not_fatal(sweep, text):
    broken = sweep / "tiny" / "sinusoidal" / "add" / "seed=2" / "result.json"
    broken.write_text(text)
    runs, problems = collect(sweep)
    assert len(runs) == 5
    assert len(problems) == 1
    assert str(broken) in problems[0]
    assert "remove it to run again" in problems[0]


def test_a_copied_run_counts_once_and_is_reported(sweep):
    original = sweep / "tiny" / "sinusoidal" / "add" / "seed=2"
    copy = sweep / "tiny" / "sinusoidal" / "add" / "seed=2 (copy)"
    copy.mkdir()
    (copy / "result.json").write_text((original / "result.json").read_text())
    runs, problems = collect(sweep)
    assert len(runs) == 6
    assert len(problems) == 1
    assert "second record" in problems[0]


def test_missing_names_the_holes_of_what_was_found(tmp_path):
    root = tmp_path / "sweep"
    for fusion, seed in (("add", 0), ("add", 1), ("concat", 0)):
        write_record(root, 0.5, fusion, seed)
    assert missing(root, collect(root)[0]) == [("tiny", "sinusoidal", "concat", 1)]


@pytest.mark.parametrize("where", ["params", "overrides"])
@pytest.mark.parametrize("above", [False, True])
def test_missing_names_what_the_sweep_asked_for(tmp_path, where, above):
    root = tmp_path / "sweep"
    write_record(root, 0.5, "add", 0)
    asked = {"fusion": "add,concat", "seed": "range(0,2)"}
    if where == "params":
        ask(root, asked)
    else:
        ask(root, {"seed": "7"}, [f"{key}={value}" for key, value in asked.items()])
    folder = tmp_path if above else root
    assert missing(folder, collect(folder)[0]) == [
        ("tiny", "sinusoidal", "add", 1),
        ("tiny", "sinusoidal", "concat", 0),
        ("tiny", "sinusoidal", "concat", 1),
    ]


def test_missing_names_the_settings_that_a_sweep_varies(tmp_path):
    root = tmp_path / "sweep"
    for seed, scale, variant in ((0, 1.0, "1"), (1, "sqrt_d", "sqrt_d"), (1, 0.125, "1-8")):
        variant = f"model.token_scale={variant}"
        settings = {"model.token_scale": scale}
        write_record(root, 0.5, "add", seed, variant=variant, settings=settings)
    scales = {"model.token_scale": "1/8,1,sqrt_d", "optim.lr": "1"}
    ask(root, {"fusion": "add", "seed": "0,1", **scales})
    assert sorted(missing(root, collect(root)[0])) == [
        ("tiny", "sinusoidal", "add", 0, "model.token_scale=0.125"),
        ("tiny", "sinusoidal", "add", 0, "model.token_scale=sqrt_d"),
        ("tiny", "sinusoidal", "add", 1, "model.token_scale=1"),
    ]


def test_nothing_is_missing_from_a_whole_grid(tmp_path):
    root = tmp_path / "sweep"
    for fusion in ("add", "concat"):
        write_record(root, 0.5, fusion, 0)
    ask(root, {"fusion": "add,concat", "seed": "0"})
    assert missing(root, collect(root)[0]) == []


FAILURE = {
    "id": "1", "time": 1.0, "kind": "diverged", "message": "out of luck", "overrides": [],
}  # fmt: skip


def test_failures_are_listed_with_their_folder(sweep):
    folder = sweep / "tiny" / "sinusoidal" / "add" / "seed=9"
    folder.mkdir()
    (folder / "failure.json").write_text(json.dumps(FAILURE))
    assert failures(sweep, collect(sweep)[0]) == ["not done: 1 diverged", f"{folder}: out of luck"]


FILES = {
    *(f"tables/{name}.{end}" for end in ("csv", "md", "tex") for name in (
        "table1", "table2", "table3", "paired_differences", "paired_tests", "interaction",
        "gain_by_length", "documents")),
    *(f"figures/{name}.{end}" for end in ("png", "svg") for name in (
        "deltas", "forest", "accuracy_latency", "gain_by_length", "learning_curves",
        "confusions")),
    "tables/tables.tex", "index.html", "runs.csv",
}  # fmt: skip


def written(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture
def whole(tmp_path):
    """Two corpora, two fusions, three seeds; nothing wrong with it."""
    root = write_sweep(tmp_path / "sweep", {"add": [0.5, 0.6, 0.7], "concat": [0.6, 0.65, 0.8]})
    return write_sweep(
        root, {"add": [0.5, 0.55, 0.6], "concat": [0.7, 0.8, 0.9]}, data="wordy", tokens=80.0
    )


def test_a_report_has_its_page_tables_and_figures(whole, monkeypatch, capsys):
    text = run_report(monkeypatch, capsys, whole)
    assert set(written(whole / "report")) == FILES
    assert "60.00 ± 10.00 (3)" in text
    assert "+8.33 ± 2.89" in text  # 10, 5, 10
    assert "With 3 seeds no sign-flip or signed rank test can fall below p = 0.25." in text
    assert "missing: 0 of 12 runs" in text
    assert str(whole / "report" / "index.html") in text


def test_the_same_records_give_the_same_bytes(whole, monkeypatch, capsys):
    run_report(monkeypatch, capsys, whole)
    first = written(whole / "report")
    run_report(monkeypatch, capsys, whole)
    assert written(whole / "report") == first


def test_out_takes_the_report_elsewhere_and_several_sweeps_get_a_folder_each(
    whole, tmp_path, monkeypatch, capsys
):
    write_sweep(tmp_path / "other", {"add": [0.5, 0.6], "concat": [0.5, 0.7]})
    run_report(monkeypatch, capsys, tmp_path, "--out", tmp_path / "out")
    assert set(written(tmp_path / "out")) == {f"{s}/{f}" for s in ("sweep", "other") for f in FILES}


def test_tables_hold_the_numbers_of_the_records(whole, monkeypatch, capsys):
    run_report(monkeypatch, capsys, whole)
    table = pd.read_csv(whole / "report" / "tables" / "table1.csv").set_index(["data", "fusion"])
    assert table.loc[("tiny", "add"), "mean"] == pytest.approx(60)
    assert table.loc[("tiny", "add"), "std"] == pytest.approx(10)
    assert table.loc[("tiny", "add"), "n"] == 3
    assert table.loc[("wordy", "concat"), "latency_mean"] == pytest.approx(0.6)
    paired = pd.read_csv(whole / "report" / "tables" / "paired_differences.csv")
    assert paired["deltas"][0] == "10 5 10"
    assert paired["mean"][1] == pytest.approx(25)  # 20, 25, 30


def test_missing_and_failed_runs_are_listed_and_stop_nothing(whole, monkeypatch, capsys):
    ask(whole, {"data": "tiny,wordy", "fusion": "add,concat", "seed": "range(0,4)"})
    folder = whole / "tiny" / "sinusoidal" / "add" / "seed=3"
    folder.mkdir()
    (folder / "failure.json").write_text(json.dumps(FAILURE))
    text = run_report(monkeypatch, capsys, whole)
    page = (whole / "report" / "index.html").read_text()
    for shown in (text, page):
        assert "wordy sinusoidal concat seed=3" in shown
        assert "out of luck" in shown
    assert "missing: 4 of 16 runs" in text


def test_unpaired_seeds_and_a_single_seed_are_told(tmp_path, monkeypatch, capsys):
    root = write_sweep(
        tmp_path / "sweep", {"add": [0.5, 0.6, 0.7], "concat": [0.6, 0.65], "gate_scalar": [0.9]}
    )
    text = run_report(monkeypatch, capsys, root)
    assert "concat: unpaired, left out of the comparison: seed 2" in text
    assert "gate_scalar: one seed only, so no spread and no test" in text
    assert "90.00 (1)" in text


def broken(whole: Path, kind: str) -> str:
    """Spoil one run of the sweep; returns what the report must say."""
    folder = whole / "tiny" / "sinusoidal" / "concat" / "seed=1"
    result = folder / "result.json"
    if kind == "schema":
        result.write_text(result.read_text().replace('"schema": 2', '"schema": 1'))
        return f"{result}: schema 1, this version reads 2"
    if kind == "metric":
        result.write_text(result.read_text().replace('"accuracy": 0.65', '"accuracy": NaN'))
        return f"{result}: test.accuracy is nan, not a number from 0 to 1; left out"
    if kind == "settings":
        result.write_text(result.read_text().replace('"model.d_model": 8', '"model.d_model": 16'))
        return "one cell with two configurations (model.d_model 8, 16)"
    if kind == "copy":
        other = folder.with_name("seed=1 (copy)")
        other.mkdir()
        (other / "result.json").write_bytes(result.read_bytes())
        return f"{other}: a second record of one run is left out"
    if kind == "seed":
        other = folder.with_name("seed=9")
        other.mkdir()
        (other / "result.json").write_text(result.read_text().replace("concat/seed=1", "another"))
        return "two different runs with seed 1"
    if kind == "documents":
        write_predictions(folder, 0.65, shift=1)
        return f"{folder}/predictions.parquet: its documents are not those of the runs"
    if kind == "predictions":
        (folder / "predictions.parquet").write_bytes(b"PAR1 no more")
        return f"{folder}/predictions.parquet: not usable"
    if kind == "contradiction":
        write_predictions(folder, 0.5)
        return f"{folder}/predictions.parquet: not usable (50.00 % are right, result.json says"
    if kind == "sweep file":
        (whole / "multirun.yaml").write_text("hydra: [")
        return f"{whole}/multirun.yaml: not a sweep's settings"
    assert kind == "history"
    (folder / "history.csv").unlink()
    return f"{folder}/history.csv: no learning curve"


KINDS = (
    "schema",
    "metric",
    "settings",
    "copy",
    "seed",
    "documents",
    "predictions",
    "history",
    "contradiction",
    "sweep file",
)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_wrong_is_one_line_and_the_rest_comes_out(whole, kind, monkeypatch, capsys):
    message = broken(whole, kind)
    monkeypatch.setattr(report, "draw_all", lambda *_: [])  # figures take longest
    with pytest.raises(SystemExit) as stopped:
        run_report(monkeypatch, capsys, whole)
    lines = stopped.value.code.splitlines()
    assert any(line.startswith("error: ") and message in line for line in lines)
    assert len(lines) == 1
    assert set(written(whole / "report")) == {f for f in FILES if not f.startswith("figures")}
    text = capsys.readouterr().out
    assert "55.00 ± 5.00 (3)" in text  # of the other corpus
    assert "Left out" in (whole / "report" / "index.html").read_text()


BAD_VALUES = {
    "sweep_id": "../escape",
    "seed": "one",
    "fusion": 3,
    "data": ["a"],
    "label_names": [1, 2],
    "latency_ms": "fast",
    "parameters": [1],
    "mean_tokens": {"train": 0},
    "test": {"accuracy": 55.0},
    "settings": "none",
}


@pytest.mark.parametrize("key", BAD_VALUES)
def test_a_value_of_another_kind_is_one_line(whole, key, monkeypatch, capsys):
    path = whole / "tiny" / "sinusoidal" / "concat" / "seed=1" / "result.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: BAD_VALUES[key]}))
    runs, problems = collect(whole)
    assert len(runs) == 11
    assert len(problems) == 1
    assert str(path) in problems[0]
    assert key in problems[0]


@pytest.mark.parametrize("name", ["=cmd()", "<img src=x>", "../up", "", "a b", "-a", "ü", "a\n"])
@pytest.mark.parametrize("key", ["data", "encoding", "fusion", "sweep_id"])
def test_a_name_that_no_run_can_have_is_one_line(whole, key, name):
    path = whole / "tiny" / "sinusoidal" / "concat" / "seed=1" / "result.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: name}))
    runs, problems = collect(whole)
    assert len(runs) == 11
    assert problems == [
        f"{path}: {key} is {name!r}, not a name of letters, digits and _.-; left out, remove it to "
        "run again"
    ]


@pytest.mark.parametrize("variant", ["=cmd('a')", "<b>", "a|b", "x/../y", "a b"])
def test_a_variant_that_no_folder_can_have_is_one_line(whole, variant):
    path = whole / "tiny" / "sinusoidal" / "concat" / "seed=1" / "result.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"variant": variant}))
    runs, problems = collect(whole)
    assert len(runs) == 11
    assert len(problems) == 1
    assert f"variant is {variant!r}, not the name of a run's folder" in problems[0]


@pytest.mark.parametrize("override", ["+a.b=1", "~x", "a=<img>", "a='=cmd()'", "a=é" * 50])
def test_a_variant_that_a_run_makes_is_collected(tmp_path, override):
    variant = run_folder("d", "e", "f", 0, [override]).split("/")[3]
    write_record(tmp_path, 0.5, variant=variant)
    runs, problems = collect(tmp_path)
    assert problems == []
    assert runs["variant"].tolist() == [variant]


def test_texts_of_a_record_are_no_formulas_and_no_html(tmp_path, monkeypatch, capsys):
    """What no rule of names covers: settings, versions, labels, and the keys themselves."""
    root = tmp_path / "sweep"
    scales = {"1": 0.5, "2": 0.6}
    for fusion, seed, scale in product(("add", "concat"), (0, 1), scales):
        write_record(
            root,
            scales[scale] + 0.1 * seed,
            fusion,
            seed,
            variant=f"model.token_scale={scale}",
            settings={"model.token_scale": scale, "fusion.way": f"<b>{scale}[x](y)</b>&amp;"},
            validation={"accuracy": 0.5},
            label_names=["=cmd()", "<script>alert(1)</script>"],
            commit="=cmd()",
            **{"=key()": "\t=1+1", "@key": "-1 2", "-key": "+1+cmd()"},
        )
    run_report(monkeypatch, capsys, root)
    out = root / "report"
    rows = [row for path in out.rglob("*.csv") for row in csv.reader(path.open())]
    cells = {cell for row in rows for cell in row}
    assert {"'=cmd()", "'=key()", "'\t=1+1", "'@key", "-1 2", "'+1+cmd()"} <= cells
    assert [cell for cell in cells if cell[:1] in ("=", "@", "\t")] == []
    assert "['=cmd()', '<script>alert(1)</script>']" in cells
    assert r"\<b>1\[x\](y)\</b>\&amp;" in (out / "tables" / "by_scale.md").read_text()
    assert "<b>1" not in (out / "index.html").read_text()
    for path in (out / "figures").glob("*.svg"):
        assert "<script>" not in path.read_text()


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"message": null}'])
def test_a_damaged_failure_is_still_a_failure(sweep, text):
    folder = sweep / "tiny" / "sinusoidal" / "add" / "seed=9"
    folder.mkdir()
    (folder / "failure.json").write_text(text)
    count, line = failures(sweep, collect(sweep)[0])
    assert (count, line) == (
        "not done: 1 failed", f"{folder}: it failed, and failure.json is damaged"
    )  # fmt: skip


@pytest.mark.parametrize(
    "text", ["", "hydra: 3", "a: [", "hydra: {sweeper: {params: {seed: abc}}}"]
)
def test_a_damaged_sweep_file_is_one_line(sweep, text):
    (sweep / "multirun.yaml").write_text(text)
    with pytest.raises(InputError, match=r"multirun\.yaml: not a sweep's settings") as error:
        missing(sweep, collect(sweep)[0])
    assert "\n" not in str(error.value)


def test_without_its_corpus_a_report_lacks_the_bag_of_words_and_says_so(whole, monkeypatch, capsys):
    for path in whole.rglob("config.yaml"):
        path.unlink()
    text = run_report(monkeypatch, capsys, whole)
    assert "tiny: no bag-of-words row, its corpus cannot be loaded" in text
    assert set(written(whole / "report")) == FILES


def test_an_unknown_baseline_leaves_the_tables(whole, monkeypatch, capsys):
    with pytest.raises(SystemExit) as stopped:
        run_report(monkeypatch, capsys, whole, "--baseline", "ad")
    assert stopped.value.code == "error: --baseline: no run with fusion 'ad'; use add, concat"
    assert "60.00 ± 10.00 (3)" in capsys.readouterr().out
    assert "Nothing to compare" in (whole / "report" / "index.html").read_text()


def test_an_empty_or_absent_folder_is_an_error_of_one_line(tmp_path, monkeypatch, capsys):
    for folder, message in ((tmp_path, "no finished runs"), (tmp_path / "x", "no such folder")):
        with pytest.raises(InputError, match=message):
            collect(folder)
        with pytest.raises(SystemExit) as stopped:
            run_report(monkeypatch, capsys, folder)
        assert stopped.value.code.startswith(f"error: {folder}: {message}")
        assert "\n" not in stopped.value.code


@pytest.mark.parametrize("option", [("--margin", "0"), ("--effect", "-1"), ("--margin", "nan")])
def test_points_are_above_0(whole, option, monkeypatch, capsys):
    with pytest.raises(SystemExit) as stopped:
        run_report(monkeypatch, capsys, whole, *option)
    assert stopped.value.code == "error: --margin, --effect: use points above 0"


def test_a_folder_that_cannot_be_written_is_an_error_of_one_line(whole, monkeypatch, capsys):
    (whole / "report").write_text("in the way")
    with pytest.raises(SystemExit) as stopped:
        run_report(monkeypatch, capsys, whole)
    assert stopped.value.code.startswith(f"error: {whole / 'report'}")
    assert "--out" in stopped.value.code
    assert "\n" not in stopped.value.code


def test_the_analysis_never_imports_torch():
    code = "import posfuse.analysis.report, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
