"""Handles standard streams that are closed, full, or without a reader."""

import io
import os
import sys


def require_streams() -> None:
    """Exit with status 1 if stdout or stderr is closed. Otherwise the next opened file would get
    its number, and printed text would damage this file.

    From then on characters that stdout cannot encode, such as ± with an ASCII locale, are printed
    as question marks.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            message = f"error: {name} is closed; give a file or /dev/null"
            print(message, file=sys.stderr or sys.stdout)  # nothing if both are closed
            sys.exit(1)
    if isinstance(sys.stdout, io.TextIOWrapper):  # stderr escapes them by itself
        sys.stdout.reconfigure(errors="replace")


def failure_of_stdout(end: str = "") -> str | None:
    """Write `end` and the buffered text to stdout. Python does this at exit, but without an error
    handler. Returns one line if it fails; None on success and if the reader of stdout is gone.

    An OSError without a file name may come from stdout or from a file. Writing shows which.
    """
    try:
        print(end=end, flush=True)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            return f"error: stdout: {error.strerror}; free space, or redirect the output"
    return None
