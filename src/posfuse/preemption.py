"""What a process does when it is told to end: its runs keep their state and end with it, and it
says so by a status of its own.

It is told by SIGINT (Ctrl-C), SIGTERM, SIGHUP (its terminal has gone), and by SIGUSR1 and SIGUSR2,
which schedulers send ahead. Between two steps the whole state fits in a checkpoint (`checkpoints`),
so there a run ends. A second signal ends it at once, and then its last checkpoint counts.

Processes that wait for a run are deaf: they are started with the signals blocked, and a run lets
them through. One that died of a signal would take its neighbours' runs along.
"""

import ctypes
import fcntl
import multiprocessing
import os
import platform
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

STATUS = os.EX_TEMPFAIL  # of the process: not done, and the same command goes on with it
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2]
if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as nohup has it
    SIGNALS.append(signal.SIGHUP)
told: list[str] = []  # the signals that this process was told to end by
elsewhere: list[str] = []  # what has this process do runs for another that is no parent of its


class Preempted(BaseException):
    """Told to end before all was done; what is kept makes the same command go on. No Exception, as
    KeyboardInterrupt is none: who goes on after errors is not to go on after this."""


def is_worker() -> bool:
    """Whether this process does runs for another process of posfuse."""
    return bool(elsewhere) or multiprocessing.parent_process() is not None


def note(number: int, frame: Any) -> None:
    """The handler while a run trains: it is to come to a good place."""
    told.append(signal.Signals(number).name)
    # A worker hears it twice: from the terminal and from its parent.
    if len(told) > 1 and not is_worker():
        raise Preempted(f"told to end by {told[0]}, then at once")


@contextmanager
def listening() -> Iterator[None]:
    """Have `note` handle the signals; afterwards they do what they did before, which in a process
    that is deaf is to wait."""
    with _handled(note):
        before = signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ending_at_once() -> AbstractContextManager[None]:
    """A signal raises Preempted here, where no run is at work yet, or none any more."""

    def end(number: int, frame: Any) -> None:
        raise Preempted(f"told to end by {signal.Signals(number).name}")

    return _handled(end)


def be_deaf() -> None:
    """Have signals wait, in this thread and in what it starts."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)


def fail_if_told() -> None:
    """Raise Preempted where this process was told to end and has not begun its next run."""
    waiting = signal.sigpending().intersection(SIGNALS)
    if names := [*told, *sorted(signal.Signals(number).name for number in waiting)]:
        raise Preempted(f"told to end by {names[0]}, not begun")


@contextmanager
def _handled(handler: Callable[[int, Any], None]) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in SIGNALS}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def _lock_of(sweep: Path) -> Path:
    """What the processes of one command share while they are at a run; another command's, on the
    same folder, have another."""
    parent = multiprocessing.parent_process()
    return sweep / f".at_work.{platform.node()}.{parent.pid if parent else os.getpid()}"


@contextmanager
def at_work(sweep: Path) -> Iterator[None]:
    """Share the lock; it is the kernel's and ends with the process, however that ends."""
    with _lock_of(sweep).open("a+") as lock:  # NFS shares only what is open for reading
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield


def end_with_parent(number: signal.Signals) -> None:
    """Have the kernel send this worker a signal when its parent has gone, even by SIGKILL."""
    if (parent := multiprocessing.parent_process()) is not None:
        end_with(parent.pid or 0, number)


def end_with(parent: int, number: signal.Signals) -> None:
    """Have the kernel send this process a signal when its parent has gone."""
    if sys.platform == "linux":
        set_death_signal = 1  # PR_SET_PDEATHSIG of sys/prctl.h
        ctypes.CDLL(None).prctl(set_death_signal, number)
        if os.getppid() != parent:  # it was gone before
            signal.raise_signal(number)


@contextmanager
def ending(sweep: Path) -> Iterator[None]:
    """A signal to this process has every worker's run keep its state and end, and then raises
    Preempted here."""

    def end(number: int, frame: Any) -> None:
        told.append(signal.Signals(number).name)
        has_heard = set()
        with _lock_of(sweep).open("a+") as lock:
            while not _had(lock):  # until no worker is at a run
                if len(told) > 1:
                    kill_workers()
                for worker in multiprocessing.active_children():
                    if worker.pid not in has_heard:
                        has_heard.add(worker.pid)
                        worker.terminate()
                time.sleep(0.02)
        raise Preempted(f"told to end by {told[0]}")

    with _handled(end):
        try:
            yield
        finally:
            _lock_of(sweep).unlink(missing_ok=True)


def kill_workers() -> None:
    """End this process's workers at once."""
    for worker in multiprocessing.active_children():
        if worker.pid:
            with suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGKILL)  # joblib's processes have no kill()


def _had(lock: IO[str]) -> bool:
    """Whether this process has the lock to itself."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def signals_later() -> Iterator[None]:
    """Signals wait until the end of this; the programs that it starts are not to hear Ctrl-C."""
    came: list[int] = []
    with _handled(lambda number, frame: came.append(number)):
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # of this thread, and of what it starts
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    for one in came:
        signal.raise_signal(one)
