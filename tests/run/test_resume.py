"""A run resumes from its own state, with its own configuration, wherever its folder is."""

import shutil
import signal
import sys
from types import SimpleNamespace

import pytest

from posfuse.errors import AlreadyRunning, Conflict, InputError
from posfuse.process import signals
from posfuse.runs import records
from posfuse.sweeps import status
from posfuse.sweeps.failures import record_failure, report
from posfuse.train import train
from posfuse.training import progress
from posfuse.training import run as run_module
from posfuse.training.classifier import Classifier
from posfuse.training.trained import load_run
from processes import assert_same_files
from refusals import refusal
from small_runs import (
    OWN_OPERATOR,
    REFERENCE,
    at_step,
    before_calls,
    interrupted,
    killed,
    small_config,
    write_corpus,
)

STEPS = 4  # in each of 4 epochs: 60 documents in batches of 16


def steps_of(cfg, folder):
    """The steps that training the run takes."""
    steps = []

    def note(self, *batch):
        steps.append(self.global_step)

    with pytest.MonkeyPatch.context() as patch:
        before_calls(patch, Classifier, "training_step", note)
        train(cfg, folder)
    return steps


@pytest.mark.parametrize(("name", "step"), [("SIGTERM", 0), ("SIGUSR1", 9), ("SIGHUP", 15)])
def test_an_interrupted_run_resumes_at_its_step(name, step, corpus, reference, tmp_path):
    cfg, number = small_config(corpus, *REFERENCE), signal.Signals[name]
    before = signal.getsignal(number)
    message = f"interrupted by {name}; saved at step {step + 1}"
    assert interrupted(cfg, tmp_path, step, name) == message
    assert signal.getsignal(number) is before
    assert not (tmp_path / records.RESULT).exists()
    assert steps_of(cfg, tmp_path) == list(range(step + 1, 4 * STEPS))
    assert_same_files(reference[0], tmp_path)
    assert not (tmp_path / records.LAST).exists()


@pytest.mark.parametrize(
    "asked",
    [
        ["encoding.positions=randomized", "fusion=concat"],
        ["fusion=gate_scalar", "model.token_scale=learned", "optim.scalar_lr_factor=30"],
    ],
    ids=["positions", "learning rates"],
)
def test_a_resumed_run_has_the_same(asked, corpus, tmp_path):
    cfg = small_config(corpus, *asked, "trainer.max_epochs=2")
    train(cfg, tmp_path / "whole")
    assert interrupted(cfg, tmp_path / "run", 2).endswith("saved at step 3")
    assert steps_of(cfg, tmp_path / "run")[0] == 3
    assert_same_files(tmp_path / "whole", tmp_path / "run")


def test_a_worker_sees_a_signal_that_it_blocks(corpus, tmp_path, monkeypatch):
    at_step(monkeypatch, 5, lambda: signal.raise_signal(signal.SIGTERM))
    with monkeypatch.context() as patched, signals.blocking():
        patched.setattr(signals, "launcher", "ray")
        with pytest.raises(signals.Interrupted, match="SIGTERM; saved at step 6"):
            train(small_config(corpus), tmp_path)
        assert signal.sigwait([signal.SIGTERM]) == signal.SIGTERM
    signals.check()


def test_a_killed_run_resumes_from_its_last_checkpoint_inside_the_epoch(
    corpus, reference, tmp_path
):
    """A checkpoint after every step but an epoch's last one."""
    cfg = small_config(corpus, *REFERENCE, "trainer.checkpoint_minutes=1e-9")
    killed(cfg, tmp_path, step=9)
    assert steps_of(cfg, tmp_path) == list(range(9, 4 * STEPS))
    assert_same_files(reference[0], tmp_path)


@pytest.mark.slow
def test_a_run_with_two_evaluations_per_epoch_resumes_at_its_step(corpus, tmp_path):
    """Interrupted or killed at a step before, at and after an evaluation inside an epoch, or in the
    evaluation itself."""
    asked = ["trainer.evaluations=2", "trainer.monitor=loss", "trainer.checkpoint_minutes=1e-9"]
    cfg = small_config(corpus, *asked, "trainer.max_epochs=2")
    whole = tmp_path / "whole"
    train(cfg, whole)

    def assert_resumes(folder, step):
        assert steps_of(cfg, folder) == list(range(step, 2 * STEPS))
        assert_same_files(whole, folder)

    for step in (1, 2, 3):
        folder = tmp_path / f"interrupted at {step}"
        assert interrupted(cfg, folder, step).endswith(f"saved at step {step + 1}")
        assert_resumes(folder, step + 1)
        folder = tmp_path / f"killed at {step}"
        killed(cfg, folder, step=step)
        assert_resumes(folder, step)
    for done in (1, 2):  # evaluations; the steps since the last checkpoint are repeated
        folder = tmp_path / f"killed in an evaluation after {done}"
        killed(cfg, folder, after=done)
        assert_resumes(folder, 2 * done + 1)


def test_early_stopping_survives_a_kill(corpus, tmp_path):
    cfg = small_config(corpus, "trainer.patience=3", "trainer.max_epochs=9", "optim.lr=1e-12")
    whole = train(cfg, tmp_path / "whole")
    assert whole["epochs"] == 4  # the first, and three that are no better
    killed(cfg, tmp_path / "run")
    train(cfg, tmp_path / "run")
    assert_same_files(tmp_path / "whole", tmp_path / "run")


def test_the_state_of_another_configuration_is_refused(corpus, tmp_path):
    data = shutil.copytree(corpus, tmp_path / "corpus")
    killed(small_config(data), tmp_path / "run")
    write_corpus(data, n_classes=4, seed=1)  # more classes and words, so also other shapes
    line = refusal(train, small_config(data), tmp_path / "run")
    assert line.startswith(
        f"{tmp_path / 'run' / records.LAST}: belongs to another configuration, or"
    )
    assert line.endswith("sweep_id=NAME for a new folder, or remove that file to start again")
    (tmp_path / "run" / records.LAST).unlink()
    train(small_config(data), tmp_path / "run")
    train(small_config(data), tmp_path / "again")
    assert_same_files(tmp_path / "again", tmp_path / "run")


def test_a_result_and_a_state_of_own_code_that_has_changed_are_refused(
    corpus, tmp_path, own_module
):
    code = own_module("changing_operator", OWN_OPERATOR)
    cfg = small_config(corpus, "fusion.name=mine", "fusion._target_=changing_operator.Mine")
    record = train(cfg, tmp_path / "done")
    assert train(cfg, tmp_path / "done") == record
    killed(cfg, tmp_path / "run")
    code.write_text(f"{code.read_text()}    # changed\n")
    assert train(cfg, tmp_path / "done") == record  # this process has loaded the earlier code
    del sys.modules["changing_operator"]  # as in another process
    with pytest.raises(Conflict, match=r"result\.json: .* earlier code of changing_operator\.py;"):
        train(cfg, tmp_path / "done")
    with pytest.raises(InputError, match=r"last\.ckpt: belongs to .* or your code has changed"):
        train(cfg, tmp_path / "run")
    line = f"{tmp_path / 'done'}: changing_operator.py has changed since the run; restore it"
    assert refusal(load_run, tmp_path / "done").startswith(line)
    (tmp_path / "done" / records.RESULT).unlink()
    assert train(cfg, tmp_path / "done")["code"] != record["code"]
    assert load_run(tmp_path / "done")


def test_values_that_a_class_draws_in_its_constructor_follow_the_seed(corpus, tmp_path, own_module):
    own_module(
        "drawing_operator",
        "import torch\nfrom posfuse.model.fusion import Fusion\n\n\nclass Mine(Fusion):\n"
        "    def __init__(self, d_model):\n        super().__init__(d_model)\n"
        "        self.weight = torch.nn.Parameter(torch.randn(d_model, d_model))\n\n"
        "    def merge(self, token, position):\n"
        "        return token[0] @ self.weight + position[0]\n",
    )
    cfg = small_config(corpus, "fusion.name=mine", "fusion._target_=drawing_operator.Mine")
    one, two = (train(cfg, tmp_path / name)["test"]["loss"] for name in ("one", "two"))
    assert one == two


@pytest.mark.slow
def test_a_run_resumes_in_a_folder_that_was_moved(corpus, tmp_path, recwarn):
    """Killed after its best epoch, whose score the resumed run must still know."""
    cfg = small_config(corpus, "optim.lr=0.05", "trainer.max_epochs=20")
    best = train(cfg, tmp_path / "whole")["best_epoch"]
    assert best < 20
    killed(cfg, tmp_path / "here", after=best)
    (tmp_path / "here").rename(tmp_path / "there")
    train(cfg, tmp_path / "there")
    assert_same_files(tmp_path / "whole", tmp_path / "there")
    assert not [w for w in recwarn if "dirpath" in str(w.message)]


def test_a_run_interrupted_outside_training_resumes_there(corpus, tmp_path, monkeypatch):
    further = ["data.max_len=6", "data.test_lengths=[9,12]"]
    cfg = small_config(corpus, "data.eval_batch_size=5", "trainer.max_epochs=1", *further)
    train(cfg, tmp_path / "whole")
    places = [("test_step", "test"), ("on_test_epoch_end", "test"), ("test_step", "test@12")]
    for hook, split in places:
        folder = tmp_path / f"{hook} {split}"

        def stop(self, *_, split=split):
            if self.trainer.datamodule.tested == split:
                signal.raise_signal(signal.SIGTERM)

        with monkeypatch.context() as patched:
            before_calls(patched, Classifier, hook, stop)
            with pytest.raises(signals.Interrupted, match="interrupted by SIGTERM"):
                train(cfg, folder)
        assert not (folder / records.RESULT).exists()
        assert steps_of(cfg, folder) == []
        assert_same_files(tmp_path / "whole", folder)


def test_a_result_without_its_files_is_repeated_even_by_a_run_that_is_killed(corpus, tmp_path):
    cfg = small_config(corpus)
    train(cfg, tmp_path)
    (tmp_path / records.PREDICTIONS).write_bytes(b"damaged")
    killed(cfg, tmp_path)
    assert not (tmp_path / records.RESULT).exists()
    train(cfg, tmp_path)
    assert records.is_complete(tmp_path)


def test_a_run_in_the_folder_of_another_one_has_only_its_own_files(corpus, tmp_path):
    names = (records.STEPS, records.MECHANISM, records.BY_LENGTH)
    for name in names:
        (tmp_path / name).write_bytes(b"of an earlier run")
    train(small_config(corpus, "trainer.mechanism=false"), tmp_path)
    assert not any((tmp_path / name).exists() for name in names)


@pytest.fixture
def clock(monkeypatch):
    """A clock on which a training step takes one second, and the setup of a run ten."""
    now = 1e6  # as on a machine that has been up for days

    def taking(seconds, original):
        def timed(*arguments):
            nonlocal now
            now += seconds
            return original(*arguments)

        return timed

    monkeypatch.setattr(progress, "time", SimpleNamespace(perf_counter=lambda: now))
    monkeypatch.setattr(Classifier, "training_step", taking(1, Classifier.training_step))
    monkeypatch.setattr(run_module, "build_data", taking(10, run_module.build_data))


@pytest.mark.usefixtures("clock")
def test_times_add_up_over_a_resume(corpus, tmp_path, caplog):
    """An epoch has 4 steps: the run is interrupted inside one, and at the end of one. Work that is
    repeated after a kill is counted once."""
    cfg, folder = small_config(corpus, "trainer.progress=lines"), tmp_path / "running"
    interrupted(cfg, folder, 13)
    with records.sole_use(folder):
        left = status.status_of(folder, tmp_path)
    assert (left.detail, left.seconds) == ("epoch 3/4", 4.0)
    caplog.set_level("INFO")
    whole = train(cfg, tmp_path / "whole")
    assert whole["seconds"] == {"setup": 10.0, "fit": 16.0, "test": 0.0}
    assert whole["documents_per_second"] == 4 * 60 / 16
    interrupted(cfg, tmp_path / "inside", 6)
    interrupted(cfg, tmp_path / "end", 7)
    killed(cfg, tmp_path / "killed")  # after the third epoch's steps
    for name in ("inside", "end", "killed"):
        record = train(cfg, tmp_path / name)
        assert record["seconds"] == {"setup": 20.0, "fit": 16.0, "test": 0.0}
        for rate in ("documents_per_second", "tokens_per_second"):
            assert record[rate] == whole[rate]
    lines = [line for line in caplog.messages if line.startswith("epoch ")]
    assert [line.rpartition(", ")[2] for line in lines] == ["4.0 s"] * 4 * 4


def test_a_run_locked_by_another_process_is_not_a_failure_once_done(corpus, tmp_path, capfd):
    run = tmp_path / "run"
    run.mkdir()
    with records.sole_use(run), pytest.raises(AlreadyRunning, match="another process is running"):
        train(small_config(corpus), run)
    record_failure("running", run, [], AlreadyRunning.kind)
    assert len(records.failures_in(tmp_path)) == 1
    report(run, tmp_path, fail_fast=True)
    assert capfd.readouterr().err == ""
    signals.check()
    train(small_config(corpus), run)
    assert records.failures_in(tmp_path) == []
    assert not (run / records.FAILURE).exists()
