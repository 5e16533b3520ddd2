"""posfuse-leet: the folder of links that W&B's viewer reads, and what is no sweep."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from posfuse.tracking import leet, places
from posfuse.tracking.places import PLACES


@pytest.fixture
def called(monkeypatch):
    """The viewer's command lines, of which none is run; each has the exit status 3."""
    found = []

    def run(argv, check):
        found.append(argv)
        return SimpleNamespace(returncode=3)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(places, "_set", {})
    for name in (*PLACES, "WANDB_SILENT", "WANDB_ERROR_REPORTING", "WANDB_MODE"):
        monkeypatch.setenv(name, "mine")  # so that posfuse sets none of them
    return found


def leet_of(sweep, monkeypatch):
    """Call posfuse-leet in this process; returns what it exits with."""
    monkeypatch.setattr(sys, "argv", ["posfuse-leet", str(sweep)])
    with pytest.raises(SystemExit) as end:
        leet.main()
    return end.value.code


def test_the_viewer_gets_one_link_to_each_run(called, tmp_path, monkeypatch):
    runs = [
        tmp_path / "a" / "wandb" / "offline-run-1-x",
        tmp_path / "b" / "c" / "wandb" / "run-2-y",
    ]
    for run in runs:
        run.mkdir(parents=True)
    links = tmp_path / ".wandb" / "leet"
    for _ in range(2):
        assert leet_of(tmp_path, monkeypatch) == 3
        assert {link.resolve() for link in links.iterdir()} == set(runs)
        assert called.pop() == [sys.executable, "-m", "wandb", "leet", str(links)]
        runs.pop().rmdir()  # its link goes with it
        runs.append(tmp_path / "a" / "wandb" / "run-3-z")
        runs[-1].mkdir()


def test_what_cannot_be_shown_is_one_line(called, tmp_path, monkeypatch):
    line = f"error: {tmp_path}: no W&B runs; run posfuse-train -m logger=wandb first"
    assert leet_of(tmp_path, monkeypatch) == line
    (tmp_path / "wandb" / "run-1-x").mkdir(parents=True)
    folder = tmp_path / ".wandb" / "leet" / "a folder"
    folder.mkdir(parents=True)
    assert leet_of(tmp_path, monkeypatch) == f"error: {folder}: Is a directory; fix this and retry"
    assert called == []
