"""docs/performance.md, as the stored results make it."""

import re

import pytest

import measured_code
import performance
import store

CONSTRAINTS = (store.SCRIPTS.parent / "constraints.txt").read_text()
TORCH = measured_code.minor(re.search(r"^torch==(\S+)$", CONSTRAINTS, re.MULTILINE)[1])


SCRIPTS = measured_code.benchmarks(store.SCRIPTS)


def test_the_page_shows_the_current_results_of_this_code():
    stale = "docs/performance.md is not up to date; run python benchmarks/performance.py"
    assert performance.PAGE.read_text() == performance.current_page(TORCH), stale


def test_a_stale_result_is_left_out_with_the_command_that_measures_it():
    machine = {"cpu": "Intel Xeon", "bf16": "amx", "cores": 2, "gpu": None}
    stale = {"machine": machine, "commit": "0123456789" * 4, "date": "2026-11-22"}
    text = performance.tables([{**stale, "name": "grid", "is_current": False}], SCRIPTS)
    assert "measured on Intel Xeon with AMX, 2 cores; 2026-11-22, commit 0123456789. M" in text
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
