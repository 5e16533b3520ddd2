"""Signals that interrupt a command: the first one sets a flag, a later one exits at once.

Within REPEAT_SECONDS of the first, a later signal is ignored unless it is Ctrl-C. GNU `timeout`
sends its signal to the command and then to the command's group, and the two are one request.

No handler raises. `check` raises `Interrupted` where a run can stop without losing work: between
runs, between training steps and between batches of tokenising. The exit status is then 75.

Idle workers of hydra/launcher=parallel block these signals, and the launcher passes them on. A busy
worker still sees a blocked signal, because `interruption` also checks pending signals.
"""

import ctypes
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

EXIT_STATUS = os.EX_TEMPFAIL  # 75: the work is not done, and the same command resumes it
# Schedulers send SIGUSR1 or SIGUSR2 before a time limit.
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2]
if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup ignores it
    SIGNALS.append(signal.SIGHUP)
REPEAT_SECONDS = 1.0  # in this time a further signal other than Ctrl-C is ignored
launcher: str | None = None  # the launcher that owns this process, if it is not the parent process
_received: dict[str, float] = {}  # the time of each signal's first arrival, by name


class Interrupted(BaseException):
    """A signal stopped the work. It is not an Exception, like KeyboardInterrupt, so code that
    continues after errors does not catch it."""


def install() -> None:
    """Handle the signals in this process from now on."""
    for number in SIGNALS:
        signal.signal(number, _handle)


def ignore() -> None:
    """Ignore the signals from now on. Python resets handlers, but not this, when it shuts down."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _handle(number: int, frame: Any) -> None:
    now = time.monotonic()
    # `request` may have set another reason, such as sweep.fail_fast.
    before = [at for name, at in _received.items() if name in signal.Signals.__members__]
    is_repeat = number != signal.SIGINT and now - min([now, *before]) < REPEAT_SECONDS
    # A worker may get the signal twice: from its launcher and from the scheduler.
    if before and not is_repeat and not is_worker():
        os.write(2, b"interrupted again; exited at once; run the same command to resume\n")
        os._exit(EXIT_STATUS)
    request(signal.Signals(number).name)


def request(name: str) -> None:
    """Interrupt this process's work like a signal. `name` is the reason."""
    _received.setdefault(name, time.monotonic())


@contextmanager
def handling() -> Iterator[None]:
    """Handle the signals during the block and restore the earlier handlers after it."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    if _handle not in before.values():
        _received.clear()  # signals of an earlier run in this Python session
    install()
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def blocking() -> Iterator[None]:
    """Block the signals in this thread and in processes that it starts. After the block they are
    handled."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def interruption() -> str | None:
    """The name of the first signal that this process has received, or None."""
    pending = sorted(signal.Signals(n).name for n in signal.sigpending().intersection(SIGNALS))
    return next(iter([*_received, *pending]), None)


def check(detail: str = "") -> None:
    """Raise Interrupted if a signal was received; `detail` is added to its message."""
    if name := interruption():
        raise Interrupted(f"interrupted by {name}{detail}")


def forget() -> None:
    """Discard blocked signals that this process has received, so that the next run starts without
    them."""
    while pending := signal.sigpending().intersection(SIGNALS):
        signal.sigwait(pending)


def is_worker() -> bool:
    """True if a launcher started this process to execute its runs."""
    return launcher is not None or multiprocessing.parent_process() is not None


def exit_with_parent(parent: int) -> None:
    """Make the kernel kill this process when its parent process, with the id `parent`, ends."""
    if sys.platform == "linux":
        set_death_signal = 1  # PR_SET_PDEATHSIG of sys/prctl.h
        ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)
        if os.getppid() != parent:  # it has ended already
            signal.raise_signal(signal.SIGKILL)
