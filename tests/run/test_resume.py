"""What a run goes on from: its own state, of its own configuration, wherever its folder lies."""

import os
import shutil
import signal

import pytest
import torch

from posfuse.errors import AlreadyRunning, Diverged, InputError
from posfuse.process import signals
from posfuse.process.signals import Preempted
from posfuse.runs import records
from posfuse.sweeps import status
from posfuse.sweeps.failures import failures_in, record_failure
from posfuse.train import train
from posfuse.training import progress
from posfuse.training import run as run_module
from posfuse.training.classifier import Classifier
from processes import assert_same_files
from small_runs import at_step, small_config, write_corpus


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("resume") / "corpus")


@pytest.fixture(autouse=True)
def nothing_told():
    yield
    signals.told.clear()


def fail(*_):
    raise RuntimeError("killed")


def killed(cfg, folder, monkeypatch, hook="on_validation_epoch_start", after=2):
    """Start the run and have it fail when the hook was called so many times."""
    calls, original = [], getattr(Classifier, hook)

    def wrapped(self, *arguments):
        calls.append(self.global_step)
        return fail() if len(calls) > after else original(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(Classifier, hook, wrapped)
        with pytest.raises(RuntimeError, match="killed"):
            train(cfg, folder)


def test_the_state_of_another_configuration_is_refused(corpus, tmp_path, monkeypatch):
    data = shutil.copytree(corpus, tmp_path / "corpus")
    killed(small_config(data), tmp_path / "run", monkeypatch)
    write_corpus(data, seed=1)
    with pytest.raises(InputError, match=r"last\.ckpt: the state of another configuration's run"):
        train(small_config(data), tmp_path / "run")
    (tmp_path / "run" / records.LAST).unlink()  # the cure
    train(small_config(data), tmp_path / "run")
    train(small_config(data), tmp_path / "anew")
    assert_same_files(tmp_path / "anew", tmp_path / "run")


def test_a_run_goes_on_in_a_folder_that_was_moved(corpus, tmp_path, monkeypatch, recwarn):
    """Killed behind its best epoch: one that does not know its score takes a later one for it."""
    cfg = small_config(corpus, "optim.lr=0.05", "trainer.max_epochs=20")
    best = train(cfg, tmp_path / "whole")["best_epoch"]
    assert best < 20
    killed(cfg, tmp_path / "here", monkeypatch, after=best)
    (tmp_path / "here").rename(tmp_path / "there")
    train(cfg, tmp_path / "there")
    assert_same_files(tmp_path / "whole", tmp_path / "there")
    assert not [w for w in recwarn if "dirpath" in str(w.message)]


@pytest.mark.parametrize("hook", ["validation_step", "test_step", "on_test_epoch_end"])
def test_a_signal_outside_training_is_heard(hook, corpus, tmp_path, monkeypatch):
    cfg = small_config(corpus, "data.eval_batch_size=5", "trainer.max_epochs=1")
    original = getattr(Classifier, hook)

    def told(self, *arguments):
        if self.trainer.state.fn != "fit":
            os.kill(os.getpid(), signal.SIGTERM)
        return original(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(Classifier, hook, told)
        with pytest.raises(Preempted, match="told to end by SIGTERM"):
            train(cfg, tmp_path / "run")
    assert not (tmp_path / "run" / records.RESULT).exists()
    signals.told.clear()
    train(cfg, tmp_path / "run")
    train(cfg, tmp_path / "whole")
    assert_same_files(tmp_path / "whole", tmp_path / "run")


def test_a_result_without_its_files_is_made_again_even_by_a_run_that_is_killed(
    corpus, tmp_path, monkeypatch
):
    cfg = small_config(corpus)
    train(cfg, tmp_path)
    (tmp_path / records.PREDICTIONS).write_bytes(b"damaged")
    killed(cfg, tmp_path, monkeypatch)
    assert not (tmp_path / records.RESULT).exists()
    train(cfg, tmp_path)
    assert records.is_complete(tmp_path)


def test_weights_that_are_no_numbers_after_the_last_step_are_a_divergence(
    corpus, tmp_path, monkeypatch
):
    original = Classifier.on_validation_epoch_start

    def broken(self):
        torch.nn.init.constant_(next(self.parameters()), torch.nan)
        original(self)

    monkeypatch.setattr(Classifier, "on_validation_epoch_start", broken)
    with pytest.raises(Diverged, match="diverged at step 4: the loss is not finite"):
        train(small_config(corpus, "trainer.max_epochs=1"), tmp_path)
    assert not (tmp_path / records.RESULT).exists()


class Steps:
    """A clock on which a step of training takes a second, and the start of a process ten."""

    def __init__(self, monkeypatch):
        self.now = 1e6  # as on a machine that has been up for days
        original = Classifier.training_step

        def step(module, *arguments):
            self.now += 1
            return original(module, *arguments)

        def clocked(kind):
            return lambda *arguments: kind(*arguments, clock=lambda: self.now)

        monkeypatch.setattr(Classifier, "training_step", step)
        monkeypatch.setattr(progress, "EpochLines", clocked(progress.EpochLines))
        monkeypatch.setattr(run_module, "Stopwatch", clocked(progress.Stopwatch))
        build = run_module.build_data

        def build_data(*arguments):
            self.now += 10
            return build(*arguments)

        monkeypatch.setattr(run_module, "build_data", build_data)


@pytest.mark.parametrize("step", [5, 6, 7, 8])  # of epochs of 4 steps: inside one, and at an end
def test_times_add_up_over_a_resume(step, corpus, tmp_path, monkeypatch, caplog):
    caplog.set_level("INFO")
    cfg = small_config(corpus, "trainer.progress=lines")
    Steps(monkeypatch)
    whole = train(cfg, tmp_path / "whole")
    caplog.clear()
    with monkeypatch.context() as patched:
        at_step(patched, step, lambda: os.kill(os.getpid(), signal.SIGTERM))
        with pytest.raises(Preempted, match="told to end by SIGTERM"):
            train(cfg, tmp_path / "run")
    signals.told.clear()
    record = train(cfg, tmp_path / "run")
    lines = [line for line in caplog.messages if line.startswith("epoch ")]
    assert [line.rpartition(", ")[2] for line in lines] == ["4.0 s"] * 4
    (tmp_path / "seed=1").mkdir()
    (tmp_path / "seed=1" / "train.log").write_text("\n".join(lines[:3]))
    with records.sole_use(tmp_path / "seed=1"):
        left = status.status_of(tmp_path / "seed=1", tmp_path)
    assert (left.detail, left.seconds) == ("epoch 3/4", 4.0)
    assert whole["seconds"] == {"setup": 10.0, "fit": 16.0, "test": 0.0}
    assert record["seconds"] == {"setup": 20.0, "fit": 16.0, "test": 0.0}
    for rate in ("documents_per_second", "tokens_per_second"):
        assert record[rate] == whole[rate]
    assert record["documents_per_second"] == 4 * 60 / 16


def test_what_is_done_again_after_a_kill_is_counted_once(corpus, tmp_path, monkeypatch):
    cfg = small_config(corpus)
    Steps(monkeypatch)
    whole = train(cfg, tmp_path / "whole")
    killed(cfg, tmp_path / "run", monkeypatch)  # behind the third epoch's steps
    record = train(cfg, tmp_path / "run")
    assert record["seconds"] == {"setup": 20.0, "fit": 16.0, "test": 0.0}
    assert record["tokens_per_second"] == whole["tokens_per_second"]


class Sweep:
    """As much of a config as `failures_in` reads."""

    def __init__(self, folder):
        self.hydra = type("Hydra", (), {"sweep": type("Sweep", (), {"dir": folder})})


def test_a_run_at_work_elsewhere_is_no_failure_once_it_is_done(corpus, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    with records.sole_use(run), pytest.raises(AlreadyRunning, match="another process is running"):
        train(small_config(corpus), run)
    record_failure("running", run, [], AlreadyRunning.kind, tmp_path)
    assert len(failures_in(Sweep(tmp_path))) == 1
    assert not (tmp_path / ".failures").exists()  # the sweep does not show it
    train(small_config(corpus), run)
    assert failures_in(Sweep(tmp_path)) == []
    assert not (run / records.FAILURE).exists()
