"""One run on two devices: the numbers of one process with the doubled batch."""

import signal
import sys

import pandas as pd
import pytest

from faulty import FAULTY, faulty
from posfuse.process import signals
from posfuse.runs import records
from posfuse.train import train
from posfuse.training.replicas import RUN
from processes import HANG, alive, command, descendants, ended, importing, started, wait_for
from small_runs import small_config
from sweeps import PARALLEL, results, sweep

TWO = ["trainer=ddp", "trainer.devices=2"]
# 57 documents in batches of 16 leave 9, which two processes share unevenly.
COMMON = ["data.limit=57", "data.max_len=9", "data.test_lengths=[11]", "model.dropout=0",
          "trainer.progress=none", *FAULTY]  # fmt: skip
# Variables of another program that starts processes.
FOREIGN = {"LOCAL_RANK": "1", "RANK": "1", "WORLD_SIZE": "2", "GROUP_RANK": "1"}
QUIET = {"TORCH_CPP_LOG_LEVEL": "ERROR"}  # torch warns if no server knows the name of 127.0.0.1


@pytest.fixture(scope="module")
def whole(corpus, tmp_path_factory):
    """The folder of a run of two processes that nothing interrupts. This process is the first."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")  # Lightning sets it for the process where it is unset
        return trained(tmp_path_factory.mktemp("two"), corpus, *TWO, "data.batch_size=8")


def trained(folder, corpus, *overrides):
    """The folder, with a run in it that this process has trained."""
    run = folder / "multirun" / "default" / "tiny" / "sinusoidal" / "add" / "seed=0"
    run.mkdir(parents=True)
    train(small_config(corpus, *COMMON, *overrides), run)
    return folder


def assert_close(one, other):
    """The only run of each folder has the other's numbers, except for rounding."""
    runs = [run for folder in (one, other) for run in results(folder).values()]
    a, b = (records.read_result(run / records.RESULT) for run in runs)

    def compared(name, read=pd.read_parquet, rtol=0.0, atol=1e-4):
        frames = [read(run / name) for run in runs]
        pd.testing.assert_frame_equal(*frames, check_exact=False, rtol=rtol, atol=atol)
        return frames[0]

    for part in ("test", "validation"):
        assert a[part] == pytest.approx(b[part], abs=1e-4)
    assert a["lengths"]["11"] == pytest.approx(b["lengths"]["11"], abs=1e-4)
    assert a["best_epoch"] == b["best_epoch"]
    predictions = compared(records.PREDICTIONS)
    assert list(predictions["index"]) == list(range(20))  # every test document, once, in order
    assert len(compared(records.BY_LENGTH)) > 2
    compared(records.HISTORY, pd.read_csv)
    compared(records.DIAGNOSTICS, rtol=1e-2, atol=1e-3)


def test_two_processes_have_the_numbers_of_one_with_the_doubled_batch(corpus, whole, tmp_path):
    assert_close(trained(tmp_path, corpus, "data.batch_size=16"), whole)
    (run,) = results(whole).values()
    record = records.read_result(run / records.RESULT)
    assert record["settings"]["trainer.devices"] == 2
    assert not list(run.glob("*.part"))


def test_a_sweep_has_runs_of_two_processes(corpus, tmp_path):
    """Two workers for three runs: one worker does two of them, one after the other."""
    done = ended(sweep(corpus, *TWO, "seed=0,1,2", "trainer.max_epochs=1", *PARALLEL), tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(results(tmp_path)) == 3


@pytest.mark.parametrize("name", ["SIGTERM", "SIGKILL"])
def test_an_interrupted_run_of_two_processes_leaves_none_and_resumes(name, corpus, whole, tmp_path):
    argv = command(corpus, *TWO, *COMMON, "data.batch_size=8")
    environment = faulty(tmp_path / "fault", name, step=9) | FOREIGN | QUIET
    process = started(argv, tmp_path, environment)
    wait_for(lambda: alive(descendants(process.pid), RUN))
    below = descendants(process.pid)
    _, err = process.communicate(timeout=HANG)
    if name == "SIGTERM":
        # The processes agree at every tenth step on whether to save.
        message = "interrupted by SIGTERM; saved at step 10; run the same command to resume\n"
        assert (process.returncode, err) == (signals.EXIT_STATUS, message)
    else:
        assert process.returncode == -signal.SIGKILL, err
    wait_for(lambda: not alive(below))
    again = ended(argv, tmp_path, faulty(tmp_path / "no fault", ""))
    assert again.returncode == 0, again.stderr
    assert_close(whole, tmp_path)


# A network that runs out of memory in some of the run's processes during the backward pass, while
# the others wait for its gradients.
FULL = """
import os, torch
from posfuse.model.fusion import Add
from posfuse.process.distributed import rank

class Full(Add):
    def merge(self, token, position):
        fused = super().merge(token, position)
        if self.training and str(rank()) in os.environ["FULL"] and len(token[0]) > 4:
            fused.register_hook(self.fail)
        return fused

    def fail(self, gradient):
        raise torch.OutOfMemoryError("no room")
"""


@pytest.mark.parametrize("full", ["0", "1", "01"])
def test_out_of_memory_in_one_process_names_the_batch_size_that_fits(full, corpus, tmp_path):
    (tmp_path / "full.py").write_text(FULL)
    target = ["fusion=add", "fusion._target_=full.Full", "trainer.progress=none"]
    environment = importing(tmp_path, FULL=full, **QUIET)
    done = ended(command(corpus, *TWO, *target), tmp_path, environment)
    assert done.returncode == 1
    assert done.stderr == (
        "error: out of memory at step 0 with data.batch_size=16; try data.batch_size=8\n"
    )


def test_a_process_exits_if_its_parent_has_ended(tmp_path):
    """Its parent is this test and not process 1, whose id it gets."""
    argv = [sys.executable, "-m", "posfuse.training.run", "1"]
    assert ended(argv, tmp_path).returncode == -signal.SIGKILL
