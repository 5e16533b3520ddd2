"""A sweep's W&B runs on a server: each once, whole, and what did not go is named."""

import os
import select
import shlex
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pandas as pd
import pytest

from fake_wandb import FakeRun, serve
from posfuse.errors import InputError
from posfuse.runs import records
from posfuse.tracking import upload
from posfuse.tracking.leet import gather
from posfuse.tracking.logs import read, segments
from processes import HANG
from small_runs import small_overrides, write_corpus

KEY, IN_NETRC, TOKEN = (f"{'0123456789abcdef' * 2}planted{i}" for i in range(3))
REMOTE = "https://127.0.0.1/someone/posfuse.git"
STEPS, EPOCHS = 4, 60
ONLINE = {
    "WANDB_API_KEY": KEY,
    "WANDB_MODE": "online",
    "WANDB_X_FILE_STREAM_TRANSMIT_INTERVAL": "0.5",
}
FEW_TRIES = {f"WANDB_X_{part}_RETRY_MAX": "1" for part in ("GRAPHQL", "FILE_STREAM")}


def environment(home, **more):
    """Without W&B's variables, of a user who has nothing yet."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("WANDB_")}
    kept.setdefault("MPLCONFIGDIR", str(Path("~/.config/matplotlib").expanduser()))
    return {**kept, "HOME": str(home), **more}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


def command(corpus, *overrides):
    """posfuse-train on a small corpus, long enough to be killed in."""
    small = [o for o in small_overrides(corpus) if o != "logger=none"]
    more = [f"trainer.max_epochs={EPOCHS}", "sweep_id=mine"]
    return [sys.executable, "-m", "posfuse.train", *overrides, *small, *more]


WAITING = f"""
import signal, sys
import pytest
from posfuse.train import main
from small_runs import at_step
at_step(pytest.MonkeyPatch(), {STEPS * EPOCHS // 2}, signal.pause)
main()
"""


def killed_when(condition, argv, folder, settings):
    """What posfuse-train said until it was killed, and W&B's own process with it; in the middle of
    its run it waits for that."""
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    assert argv[1:3] == ["-m", "posfuse.train"]
    process = subprocess.Popen(
        [argv[0], "-c", WAITING, *argv[3:]],
        cwd=folder,
        env={**settings, "PYTHONPATH": path},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    end = time.monotonic() + HANG
    while (waiting := not condition()) and time.monotonic() < end:
        time.sleep(0.02)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    for pid in (process.pid, *map(int, children)):
        os.kill(pid, signal.SIGKILL)
    said = process.communicate()[0]
    assert not waiting, said
    return said


@pytest.fixture(scope="module")
def killed(tmp_path_factory, home):
    """A sweep of two runs: the process killed in the first one, then the command again; its
    folder, and all that both said. The key is planted, and a token in the checkout's remote."""
    root = tmp_path_factory.mktemp("sync")
    remote = REMOTE.replace("//", f"//{TOKEN}:x-oauth-basic@")
    for arguments in (["init", "-q"], ["remote", "add", "origin", remote]):
        subprocess.run(["git", *arguments], cwd=root, check=True)
    argv = command(write_corpus(root / "corpus"), "-m", "fusion=add,gate_scalar")
    settings = environment(home, WANDB_API_KEY=KEY)
    sweep = root / "multirun" / "mine"
    said = killed_when(
        lambda: any(len(read(log).rows) > 2 for log in segments(sweep)), argv, root, settings
    )
    assert len(list(sweep.rglob(records.RESULT))) == 0
    again = subprocess.run(argv, cwd=root, env=settings, capture_output=True, text=True, check=True)
    assert [len(segments(f.parent)) for f in runs_of(sweep)] == [2, 1]
    return sweep, said + again.stdout + again.stderr


def runs_of(sweep):
    return sorted(sweep.rglob(records.RESULT))


@pytest.fixture
def sweep(killed):
    """The sweep, nothing of it sent yet."""
    for log in segments(killed[0]):
        for mark in log.parent.glob("*.sync*"):
            mark.unlink()
    return killed[0]


@pytest.fixture
def server():
    with serve() as fake:
        yield fake
    assert fake.unknown == []


def sync(sweep, server, home, module="posfuse.tracking.upload", argv=None, **more):
    given = {"WANDB_BASE_URL": server.url, "WANDB_API_KEY": KEY, **more}
    return subprocess.run(
        argv or [sys.executable, "-m", module, sweep.name],
        cwd=sweep.parent,
        env={**environment(home, **given), **FEW_TRIES},
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG,
    )


def errors(done):
    return [line for line in done.stderr.splitlines() if line.startswith("error: ")]


@pytest.mark.smoke
def test_the_server_holds_a_killed_and_resumed_sweep_once(sweep, server, home):
    done = sync(sweep, server, home)
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        f"2 runs are on {server.url}, all of their rows, summaries and artifacts\n"
    )
    assert len(server.runs) == 2
    for result in runs_of(sweep):
        folder, record = result.parent, records.read_result(result)
        (run,) = (r for name, r in server.runs.items() if name.startswith(record["fingerprint"]))
        assert run.exit_code == 0
        steps = [STEPS * epoch for epoch in range(1, EPOCHS + 1)]
        assert [row["_step"] for row in run.history] == [*steps, steps[-1] + 1]
        history = pd.read_csv(folder / records.HISTORY)
        for column in ("train_loss", "val_accuracy"):
            logged = [row[column.replace("_", "/", 1)] for row in run.history[:-1]]
            assert logged == history[column].tolist()
        assert {f"test/{k}": v for k, v in record["test"].items()}.items() <= run.summary.items()
        assert "confusion_matrix_table" in run.summary
        for key, value in {**record["settings"], "sweep_id": "mine"}.items():
            assert run.config[key]["value"] == value or key in ("data", "encoding", "fusion")
        assert run.config["fusion"]["value"] == record["fusion"]
        (artifact,) = (a for a in run.artifacts if a["type"] == "result")
        assert artifact["files"]["result.json"] == result.read_bytes()
        images = [name for name in run.files if name.startswith("media/images/gate_")]
        assert len(images) == (record["fusion"] == "gate_scalar")

    server.asked.clear()
    again = sync(sweep, server, home)
    assert again.returncode == 0
    assert "UpsertBucket" not in server.asked
    assert [len(run.history) for run in server.runs.values()] == [EPOCHS + 1] * 2


def test_a_run_that_the_server_refuses_is_named_and_goes_the_next_time(sweep, server, home):
    refused = runs_of(sweep)[0].parent
    name = read(segments(refused)[0]).run_id
    server.refuse = lambda query, v: query == "UpsertBucket" and v["name"] == name
    done = sync(sweep, server, home)
    assert done.returncode == 1
    (line,) = errors(done)
    assert str(refused.relative_to(sweep.parent)) in line
    assert "not sent" in line
    assert name not in server.runs
    server.refuse = lambda query, v: False
    assert sync(sweep, server, home).returncode == 0
    assert [len(run.history) for run in server.runs.values()] == [EPOCHS + 1] * 2


@pytest.mark.parametrize(
    ("lose", "told"),
    [
        ("rows", f"the server has 0 history rows, here are {EPOCHS + 1}"),
        ("artifact", "artifacts that did not arrive: result-"),
        ("summary", "summary differs on the server ("),
    ],
)
def test_what_wandb_sync_says_went_but_did_not_is_named(lose, told, sweep, server, home):
    folder = runs_of(sweep)[1].parent
    name = read(segments(folder)[0]).run_id
    if lose == "artifact":
        server.refuse = lambda query, v: query == "CreateArtifact" and name in str(v)
    else:
        server.lose = {name: lose}
    done = sync(sweep, server, home)
    assert done.returncode == 1
    (line,) = errors(done)
    assert str(folder.relative_to(sweep.parent)) in line
    assert told in line


def test_a_config_that_another_has_changed_is_named(sweep, server, home):
    assert sync(sweep, server, home).returncode == 0
    next(iter(server.runs.values())).config["fusion"]["value"] = "another"
    (line,) = errors(sync(sweep, server, home))
    assert "config differs on the server (fusion); to have it whole, " in line


@pytest.mark.parametrize("before", ["broken off", "online"])
def test_nothing_is_sent_twice_and_the_cure_that_is_told_sends_it_whole(
    before, sweep, server, home, tmp_path
):
    folder = runs_of(sweep)[0].parent
    name, online = read(segments(folder)[0]).run_id, folder / "wandb" / "run-20200101_000000-x"
    if before == "broken off":  # between its two segments
        assert sync(sweep, server, home).returncode == 0
        held = len(server.runs[name].history)
        log = segments(folder)[1]
        log.with_name(f"{log.name}.synced").unlink()
    else:
        held = 3
        server.runs[name] = FakeRun("posfuse", history=[{}] * held)
        online.mkdir()
        (online / "run-x.wandb").touch()
    try:
        done = sync(sweep, server, home)
        assert done.returncode == 1
        (line,) = errors(done)
        assert f"the server has {held} rows of it, " in line
        assert ("it was logged online before" in line) == (before == "online")
        assert len(server.runs[name].history) == held

        argv = shlex.split(line.split("not its artifacts, do: ")[1])
        again = sync(sweep, server, tmp_path, argv=argv, WANDB_DIR=str(tmp_path))
        assert again.returncode == 0, again.stderr
        server.deleted.add(name)
        del server.runs[name]
        assert sync(sweep, server, home).returncode == 0
    finally:
        if before == "online":
            (online / "run-x.wandb").unlink()
            online.rmdir()
    assert f"{name}-2" in server.runs
    assert [len(run.history) for run in server.runs.values()] == [EPOCHS + 1] * 2


def test_a_finished_run_whose_log_has_lost_its_end_is_named(sweep, server, home):
    result = runs_of(sweep)[1]
    (log,) = segments(result.parent)
    content = log.read_bytes()
    try:
        log.write_bytes(content[: len(content) // 2])
        done = sync(sweep, server, home)
    finally:
        log.write_bytes(content)
    assert done.returncode == 1
    (line,) = errors(done)
    place = result.relative_to(sweep.parent)
    assert line.startswith(f"error: {place.parent}: its W&B logs have lost their end: they hold ")
    assert f"of its {EPOCHS + 1} rows; remove {place}, run it again" in line
    assert 0 < len(server.runs[read(log).run_id].history) < EPOCHS


def test_a_log_without_a_beginning_is_named_and_its_run_not_sent(sweep, server, home):
    log = segments(runs_of(sweep)[0].parent)[0]
    content = log.read_bytes()
    try:
        log.write_bytes(content[:9] + bytes(9) + content[18:])
        assert not read(log).run_id
        done = sync(sweep, server, home)
    finally:
        log.write_bytes(content)
    assert done.returncode == 1
    (line,) = errors(done)
    assert f"{log.relative_to(sweep.parent)} is damaged" in line
    assert len(server.runs) == 1


@pytest.mark.parametrize("size", [0, 3, 7, 20])
def test_a_log_that_holds_nothing_yet_is_passed_over(size, sweep, tmp_path):
    folder = tmp_path / "seed=0" / "wandb" / "offline-run-1"
    folder.mkdir(parents=True)
    content = segments(sweep)[0].read_bytes()
    (folder / "run-1.wandb").write_bytes(content[:size])
    assert upload.find(tmp_path) == ([], [], [])


def test_a_torn_end_is_cut_off_while_no_other_is_at_the_run(sweep, monkeypatch):
    folders = []

    def look(log):
        with pytest.raises(InputError, match="another process"), records.sole_use(log.parents[2]):
            pass
        folders.append(log.parents[2])

    monkeypatch.setattr(upload, "drop_torn_end", look)
    upload.find(sweep)
    assert len(set(folders)) == 2


def test_runs_that_were_online_and_runs_without_wandb_are_told(tmp_path, server, home):
    online = tmp_path / "mine" / "seed=0"
    log = online / "wandb" / "run-20260101_000000-x" / "run-x.wandb"
    log.parent.mkdir(parents=True)
    log.touch()
    earlier = online / "wandb" / "offline-run-20250101_000000-x" / "run-x.wandb"
    earlier.parent.mkdir()
    earlier.touch()
    (online / records.RESULT).touch()
    done = sync(tmp_path / "mine", server, home)
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 runs were logged online, as mine/seed=0" in done.stdout
    assert len(list(gather(tmp_path / "mine").iterdir())) == 2

    (tmp_path / "mine" / "seed=1").mkdir()
    (tmp_path / "mine" / "seed=1" / records.RESULT).touch()
    done = sync(tmp_path / "mine", server, home)
    (line,) = errors(done)
    assert "1 finished run(s) without W&B's logs, the first mine/seed=1" in line


def test_where_the_server_is_may_be_what_wandb_login_has_stored(sweep, server, tmp_path):
    settings = tmp_path / ".config" / "wandb" / "settings"
    settings.parent.mkdir(parents=True)
    settings.write_text(f"[default]\nbase_url = {server.url}\n")
    argv = [sys.executable, "-c", "from posfuse.tracking.logs import keep_files_in as k;"
            "from pathlib import Path; k(Path('.')); from posfuse.tracking.server import address;"
            "print(address())"]  # fmt: skip
    done = subprocess.run(
        argv, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == server.url


def test_a_folder_that_cannot_be_written_is_one_line(sweep, home):
    (sweep / ".wandb" / "leet").mkdir(exist_ok=True)
    (sweep / ".wandb" / "leet" / "a folder").mkdir()
    argv = [sys.executable, "-m", "posfuse.tracking.leet", str(sweep)]
    try:
        done = subprocess.run(argv, env=environment(home), capture_output=True, text=True)
    finally:
        (sweep / ".wandb" / "leet" / "a folder").rmdir()
    assert done.returncode == 1
    assert done.stderr == f"error: {sweep}/.wandb/leet/a folder: Is a directory; " \
        "mend that and do it again\n"  # fmt: skip


def test_a_log_that_a_kill_has_torn_goes_as_far_as_it_is_whole(sweep, server, home):
    log = segments(runs_of(sweep)[0].parent)[0]
    content = log.read_bytes()
    try:
        log.write_bytes(content[:-5])
        assert read(log).complaint
        done = sync(sweep, server, home)
        assert done.returncode in (0, 1)  # the row that was torn may have been the last
        assert not any("not sent" in line for line in errors(done))
        assert log.with_name(f"{log.name}.synced").exists()
    finally:
        log.write_bytes(content)


def test_a_run_at_work_a_damaged_log_and_a_moved_artifact_stay_and_are_named(sweep, server, home):
    first, second = (result.parent for result in runs_of(sweep))
    log = segments(second)[0]
    content = log.read_bytes()
    try:
        log.write_bytes(content[:20000] + bytes(9) + content[20009:])
        with records.sole_use(first):
            done = sync(sweep, server, home)
    finally:
        log.write_bytes(content)
    assert done.returncode == 1
    lines = errors(done)
    assert len(lines) == 2
    assert "another process is running" in lines[0]
    assert "is damaged" in lines[1]
    assert server.runs == {}

    moved = sweep / ".wandb" / "artifacts"
    moved.rename(sweep / "elsewhere")
    try:
        done = sync(sweep, server, home)
    finally:
        (sweep / "elsewhere").rename(moved)
    assert done.returncode == 1
    assert len(errors(done)) == 2
    assert all("is not there; W&B wrote it down by this path" in line for line in errors(done))
    assert server.runs == {}


@pytest.mark.parametrize("why", ["no key", "no folder", "no runs"])
def test_one_line_says_what_is_missing(why, sweep, server, home, tmp_path):
    if why == "no key":
        done = sync(sweep, server, home, WANDB_API_KEY="")
        told = f"error: {server.url}: no key for it; set WANDB_API_KEY, or: wandb login\n"
    elif why == "no folder":
        done = sync(tmp_path / "absent", server, home)
        told = "error: absent: no such folder; give a sweep's, as multirun/quickstart\n"
    else:
        (tmp_path / "empty").mkdir()
        done = sync(tmp_path / "empty", server, home)
        told = "error: empty: no W&B runs here; run posfuse-train -m first\n"
    assert (done.returncode, done.stderr) == (1, told)


def test_a_key_is_in_nothing_that_is_written_or_said(killed, sweep, server, home):
    said = [killed[1]]
    netrc = home / ".netrc"
    netrc.write_text(f"machine {server.url.split('/')[-1]} login user password {IN_NETRC}\n")
    netrc.chmod(0o600)
    url = server.url.replace("//", f"//user:{TOKEN}@")
    try:
        done = sync(sweep, server, home, WANDB_BASE_URL=url)
        assert done.returncode == 0, done.stderr
        assert "Finished syncing" in done.stderr
        said += [done.stdout, done.stderr]
        for module in ("wandb_sync", "wandb_dashboard", "analysis.report"):
            done = sync(sweep, server, home, module=f"posfuse.{module}", WANDB_API_KEY="")
            assert done.returncode == 0, done.stderr
            said += [done.stdout, done.stderr]
    finally:
        netrc.unlink()
    files = [p for p in (*sweep.rglob("*"), *home.rglob("*")) if p.is_file()]
    assert len(files) > 50
    held = [*(path.read_bytes() for path in files), str(server.views).encode()]
    held += [str(run).encode() for run in server.runs.values()]
    assert {run.settings["repo"] for run in server.runs.values()} == {REMOTE}
    for planted in (KEY, IN_NETRC, TOKEN):
        assert not any(planted in text for text in said)
        assert not any(planted.encode() in content for content in held)


def test_all_that_wandb_writes_lies_in_the_sweeps_folder(sweep, server, home):
    assert sync(sweep, server, home).returncode == 0
    assert [path for path in home.rglob("*") if "wandb" in str(path.relative_to(home))] == []
    assert {p.name for p in sweep.parent.iterdir()} == {"mine"}


@pytest.mark.parametrize("from_start", [False, True], ids=["resumed", "repeated"])
def test_a_killed_run_that_is_online_goes_on_with_what_the_server_has(
    from_start, server, home, tmp_path
):
    """Without its checkpoints it repeats what the server has already."""
    argv = command(write_corpus(tmp_path / "corpus"))
    settings = environment(home, **ONLINE, WANDB_BASE_URL=server.url)
    killed_when(lambda: any(r.history for r in server.runs.values()), argv, tmp_path, settings)
    assert not list(tmp_path.rglob(records.RESULT))
    if from_start:
        for path in tmp_path.rglob("*.ckpt"):
            path.unlink()
    subprocess.run(argv, cwd=tmp_path, env=settings, capture_output=True, check=True)
    ((run,), (result,)) = server.runs.values(), tmp_path.rglob(records.RESULT)
    steps = [row["_step"] for row in run.history]
    assert steps == [*range(STEPS, STEPS * EPOCHS + 1, STEPS), STEPS * EPOCHS + 1]
    history = pd.read_csv(result.parent / records.HISTORY)
    assert [row["val/loss"] for row in run.history[:-1]] == history["val_loss"].tolist()
    accuracy = records.read_result(result)["test"]["accuracy"]
    assert run.summary["test/accuracy"] == accuracy
    assert run.exit_code == 0


def test_a_run_that_goes_on_online_sends_what_was_logged_offline_too(server, home, tmp_path):
    argv, settings = command(write_corpus(tmp_path / "corpus")), environment(home)
    killed_when(
        lambda: any(len(read(log).rows) > 2 for log in segments(tmp_path)), argv, tmp_path, settings
    )
    settings = environment(home, **ONLINE, WANDB_BASE_URL=server.url)
    subprocess.run(argv, cwd=tmp_path, env=settings, capture_output=True, check=True)
    (run,) = server.runs.values()
    steps = [row["_step"] for row in run.history]
    assert steps == [*range(STEPS, STEPS * EPOCHS + 1, STEPS), STEPS * EPOCHS + 1]
    done = sync(tmp_path / "multirun", server, home)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("1 runs were logged online, as multirun/mine/")


def test_an_offline_run_asks_a_server_for_nothing(server, home, tmp_path):
    settings = environment(home, WANDB_BASE_URL=server.url)  # WANDB_MODE is not set
    argv = [*command(write_corpus(tmp_path / "corpus")), "trainer.max_epochs=1"]
    subprocess.run(argv, cwd=tmp_path, env=settings, capture_output=True, check=True)
    assert len(segments(tmp_path)) == 1
    assert server.asked == []


def test_settings_that_wandb_refuses_are_one_line(sweep, server, home):
    for module in ("posfuse.tracking.upload", "posfuse.tracking.dashboard"):
        done = sync(sweep, server, home, module=module, WANDB_BASE_URL="nowhere")
        assert done.returncode == 1
        assert done.stderr.startswith("error: W&B: ")
        assert done.stderr.count("\n") == 1
        assert "base_url" in done.stderr


def test_leet_finds_every_run_in_one_folder(sweep):
    links = gather(sweep)
    gather(sweep)
    assert sorted(link.resolve() for link in links.iterdir()) == sorted(
        log.parent.resolve() for log in segments(sweep)
    )


def test_leet_opens_in_a_terminal(sweep, home):
    ours, theirs = os.openpty()
    termios.tcsetwinsize(ours, (40, 120))
    process = subprocess.Popen(
        [sys.executable, "-m", "posfuse.tracking.leet", str(sweep)],
        env=environment(home, TERM="xterm-256color"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    shown, end = b"", time.monotonic() + HANG
    try:
        while b"[3 items]" not in shown and time.monotonic() < end:
            if select.select([ours], [], [], 1)[0]:
                shown += os.read(ours, 65536)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(ours)
        os.close(theirs)
    assert b"[3 items]" in shown
