"""Runs side by side on one machine: a place on a GPU for each, and what a failure does to them."""

import json
import multiprocessing
import os
import signal
import sys
from pathlib import Path

import pytest
from joblib import cpu_count

from posfuse.errors import InputError
from posfuse.process import devices
from posfuse.runs import records
from processes import HANG, alive, children, descendants, ended, started, wait_for
from small_runs import write_corpus
from sweeps import PARALLEL, SIX, assert_same_results, at_work, kinds, results, sweep


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("parallel") / "corpus")


@pytest.mark.parametrize(
    ("gpus", "runs_per_gpu", "per_run", "expected"),
    [
        ("0 1", 1, 1, "0 1"),
        ("0 1", 3, 1, "0 1 0 1 0 1"),
        ("4 7", 1, 1, "4 7"),
        ("0 1 2 3", 1, 2, "0,1 2,3"),
        ("0 1 2 3 4", 2, 2, "0,1 2,3 0,1 2,3"),
    ],
)
def test_each_run_has_a_place(gpus, runs_per_gpu, per_run, expected):
    assert devices.places(gpus.split(), runs_per_gpu, per_run) == expected.split()


def test_more_gpus_for_a_run_than_there_are_are_refused():
    with pytest.raises(InputError, match=r"trainer.devices: 4 GPUs for a run, and there are 2"):
        devices.places(["0", "1"], 1, 4)


@pytest.mark.parametrize(("asked", "expected"), [(-1, 4), (-2, 3), (-9, 1), (1, 1), (4, 4)])
def test_so_many_runs_at_once_as_places_or_fewer(asked, expected):
    assert devices.runs_at_once(asked, 4, "the GPUs have", "runs_per_gpu") == expected


def test_more_runs_at_once_than_places_are_refused():
    with pytest.raises(InputError, match=r"n_jobs: 3 runs at once.* room for 2.*runs_per_gpu"):
        devices.runs_at_once(3, 2, "the GPUs have", "runs_per_gpu")


@pytest.mark.parametrize(
    ("visible", "n", "expected"),
    [
        (None, 3, ["0", "1", "2"]),
        ("5, 2", 2, ["5", "2"]),
        ("", 3, ["0", "1", "2"]),
        ("-1", 0, []),
        ("0,1", 1, ["0"]),
    ],
)
def test_gpus_have_the_names_that_this_process_may_use(visible, n, expected, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr("torch.cuda.device_count", lambda: n)
    assert devices.gpus() == expected


def hold(places, folder, taken, leave):
    taken.put(devices.take(places, folder))
    leave.wait()


def test_processes_hold_places_of_their_own_until_they_end(tmp_path, capfd):
    fork = multiprocessing.get_context("fork")
    taken = fork.Queue()
    places = ["0", "1", "0"]

    def one():
        leave = fork.Event()
        process = fork.Process(target=hold, args=(places, tmp_path, taken, leave))
        process.start()
        return process, leave

    holders = [one() for _ in places]
    found = [taken.get(timeout=HANG) for _ in places]
    assert sorted(found) == ["0", "0", "1"]
    late, late_leave = one()
    told = []
    wait_for(lambda: told.append(capfd.readouterr().err) or "waiting" in told[-1])
    assert taken.empty()
    holders[0][0].kill()  # even so its place is free
    assert taken.get(timeout=HANG) in places
    for process, leave in [*holders[1:], (late, late_leave)]:
        leave.set()
        process.join(HANG)
    told.append(capfd.readouterr().err)
    line = f"another command holds every place of {tmp_path}/.places: waiting\n"
    assert "".join(told) == line


# The command with two GPUs to be seen, and none to be used.
PRETENDED = """
import sys
from posfuse import train
from posfuse.process import devices
devices.gpus = lambda: ["0", "1"]
train.main()
"""


def test_a_sweep_with_gpus_spreads_over_them_and_refuses_more(corpus, tmp_path):
    _, _, _, *overrides = sweep(corpus, "seed=0,1,2", "hydra/launcher=parallel")
    overrides = ["auto".join(o.split("cpu")) if "accelerator" in o else o for o in overrides]
    argv = [sys.executable, "-c", PRETENDED, *overrides]
    refused = ended([*argv, "hydra.launcher.n_jobs=3"], tmp_path)
    assert refused.returncode == 1
    assert refused.stderr.startswith("error: hydra.launcher.n_jobs: 3 runs at once")
    assert refused.stderr.count("\n") == 1
    assert not results(tmp_path)
    for wrong, told in (
        ("trainer.devices=3", "error: trainer.devices: 3 GPUs for a run, and there are 2"),
        ("trainer=default,ddp", "error: trainer.devices: hydra/launcher=parallel gives each run"),
        ("~hydra.launcher.n_jobs", "error: hydra.launcher.n_jobs: None is not a whole number"),
        ("hydra.launcher.n_jobs=true", "error: hydra.launcher.n_jobs: True is not a whole number"),
        ("hydra.launcher.batch_size=x", "error: hydra.launcher.batch_size: 'x' is not a whole"),
        ("hydra.launcher.batch_size=0", "error: hydra.launcher: n_jobs=0, or runs_per_gpu, runs_"),
        ("hydra.launcher.n_jobs=0", "error: hydra.launcher: n_jobs=0, or runs_per_gpu, runs_"),
        ("hydra.launcher.n_jobs=abc", "error: hydra.launcher.n_jobs: 'abc' is not a whole number"),
        ("hydra.launcher.runs_per_gpu=x", "error: hydra.launcher.runs_per_gpu: 'x' is not a whole"),
        ("+hydra.launcher.nonsense=1", "error: hydra.launcher.nonsense: unknown key; use one of"),
        (
            "+hydra.launcher.initializer=1",
            "error: hydra.launcher.initializer: unknown key; use one",
        ),
        ("+hydra.launcher.verbose=x", "error: hydra.launcher.verbose: unknown key; use one of"),
        ("sweep_id=a,b", "error: sweep_id: a sweep lies in one folder; give a command for each"),
    ):
        refused = ended([*argv, wrong], tmp_path)
        assert refused.returncode == 1
        assert refused.stderr.startswith(told)
        assert refused.stderr.count("\n") == 1
    assert not results(tmp_path)
    done = ended(argv, tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(results(tmp_path)) == 3
    for wrong in ("hydra.launcher.n_jobs=abc", "+hydra.launcher.nonsense=1"):
        refused = ended([*argv, wrong], tmp_path)  # though no run is left to do
        assert (refused.returncode, refused.stdout.count("done already")) == (1, 3)
        assert refused.stderr.startswith(f"error: {wrong.lstrip('+').split('=')[0]}: ")
    assert sorted(p.name for p in (tmp_path / "multirun/default/.places").iterdir()) == ["0", "1"]


@pytest.mark.parametrize("launcher", [[], PARALLEL], ids=["basic", "parallel"])
def test_a_failure_is_said_while_the_others_go_on(launcher, corpus, tmp_path):
    argv = sweep(corpus, "trainer.max_epochs=3000", "data.limit=2,null", *launcher)
    process = started(argv, tmp_path)
    line = process.stderr.readline()
    assert line.startswith("failed: tiny/sinusoidal/add/")
    assert "cannot take 2 of 60 documents" in line
    assert process.poll() is None
    wait_for(lambda: at_work(tmp_path))
    process.terminate()
    process.communicate(timeout=HANG)
    assert process.returncode == 75


@pytest.mark.parametrize("launcher", [[], PARALLEL], ids=["basic", "parallel"])
def test_fail_fast_ends_the_others_with_their_state(launcher, corpus, tmp_path):
    grid = ["data.limit=null,2", "trainer.max_epochs=3000"]
    if not launcher:
        grid[0] = "data.limit=2,null"  # one after another: the failure comes first
    argv = sweep(corpus, *grid, "sweep.fail_fast=true", *launcher)
    done = ended(argv, tmp_path)
    assert done.returncode == 1
    first, second, *_ = done.stderr.splitlines()
    assert first.startswith("failed: tiny/sinusoidal/add/")
    assert "cannot take 2 of 60 documents" in first
    assert second.startswith("error: 1 run(s) failed; sweep.fail_fast ended the others.")
    assert kinds(tmp_path) in [["failed", "preempted"], ["failed"]]  # it may not have begun
    assert not results(tmp_path)


def test_a_mistake_in_the_config_is_said_once_for_all_runs(corpus, tmp_path):
    done = ended(sweep(corpus, "seed=0,1", "model.n_heads=3", *PARALLEL), tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("error: model.n_heads: 3 does not divide")
    assert done.stderr.count("\n") == 1
    assert kinds(tmp_path) == ["config", "config"]


def test_more_runs_at_once_than_cores_are_refused_unless_asked_for_twice(corpus, tmp_path):
    cores = cpu_count()
    argv = sweep(corpus, "hydra/launcher=parallel", f"hydra.launcher.n_jobs={cores + 1}")
    refused = ended(argv, tmp_path)
    assert refused.returncode == 1
    assert refused.stderr == (
        f"error: hydra.launcher.n_jobs: {cores + 1} runs at once, the cores have room for {cores}; "
        "use that, or raise hydra.launcher.runs_per_core\n"
    )
    assert not results(tmp_path)
    done = ended([*argv, "hydra.launcher.runs_per_core=2"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(results(tmp_path)) == 1


def workers(process):
    """The processes that do the command's runs."""
    cmdlines = {pid: Path(f"/proc/{pid}/cmdline").read_text() for pid in children(process.pid)}
    return [pid for pid, cmdline in cmdlines.items() if "LokyProcess" in cmdline]


def test_a_worker_that_is_killed_fails_the_runs_at_work_and_no_other(corpus, tmp_path):
    argv = sweep(corpus, "seed=0,1,2,3,4", "trainer.max_epochs=60", *PARALLEL)
    process = started(argv, tmp_path)
    wait_for(lambda: len(at_work(tmp_path)) == 2)
    os.kill(workers(process)[0], signal.SIGKILL)
    _, err = process.communicate(timeout=HANG)
    assert process.returncode == 1
    lines = err.splitlines()
    assert len([line for line in lines if line.startswith("failed: tiny/sinusoidal/add/")]) == 2
    assert "error: 2 run(s) failed; the others are done. Run each again with:" in lines
    assert "a process of the sweep was killed while this run was at work" in lines[0]
    assert "Traceback" not in err
    assert kinds(tmp_path) == ["failed", "failed"]
    assert len(results(tmp_path)) == 3
    again = ended(argv, tmp_path)
    assert again.returncode == 0, again.stderr
    assert len(results(tmp_path)) == 5


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_processes_that_wait_for_a_run_take_none_along_when_all_are_told(name, corpus, tmp_path):
    """One run, whose steps are long, and processes beside it that have none yet; as a terminal
    does, the signal goes to each of them."""
    slow = ["model.d_model=1024", "model.d_ff=8192", "trainer.max_epochs=3000"]
    argv = sweep(corpus, *PARALLEL, "hydra.launcher.n_jobs=4", *slow)
    process = started(argv, tmp_path)
    wait_for(lambda: at_work(tmp_path))
    pids = workers(process)
    assert len(pids) == 4
    for pid in [*pids, process.pid]:
        os.kill(pid, signal.Signals[name])
    _, err = process.communicate(timeout=HANG)
    assert process.returncode == 75, err
    assert err == f"told to end by {name}; the same command goes on\n"
    assert not alive(pids)
    (run,) = tmp_path.rglob(records.FAILURE)
    told = json.loads(run.read_text())
    assert told["kind"] == "preempted"
    assert "kept at step" in told["message"]
    assert (run.parent / records.LAST).exists()


@pytest.mark.parametrize("name", ["SIGTERM", "SIGKILL"])
def test_a_command_that_is_told_while_its_processes_start_leaves_none(name, corpus, tmp_path):
    process = started(sweep(corpus, "seed=0,1,2,3", *PARALLEL), tmp_path)
    wait_for(lambda: workers(process))
    pids = descendants(process.pid)
    process.send_signal(signal.Signals[name])
    process.communicate(timeout=HANG)
    assert process.returncode == (75 if name == "SIGTERM" else -signal.SIGKILL)
    wait_for(lambda: not alive(pids))


@pytest.mark.smoke
def test_parallel_has_the_same_records_as_one_after_another(corpus, tmp_path):
    for name, launcher in (("basic", []), ("parallel", PARALLEL)):
        done = ended(sweep(corpus, *SIX, *launcher), tmp_path / name)
        assert done.returncode == 0, done.stderr
    assert_same_results(tmp_path / "basic", tmp_path / "parallel", 6)
