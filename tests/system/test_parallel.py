"""Runs side by side on one machine: their GPUs, and what a failure does to the others."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest
from joblib import cpu_count

from faulty import FAULTY, faulty
from posfuse.process import signals
from posfuse.runs import records
from processes import HANG, alive, children, descendants, ended, started, wait_for
from small_runs import write_corpus
from sweeps import PARALLEL, at_work, kinds, results, sweep


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("parallel") / "corpus")


# The command on a machine with two GPUs, which it must not use.
PRETENDED = """
from posfuse import cli
from posfuse.process import devices
devices.gpus = lambda: ["0", "1"]
cli.main()
"""


def test_a_sweep_with_gpus_spreads_over_them(corpus, tmp_path):
    _, _, _, *overrides = sweep(corpus, "seed=0,1,2", "hydra/launcher=parallel")
    overrides = ["auto".join(o.split("cpu")) if "accelerator" in o else o for o in overrides]
    argv = [sys.executable, "-c", PRETENDED, *overrides]
    done = ended(argv, tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(results(tmp_path)) == 3
    assert sorted(p.name for p in (tmp_path / "multirun/default/.places").iterdir()) == ["0", "1"]


WITNESS = """
import os
from pathlib import Path
from posfuse.model.fusion import Add

class Witness(Add):
    seen = False

    def merge(self, *parts):
        if self.training and not self.seen:
            self.seen = True
            with Path(os.environ["WITNESS"]).open("a") as file:
                file.write(f"{os.getpid()}\\n")
        return super().merge(*parts)
"""


def test_a_worker_starts_once_for_all_its_runs(corpus, tmp_path):
    (tmp_path / "witness.py").write_text(WITNESS)
    paths = [str(tmp_path), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    known = {"PYTHONPATH": os.pathsep.join(paths), "WITNESS": str(tmp_path / "pids")}
    operator = ["fusion=add", "fusion._target_=witness.Witness"]
    argv = sweep(corpus, "seed=range(6)", *operator, *PARALLEL)
    done = ended(argv, tmp_path, {**os.environ, **known})
    assert done.returncode == 0, done.stderr
    pids = (tmp_path / "pids").read_text().split()
    assert len(pids) == 6
    assert len(set(pids)) <= 2


@pytest.mark.parametrize("launcher", [[], PARALLEL], ids=["basic", "parallel"])
def test_a_failure_is_reported_while_the_others_run(launcher, corpus, tmp_path):
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


def test_fail_fast_interrupts_the_others(corpus, tmp_path):
    grid = ["data.limit=null,2", "trainer.max_epochs=3000"]
    argv = sweep(corpus, *grid, "sweep.fail_fast=true", *PARALLEL)
    done = ended(argv, tmp_path)
    assert done.returncode == 1
    first, second, *_ = done.stderr.splitlines()
    assert first.startswith("failed: tiny/sinusoidal/add/")
    assert "cannot take 2 of 60 documents" in first
    assert second.startswith("error: 1 run(s) failed; sweep.fail_fast stopped the others.")
    assert kinds(tmp_path) in [
        ["failed", "interrupted"],
        ["failed"],
    ]
    assert not results(tmp_path)


def test_runs_per_core_allows_more_runs_than_cores(corpus, tmp_path):
    cores = cpu_count()
    argv = sweep(corpus, "hydra/launcher=parallel", f"hydra.launcher.n_jobs={cores + 1}")
    done = ended([*argv, "hydra.launcher.runs_per_core=2"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(results(tmp_path)) == 1


def workers(process):
    """The worker processes of a command."""
    cmdlines = {pid: Path(f"/proc/{pid}/cmdline").read_text() for pid in children(process.pid)}
    return [pid for pid, cmdline in cmdlines.items() if "spawn_main" in cmdline]


def test_a_killed_worker_fails_its_run_and_no_other(corpus, tmp_path):
    argv = sweep(corpus, "seed=range(4)", *FAULTY, *PARALLEL)
    done = ended(argv, tmp_path, faulty(tmp_path / "fault", "SIGKILL"))
    assert done.returncode == 1
    first, second, *_ = done.stderr.splitlines()
    assert first.startswith("failed: tiny/sinusoidal/add/")
    assert "the process of this run was killed" in first
    assert second == "error: 1 run(s) failed; the others are done. Retry each with:"
    assert "Traceback" not in done.stderr
    assert kinds(tmp_path) == ["failed"]
    assert len(results(tmp_path)) == 3
    again = ended(argv, tmp_path, faulty(tmp_path / "no fault", ""))
    assert again.returncode == 0, again.stderr
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
    done = ended([*argv, "seed=0"], tmp_path, faulty(tmp_path / "no fault", ""))
    assert done.returncode == 0, done.stderr
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
    wait_for(lambda: workers(process))
    pids = descendants(process.pid)
    process.send_signal(signal.Signals[name])
    process.communicate(timeout=HANG)
    assert process.returncode == (75 if name == "SIGTERM" else -signal.SIGKILL)
    wait_for(lambda: not alive(pids))
