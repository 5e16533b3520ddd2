"""Runs and sweeps that are told to end, or killed, go on to the numbers they would have had."""

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pandas as pd
import pytest
import torch

from posfuse.errors import Diverged, OutOfMemory
from posfuse.model.network import PositionClassifier
from posfuse.process import signals
from posfuse.process.signals import Preempted
from posfuse.runs import records
from posfuse.train import train
from posfuse.training.classifier import Classifier
from processes import HANG, alive, assert_same_files, command, descendants, started, wait_for
from small_runs import at_step, small_config, write_corpus
from sweeps import PARALLEL

STEPS = 4  # an epoch: 60 documents in batches of 16


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("preemption") / "corpus")


@pytest.fixture(scope="module")
def reference(corpus, tmp_path_factory):
    """The folder of a run that nothing interrupts, 4 epochs of 4 steps."""
    folder = tmp_path_factory.mktemp("reference")
    train(small_config(corpus, "fusion=gate_scalar"), folder)
    return folder


@pytest.fixture(autouse=True)
def nothing_told():
    yield
    signals.told.clear()


def steps_of(monkeypatch):
    """A list that the numbers of the steps come into as they are done."""
    steps = []
    original = Classifier.training_step

    def wrapped(self, *arguments):
        steps.append(self.global_step)
        return original(self, *arguments)

    monkeypatch.setattr(Classifier, "training_step", wrapped)
    return steps


@pytest.mark.parametrize("step", [0, 1, 9, 3, 15])
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGUSR1", "SIGUSR2", "SIGHUP"])
def test_a_run_told_to_end_goes_on_from_the_step_it_was_at(
    name, step, corpus, reference, tmp_path, monkeypatch
):
    before = signal.getsignal(signal.Signals[name])
    with monkeypatch.context() as patched:
        at_step(patched, step, lambda: os.kill(os.getpid(), signal.Signals[name]))
        with pytest.raises(Preempted, match=f"told to end by {name}, kept at step {step + 1}"):
            train(small_config(corpus, "fusion=gate_scalar"), tmp_path)
    assert signal.getsignal(signal.Signals[name]) is before
    assert not (tmp_path / "result.json").exists()
    signals.told.clear()
    steps = steps_of(monkeypatch)
    train(small_config(corpus, "fusion=gate_scalar"), tmp_path)
    assert steps == list(range(step + 1, 4 * STEPS))
    assert_same_files(reference, tmp_path)


@pytest.mark.parametrize("step", [2, 6, 9, 13])
def test_a_killed_run_goes_on_from_its_last_checkpoint_inside_the_epoch(
    step, corpus, reference, tmp_path, monkeypatch
):
    """A checkpoint after every step but an epoch's last one; the kill comes as an error does."""
    cfg = small_config(corpus, "fusion=gate_scalar", "trainer.checkpoint_minutes=1e-9")

    def die():
        raise RuntimeError("killed")

    with monkeypatch.context() as patched:
        at_step(patched, step, die)
        with pytest.raises(RuntimeError, match="killed"):
            train(cfg, tmp_path)
    steps = steps_of(monkeypatch)
    train(cfg, tmp_path)
    assert steps == list(range(step, 4 * STEPS))
    assert_same_files(reference, tmp_path)


def test_a_signal_in_the_midst_of_a_runs_imports_is_heard_behind_them(
    corpus, tmp_path, monkeypatch
):
    done = []

    def importing(tracked):
        signal.raise_signal(signal.SIGTERM)
        done.append("all of them")

    monkeypatch.setattr("posfuse.train.import_run", importing)
    monkeypatch.setattr(signals, "told", [])
    with signals.ending(), pytest.raises(Preempted, match="told to end by SIGTERM"):
        train(small_config(corpus), tmp_path / "run")
    assert done == ["all of them"]


def test_a_deaf_process_stays_deaf_when_signals_come_later():
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals.SIGNALS)
    try:
        with signals.signals_later():
            pass
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])
        assert blocked.issuperset(signals.SIGNALS)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_a_second_signal_ends_a_run_at_once(corpus, tmp_path, monkeypatch):
    def twice():
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGTERM)

    at_step(monkeypatch, 5, twice)
    with pytest.raises(Preempted, match="then at once"):
        train(small_config(corpus), tmp_path)


def test_a_run_told_in_its_test_goes_on_with_the_test(corpus, reference, tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        original = Classifier.test_step

        def told(self, *arguments):
            os.kill(os.getpid(), signal.SIGTERM)
            return original(self, *arguments)

        patched.setattr(Classifier, "test_step", told)
        with pytest.raises(Preempted):
            train(small_config(corpus, "fusion=gate_scalar"), tmp_path)
    signals.told.clear()
    steps = steps_of(monkeypatch)
    train(small_config(corpus, "fusion=gate_scalar"), tmp_path)
    assert not steps
    assert_same_files(reference, tmp_path)


def test_a_loss_that_is_not_finite_ends_the_run_with_its_step(corpus, tmp_path):
    with pytest.raises(Diverged, match=r"diverged at step \d+: .* lower optim.lr=1e\+30"):
        train(small_config(corpus, "optim.lr=1e30"), tmp_path)
    assert not (tmp_path / "result.json").exists()


@pytest.mark.parametrize(("fits", "told"), [(8, "data.batch_size=8 fits"), (0, "not even one")])
def test_out_of_memory_is_told_with_the_batch_size_that_fits(
    fits, told, corpus, tmp_path, monkeypatch
):
    original = PositionClassifier.forward

    def limited(self, ids, lengths, *more):
        if len(ids) > fits and self.training:
            raise torch.OutOfMemoryError("no room")
        return original(self, ids, lengths, *more)

    monkeypatch.setattr(PositionClassifier, "forward", limited)
    with pytest.raises(OutOfMemory, match=f"at step 0 with data.batch_size=16; {told}"):
        train(small_config(corpus), tmp_path)
    monkeypatch.setattr(PositionClassifier, "forward", original)
    train(small_config(corpus), tmp_path)


def test_out_of_memory_in_evaluation_names_its_own_batch_size(corpus, tmp_path, monkeypatch):
    original = PositionClassifier.forward

    def limited(self, ids, lengths, *more):
        if len(ids) > 5 and not self.training:
            raise torch.OutOfMemoryError("no room")
        return original(self, ids, lengths, *more)

    monkeypatch.setattr(PositionClassifier, "forward", limited)
    with pytest.raises(OutOfMemory, match=r"eval_batch_size=\d+; data.eval_batch_size=4 fits"):
        train(small_config(corpus), tmp_path)


def test_a_process_that_may_take_no_more_memory_says_which_batch_fits(tmp_path):
    """A limit of the address space: a real refusal."""
    words = " ".join(f"w{i % 50}" for i in range(1_000))
    for split in ("train", "validation", "test"):
        frame = pd.DataFrame({"text": [f"{words} {i}" for i in range(256)], "label": [0, 1] * 128})
        frame.to_parquet(tmp_path / f"{split}.parquet")
    sizes = ["data.max_len=1024", "data.batch_size=256", "model.d_model=256", "model.d_ff=1024"]
    limited = ["prlimit", f"--as={3 * 2**30}", *command(tmp_path), *sizes]
    ended = subprocess.run(limited, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert re.fullmatch(
        r"error: out of memory at step 0 with data.batch_size=256; data.batch_size=\d+ fits\n",
        ended.stderr,
    )


def training(folder):
    """Runs of a sweep that have done an epoch and are not done."""
    logs = folder.rglob("train.log")
    return [p.parent for p in logs if "epoch 1/" in p.read_text() and not done(p.parent)]


def done(folder):
    return (folder / records.RESULT).exists()


@pytest.mark.smoke
def test_the_command_says_that_it_was_preempted_by_its_status(corpus, tmp_path):
    argv = [*command(corpus), "trainer.max_epochs=3000", "trainer.progress=none"]
    process = started(argv, tmp_path)
    wait_for(lambda: training(tmp_path))
    process.terminate()
    _, err = process.communicate(timeout=HANG)
    assert process.returncode == 75
    assert err.count("\n") == 1
    assert err.startswith("told to end by SIGTERM, kept at step ")
    assert err.endswith("; the same command goes on\n")


def handled(pid, number):
    """Whether the process has a handler of its own for a signal."""
    caught = re.search(r"SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())
    return bool(int(caught[1], 16) >> number - 1 & 1)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_command_that_is_told_before_its_first_run_says_so(name, corpus, tmp_path):
    process = started(command(corpus, "-m", "seed=0,1"), tmp_path)
    wait_for(lambda: handled(process.pid, signal.SIGHUP))
    process.send_signal(signal.Signals[name])
    _, err = process.communicate(timeout=HANG)
    told = f"told to end by {name}, not begun; the same command goes on\n"
    assert (process.returncode, err) == (75, told)


@pytest.mark.parametrize(
    "launcher", [[], ["hydra/launcher=parallel", "hydra.launcher.n_jobs=1"]], ids=["basic", "one"]
)
def test_a_sweep_that_is_told_while_its_run_is_set_up_ends(launcher, corpus, tmp_path):
    process = started(command(corpus, "-m", "seed=0,1", *launcher), tmp_path)
    wait_for(lambda: list(tmp_path.rglob("config.yaml")))
    process.terminate()
    _, err = process.communicate(timeout=HANG)
    assert (process.returncode, err) == (75, "told to end by SIGTERM; the same command goes on\n")


@pytest.mark.parametrize("pause", [0.02, 0.2, 0.6])
@pytest.mark.parametrize("launcher", [False, True], ids=["basic", "parallel"])
def test_told_again_and_again_a_sweep_ends_the_same_way(launcher, pause, corpus, tmp_path):
    argv = command(corpus, "-m", "seed=range(4)", "trainer.max_epochs=3000")
    process = started([*argv, *(PARALLEL if launcher else [])], tmp_path)
    wait_for(lambda: len(descendants(process.pid)) > 0 if launcher else training(tmp_path))
    pids = descendants(process.pid)
    for _ in range(4):
        process.send_signal(signal.SIGINT)
        time.sleep(pause)
    _, err = process.communicate(timeout=HANG)
    assert process.returncode == 75, err
    assert "Traceback" not in err
    assert not list(tmp_path.rglob(records.RESULT))
    wait_for(lambda: not alive(pids))


def test_nohup_keeps_a_sweep_from_the_end_of_its_terminal(corpus, tmp_path):
    process = started(["nohup", *command(corpus), "trainer.max_epochs=3000"], tmp_path)
    wait_for(lambda: training(tmp_path))
    (run,) = training(tmp_path)

    def epochs():
        return (run / "train.log").read_text().count("epoch ")

    before = epochs()
    process.send_signal(signal.SIGHUP)
    wait_for(lambda: epochs() > before + 1 or process.poll() is not None)
    assert process.poll() is None
    process.terminate()
    process.communicate(timeout=HANG)
    assert process.returncode == 75


FOUR = ["trainer.max_epochs=60", "seed=range(4)"]


@pytest.fixture(scope="module")
def four_whole(corpus, tmp_path_factory):
    """The folder of a sweep that nothing disturbs, one run after another."""
    folder = tmp_path_factory.mktemp("four")
    argv = [*command(corpus, "-m"), *FOUR]
    subprocess.run(argv, cwd=folder, capture_output=True, check=True)
    return folder


@pytest.mark.parametrize("launcher", [[], PARALLEL], ids=["basic", "parallel"])
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGKILL"])
def test_a_sweep_that_is_told_to_end_leaves_no_process_and_goes_on(
    name, launcher, corpus, four_whole, tmp_path
):
    argv = [*command(corpus, "-m"), *FOUR, *launcher]
    process = started(argv, tmp_path)
    wait_for(lambda: len(training(tmp_path)) >= (2 if launcher else 1))
    pids = descendants(process.pid)
    process.send_signal(signal.Signals[name])
    process.communicate(timeout=HANG)
    wait_for(lambda: not alive(pids))
    assert process.returncode == (-signal.SIGKILL if name == "SIGKILL" else 75)
    assert len(list(tmp_path.rglob(records.RESULT))) < 4

    again = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    folders = sorted(p.parent for p in (tmp_path / "multirun").rglob(records.RESULT))
    assert len(folders) == 4
    for folder in folders:
        assert_same_files(four_whole / folder.relative_to(tmp_path), folder)
