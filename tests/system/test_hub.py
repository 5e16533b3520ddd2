"""Corpora of the Hugging Face hub when there is no network, and how often the hub is asked."""

import os
import socket
import sys

import pytest

from posfuse.data import corpora
from posfuse.data.corpora import hub
from posfuse.errors import HubUnreachable
from processes import ended
from small_runs import SMALL
from sweeps import PARALLEL, results

# A stand-in for the library: it notes each call that would go to the network.
NO_NETWORK = """
import os
from types import SimpleNamespace

config = SimpleNamespace(HF_HUB_OFFLINE=False)
disable_progress_bars = lambda: None

def load_dataset(id, revision=None):
    if not config.HF_HUB_OFFLINE:
        with open(os.environ["CALLS"], "a") as file:
            file.write(f"{id} {os.getpid()}\\n")
    raise ConnectionError(f"Couldn't reach {id!r} on the Hub")
"""


@pytest.fixture(autouse=True)
def nothing_loaded():
    corpora._from_hub.cache_clear()
    yield
    corpora._from_hub.cache_clear()


def unreachable(calls):
    def load_dataset(*arguments, **options):
        calls.append(arguments)
        raise ConnectionError("Couldn't reach the hub")

    return load_dataset


def test_outside_a_sweep_each_call_asks_the_hub_again(monkeypatch) -> None:
    calls: list[tuple[str]] = []
    monkeypatch.setattr("datasets.load_dataset", unreachable(calls))
    for _ in range(2):
        with pytest.raises(HubUnreachable, match=r"cannot load 'a/b' .* \(Couldn't reach the hub"):
            hub("a/b")
    assert len(calls) == 2


def test_what_the_hub_gave_is_not_asked_for_again(monkeypatch) -> None:
    calls = []
    parts = {"train": [], "test": []}
    monkeypatch.setattr("datasets.load_dataset", lambda *a, **o: calls.append((a, o)) or parts)
    assert [corpora._from_hub(id, "main") for id in ("a/b", "a/b", "a/c")] == [parts] * 3
    assert calls == [(("a/b",), {"revision": "main"}), (("a/c",), {"revision": "main"})]


@pytest.mark.parametrize("is_wrapped", [False, True])
def test_the_hub_is_not_blamed_where_memory_runs_out(monkeypatch, is_wrapped) -> None:
    def load_dataset(*_, **__):
        try:
            raise MemoryError
        except MemoryError as error:
            if is_wrapped:  # as `datasets` does while it makes its Arrow files
                raise RuntimeError("An error occurred while generating the dataset") from error
            raise

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    with pytest.raises(MemoryError):
        hub("a/b")


def test_the_library_leaves_the_network_alone_after_that(monkeypatch) -> None:
    looked_up: list[object] = []
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", False)  # restored at the end
    monkeypatch.setattr(corpora, "_without_hub", [])
    monkeypatch.setattr(socket, "getaddrinfo", lambda *a, **_: looked_up.append(a))
    corpora.do_without_hub()
    with pytest.raises(HubUnreachable, match=r"\(out of reach in an earlier run of this sweep"):
        hub("posfuse/no-such-corpus")
    assert not looked_up


@pytest.mark.parametrize(
    ("launcher", "processes"), [([], 1), (PARALLEL, 2)], ids=["basic", "parallel"]
)
def test_a_process_of_a_sweep_asks_an_unreachable_hub_once(launcher, processes, tmp_path) -> None:
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "datasets.py").write_text(NO_NETWORK)
    calls = tmp_path / "calls"
    path = os.pathsep.join([str(tmp_path / "library"), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": path, "CALLS": str(calls)}
    argv = [sys.executable, "-m", "posfuse.train", "-m", *SMALL, *launcher]
    argv += ["trainer.progress=none", "data=agnews,imdb", "seed=0,1,2"]
    for command in range(1, 2 if launcher else 3):  # the next command asks again
        done = ended(argv, tmp_path / "work", env)
        assert done.returncode == 1
        assert "error: 6 run(s) failed" in done.stderr
        asked_by = [line.split()[1] for line in calls.read_text().splitlines()]
        assert len(set(asked_by)) == len(asked_by)
        assert command <= len(asked_by) <= command * processes
    assert not results(tmp_path / "work")
