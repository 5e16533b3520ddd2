"""docs/performance.md and docs/performance_tables.md, as the stored results make them."""

import json
import re
from dataclasses import replace

import pytest

import headlines
import measured_code
import performance
import performance_figure
import performance_tables
import stored
from performance import ROOT

PINNED = re.search(r"^torch==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
TORCH = measured_code.minor(PINNED[1])


@pytest.fixture(scope="module")
def committed():
    return performance.read(TORCH)


def table(title, rows):
    columns = [f"column {i}" for i in range(len(rows[0]))]
    return {"title": title, "columns": columns, "rows": rows, "note": "A note."}


def training(*corpora):
    """The tables of the training benchmark for these corpora, ArXiv's with a larger batch."""
    systems = {"plain": "1×", "exact": "58.6×", "fast": "102×"}
    speeds = [[c, s, 2.5, x, 178.0, x, 1.4, "0.13×"] for c in corpora for s, x in systems.items()]
    shares = [[c, s, 38, 38, 0.7, 1.7, "float32, 166", "67.1%"] for c in corpora for s in systems]
    memory = [
        [c, batch, s, gb]
        for c in corpora
        for batch, s, gb in ((2, "plain", 8.26), (2, "exact", 1.25), (64, "exact", 6.75))
    ]
    return [table("Against the plain baseline", speeds), table("Share", shares),
            table("Peak memory", memory)]  # fmt: skip


def result(name, tables):
    machine = {"cpu": "AMD EPYC", "cores": 2, "threads": 2, "memory_gib": 23.5, "gpu": None}
    machine |= {"torch": "2.13.0+cpu", "python": "3.11.7"}
    content = {"command": f"python benchmarks/{name}.py", "commit": "0123456789abcdef",
               "date": "2026-11-22", "machine": machine, "tables": tables}  # fmt: skip
    return stored.Result(name, content, is_current=True)


@pytest.fixture(scope="module")
def results():
    grid = [[1, 2, 1656, 1.0], [2, 1, 2789, 1.684]]
    overhead = [["start to the first training step, logger=none", 4.21],
                ["a further run in the process, logger=none", 0.449]]  # fmt: skip
    return [
        result("grid", [table("Several runs at once", grid)]),
        result("overhead", [table("Time of a sweep besides training", overhead)]),
        result("training", training("agnews", "imdb", "arxiv")),
    ]


def test_the_pages_show_the_current_results_of_this_code(committed):
    for name, text in performance.pages(*committed).items():
        stale = f"docs/{name} is not up to date; run python benchmarks/performance.py"
        assert (performance.DOCS / name).read_text() == text, stale
    machines = list(stored.by_machine(committed[0]).values())
    pictured = performance.PICTURED in (machines[0] if machines else {})
    assert (performance.DOCS / performance.PICTURE).exists() == pictured


@pytest.mark.parametrize("as_current", [False, True])
def test_the_page_fits_one_screen(results, committed, as_current):
    shown = [replace(result, is_current=as_current) for result in results]
    text = performance.pages(shown, committed[1])[performance.PAGE]
    assert len(text.splitlines()) <= 50
    assert ("](performance.svg)" in text) == as_current


def test_the_page_of_current_results(results):
    names = ["grid", "overhead", "sweep_times", "tasks", "training"]
    scripts = {name: performance.SCRIPTS / f"{name}.py" for name in names}
    text = performance.page(results, scripts)
    three = "58.6×, IMDB 58.6×, ArXiv 58.6× (`speed=fast`: 102×, 102×, 102×)"
    measured = "AMD EPYC, 2 cores; 2026-11-22, commit 0123456789"
    for title, value in {
        "Training, documents per second / the plain loop's": f"AG News {three}",
        "Evaluation, documents per second / the plain loop's": f"AG News {three}",
        "Runs per hour / those with one run at a time": (
            "1.68× with 2 at once (threads each: 1): 2,789 per hour"
        ),
        "Rate of matrix products in training / the machine's": (
            "AG News 67 %, IMDB 67 %, ArXiv 67 %"
        ),
        "Peak memory of training at 4,096 tokens": (
            "6.75 GB for 64 documents (plain loop: 8.26 GB for 2)"
        ),
        "Time besides training": "4.21 s to a sweep's first step, 0.449 s for each further run",
    }.items():
        assert f"| {title} | {value} | {measured} |\n" in text
    assert "Left out, since their code has changed or this machine has not measured them: " in text
    assert (
        "sweep_times, tasks. The commands above measure them. sweep_times needs a GPU. No" in text
    )


def of_xeon(result):
    machine = result.content["machine"] | {"cpu": "Intel Xeon", "bf16": "amx"}
    return replace(result, content=result.content | {"machine": machine})


def test_the_tables_show_one_machine_and_a_line_for_each_other(results, committed):
    alone = [of_xeon(results[0]), *results[1:]]  # AMD has no current grid
    text = performance.page(alone[1:] + alone[:1], committed[1])
    assert re.search(r"Runs per hour.*\| not measured on this machine with this code \|", text)
    assert "Xeon" not in text
    both = [*results, *map(of_xeon, results)]
    line = (
        "Intel Xeon with AMX, 2 cores; 2026-11-22. Training: AG News 58.6×, IMDB 58.6×, "
        "ArXiv 58.6× (`speed=fast`: 102×, 102×, 102×); Evaluation: AG News 58.6×, IMDB 58.6×, "
        "ArXiv 58.6× (`speed=fast`: 102×, 102×, 102×); Runs per hour: 1.68× with 2 at once "
        "(threads each: 1): 2,789 per hour."
    )
    assert f"\n{line}\n" in performance.page(both, committed[1])
    assert performance.page(both, committed[1]).count("Xeon") == 1


def test_a_stale_result_is_left_out_with_the_command_that_measures_it(results, committed):
    shown = [replace(result, is_current=result.name != "grid") for result in results]
    pages = performance.pages(shown, committed[1])
    assert re.search(r"Runs per hour.*not measured.*run.py --only grid`", pages[performance.PAGE])
    tables = pages[performance.TABLES]
    assert "Several runs at once" not in tables
    assert "Left out: the code has changed since it was measured on AMD EPYC, 2 cores; " in tables
    assert "No result. Measure it: `python benchmarks/run.py --only tasks`" in tables
    assert "**Against the plain baseline**" in tables


def test_every_table_names_machine_date_and_commit(committed):
    for result in committed[0]:
        section = performance_tables.section(result)
        assert re.search(r"cores, .* GiB; torch .*; commit \w{10}.*, \d{4}-\d\d-\d\d", section)


def test_the_machine_with_most_current_results_comes_first(tmp_path):
    scripts = {path.stem: path for path in measured_code.benchmarks(performance.SCRIPTS)}
    dates = {"a": "2026-11-24", "b": "2026-11-22", "c": "2026-11-25"}
    for machine, names in {"a": ["grid"], "b": ["grid", "tasks"], "c": ["tasks"]}.items():
        for name in names:
            code = measured_code.digest(scripts[name], TORCH)
            path = tmp_path / machine / f"{name}.json"
            path.parent.mkdir(exist_ok=True)
            content = {"code": code, "machine": machine, "date": dates[machine]}
            path.write_text(json.dumps(content))
    found = stored.read(tmp_path, scripts, TORCH)
    assert [(r.content["machine"], r.name) for r in found] == [
        ("b", "grid"), ("b", "tasks"), ("c", "tasks"), ("a", "grid")
    ]  # fmt: skip
    (tmp_path / "a" / "gone.json").write_text("{}")
    with pytest.raises(SystemExit, match=r"gone.json: no benchmark has this name; remove the file"):
        stored.read(tmp_path, scripts, TORCH)


def test_headlines_of_a_result_of_one_corpus():
    alone = result("training", training("imdb"))
    values = [line.value(alone) for line in headlines.RATIOS[:2] + headlines.LIMITS[:2]]
    assert values[0] == values[1] == "IMDB 58.6× (`speed=fast`: 102×)"
    assert values[2:] == ["IMDB 67 %", "not measured"]


def test_the_picture_is_the_same_each_time(results, tmp_path):
    for name in ("first.svg", "second.svg"):
        performance_figure.draw(results[-1], tmp_path / name)
    assert (tmp_path / "first.svg").read_bytes() == (tmp_path / "second.svg").read_bytes()


def test_a_commit_is_spelt_with_its_changes():
    assert stored.spelt("0123456789abcdef") == "commit 0123456789"
    assert stored.spelt("0123456789abcdef+changes") == "commit 0123456789 with changes"
    assert stored.spelt(None) == "outside a checkout"


def test_numbers_are_shown_with_three_digits():
    shown = {
        0.01234: "0.0123", 2.0: "2.00", 99.96: "100", 123.4: "123", 54321: "54,321", 7: "7",
        "3.1×": "3.1×", 0.0: "0.00",
    }  # fmt: skip
    for value, text in shown.items():
        assert performance_tables.shown(value) == text
