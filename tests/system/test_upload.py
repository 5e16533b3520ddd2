"""posfuse sync: the server holds each finished run once, and other runs are named."""

import os
import subprocess
import sys

import pytest

from fake_wandb import ENTITY, serve
from posfuse.tracking import projection
from posfuse.tracking.finished import Finished
from posfuse.train import train
from processes import HANG
from small_runs import small_config, write_corpus
from uploads import EPOCHS, check_held, synced


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    """A sweep of two finished runs without W&B, and one that has only begun."""
    root = tmp_path_factory.mktemp("sync")
    corpus, sweep = write_corpus(root / "corpus"), root / "mine"
    for fusion in ("add", "gate_scalar"):
        overrides = [f"fusion={fusion}", f"trainer.max_epochs={EPOCHS}", "sweep_id=mine"]
        train(small_config(corpus, *overrides), sweep / "tiny" / "sinusoidal" / fusion / "seed=0")
    begun = sweep / "tiny" / "sinusoidal" / "mul" / "seed=0"
    begun.mkdir(parents=True)
    (begun / "config.yaml").touch()
    return sweep


def runs_of(sweep):
    return [Finished.read(path.parent) for path in sorted(sweep.rglob("result.json"))]


def test_each_finished_run_is_uploaded_once(fake, sweep):
    code, out, errors = synced(sweep)
    assert (code, errors) == (0, [])
    begun = sweep / "tiny" / "sinusoidal" / "mul" / "seed=0"
    held = f"{fake.url} holds 2 of 2 runs\nskipped 1 unfinished runs, the first in {begun}\n"
    held += f"results: {fake.url}/{ENTITY}/posfuse\nnext: posfuse dashboard {sweep}\n"
    assert out == held
    assert len(fake.runs) == 2
    for run in runs_of(sweep):
        check_held(fake, run, projection.run_id(run.record))

    fake.asked.clear()
    assert synced(sweep) == (0, held, [])
    assert "UpsertBucket" not in fake.asked
    assert {p.name for p in sweep.iterdir()} == {"tiny", ".wandb"}


def test_a_part_on_the_server_is_completed(fake, sweep):
    """As after an online run that was killed, or an upload that broke off."""
    assert synced(sweep)[0] == 0
    first, second = (projection.run_id(run.record) for run in runs_of(sweep))
    del fake.runs[first].history[2:]
    fake.runs[first].summary = {"_step": 8}
    fake.runs[first].config["fusion"]["value"] = "another"
    fake.runs[first].artifacts.clear()
    del fake.runs[second].summary["test/accuracy"]
    assert synced(sweep)[0] == 0
    for run in runs_of(sweep):
        check_held(fake, run, projection.run_id(run.record))


def test_a_run_that_did_not_arrive_is_named_and_the_next_sync_completes_it(fake, sweep):
    """tests/run/test_upload.py has the other parts that may be missing."""
    run = runs_of(sweep)[1]
    name = projection.run_id(run.record)
    fake.lose = {name}
    code, out, (line,) = synced(sweep)
    assert code == 1
    assert "holds 1 of 2 runs" in out
    message = "the server's last step is -1, not 13; retry, or "
    assert line.startswith(f"error: {run.folder}: {message}")
    fake.lose = set()
    assert synced(sweep)[0] == 0
    check_held(fake, run, name)


def test_deleted_runs_are_uploaded_under_a_new_id(fake, sweep):
    ids = [projection.run_id(run.record) for run in runs_of(sweep)]
    fake.deleted.update(ids)
    code, _, errors = synced(sweep)
    assert code == 1
    assert [line.endswith("under new ids with --suffix=2") for line in errors] == [True, True]
    assert synced(sweep, "--suffix=2")[0] == 0
    assert sorted(fake.runs) == sorted(f"{name}-2" for name in ids)


@pytest.mark.smoke
def test_a_key_or_token_is_never_printed_or_written(sweep, tmp_path):
    """posfuse sync as a command, the key in netrc and a token in the server's address."""
    password, token = "f" * 32 + "password", "planted0token"
    home = tmp_path / "home"
    home.mkdir()
    env = {k: v for k, v in os.environ.items() if not k.startswith("WANDB_")}
    with serve() as fake:
        env |= {"HOME": str(home), "WANDB_BASE_URL": fake.url.replace("//", f"//user:{token}@")}
        netrc = home / ".netrc"
        host = fake.url.split("/")[-1]
        netrc.write_text(f"machine user:{token}@{host} login user password {password}\n")
        netrc.chmod(0o600)
        done = subprocess.run(
            [sys.executable, "-m", "posfuse", "sync", sweep.name],
            cwd=sweep.parent,
            env=env,
            capture_output=True,
            text=True,
            check=False,
            timeout=HANG,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(f"{fake.url} holds 2 of 2 runs\n")
        assert len(fake.runs) == 2
    netrc.unlink()
    files = [p for p in (*sweep.rglob("*"), *home.rglob("*")) if p.is_file()]
    held = [*(path.read_bytes() for path in files), str(vars(fake)).encode()]
    held += [done.stdout.encode(), done.stderr.encode()]
    assert [path for path in files if path.is_relative_to(home) and "wandb" in str(path)] == []
    for planted in (password, token):
        assert not any(planted.encode() in content for content in held)
