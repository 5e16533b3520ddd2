"""What the benchmarks measure with: clocks, turns, processes, and whole runs of the command."""

import multiprocessing
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch
from hydra import compose, initialize_config_dir

from posfuse.config import CONF_DIR, Config
from posfuse.process.environment import keep_memory, peak_memory, return_memory
from posfuse.runs import records
from posfuse.runs.checks import checked

IS_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if IS_GPU else "cpu")
POSFUSE = [sys.executable, "-m", "posfuse"]
T = TypeVar("T")


def now() -> float:
    """Seconds of a clock, read after the device has finished its work."""
    if IS_GPU:
        torch.cuda.synchronize(DEVICE)
    return time.perf_counter()


def used() -> float:
    """CPU seconds of this process, in which others count less; on a GPU those of the clock."""
    return now() if IS_GPU else time.process_time()


def seconds(work: Callable[[], Any], clock: Callable[[], float] = now) -> float:
    start = clock()
    work()
    return clock() - start


def in_turn(turns: dict[str, Callable[[], T]], rounds: int) -> dict[str, list[T]]:
    """What each turn returns in every round. Every second round has the reverse order."""
    found: dict[str, list[T]] = {name: [] for name in turns}
    for i in range(rounds):
        for name in list(turns)[:: 1 if i % 2 == 0 else -1]:
            found[name].append(turns[name]())
    return found


def compared(values: dict[str, list[float]], baseline: str) -> dict[str, list[Any]]:
    """Two cells for each name: the median over the rounds of its values, and that of their ratios
    to the baseline's values in the same rounds."""
    cells: dict[str, list[Any]] = {}
    for name, of in values.items():
        ratio = statistics.median(a / b for a, b in zip(of, values[baseline], strict=True))
        cells[name] = [statistics.median(of), f"{ratio:#.4g}×"]
    return cells


@contextmanager
def apart(make: Callable[..., T] = list, *arguments: Any) -> Iterator[Callable[..., Any]]:
    """A process of its own with the object that `make(*arguments)` returns, and with this process's
    number of threads. Yields the function `(work, *arguments) -> work(object, *arguments)` in it.
    """
    context, threads = multiprocessing.get_context("spawn"), torch.get_num_threads()
    with ProcessPoolExecutor(1, context, _begin, (threads, make, arguments)) as process:
        yield lambda work, *given: process.submit(_do, work, given).result()


def peak(work: Callable[..., Any], *arguments: Any) -> int:
    """Peak memory in bytes of a process that does only this work."""
    with apart(work, *arguments) as process:
        return int(process(_memory))


def _memory(_: Any) -> int:
    return peak_memory()


_object: Any  # of a process that `apart` started


def _begin(threads: int, make: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    global _object
    torch.set_num_threads(threads)
    _object = make(*arguments)


def set_as_in_a_run() -> None:
    """Give this process the settings of a run of posfuse, before its first operation of torch: only
    threads that start later flush denormal numbers. Other systems have the usual settings."""
    torch.set_flush_denormal(True)
    keep_memory()


def _do(work: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    found = work(_object, *arguments)
    return_memory()  # because the systems share the memory
    return found


def config(*overrides: str) -> Config:
    """The checked config of a run; a later override of a key replaces an earlier one."""
    with initialize_config_dir(str(CONF_DIR), version_base="1.3"):
        return checked(compose("train", [*replaced(overrides), "trainer.progress=none"]))


def replaced(overrides: Any) -> list[str]:
    return list({override.partition("=")[0]: override for override in overrides}.values())


def command(root: Path, *overrides: str) -> list[str]:
    """The words of `posfuse train` with results in root/runs."""
    options = [word for word in overrides if word.startswith("-")]
    own = [f"output_dir={root / 'runs'}", f"cache_dir={root / 'cache'}", "logger=none"]
    values = replaced([*own, *(word for word in overrides if not word.startswith("-"))])
    return [*POSFUSE, "train", *options, *values]


def trained(root: Path, *overrides: str, environment: Any = None) -> list[records.Record]:
    """The new records of a run or, after `-m`, of a sweep; the ids of its texts stay in root/cache
    for the next one. Exits if the command fails."""
    before = set(root.rglob(records.RESULT))
    words = command(root, *overrides)
    done = subprocess.run(words, stdout=subprocess.DEVNULL, env=environment, check=False)
    if done.returncode:
        sys.exit(f"error: a run failed; see its message above: {' '.join(words)}")
    return [records.read_result(path) for path in set(root.rglob(records.RESULT)) - before]
