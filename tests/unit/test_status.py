"""posfuse status: which runs of a sweep are done, running, failed or missing, and the time left."""

import io
import os
import queue
import re
import shutil
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from commands import called
from posfuse.errors import AlreadyRunning
from posfuse.runs import records
from posfuse.runs.multirun import read_multirun
from posfuse.sweeps import status
from posfuse.sweeps.status import RunStatus, runs_of, seconds_left, status_of
from small_records import ask, write_failure, write_record


@pytest.fixture
def sweep(tmp_path):
    """Two fusions x three seeds, all done; a run of `add` takes 5 s and one of `concat` 10 s."""
    root = tmp_path / "mine"
    for seed in range(3):
        write_record(root, 0.5, "add", seed, seconds={"fit": 3.0, "test": 2.0})
        write_record(root, 0.5, "concat", seed, seconds={"fit": 10.0})
    ask(root, None, ["fusion=add,concat", "seed=0,1,2"])
    return root


def shown(folder, *options):
    """The exit status of posfuse status, and its lines or those of its error."""
    out, error = called("status", folder, *options)
    if error is not None:
        return 1, error.splitlines()
    lines = [" ".join(line.split()) for line in out.splitlines()]
    return 0, [line for line in lines if not line.startswith("next: ")]


def run_in(sweep, fusion, seed):
    return sweep / "tiny" / "sinusoidal" / fusion / f"seed={seed}"


def unfinished(sweep, fusion, seed):
    """A run whose result is removed."""
    run = run_in(sweep, fusion, seed)
    (run / records.RESULT).unlink()
    return run


def test_a_sweep_with_a_run_of_each_state(sweep):
    assert shown(sweep)[1][-1] == "6 of 6 runs are done"
    busy = AlreadyRunning.kind  # of a command that found another process at work
    for seed, kind in enumerate((busy, "interrupted", "diverged")):
        write_failure(unfinished(sweep, "add", seed), kind, f"so {kind}")
    run_in(sweep, "concat", 0).rename(sweep.parent / "away")
    running = unfinished(sweep, "concat", 1)
    write_failure(running, busy, "no")
    with records.sole_use(running):
        assert "running: tiny/sinusoidal/concat seed=1" in shown(sweep)[1]  # in its first epoch
        progress = {"epoch": 2, "epochs": 4, "epoch_seconds": 30.0}
        records.write_json(running / records.PROGRESS, progress)
        code, lines = shown(sweep)
    assert code == 0
    assert lines == [
        f"{sweep}:",
        "tiny/sinusoidal/add 1 interrupted, 1 stopped, 1 failed",
        "tiny/sinusoidal/concat 1 done, 1 running, 1 missing",
        "stopped: tiny/sinusoidal/add seed=0",
        "interrupted: tiny/sinusoidal/add seed=1: so interrupted",
        "failed: tiny/sinusoidal/add seed=2: so diverged",
        "running: tiny/sinusoidal/concat seed=1: epoch 2/4",
        # 3 x 10 s, 10 s and 60 s
        "1 of 6 runs are done, 1 running, 1 failed, about 2 min left",
    ]


def test_a_part_of_a_sweep_and_a_folder_of_several_have_their_runs(sweep, monkeypatch):
    """Runs that were refused or never started have no config.yaml."""
    ask(sweep, None, ["data=bbc_article,tiny", "fusion=add,concat,mlp", "seed=0,1,2"])
    refused = sweep / "tiny" / "sinusoidal" / "mlp" / "seed=0"
    refused.mkdir(parents=True)
    write_failure(refused, "config", "no")
    other = sweep.parent / "other"
    write_record(other, 0.5, "add", 0, seconds={"fit": 3.0})
    parts = {sweep: 18, sweep / "tiny": 9, sweep / "tiny" / "sinusoidal": 9, refused.parent: 3,
             other: 1, sweep.parent: 19}  # fmt: skip
    for folder, n in parts.items():
        assert len(runs_of(folder)) == n
        monkeypatch.chdir(folder)
        assert len(runs_of(Path())) == n
    lines = shown(sweep.parent)[1]
    assert "failed: mine/tiny/sinusoidal/mlp seed=0: no" in lines
    assert "mine/tiny/sinusoidal/mlp 1 failed, 2 missing" in lines
    assert "other/tiny/sinusoidal/add 1 done" in lines
    assert lines[-1].startswith("7 of 19 runs are done, 1 failed")


def test_files_of_wandb_are_no_runs(sweep):
    for place in (run_in(sweep, "add", 0), sweep / ".wandb"):
        files = place / "wandb" / "run-1" / "files"
        files.mkdir(parents=True)
        (files / "config.yaml").touch()
    assert shown(sweep)[1][-1] == "6 of 6 runs are done"


def test_the_last_line_is_the_next_step_unless_a_run_is_running(sweep):
    def last():
        return called("status", sweep)[0].splitlines()[-1]

    assert last() == f"next: posfuse report {sweep}"
    run = unfinished(sweep, "add", 0)
    assert last() == "next: run the sweep's command again; it skips finished runs"
    with records.sole_use(run):
        assert last().startswith("5 of 6 runs are done, 1 running")


def test_the_page_of_a_narrow_terminal_breaks_no_name(sweep, monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    wide = called("status", sweep)[0].splitlines()[1:3]
    assert wide == ["tiny/sinusoidal/add     3 done", "tiny/sinusoidal/concat  3 done"]
    monkeypatch.setenv("COLUMNS", "29")
    narrow = called("status", sweep)[0].splitlines()[1:3]
    assert narrow == ["tiny/sinusoidal/add", "    3 done"]


def test_a_page_without_room_for_all_keeps_failed_runs_and_the_summary(sweep):
    run = RunStatus("tiny/sinusoidal/add", "3", "failed", detail="no")
    runs = [*runs_of(sweep), run, *(RunStatus(f"cell{i}", "0", "done") for i in range(50))]
    lines = status.page(sweep, runs, 80, 10).plain.splitlines()
    assert len(lines) == 10
    assert lines[-3] == "... 46 more lines; posfuse status --once shows all"
    assert lines[-2] == "failed: tiny/sinusoidal/add seed=3: no"
    assert lines[-1].startswith("56 of 57 runs are done, 1 failed")
    many = [RunStatus(f"cell{i}", "0", "failed") for i in range(50)]
    assert len(status.page(sweep, many, 80, 10).plain.splitlines()) == 10


def test_a_name_cannot_write_to_the_terminal_and_a_pipe_cannot_stop_the_command(sweep):
    run = RunStatus("x\x1b[31m\n42 of 42 runs are done", "0", "failed")
    lines = status.page(sweep, [run], 80).plain.splitlines()
    assert len(lines) == 4
    assert "\x1b" not in "".join(lines)
    os.mkfifo(unfinished(sweep, "add", 0) / ".lock")
    assert len(runs_of(sweep)) == 6


def test_a_sweep_says_how_far_it_is_while_it_runs(sweep, monkeypatch):
    """Two runs are not done. The failure of `add`, of an earlier command, is repeated; that of
    `concat` is new. Another command has replaced multirun.yaml."""
    asked = read_multirun(sweep)
    ask(sweep, None, ["fusion=mlp"])
    run = unfinished(sweep, "concat", 0)
    write_failure(unfinished(sweep, "add", 0), "failed", "no")
    said, before = queue.Queue(), {*threading.enumerate()}
    monkeypatch.setattr(status, "MINUTE", 0.01)
    with status.every_minute(said.put, sweep, lambda: asked, False):
        assert said.get() == f"{sweep}: 4 of 6 runs are done, about 15 s left"
        write_failure(run, "failed", "no", id="2")
        last = f"{sweep}: 4 of 6 runs are done, 1 failed, about 5 s left"
        while not said.empty():  # lines from before the failure
            said.get()
        assert last in (said.get() for _ in range(3))
    assert not {*threading.enumerate()} - before


@pytest.mark.parametrize("is_of_study", [True, False])
def test_a_study_does_not_repeat_a_run_that_diverged(is_of_study, sweep, monkeypatch):
    write_failure(unfinished(sweep, "add", 0), "diverged", "no")
    said, asked = queue.Queue(), read_multirun(sweep)
    monkeypatch.setattr(status, "MINUTE", 0.01)
    with status.every_minute(said.put, sweep, lambda: asked, is_of_study):
        assert (", 1 failed" in said.get()) == is_of_study


def test_trials_that_a_search_has_not_proposed_yet_are_missing(sweep):
    search = {"n_trials": 4, "arms": {"t00": ["fusion=add"], "t01": ["fusion=concat"]}}
    task = ["arm=t00,t01", "seed=0,1,2"]
    ask(sweep, None, task, **search)
    lines = shown(sweep)[1]
    assert "not proposed yet 6 missing" in lines
    assert lines[-1] == "6 of 12 runs are done, about 45 s left"
    assert len(status.asked_for(read_multirun(sweep), sweep, set())) == 12
    search["n_trials"] = 2  # Optuna has ended early
    ask(sweep, None, task, **search)
    assert shown(sweep)[1][-1] == "6 of 6 runs are done"


def test_a_run_without_multirun_yaml_is_found(sweep):
    (sweep / "multirun.yaml").unlink()
    assert [run.state for run in runs_of(sweep)] == ["done"] * 6
    cells = {f"mine/tiny/sinusoidal/{fusion}" for fusion in ("add", "concat")}
    assert {run.cell for run in runs_of(sweep.parent)} == cells


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_in_a_terminal_the_page_is_updated_until_all_is_done(sweep, monkeypatch):
    result = run_in(sweep, "add", 1) / records.RESULT
    away = result.rename(result.with_name("away"))
    slept = []

    def finish(seconds):
        slept.append(seconds)
        away.rename(result)

    monkeypatch.setattr("commands.io", SimpleNamespace(StringIO=Terminal))
    monkeypatch.setattr(status.time, "sleep", finish)
    monkeypatch.setenv("COLUMNS", "200")
    assert shown(sweep, "--once")[1][-1] == "5 of 6 runs are done, about 5 s left"
    assert slept == []
    code, lines = shown(sweep)
    assert (code, slept) == (0, [status.REFRESH])
    assert "6 of 6 runs are done" in "".join(lines)  # among control codes


def test_a_sweep_that_is_emptied_while_it_is_watched_is_one_line(sweep, monkeypatch):
    unfinished(sweep, "add", 1)
    monkeypatch.setattr("commands.io", SimpleNamespace(StringIO=Terminal))
    monkeypatch.setattr(status.time, "sleep", lambda _: shutil.rmtree(sweep))
    code, lines = shown(sweep)
    assert code == 1
    assert lines[-1] == f"error: {sweep}: no runs here; run posfuse train -m first"


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


def test_what_is_no_sweep_is_one_line(tmp_path):
    for name in ("empty", "damaged", "run", "study"):
        (tmp_path / name).mkdir()
    (tmp_path / "study" / "plan.yaml").touch()
    (tmp_path / "damaged" / "multirun.yaml").write_text("hydra: {sweeper: 1}")
    (tmp_path / "run" / "config.yaml").touch()
    (tmp_path / "run" / records.RESULT).mkdir()
    for name, why in (
        ("absent", "no such folder; give a sweep's folder, such as multirun/mine"),
        ("empty", "no runs here"),
        ("study", "is a study; open its report/index.html, or give the folder of its test runs"),
        ("damaged", "not a sweep's settings"),
        ("run", "is the folder of a run; give a sweep's folder, such as multirun/mine"),
    ):
        code, (line,) = shown(tmp_path / name)
        assert code == 1
        assert line.startswith(f"error: {tmp_path / name}")
        assert why in line


def test_nothing_is_written_and_a_lock_is_seen_and_not_released(sweep, monkeypatch):
    """Tests may run as root, who may write anywhere: so opening a file to write it fails here."""
    run = unfinished(sweep, "add", 0)
    before = sorted(sweep.rglob("*"))
    assert any(line.startswith("stopped: ") for line in shown(sweep)[1])
    assert sorted(sweep.rglob("*")) == before
    opened = io.open

    def only_read(path, mode="r", *more, **named):
        if str(path).startswith(str(sweep)) and set(mode) & set("wax+"):
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, mode, *more, **named)

    monkeypatch.setattr(records, "WAIT", 0)
    with records.sole_use(run):
        with monkeypatch.context() as patch:
            patch.setattr(io, "open", only_read)
            assert [status_of(run, sweep).state for _ in range(2)] == ["running"] * 2
        with pytest.raises(AlreadyRunning), records.sole_use(run):
            pass
    assert status_of(run, sweep).state == "stopped"


PROGRESS = '{"epoch": %s, "epochs": %s, "epoch_seconds": %s}'


@pytest.mark.parametrize(
    "text",
    ["[]", "{", '{"epoch": 1, "epochs": 2}', PROGRESS % ('"1"', 2, 3), PROGRESS % (1, 2, -5),
     PROGRESS % (1, 10**400, 3)],
)  # fmt: skip
def test_a_damaged_progress_json_is_no_progress(text, sweep):
    run = unfinished(sweep, "add", 0)
    (run / records.PROGRESS).write_text(text)
    with records.sole_use(run):
        *_, state, count = shown(sweep)[1]
    assert state == "running: tiny/sinusoidal/add seed=0"
    assert count == "5 of 6 runs are done, 1 running, about 5 s left"


def test_a_result_that_is_not_the_one_asked_for_is_not_done(sweep):
    """A copied folder, and a run whose folder held another configuration's result."""
    copied, moved = run_in(sweep, "add", 1), run_in(sweep, "concat", 1)
    for run in (copied, moved):
        shutil.copytree(run_in(sweep, "add", 0), run, dirs_exist_ok=True)
    refused = run_in(sweep, "concat", 0)
    write_failure(refused, "conflict", "other")
    _, lines = shown(sweep)
    another = "the result of another run; remove it to run again"
    reasons = {copied: another, refused: "this result is not used", moved: another}
    for line, (run, reason) in zip(lines[-4:-1], reasons.items(), strict=True):
        assert re.match(rf"failed: tiny\S+ seed=\d: {run}.*: {reason}", line)
    assert lines[-1].startswith("3 of 6 runs are done")
    assert status_of(refused, sweep).state == "done"  # no command asks for this folder any more
    for kind in (records.INTERRUPTED, "already running"):  # the result may be the one asked for
        write_failure(refused, kind, "other")
        assert status_of(refused, sweep, is_asked=True).state == "done"


@pytest.mark.parametrize("seconds", [None, 3, {"fit": "a"}, {"fit": -1}])
def test_a_result_without_seconds_is_a_failure_that_names_the_file(seconds, tmp_path):
    folder = write_record(tmp_path, 0.5, seconds=seconds)
    found = status_of(folder, tmp_path)
    assert found.state == "failed"
    path = folder / records.RESULT
    assert found.detail == f"{path}: no seconds in this record; remove it to run again"
