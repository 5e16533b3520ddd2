"""docs/performance.md and docs/benchmarks.md, as the stored results make them."""

import re

import pytest

import measured_code
import performance
import store

CONSTRAINTS = (store.SCRIPTS.parent / "constraints.txt").read_text()
TORCH = measured_code.minor(re.search(r"^torch==(\S+)$", CONSTRAINTS, re.MULTILINE)[1])
SCRIPTS = measured_code.benchmarks(store.SCRIPTS)
PHASES = ("training", "evaluation")
MACHINE = {"cpu": "Intel Xeon", "bf16": "amx", "cores": 2, "gpu": None}
AT = {"machine": MACHINE, "commit": "0123456789" * 4, "date": "2026-11-22"}
SOURCE = "Intel Xeon with AMX, 2 cores; 2026-11-22, commit 0123456789"


def test_the_pages_show_the_current_results_of_this_code():
    stale = "is not up to date; run python benchmarks/performance.py"
    for page, text in performance.current_pages(TORCH).items():
        assert page.read_text() == text, f"{page} {stale}"


def test_the_summary_has_the_figures_of_current_results_and_their_source():
    at = {**AT, "is_current": True}
    shown = (*performance.SPEEDS, performance.BOUND)
    columns = ["settings", "tokens", *(f"{p}: {s}" for p in PHASES for s in shown)]
    sides = [{"columns": columns, "rows": [["imdb", 223, *row]]} for row in ("abxcdy", "ef-gh-")]
    half = [f"{p}: {performance.HALF}" for p in PHASES]
    with_half = {"columns": columns + half, "rows": [["imdb", 223, *"abxcdymn"]]}
    runs = {"columns": ["runs at once", "ratio"], "rows": [[1, 1.0], [2, 1.44]]}
    stale = {**at, "name": "overhead", "is_current": False}
    results = [
        {**at, "name": "training", "tables": sides},
        {**at, "name": "grid", "tables": [runs]},
    ]
    text = performance.summary([*results, stale])
    assert "| imdb | 223 | training | a | b | x | e | f |\n" in text
    assert "| imdb | 223 | evaluation | c | d | y | g | h |" in text
    of_half = performance.summary([{**results[0], "tables": [with_half, sides[1]]}])
    assert "| imdb | 223 | training | a | b | m | x | e | f |" in of_half
    assert "1.44 times the runs per hour of one run with two threads. ([grid](" in text
    assert text.count(f"{SOURCE})") == 2
    assert "overhead" not in text


def test_a_stale_result_is_left_out_with_the_command_that_measures_it():
    text = performance.tables([{**AT, "name": "grid", "is_current": False}], SCRIPTS)
    assert f"measured on {SOURCE}. M" in text
    assert "`python benchmarks/run.py --only grid`" in text
    assert "No result. Measure it: `python benchmarks/run.py --only overhead`" in text


def test_a_result_without_a_benchmark_is_an_error(tmp_path):
    path = tmp_path / "a" / "gone.json"
    path.parent.mkdir()
    path.write_text("{}")
    with pytest.raises(SystemExit, match=r"gone.json: no benchmark has this name; remove the file"):
        performance.read(tmp_path, SCRIPTS, TORCH)
    path.rename(path.with_name("grid.json"))
    (found,) = performance.read(tmp_path, SCRIPTS, TORCH)
    assert (found["name"], found["is_current"]) == ("grid", False)
