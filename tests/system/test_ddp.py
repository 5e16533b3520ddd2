"""One run over two processes: the numbers of one process with the doubled batch."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from posfuse.data.batching import LengthBatches, SortedBatches
from posfuse.runs import records
from posfuse.training import replicas
from processes import HANG, alive, command, descendants, ended, started, wait_for
from small_runs import small_config, write_corpus
from sweeps import PARALLEL, at_work, results, sweep

TWO = ["trainer=ddp", "trainer.devices=2"]
# 57 documents in batches of 16 leave 9, which two processes share unevenly.
COMMON = ["data.limit=57", "model.dropout=0", "trainer.progress=none", "fusion=gate_scalar"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("ddp") / "corpus")


def batched(argv, size):
    return [f"data.batch_size={size}" if o.startswith("data.batch_size") else o for o in argv]


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("n", [60, 57, 49, 33])
def test_processes_share_out_each_batch(n, world):
    lengths = np.random.default_rng(0).integers(1, 40, n)
    whole = LengthBatches(lengths, 16, 2, seed=3)
    parts = [LengthBatches(lengths, 16, 2, 3, rank, world) for rank in range(world)]
    steps = 0
    for batch, *shares in zip(whole, *parts, strict=True):
        steps += 1
        assert min(map(len, shares)) >= 1
        joined = np.concatenate(shares)
        assert set(joined) == set(batch)
        if len(batch) >= world:
            assert len(joined) == len(batch)
            assert max(map(len, shares)) - min(map(len, shares)) <= 1
    assert steps == len(whole)


@pytest.mark.parametrize("n", [60, 57, 2])
def test_processes_share_out_the_documents_of_an_evaluation(n):
    lengths = np.random.default_rng(0).integers(1, 40, n)
    parts = [list(SortedBatches(lengths, 8, rank, 2)) for rank in range(2)]
    assert all(parts)
    assert sorted(np.concatenate([*parts[0], *parts[1]])) == list(range(n))


@pytest.fixture(scope="module")
def one_process(corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("one")
    done = ended(batched(command(corpus, *COMMON), 16), folder)
    assert done.returncode == 0, done.stderr
    return folder


def assert_close(one, other):
    """The only run of each folder has the numbers of the other's, but for rounding."""
    (left,), (right,) = (results(folder).values() for folder in (one, other))
    a, b = (records.read_result(folder / records.RESULT) for folder in (left, right))
    for part in ("test", "validation"):
        assert a[part] == pytest.approx(b[part], abs=1e-4)
    assert a["best_epoch"] == b["best_epoch"]
    frames = [pd.read_parquet(folder / records.PREDICTIONS) for folder in (left, right)]
    assert list(frames[0]["index"]) == list(range(20))  # every test document, once, in order
    pd.testing.assert_frame_equal(*frames, check_exact=False, rtol=0, atol=1e-4)
    for name in (records.HISTORY,):
        tables = [pd.read_csv(folder / name) for folder in (left, right)]
        pd.testing.assert_frame_equal(*tables, check_exact=False, rtol=0, atol=1e-4)
    diagnostics = [pd.read_parquet(folder / records.DIAGNOSTICS) for folder in (left, right)]
    pd.testing.assert_frame_equal(*diagnostics, check_exact=False, rtol=1e-2, atol=1e-3)


def test_two_processes_have_the_numbers_of_one_with_the_doubled_batch(
    corpus, one_process, tmp_path
):
    done = ended(batched(command(corpus, *TWO, *COMMON), 8), tmp_path)
    assert done.returncode == 0, done.stderr
    assert_close(one_process, tmp_path)
    (run,) = results(tmp_path).values()
    record = records.read_result(run / records.RESULT)
    assert record["settings"]["trainer.devices"] == 2
    assert not list(run.glob("*.part"))


@pytest.mark.parametrize("launcher", [[], PARALLEL], ids=["basic", "parallel"])
def test_a_sweep_has_runs_over_two_processes(launcher, corpus, tmp_path):
    done = ended(sweep(corpus, *TWO, "seed=0,1", "trainer.max_epochs=1", *launcher), tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(results(tmp_path)) == 2


@pytest.mark.parametrize("name", ["SIGTERM", "SIGKILL"])
def test_a_run_over_two_processes_ends_whole_and_goes_on(name, corpus, tmp_path):
    argv = command(corpus, *TWO, *COMMON, "trainer.max_epochs=100")
    process = started(argv, tmp_path)
    wait_for(lambda: at_work(tmp_path))
    pids = descendants(process.pid)
    process.send_signal(signal.Signals[name])
    _, err = process.communicate(timeout=HANG)
    assert process.returncode == (75 if name == "SIGTERM" else -9), err
    wait_for(lambda: not alive(pids))
    again = ended(argv, tmp_path)
    assert again.returncode == 0, again.stderr
    whole = ended(argv, tmp_path / "whole")
    assert whole.returncode == 0, whole.stderr
    assert_close(tmp_path / "whole", tmp_path)


def test_a_process_that_is_lost_is_a_failure_that_says_so(corpus, tmp_path):
    argv = command(corpus, *TWO, *COMMON, "trainer.max_epochs=3000")
    process = started(argv, tmp_path)
    wait_for(lambda: at_work(tmp_path))
    for pid in descendants(process.pid):
        if "posfuse.training.replicas" in Path(f"/proc/{pid}/cmdline").read_text():
            os.kill(pid, signal.SIGKILL)
    _, err = process.communicate(timeout=HANG)
    assert process.returncode == 1
    assert "process 1 of trainer.devices=2 ended with status -9" in err
    assert "Traceback" not in err


# A network that runs out of memory in some of the run's processes, on the way back, where the
# others have begun to wait for its gradients.
FULL = """
import os, torch
from posfuse.model.fusion import Add
from posfuse.training.replicas import rank

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
def test_out_of_memory_in_one_process_is_told_with_the_batch_size_that_fits(full, corpus, tmp_path):
    (tmp_path / "full.py").write_text(FULL)
    environment = {
        **os.environ,
        "FULL": full,
        "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}",
    }
    target = ["fusion=add", "fusion._target_=full.Full", "trainer.progress=none"]
    done = ended(command(corpus, *TWO, *target), tmp_path, environment)
    assert done.returncode == 1
    assert done.stderr == (
        "error: out of memory at step 0 with data.batch_size=16; data.batch_size=4 fits\n"
    )


def test_divergence_is_told_as_in_one_process(corpus, tmp_path):
    done = ended(command(corpus, *TWO, *COMMON, "optim.lr=1e30"), tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("error: diverged at step ")
    assert done.stderr.count("\n") == 1


def test_a_foreign_launchers_variables_change_nothing(corpus, one_process, tmp_path):
    foreign = {"LOCAL_RANK": "1", "RANK": "1", "WORLD_SIZE": "2", "GROUP_RANK": "1"}
    for folder, argv in (
        ("one", batched(command(corpus, *COMMON), 16)),
        ("two", batched(command(corpus, *TWO, *COMMON), 8)),
    ):
        done = ended(argv, tmp_path / folder, {**os.environ, **foreign})
        assert done.returncode == 0, done.stderr
        assert_close(one_process, tmp_path / folder)


def test_a_process_that_cannot_start_leaves_nothing_behind(corpus, tmp_path, monkeypatch):
    begun = []

    def start(number, cfg, folder):
        if begun:
            raise OSError("no more processes")
        begun.append(subprocess.Popen(["sleep", "100"]))
        return begun[0]

    monkeypatch.setattr(replicas, "_start", start)
    before = dict(os.environ)
    cfg = small_config(corpus, "trainer=ddp", "trainer.devices=3")
    with pytest.raises(OSError, match="no more"), replicas.replicas(cfg, tmp_path):
        pass
    assert begun[0].returncode == -signal.SIGKILL
    assert dict(os.environ) == before


def test_a_process_whose_first_is_gone_already_ends():
    done = subprocess.run(
        [sys.executable, "-m", "posfuse.training.replicas", "1"], timeout=HANG, check=False
    )
    assert done.returncode == -signal.SIGKILL


def test_more_processes_than_documents_are_refused(corpus, tmp_path):
    refused = ended(command(corpus, *TWO, "trainer.devices=21"), tmp_path)
    assert refused.returncode == 1
    told = "error: trainer.devices: 21 processes have no document each, validation holds 20;"
    assert refused.stderr.startswith(told)
    assert refused.stderr.count("\n") == 1
