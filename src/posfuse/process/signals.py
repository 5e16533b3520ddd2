"""What a process does when it is told to end: its runs keep their state and end with it, and it
says so by a status of its own.

It is told by SIGINT (Ctrl-C), SIGTERM, SIGHUP (its terminal has gone), and by SIGUSR1 and SIGUSR2,
which schedulers send ahead. Between two steps the whole state fits in a checkpoint (`checkpoints`),
so there a run ends. A second signal ends it at once, and then its last checkpoint counts.

Processes that wait for a run are deaf: they are started with the signals blocked, and a run lets
them through. One that died of a signal would take its neighbours' runs along.
"""

import ctypes
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from typing import Any, TypeVar

T = TypeVar("T")

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


@contextmanager
def noting() -> Iterator[None]:
    """Signals are noted for `fail_if_told`: raised into an import, Preempted may get lost. Behind
    this none is heard, for the process is about to end."""
    try:
        for number in SIGNALS:
            signal.signal(number, _append)
        yield
    finally:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)


def _append(number: int, frame: Any) -> None:
    told.append(signal.Signals(number).name)


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
            # Ignored, the process is about to end: Hydra calls no callback on the way out, so a
            # sweep's handlers go when its callback does.
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, earlier)


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
def ending() -> Iterator[None]:
    """A signal raises Preempted here, once `listening` has let a run keep its state."""

    def end(number: int, frame: Any) -> None:
        told.append(signal.Signals(number).name)
        raise Preempted(f"told to end by {told[0]}")

    with _handled(end):
        yield


def passed_on(launch: Callable[[], T]) -> T:
    """What `launch` gives, which has this process's workers do runs; it goes on in a thread that is
    deaf, so what it starts is. When this process is told to end, it tells the workers: runs keep
    their state, and those that wait for a run begin none. A second signal kills them, a third one
    ends this process too."""
    has_heard = set()
    with _handled(_append):
        # Started in a deaf thread, it would let some signals through there again.
        resource_tracker.ensure_running()
        with ThreadPoolExecutor(1, initializer=_be_deaf) as thread:
            runs = thread.submit(launch)
            while wait([runs], 0.05).not_done:
                if len(told) > 2:
                    os._exit(STATUS)
                for worker in multiprocessing.active_children() if told else ():
                    if len(told) > 1:
                        _kill(worker)
                    elif worker.pid not in has_heard:
                        has_heard.add(worker.pid)
                        worker.terminate()
    if told:
        raise Preempted(f"told to end by {told[0]}")
    return runs.result()


def _be_deaf() -> None:
    """Have signals wait, in this thread and in what it starts."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)


def _kill(worker: multiprocessing.process.BaseProcess) -> None:
    with suppress(ProcessLookupError):
        if worker.pid:
            os.kill(worker.pid, signal.SIGKILL)  # joblib's processes have no kill()


@contextmanager
def signals_later() -> Iterator[None]:
    """Signals wait until the end of this; the programs that it starts are not to hear Ctrl-C."""
    came: list[int] = []
    with _handled(lambda number, frame: came.append(number)):
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # in what it starts too
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
    for one in came:
        signal.raise_signal(one)
