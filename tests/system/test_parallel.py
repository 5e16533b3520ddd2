"""Runs side by side on one machine: what a failure does to the others."""

import json
import signal

import pytest

from faulty import FAULTY, faulty
from posfuse.process import signals
from posfuse.runs import records
from processes import HANG, alive, descendants, ended, started, succeeded, wait_for
from sweeps import PARALLEL, at_work, kinds, results, sweep


def test_a_failure_is_reported_while_the_others_run(corpus, tmp_path):
    argv = sweep(corpus, "trainer.max_epochs=3000", "data.limit=2,null", *PARALLEL)
    process = started(argv, tmp_path)
    line = process.stderr.readline()
    assert line.startswith("failed: tiny/sinusoidal/add/")
    assert "cannot take 2 of 60 documents" in line
    assert process.poll() is None
    wait_for(lambda: at_work(tmp_path))
    process.terminate()
    process.communicate(timeout=HANG)
    assert process.returncode == 75


def test_fail_fast_interrupts_the_others(corpus, tmp_path):
    grid = ["data.limit=null,2", "trainer.max_epochs=3000"]
    argv = sweep(corpus, *grid, "sweep.fail_fast=true", *PARALLEL)
    done = ended(argv, tmp_path)
    assert done.returncode == 1
    _, second, *_ = done.stderr.splitlines()
    assert second.startswith("error: 1 of 2 runs failed; sweep.fail_fast stopped the others.")
    assert kinds(tmp_path) in (["failed", "interrupted"], ["failed"])
    assert not results(tmp_path)


def test_a_killed_worker_fails_its_run_and_no_other(corpus, tmp_path):
    argv = sweep(corpus, "seed=range(4)", *FAULTY, *PARALLEL)
    done = ended(argv, tmp_path, faulty(tmp_path / "fault", "SIGKILL"))
    assert done.returncode == 1
    first, second, *_ = done.stderr.splitlines()
    assert first.startswith("failed: tiny/sinusoidal/add/")
    assert "the process of this run was killed" in first
    assert second.startswith("error: 1 of 4 runs failed; the others are done. Run the same command")
    assert "Traceback" not in done.stderr
    assert kinds(tmp_path) == ["failed"]
    assert len(results(tmp_path)) == 3
    succeeded(argv, tmp_path, faulty(tmp_path / "no fault", ""))
    assert len(results(tmp_path)) == 4


def test_a_signal_to_one_worker_interrupts_its_run_and_no_other(corpus, tmp_path):
    argv = sweep(corpus, "seed=range(4)", *FAULTY, *PARALLEL)
    done = ended(argv, tmp_path, faulty(tmp_path / "fault", "SIGTERM"))
    assert done.returncode == signals.EXIT_STATUS, done.stderr
    assert kinds(tmp_path) == ["interrupted"]
    assert len(results(tmp_path)) == 3


def test_idle_workers_block_a_signal_to_the_whole_group(corpus, tmp_path):
    """As Ctrl-C in a terminal, the signal goes to every process: to a worker that trains, and to
    one that has skipped a finished run and has no other."""
    argv = sweep(corpus, *FAULTY, *PARALLEL)
    succeeded([*argv, "seed=0"], tmp_path, faulty(tmp_path / "no fault", ""))
    environment = faulty(tmp_path / "fault", "SIGINT", to="group")
    process = started(["setsid", "--wait", *argv, "seed=0,1"], tmp_path, environment)
    _, err = process.communicate(timeout=HANG)
    assert process.returncode == signals.EXIT_STATUS, err
    assert err == "interrupted by SIGINT; run the same command to resume\n"
    # The signal may come before the other worker has seen that its run is finished.
    failures = tmp_path.rglob(records.FAILURE)
    (run,) = [path for path in failures if not (path.parent / records.RESULT).exists()]
    failure = json.loads(run.read_text())
    assert failure["kind"] == "interrupted"
    assert "saved at step 6" in failure["message"]
    assert (run.parent / records.LAST).exists()


@pytest.mark.parametrize("name", ["SIGTERM", "SIGKILL"])
def test_a_command_interrupted_while_its_workers_start_leaves_none(name, corpus, tmp_path):
    process = started(sweep(corpus, "seed=0,1,2,3", *PARALLEL), tmp_path)
    wait_for(lambda: alive(descendants(process.pid), "spawn_main"))
    below = descendants(process.pid)
    process.send_signal(signal.Signals[name])
    process.communicate(timeout=HANG)
    assert process.returncode == (75 if name == "SIGTERM" else -signal.SIGKILL)
    wait_for(lambda: not alive(below))
