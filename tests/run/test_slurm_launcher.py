"""The slurm launcher with stand-ins for SLURM; tests/system/test_slurm.py has a real one."""

import math
import os
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn

from posfuse.process import signals
from posfuse.runs import records
from processes import assert_one_line
from small_runs import small_overrides
from sweeps import kinds, results

pytest.importorskip("submitit", reason="needs the extra: pip install -e '.[slurm]'")
from submitit.core.utils import FailedJobError, UncompletedJobError

from hydra_plugins.posfuse_slurm import SlurmLauncher, SlurmRun


@pytest.fixture
def sweep(corpus):
    few = ["trainer.max_epochs=1", "trainer.progress=none", "hydra/launcher=slurm", "seed=0,1"]
    return ["-m", *small_overrides(corpus, *few)]


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Write a program that stands in for one of SLURM's."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def write(**texts):
        for name, text in texts.items():
            (folder / name).write_text(f"#!/bin/sh\n{text}\n")
            (folder / name).chmod(0o755)

    write(srun="true", squeue="true")
    return write


def test_a_machine_without_slurm_is_one_line(command, sweep, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert_one_line(command(*sweep), "error: hydra/launcher=slurm: no sbatch on this machine; run")
    assert not list(tmp_path.rglob("config.yaml"))


def test_jobs_that_slurm_refuses_are_one_line(command, sweep, programs, tmp_path):
    programs(sbatch="echo 'error: invalid' >&2; echo account >&2; exit 1")
    message = "hydra/launcher=slurm: SLURM refuses the jobs (error: invalid account); see hydra."
    assert_one_line(command(*sweep), f"error: {message}")
    assert not list(tmp_path.rglob("config.yaml"))


def test_a_signal_during_sbatch_cancels_the_jobs(command, sweep, programs, tmp_path):
    programs(
        sbatch=f"kill -TERM {os.getpid()}; echo Submitted batch job 17",
        scancel=f'echo "$@" >> {tmp_path}/cancelled',
    )
    ended = command(*sweep)
    assert ended.code == signals.EXIT_STATUS
    assert ended.err == "interrupted by SIGTERM; run the same command to resume\n"
    assert (tmp_path / "cancelled").read_text() == "17\n"


class Job:
    """A job that runs in this process, or is lost if its seed is 1. After as many `losses` SLURM
    has requeued it, and it runs."""

    losses = math.inf
    job_id, state = "17_1", "NODE_FAIL"
    paths = SimpleNamespace(stderr="17_1.err", result_pickle=Path("never written"))
    lost = UncompletedJobError("no result")

    def __init__(self, work, call):
        self.work, self.call, self.asked = work, call, 0  # done when it is asked again

    def done(self, force_check=False):
        if force_check:  # asked after a loss
            return self.losses > 0
        self.asked += 1
        return self.asked > 1

    def results(self):
        if "seed=1" in self.call[1] and self.losses > 0:
            self.losses -= 1
            raise self.lost
        return [self.work(*self.call)]


class Executor:
    def map_array(self, work, *columns):
        calls = list(zip(*columns, strict=True))
        self.submitted += [call[1] for call in calls]
        return [Job(work, call) for call in calls]


class Executing(SlurmLauncher):
    def executor(self):
        return Executor()


@pytest.fixture
def executing(monkeypatch):
    """An override: the slurm launcher with jobs in this process."""
    names = Plugins.instance().class_name_to_class
    monkeypatch.setitem(names, "hydra_plugins.x.Executing", Executing)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    monkeypatch.setattr(signals, "launcher", None)
    monkeypatch.setattr(Executor, "submitted", [], raising=False)  # overrides of the jobs
    return "hydra.launcher._target_=hydra_plugins.x.Executing"


@pytest.mark.slow
def test_a_job_without_a_result_fails_alone_and_a_finished_run_gets_no_job(
    command, sweep, executing, tmp_path
):
    ended = command(*sweep, executing)
    assert ended.code == 1
    first, second, *_ = ended.err.splitlines()
    assert first.startswith("failed: tiny/sinusoidal/add/")
    assert first.endswith(
        "SLURM job 17_1 ended as NODE_FAIL without a result, see 17_1.err; run the same command to "
        "resume"
    )
    assert second.startswith("error: 1 of 2 runs failed; the others are done.")
    assert kinds(tmp_path) == ["failed"]
    ((_, done),) = results(tmp_path / "work").items()
    assert (done.name, (done / records.FAILURE).exists()) == ("seed=0", False)
    assert "seed=0: already done, test accuracy" in command(*sweep, executing).out
    (done / records.PREDICTIONS).write_bytes(b"damaged")
    command(*sweep, executing)
    first, second, third = ["seed=0", "seed=1"], ["seed=1"], ["seed=0", "seed=1"]
    assert [job[-1] for job in Executor.submitted] == [*first, *second, *third]  # by each command


@pytest.mark.slow
def test_a_job_that_slurm_has_requeued_is_waited_for(command, sweep, executing, monkeypatch):
    """Its node went down: for a moment it has ended without a result."""
    monkeypatch.setattr(Job, "losses", 1)
    ended = command(*sweep, executing)
    assert (ended.code, ended.err) == (0, "")
    assert len(Executor.submitted) == 2


@pytest.mark.parametrize("state", ["PREEMPTED", "SUSPENDED"])
def test_a_stopped_job_is_waited_for_only_while_slurm_may_continue_it(
    command, sweep, executing, programs, monkeypatch, tmp_path, state
):
    """submitit does not know that a preempted job has ended, or that a suspended one has not."""
    asked = tmp_path / "asked"
    programs(squeue=f"test $(wc -l < {asked}) -lt 3 && echo in the queue\necho >> {asked}")
    asked.touch()
    monkeypatch.setattr(Job, "state", state)
    ended = command(*sweep, executing)
    assert ended.code == 1
    assert f"SLURM job 17_1 ended as {state} without a result, see 17_1.err; run" in ended.err
    assert asked.read_text().count("\n") > 3


def test_a_job_that_ends_with_an_error_is_reported_with_it(command, sweep, executing, monkeypatch):
    dashes = "-" * 22
    text = f"Job failed during processing with trace:\n{dashes}\nTraceback\n  OSError: full\n\n"
    monkeypatch.setattr(Job, "lost", FailedJobError(f"{text}{dashes}\nYou can check\n - 17_1.out"))
    monkeypatch.setattr(Job, "state", "OUT_OF_MEMORY")
    error = command(*sweep, executing).err
    assert "SLURM job 17_1 failed (OSError: full), see 17_1.err; run the same command to" in error
    assert "to resume, with a larger hydra.launcher.mem_gb" in error


def test_an_interrupted_job_requeues_itself_unless_it_was_cancelled(programs, monkeypatch):
    monkeypatch.setattr(signals, "launcher", None)
    monkeypatch.setattr(signals, "_received", {})
    monkeypatch.setenv("SUBMITIT_EXECUTOR", "slurm")
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    result, requeued = JobReturn(), []
    before = signal.signal(signal.SIGUSR2, lambda *_: requeued.append("now"))
    try:
        monkeypatch.setitem(SlurmRun.__call__.__globals__, "execute", lambda: result)
        assert SlurmRun()() is result

        def interrupted():
            signal.raise_signal(signal.SIGUSR2)
            return result

        monkeypatch.setitem(SlurmRun.__call__.__globals__, "execute", interrupted)
        for state, expected in (("RUNNING", ["now"]), ("COMPLETING", ["now"])):
            programs(squeue=f"test $4 = 17 && echo {state}")
            with pytest.raises(SystemExit) as end:
                SlurmRun()()
            assert (end.value.code, requeued) == (signals.EXIT_STATUS, expected)
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert SlurmRun().checkpoint(1, 2).args == (1, 2)
