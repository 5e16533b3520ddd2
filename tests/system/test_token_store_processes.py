"""Two processes that build one token store at the same time."""

import multiprocessing

from posfuse.config import DataConfig
from posfuse.data.token_store import open_store
from processes import HANG
from small_runs import write_corpus


def contents(store) -> list[list[int]]:
    return [part.tolist() for s in store.splits.values() for part in (s.ids, s.offsets, s.labels)]


def _open_in_process(cfg, cache, barrier, results) -> None:
    barrier.wait()
    results.put(contents(open_store(cfg, cache)))


def test_two_processes_on_a_cold_cache_both_succeed(tmp_path) -> None:
    cfg = DataConfig(name="tiny", path=str(write_corpus(tmp_path / "corpus")))
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(2), context.Queue()
    arguments = (cfg, tmp_path / "cache", barrier, results)
    processes = [context.Process(target=_open_in_process, args=arguments) for _ in range(2)]
    for process in processes:
        process.start()
    found = [results.get(timeout=HANG) for _ in processes]
    for process in processes:
        process.join()
    assert found[0] == found[1] == contents(open_store(cfg, tmp_path / "cache"))
