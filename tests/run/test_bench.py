"""benchmarks/run.py with small scripts in the place of the benchmarks."""

import os
import signal
from pathlib import Path

import pytest

import run
import store

STUB = """
import argparse, json, os, pathlib, signal, sys
import measured_code
MEASURES = "model.kernels"
FOLDERS = ("imdb",)
parser = argparse.ArgumentParser()
parser.add_argument("--imdb")
imdb = parser.parse_args().imdb
here = pathlib.Path(__file__)
with (here.parent / "log").open("a") as log:
    print(here.stem, imdb or "", file=log)
{body}
code = measured_code.digest(here, measured_code.installed_torch())
content = {{"code": code, "folders": ["imdb"] if imdb else []}}
here.with_suffix(".json").write_text(json.dumps(content))
"""


class Bench:
    """run.main() over the scripts of a folder."""

    def __init__(self, root, patched):
        self.scripts, self.patched, self.written = root / "benchmarks", patched, []
        self.measured = root / "src/posfuse/model/kernels.py"
        for folder in (self.scripts, self.measured.parent):
            folder.mkdir(parents=True)
        self.measured.write_text("x = 1\n")
        patched.setattr(run, "SCRIPTS", self.scripts)
        patched.setattr(store, "default_path", lambda name: self.scripts / f"{name}.json")
        patched.setattr(run.performance, "main", lambda: self.written.append(True))
        for name in "abc":
            self.script(name)

    def script(self, name, body=""):
        (self.scripts / f"{name}.py").write_text(STUB.format(body=body))

    def __call__(self, *options):
        """The exit status, and the benchmarks that ran."""
        log = self.scripts / "log"
        log.write_text("")
        self.patched.setattr("sys.argv", ["run.py", *options])
        status = run.main()
        return status, [line.strip() for line in log.read_text().splitlines()]


@pytest.fixture
def bench(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(run.__file__).parent), prepend=os.pathsep)
    return Bench(tmp_path, monkeypatch)


def test_missing_and_stale_results_are_measured_and_current_ones_skipped(bench, capsys):
    assert bench() == (0, ["a", "b", "c"])
    assert bench() == (0, [])
    assert "a: skipped, its result is current" in capsys.readouterr().out
    assert len(bench.written) == 2
    (bench.scripts / "b.json").unlink()
    assert bench() == (0, ["b"])
    bench.measured.write_text("x = 1  # a comment\n")
    assert bench() == (0, [])
    bench.measured.write_text("x = 2\n")
    assert bench("--only", "c") == (0, ["c"])
    assert bench() == (0, ["a", "b"])
    given = "--only", "a", f"--imdb={bench.scripts}"  # it has no result on this corpus
    assert [bench(*given), bench(*given)] == [(0, [f"a {bench.scripts}"]), (0, [])]


def test_a_failure_is_reported_and_the_others_run(bench, capsys):
    bench.script("b", "sys.exit(3)")
    assert bench() == (1, ["a", "b", "c"])
    assert capsys.readouterr().err == "error: b: exit status 3; see its message above\n"
    assert len(bench.written) == 1
    assert bench() == (1, ["b"])


def test_an_interruption_loses_the_benchmark_that_ran(bench, capsys):
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        bench.script("b", "os.kill(os.getppid(), signal.SIGINT); signal.pause()")
        assert bench() == (run.INTERRUPTED, ["a", "b"])
    finally:
        signal.signal(signal.SIGINT, handler)
    assert capsys.readouterr().err == "interrupted; run the same command to continue\n"
    bench.script("b")
    assert bench() == (0, ["b", "c"])
