"""docs/performance.md, as the stored results make it."""

import re

import pytest

import measured_code
import performance
import store

CONSTRAINTS = (store.SCRIPTS.parent / "constraints.txt").read_text()
TORCH = measured_code.minor(re.search(r"^torch==(\S+)$", CONSTRAINTS, re.MULTILINE)[1])


SCRIPTS = measured_code.benchmarks(store.SCRIPTS)


def result(name="grid", is_current=True):
    machine = {"cpu": "Intel Xeon", "bf16": "amx", "cores": 2, "threads": 1, "memory_gib": 23.5,
               "gpu": None, "torch": "2.13.0+cpu", "python": "3.11.7"}  # fmt: skip
    table = {"title": "Runs", "columns": ["a|b", "n"], "rows": [["x", 2]], "note": "A note."}
    return {"command": f"python benchmarks/{name}.py", "commit": "0123456789" * 4, "seconds": 5,
            "date": "2026-11-22", "machine": machine, "tables": [table], "name": name,
            "is_current": is_current}  # fmt: skip


def test_the_page_shows_the_current_results_of_this_code():
    stale = "docs/performance.md is not up to date; run python benchmarks/performance.py"
    assert performance.PAGE.read_text() == performance.current_page(TORCH), stale


def test_the_comparison_with_the_trainer_comes_first():
    text = performance.tables([result("grid"), result("training")], SCRIPTS)
    assert text.index("## training") < text.index("**Runs**") < text.index("## grid")


def test_a_stale_result_is_left_out_with_the_command_that_measures_it():
    text = performance.tables([result(is_current=False)], SCRIPTS)
    assert "**Runs**" not in text
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


def test_a_long_table_is_folded():
    short, long = result(), result()
    long["tables"][0]["rows"] *= performance.MOST_ROWS + 1
    assert "<details>" not in performance.section(short)
    text = performance.section(long)
    folded = text[text.index("<details><summary><b>Runs</b>, 9 rows</summary>\n\n|") :]
    assert folded.count("| x | 2 |") == 9
    assert folded.rstrip().endswith("A note.\n\n</details>")
