"""A corpus of the Hugging Face hub: when the hub is asked, and what its errors say."""

import socket

import pytest

from posfuse.data import corpora
from posfuse.data.corpora import hub
from posfuse.errors import HubUnreachable


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


def test_a_corpus_of_the_hub_is_loaded_once(monkeypatch) -> None:
    calls = []
    parts = {"train": [], "test": []}
    monkeypatch.setattr("datasets.load_dataset", lambda *a, **o: calls.append((a, o)) or parts)
    assert [corpora._from_hub(id, "main") for id in ("a/b", "a/b", "a/c")] == [parts] * 3
    assert calls == [(("a/b",), {"revision": "main"}), (("a/c",), {"revision": "main"})]


def test_a_lack_of_memory_is_not_reported_as_an_unreachable_hub(monkeypatch) -> None:
    def plain(*_, **__):
        raise MemoryError

    def wrapped(*_, **__):  # as `datasets` does while it writes its Arrow files
        raise RuntimeError("An error occurred while generating the dataset") from MemoryError()

    for load_dataset in (plain, wrapped):
        monkeypatch.setattr("datasets.load_dataset", load_dataset)
        with pytest.raises(MemoryError):
            hub("a/b")


def test_after_do_without_hub_nothing_is_looked_up(monkeypatch) -> None:
    looked_up: list[object] = []
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", False)  # restored at the end
    monkeypatch.setattr(corpora, "_without_hub", [])
    monkeypatch.setattr(socket, "getaddrinfo", lambda *a, **_: looked_up.append(a))
    corpora.do_without_hub()
    with pytest.raises(HubUnreachable, match=r"\(the hub was unreachable in an earlier run"):
        hub("posfuse/no-such-corpus")
    assert not looked_up
