"""The stored results of benchmarks: current until the measured code changes, and shown in docs/."""

import json
import re
from pathlib import Path

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


def test_the_summary_has_no_column_that_was_not_measured_and_no_stale_result():
    shown = (*performance.SPEEDS, performance.BOUND)  # without bfloat16
    columns = ["settings", "tokens", *(f"{p}: {s}" for p in PHASES for s in shown)]
    sides = [{"columns": columns, "rows": [["imdb", 223, *row]]} for row in ("abxcdy", "ef-gh-")]
    training = {**AT, "name": "training", "is_current": True, "tables": sides}
    text = performance.summary([training, {**AT, "name": "overhead", "is_current": False}])
    assert "| imdb | 223 | training | a | b | x | e | f |\n" in text
    assert "| imdb | 223 | evaluation | c | d | y | g | h |" in text
    assert text.count(f"{SOURCE})") == 1
    assert "overhead" not in text
    half = columns + [f"{p}: {performance.HALF}" for p in PHASES]
    training["tables"] = [{"columns": half, "rows": [["imdb", 223, *"abxcdymn"]]}, sides[1]]
    assert "| imdb | 223 | training | a | b | m | x | e | f |" in performance.summary([training])


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


ROOT = Path(measured_code.__file__).parents[1]
MODEL = '"""The model."""\n\n\ndef double(x):\n    """2 x."""\n    return 2 * x  # a comment\n'
SCRIPT = 'import beside\nimport store\n\nMEASURES = "model.network data conf/speed"\n'
FILES = {
    "src/posfuse/model/network.py": MODEL,
    "src/posfuse/model/fusion.py": MODEL,
    "src/posfuse/data/batching.py": MODEL,
    "conf/speed/fast.yaml": "model: {dropout: 0.0}  # a comment\n",
    "benchmarks/speed.py": SCRIPT,
    "benchmarks/beside.py": MODEL,
    "benchmarks/store.py": MODEL,
}


@pytest.fixture
def tree(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def digest(tree, torch="2.13"):
    return measured_code.digest(tree / "benchmarks" / "speed.py", torch)


def change(tree, name, old, new):
    text = (tree / name).read_text()
    assert old in text
    (tree / name).write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("name", "old", "new", "keeps"),
    [
        ("src/posfuse/model/network.py", "# a comment", "# another one", True),
        ("src/posfuse/model/network.py", '"""The model."""', '"""Another text."""', True),
        ("src/posfuse/model/network.py", '    """2 x."""\n', "", True),
        ("src/posfuse/model/network.py", "2 * x", "(2\n  * x)", True),
        ("src/posfuse/model/fusion.py", "2 * x", "3 * x", True),  # not measured
        ("benchmarks/store.py", "2 * x", "3 * x", True),  # writes what the others measure
        ("conf/speed/fast.yaml", "# a comment", "# another one", True),
        ("src/posfuse/model/network.py", "2 * x", "3 * x", False),
        ("src/posfuse/data/batching.py", "2 * x", "2 * x + 0", False),
        ("benchmarks/speed.py", "conf/speed", "conf/speed ", False),
        ("benchmarks/beside.py", "double", "twice", False),
        ("conf/speed/fast.yaml", "0.0", "0.1", False),
    ],
)
def test_a_change_of_what_is_measured_changes_its_digest(tree, name, old, new, keeps):
    before = digest(tree)
    change(tree, name, old, new)
    assert (digest(tree) == before) == keeps


def test_a_new_module_of_a_measured_package_and_another_torch_do_too(tree):
    before = digest(tree)
    assert before != digest(tree, "2.14")
    (tree / "src/posfuse/data/more.py").write_text(MODEL)
    assert before != digest(tree)


def test_a_wrong_name_is_an_error_of_one_line(tree):
    change(tree, "benchmarks/speed.py", "model.network", "model.netwrok")
    with pytest.raises(SystemExit, match=r"speed.py: MEASURES names 'model.netwrok', which does"):
        digest(tree)


def test_a_result_says_what_was_measured_where_and_when(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "RESULTS", tmp_path)
    script = Path(measured_code.__file__).with_name("training.py")
    own = ["--repeats", "3", "--cells", "a", "b", "--overrides", "seed=1"]
    monkeypatch.setattr("sys.argv", [str(script), "--imdb", str(tmp_path), *own])
    seen = []

    def measure(arguments):
        seen.append(arguments)
        return [store.table("Speed", ["x"], [[1.0]], "")]

    store.main(str(script), measure, repeats=1, cells=["imdb"], batches=20, overrides=[])
    (found,) = seen
    assert (found.repeats, found.batches) == (3, 20)
    assert (found.cells, found.overrides) == (["a", "b"], ["seed=1"])
    (path,) = tmp_path.glob("*/*")
    assert path == store.default_path("training")
    content = json.loads(path.read_text())
    assert measured_code.is_current(content, script, measured_code.installed_torch())
    assert content["machine"]["torch"].startswith(measured_code.installed_torch())
    command = f"python benchmarks/training.py --imdb FOLDER {' '.join(own)}"
    assert (content["command"], content["folders"]) == (command, ["imdb"])
    assert {"commit", "date", "seconds"} < content.keys()


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("training", {"module"}),
        ("grid", {"module", "checkpoints"}),
        ("language_model", {"module", "next_token"}),
    ],
)
def test_a_benchmark_of_training_measures_the_modules_that_it_runs(name, own):
    script = Path(measured_code.__file__).with_name(f"{name}.py")
    words = measured_code.constant(script, "MEASURES").split()
    paths = [path for word in words for path in measured_code.measured(word, script, ROOT)]
    files = {path.stem for path in paths if path.parent == ROOT / "src/posfuse/training"}
    names = {"module", "next_token", "checkpoints", "sample", "replicas", "export"}
    assert files & names == own
