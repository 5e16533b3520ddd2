"""posfuse-status: which runs of a sweep are done, running, failed or missing, and the time left."""

import json
import os
import subprocess
import sys
import threading

import pytest

from posfuse.runs import records
from posfuse.sweeps import status
from posfuse.sweeps.status import RunStatus, page, runs_of, seconds_left, spelt, status_of
from processes import HANG, wait_for
from small_runs import small_overrides, write_corpus


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("status") / "corpus")


def shown(sweep):
    """The page as its lines of words."""
    from rich.console import Console

    console = Console(width=status.WIDE, file=open(os.devnull, "w"), record=True)  # noqa: SIM115
    console.print(page(sweep, runs_of(sweep)), soft_wrap=True)
    return [line.split() for line in console.export_text().splitlines()]


def test_a_sweep_with_a_run_of_each_state(run, corpus, tmp_path):
    small = [*small_overrides(corpus), "trainer.max_epochs=1"]
    grid = ["fusion=add,concat", "seed=0,1,2"]
    result = run("posfuse-train", "-m", *small, *grid)
    assert result.code == 0, result.err
    sweep = tmp_path / "work" / "multirun" / "default"
    assert shown(sweep)[-1] == ["6", "of", "6", "runs", "are", "done"]

    def folder(fusion, seed):
        (found,) = sweep.glob(f"*/*/{fusion}/*/seed={seed}")
        return found

    damaged = folder("concat", 2) / records.RESULT
    content = damaged.read_bytes()
    damaged.write_text("{}")
    out = run("posfuse-status", "multirun/default").out
    assert "5 of 6 runs are done" in out
    assert f"{damaged.relative_to(tmp_path / 'work')}: " in " ".join(out.split())
    damaged.write_bytes(content)
    (folder("add", 0) / records.RESULT).unlink()  # "stopped"
    for seed, kind in ((1, "interrupted"), (2, "diverged")):
        (folder("add", seed) / records.RESULT).unlink()
        failure = {"id": "1", "time": 1.0, "kind": kind, "message": f"so {kind}", "overrides": []}
        records.write_json(folder("add", seed) / records.FAILURE, failure)
    gone = folder("concat", 0)
    for path in sorted(gone.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    gone.rmdir()
    running = folder("concat", 1)
    (running / records.RESULT).unlink()
    progress = {"epoch": 2, "epochs": 4, "epoch_seconds": 30.0}
    records.write_json(running / records.PROGRESS, progress)
    with records.sole_use(running):
        lines = shown(sweep)
        result = run("posfuse-status", "multirun/default")
    assert " ".join(lines[0][1:]) == "done running interrupted stopped failed missing"
    cells = {line[0]: line[1:] for line in lines[1:3]}
    assert [v for k, v in cells.items() if "/add/" in k] == [["1", "1", "1"]]
    assert [v for k, v in cells.items() if "/concat/" in k] == [["1", "1", "1"]]
    shown_lines = [" ".join(line) for line in lines[3:-1]]
    for start, end in (
        ("running:", "epoch 2/4"),
        ("interrupted:", "seed=1: so interrupted"),
        ("failed:", "so diverged"),
    ):
        assert any(line.startswith(start) and line.endswith(end) for line in shown_lines)
    assert " ".join(lines[-1]).startswith("1 of 6 runs are done, about ")
    assert result.code == 0
    assert [line.split() for line in result.out.splitlines()][1:] == lines[1:]


def test_time_left_is_the_median_of_the_cell_divided_by_the_running_runs():
    done = [RunStatus("a", str(i), "done", seconds=s) for i, s in enumerate((10.0, 20.0, 90.0))]
    other = RunStatus("b", "0", "done", seconds=100.0)
    assert seconds_left(done) == 0
    assert seconds_left([*done, RunStatus("a", "3", "missing")]) == 20
    assert seconds_left([*done, other, RunStatus("b", "1", "failed")]) == 100
    assert seconds_left([*done, RunStatus("c", "1", "missing")]) == 20  # none of its cell: any
    two = [RunStatus("a", str(i), "running", "", 30.0) for i in (4, 5)]
    assert seconds_left([*done, *two]) == 30  # side by side
    assert seconds_left([RunStatus("a", "0", "missing")]) is None


def test_seconds_become_minutes_and_hours():
    assert [spelt(s) for s in (4.4, 59, 90, 3600, 11_000)] == [
        "4 s", "59 s", "2 min", "1 h 0 min", "3 h 3 min",
    ]  # fmt: skip


def test_what_is_no_sweep_is_one_line(run, tmp_path):
    (tmp_path / "work" / "empty").mkdir()
    damaged = tmp_path / "work" / "damaged"
    damaged.mkdir()
    (damaged / "multirun.yaml").write_text("hydra: {sweeper: 1}")
    (tmp_path / "work" / "run").mkdir()
    (tmp_path / "work" / "run" / "config.yaml").touch()
    (tmp_path / "work" / "run" / records.RESULT).mkdir()
    for folder, why in (
        ("absent", "no such folder"),
        ("empty", "no runs here"),
        ("damaged", "not a sweep's settings"),
        ("run", "a run's folder"),
    ):
        result = run("posfuse-status", folder)
        assert result.code == 1
        assert result.err.count("\n") == 1
        assert folder in result.err
        assert why in result.err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"schema": records.SCHEMA}, "no fingerprint"),
        ({"schema": records.SCHEMA, "fingerprint": "f"}, "no seconds in this record"),
        ({"schema": records.SCHEMA, "fingerprint": "f", "seconds": 3}, "no seconds in this record"),
    ],
)
def test_a_result_without_a_key_is_a_failure(content, message, tmp_path):
    folder = tmp_path / "tiny" / "none" / "add" / "seed=0"
    folder.mkdir(parents=True)
    (folder / records.RESULT).write_text(json.dumps(content))
    found = status_of(folder, tmp_path)
    assert found.state == "failed"
    assert message in found.detail


def test_a_damaged_failure_json_is_a_failure(tmp_path):
    folder = tmp_path / "tiny" / "none" / "add" / "seed=0"
    folder.mkdir(parents=True)
    for text in ("", "[]", json.dumps({"kind": 1})):
        (folder / records.FAILURE).write_text(text)
        found = status_of(folder, tmp_path)
        assert (found.state, found.detail) == (
            "failed",
            "the run failed, but failure.json is damaged",
        )


def test_in_a_terminal_it_updates_until_all_is_done(corpus, tmp_path, monkeypatch):
    """A pseudo-terminal: the page is updated, and the command ends when all runs are done."""
    import pty

    small = [*small_overrides(corpus), "trainer.max_epochs=1"]
    argv = [sys.executable, "-m", "posfuse.train", "-m", *small, "seed=0,1"]
    subprocess.run(argv, cwd=tmp_path, check=True, capture_output=True)
    (result,) = tmp_path.glob("multirun/*/*/*/*/*/seed=1/result.json")
    kept = result.rename(result.with_name("away"))
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "posfuse.sweeps.status", "multirun/default"],
        cwd=tmp_path, stdout=theirs, stderr=subprocess.STDOUT,
    )  # fmt: skip
    os.close(theirs)
    said = []

    def listen():
        try:
            while part := os.read(ours, 4096):
                said.append(part)
        except OSError:  # the other end has gone
            return

    listener = threading.Thread(target=listen)
    listener.start()
    wait_for(lambda: b"".join(said).count(b"1 of 2 runs are done") > 1)
    kept.rename(result)
    assert process.wait(timeout=HANG) == 0
    listener.join(timeout=HANG)
    os.close(ours)
    text = b"".join(said).decode()
    assert "1 of 2 runs are done" in text
    assert "2 of 2 runs are done" in text
