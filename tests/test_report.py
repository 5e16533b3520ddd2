"""From records to the comparison: the table of runs, means and differences, holes, failures."""

import json
import math
import subprocess
import sys

import pytest

from posfuse.analysis import report
from posfuse.analysis.collect import collect, failures, missing
from posfuse.analysis.report import compare
from posfuse.errors import InputError


def write_record(root, accuracy, fusion="add", seed=0, data="tiny", tokens=10.0, **more):
    folder = root / data / "sinusoidal" / fusion / more.get("variant", "") / f"seed={seed}"
    folder.mkdir(parents=True)
    record = {
        "schema": 2,
        "sweep_id": root.name,
        "data": data,
        "encoding": "sinusoidal",
        "fusion": fusion,
        "seed": seed,
        "variant": "",
        "test": {"accuracy": accuracy, "macro_f1": accuracy},
        "mean_tokens": {"train": tokens},
        "label_names": ["a", "b"],
        **more,
    }
    (folder / "result.json").write_text(json.dumps(record))
    return folder


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


def test_a_variant_is_a_cell_of_its_own(sweep):
    write_record(sweep, 0.8, "add", 0, variant="optim.lr=1")
    cells = compare(collect(sweep)[0])
    assert len(cells) == 4
    assert cells[cells["variant"] == "optim.lr=1"]["mean"].item() == pytest.approx(80)
    assert cells[(cells["variant"] == "") & (cells["fusion"] == "add")]["n"].item() == 3


def test_mean_and_sample_standard_deviation_are_the_hand_worked_ones(sweep):
    cells = compare(collect(sweep)[0]).set_index("fusion")
    assert cells.loc["add", "n"] == 3
    assert cells.loc["add", "mean"] == pytest.approx(60)
    assert cells.loc["add", "std"] == pytest.approx(10)  # n - 1: sqrt((100 + 0 + 100) / 2)
    assert cells.loc["concat", "mean"] == pytest.approx(59)
    assert cells.loc["concat", "std"] == pytest.approx(math.sqrt(98))


def test_differences_pair_the_seeds_that_both_have(sweep):
    cells = compare(collect(sweep)[0]).set_index("fusion")
    assert cells.loc["concat", "deltas"] == pytest.approx({0: 2.0, 1: 6.0})
    assert cells.loc["concat", "delta_mean"] == pytest.approx(4)  # not 59 - 60
    assert cells.loc["gate_scalar", "deltas"] == {}
    assert math.isnan(cells.loc["gate_scalar", "delta_mean"])
    assert not isinstance(cells.loc["add", "deltas"], dict)


def test_one_seed_has_no_standard_deviation(sweep):
    cells = compare(collect(sweep)[0]).set_index("fusion")
    assert cells.loc["gate_scalar", "mean"] == pytest.approx(90)
    assert math.isnan(cells.loc["gate_scalar", "std"])


def test_differences_stay_inside_a_corpus(sweep):
    write_record(sweep, 0.1, "add", 0, data="other", tokens=99.0)
    write_record(sweep, 0.3, "concat", 0, data="other", tokens=99.0)
    cells = compare(collect(sweep)[0]).set_index(["data", "fusion"])
    assert cells.loc[("other", "concat"), "deltas"] == pytest.approx({0: 20.0})
    assert cells.loc[("tiny", "concat"), "deltas"] == pytest.approx({0: 2.0, 1: 6.0})


def test_another_baseline_turns_the_sign(sweep):
    cells = compare(collect(sweep)[0], "concat").set_index("fusion")
    assert cells.loc["add", "deltas"] == pytest.approx({0: -2.0, 1: -6.0})


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


def test_nothing_is_missing_from_a_whole_grid(tmp_path):
    root = tmp_path / "sweep"
    for fusion in ("add", "concat"):
        write_record(root, 0.5, fusion, 0)
    ask(root, {"fusion": "add,concat", "seed": "0"})
    assert missing(root, collect(root)[0]) == []


def test_failures_are_listed_with_their_folder(sweep):
    folder = sweep / "tiny" / "sinusoidal" / "add" / "seed=9"
    folder.mkdir()
    (folder / "failure.json").write_text(json.dumps({"message": "out of luck"}))
    assert failures(sweep) == [f"{folder}: out of luck"]


def test_the_table_shows_means_spreads_and_differences(sweep, monkeypatch, capsys):
    (sweep / "failure.json").write_text(json.dumps({"message": "out of luck"}))
    text = run_report(monkeypatch, capsys, sweep)
    assert "sweep: 6 runs" in text
    table = [line for line in text.splitlines() if "│" in line]
    lines = {n: next(r for r in table if f" {n} " in r) for n in ("add", "concat", "gate_scalar")}
    assert "60.00 ± 10.00" in lines["add"]
    assert "59.00 ± 9.90" in lines["concat"]
    assert "+4.00" in lines["concat"]
    assert "0: +2.00  1: +6.00" in lines["concat"]
    assert "90.00" in lines["gate_scalar"]
    assert "±" not in lines["gate_scalar"]
    assert "no seed" in lines["gate_scalar"]
    assert "missing: 6 of 12 runs" in text  # three fusions by the four seeds 0, 1, 2, 7
    assert "out of luck" in text


def test_an_empty_or_absent_folder_is_an_error_of_one_line(tmp_path, monkeypatch, capsys):
    for folder, message in ((tmp_path, "no finished runs"), (tmp_path / "x", "no such folder")):
        with pytest.raises(InputError, match=message):
            collect(folder)
        with pytest.raises(SystemExit) as stopped:
            run_report(monkeypatch, capsys, folder)
        assert stopped.value.code.startswith(f"error: {folder}: {message}")
        assert "\n" not in stopped.value.code


def test_an_unknown_baseline_is_an_error_that_names_the_known(sweep, monkeypatch, capsys):
    with pytest.raises(SystemExit) as stopped:
        run_report(monkeypatch, capsys, sweep, "--baseline", "ad")
    assert stopped.value.code == (
        "error: --baseline: no run with fusion 'ad'; use add, concat, gate_scalar"
    )


def test_the_analysis_never_imports_torch():
    code = "import posfuse.analysis.report, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
