"""W&B while a run trains: offline or on a server, each epoch once, and never at the run's cost."""

import contextlib
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import psutil
import pytest
import wandb

from posfuse.errors import InputError
from posfuse.runs import records
from posfuse.tracking.projection import Finished
from posfuse.tracking.server import PLACES
from posfuse.train import train
from processes import alive, command, descendants, importing, started, succeeded, wait_for
from small_runs import at_step, killed, small_config, write_corpus
from uploads import ALL_STEPS, KEY, check_held, environment, synced

REMOTE = "https://planted0token:x-oauth-basic@127.0.0.1/someone/posfuse.git"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A corpus in a Git checkout with a token in its remote's address, and not committed."""
    root = tmp_path_factory.mktemp("tracking")
    if not shutil.which("git"):
        pytest.skip("git is not installed")
    # A hook of Git sets GIT_DIR, which would name another repository.
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    for arguments in (["init", "-q"], ["remote", "add", "origin", REMOTE]):
        subprocess.run(["git", *arguments], cwd=root, env=env, check=True)
    return write_corpus(root / "corpus")


@pytest.fixture
def config(fake, corpus, tmp_path, monkeypatch):
    """Configs of runs in the checkout."""
    monkeypatch.chdir(corpus.parent)
    monkeypatch.setenv("WANDB_MODE", "offline")
    given = ["logger=wandb", "sweep_id=mine", "fusion=gate_scalar"]
    yield partial(small_config, corpus, *given, f"output_dir={tmp_path / 'output'}")
    for name in PLACES:
        os.environ.pop(name, None)


def check_held_once(fake, folder):
    """The server holds the run of this folder, and no other."""
    run = Finished.read(folder)
    assert list(fake.runs) == [run.id]
    check_held(fake, run)


def sent(folder):
    """Send the folder's only offline log by W&B's own command."""
    (log,) = folder.glob("wandb/offline-run-*")
    argv = [sys.executable, "-m", "wandb", "sync", str(log)]
    subprocess.run(argv, env=environment(WANDB_MODE="online"), check=True, capture_output=True)


def test_an_offline_log_holds_a_resumed_run_once(fake, config, tmp_path):
    folder = tmp_path / "output" / "mine" / "tiny" / "run"
    killed(config(), folder, step=9)
    (first,) = folder.glob("wandb/offline-run-*")
    (first / "mark").touch()  # W&B names a log by the second, so the next one may have its name
    train(config(), folder)
    assert fake.asked == []  # offline
    assert not (first / "mark").exists()
    sent(folder)
    check_held_once(fake, folder)

    written = [p for p in (*tmp_path.rglob("*"), *Path.home().rglob("*")) if p.is_file()]
    assert len(written) > 15
    for planted in (b"planted0token", KEY.encode()):
        assert not any(planted in path.read_bytes() for path in written)
        assert planted.decode() not in str(vars(fake))
    assert {path.name for path in tmp_path.iterdir()} == {"output"}
    assert not [path for path in Path.home().rglob("*") if "wandb" in str(path)]


@pytest.mark.parametrize(
    ("first", "second", "lost"),
    [
        ("online", "online", "nothing"),
        ("online", "online", "checkpoints"),  # so it starts from the first step again
        ("online", "online", "rows"),
        ("online", "offline", "nothing"),
        ("offline", "online", "nothing"),
    ],
)
def test_the_server_holds_a_resumed_run_once(
    first, second, lost, fake, config, tmp_path, monkeypatch
):
    """After posfuse sync, which uploads nothing if the resumed run was online."""
    folder = tmp_path / "sweep" / "run"
    monkeypatch.setenv("WANDB_MODE", first)
    killed(config(), folder, step=9)
    runs = list(fake.runs.values())
    assert len(runs) == (first == "online")
    for run in runs:
        assert ([row["_step"] for row in run.history], run.exit_code) == ([4, 8], 1)
    if lost == "checkpoints":
        shutil.rmtree(folder / "checkpoints")
    elif lost == "rows":
        del runs[0].history[1:]
        runs[0].summary = {"_step": 4}
    monkeypatch.setenv("WANDB_MODE", second)
    train(config(), folder)
    fake.asked.clear()
    assert synced(folder.parent)[0] == 0
    assert ("UpsertBucket" in fake.asked) == (second == "offline")
    check_held_once(fake, folder)


def kill(processes):
    for one in processes:
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended with its parent
            one.kill()


def test_a_killed_online_run_is_resumed(fake, corpus, tmp_path):
    argv = command(corpus, "logger=wandb", "fusion=gate_scalar")
    waiting = (
        "import signal, pytest; from posfuse.cli import main; from small_runs import at_step;"
        "at_step(pytest.MonkeyPatch(), 9, signal.pause); main()"
    )
    path = importing(Path(__file__).parents[1])["PYTHONPATH"]
    settings = environment(WANDB_MODE="online", PYTHONPATH=path)
    process = started([argv[0], "-c", waiting, *argv[3:]], tmp_path, settings)
    wait_for(lambda: any(run.history for run in fake.runs.values()))
    kill(descendants(process.pid))
    process.kill()
    process.communicate()
    succeeded(argv, tmp_path, settings)
    (result,) = tmp_path.rglob(records.RESULT)
    check_held_once(fake, result.parent)


def test_without_its_process_wandb_is_given_up_and_the_run_is_not(
    fake, config, tmp_path, monkeypatch, caplog
):
    def kill_core():
        """As the kernel does where memory has run out."""
        kill(alive(descendants(os.getpid()), "wandb-core"))

    sweep = tmp_path / "sweep"
    with monkeypatch.context() as patched:
        at_step(patched, 5, kill_core)
        record = train(config(), sweep / "run")
    assert "the run continues without it; upload it later with posfuse sync" in caplog.text
    assert record == records.read_result(sweep / "run" / records.RESULT)
    original = wandb.init

    def init(*arguments, **more):
        kill_core()
        return original(*arguments, **more)

    wandb.setup()
    with monkeypatch.context() as patched:
        patched.setattr(wandb, "init", init)
        with pytest.raises(InputError, match=r"logger\.mode=offline to train without a"):
            train(config("seed=1"), sweep / "next")
    train(config("seed=1"), sweep / "next")
    assert synced(sweep)[0] == 0
    for run in fake.runs.values():
        assert [row["_step"] for row in run.history] == ALL_STEPS
