"""Sweeps on a real SLURM of one node: its signals, kills and requeues lose no work."""

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

import slurm_cluster
from processes import HANG, started, succeeded, wait_for
from sweeps import assert_same_results, at_work, kinds, one_after_another, results, sweep

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(slurm_cluster.missing(), reason=slurm_cluster.INSTALL),
]
LONG = ["fusion=add,concat", "seed=0,1", "trainer.max_epochs=100"]
SLURM = ["hydra/launcher=slurm", "hydra.launcher.array_parallelism=2"]


@pytest.fixture(scope="module")
def cluster():
    folder = Path(tempfile.mkdtemp(prefix="slurm"))  # short: sockets have paths of 107 letters
    with slurm_cluster.cluster(folder) as environment:
        yield environment
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def whole(corpus, tmp_path_factory):
    return one_after_another(corpus, tmp_path_factory.mktemp("whole"), *LONG)


def running(cluster):
    """The ids of the array's jobs that are running."""
    asked = ["squeue", "--noheader", "--states=R", "--partition=main", "--format=%i"]
    return slurm_cluster.output(asked, cluster).split()


def job_at_work(folder, cluster):
    """A job whose run has done an epoch, and that run's folder."""
    wait_for(lambda: at_work(folder))
    (run, *_) = at_work(folder)
    _, _, fusion, _, seed = run.parts[-5:]
    number = 2 * (fusion == "concat") + int(seed.removeprefix("seed="))
    return next(job for job in running(cluster) if job.endswith(f"_{number}")), run


def send(number, job, cluster):
    """Send a signal to the processes of the job's step. scancel sends SIGTERM before SIGKILL, and
    repeats other signals to a job of an array."""
    asked = ["squeue", "--noheader", "--jobs", job, "--format=%A"]
    listed = ["scontrol", "listpids", slurm_cluster.output(asked, cluster)]
    rows = slurm_cluster.output(listed, cluster).splitlines()[1:]
    (pid,) = [pid for pid, _, step, *_ in map(str.split, rows) if step == "0"]
    os.kill(int(pid), number)


def release(cluster):
    """Start requeued jobs at once instead of after two minutes."""
    asked = ["squeue", "--noheader", "--states=PD", "--format=%i %r"]

    def waiting():
        rows = [line.split() for line in slurm_cluster.output(asked, cluster).splitlines()]
        return [job for job, reason in rows if reason == "BeginTime"]

    wait_for(waiting)
    for job in waiting():
        update = ["scontrol", "update", f"jobid={job}", "starttime=now"]
        subprocess.run(update, env=cluster, check=True)


def test_a_killed_job_fails_alone_and_the_same_command_resumes(corpus, cluster, whole, tmp_path):
    argv = sweep(corpus, *LONG, *SLURM)
    process = started(argv, tmp_path, cluster)
    job, run = job_at_work(tmp_path, cluster)
    send(signal.SIGKILL, job, cluster)
    _, err = process.communicate(timeout=HANG)
    assert process.returncode == 1
    first, second, *_ = err.splitlines()
    assert first.startswith(
        f"failed: {run.relative_to(tmp_path / 'multirun' / 'default')}: SLURM job {job} ended as "
    )
    assert second.startswith("error: 1 of 4 runs failed; the others are done.")
    assert "Traceback" not in err
    assert len(results(tmp_path)) == 3
    succeeded(argv, tmp_path, cluster)
    assert_same_results(whole, tmp_path, 4)
    succeeded(argv, tmp_path, cluster)  # no job if no run is left


@pytest.mark.parametrize("why", ["time limit", "preemption"])
def test_a_job_that_slurm_stops_is_requeued_and_resumes(why, corpus, cluster, whole, tmp_path):
    process = started(sweep(corpus, *LONG, *SLURM), tmp_path, cluster)
    job, run = job_at_work(tmp_path, cluster)
    if why == "time limit":
        send(signal.SIGUSR2, job, cluster)
        wait_for(lambda: kinds(tmp_path) == ["interrupted"])
        assert "interrupted by SIGUSR2; saved at step" in (run / "failure.json").read_text()
    else:
        urgent = ["sbatch", "--partition=urgent", "--exclusive", "--wait", "--wrap=sleep 1"]
        urgent.append(f"--output={tmp_path}/urgent")
        subprocess.run(urgent, env=cluster, check=True, timeout=HANG)
        assert "interrupted" in kinds(tmp_path)
    release(cluster)
    _, err = process.communicate(timeout=HANG)
    assert process.returncode == 0, err
    assert_same_results(whole, tmp_path, 4)


def test_an_interrupted_command_leaves_no_job(corpus, cluster, whole, tmp_path):
    argv = sweep(corpus, *LONG, *SLURM)
    process = started(argv, tmp_path, cluster)
    job_at_work(tmp_path, cluster)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=HANG)
    assert process.returncode == 75, err
    assert err == "interrupted by SIGINT; run the same command to resume\n"
    assert not slurm_cluster.output(["squeue", "--noheader"], cluster)
    assert set(kinds(tmp_path)) == {"interrupted"}
    succeeded(argv, tmp_path, cluster)
    assert_same_results(whole, tmp_path, 4)
