"""The standard streams of a command: stdout and stderr must be open, and may lose their reader."""

import os
import sys
from collections.abc import Callable
from functools import wraps


def with_streams(main: Callable[[], None]) -> Callable[[], None]:
    """`main` with checks of its streams. A closed stdout or stderr is refused: the next file that
    is opened takes the number of a closed stream, and what is printed would damage that file. Where
    the reader of stdout has gone, as in `| head`, the exit status is 1 without a message. Where
    stdout cannot be written, as on a full disk, the status is 1 with one line."""

    @wraps(main)
    def command() -> None:
        refuse_closed()
        status: str | int | None = None
        try:
            main()
        except SystemExit as end:
            status = end.code
        except BrokenPipeError:
            status = 1
        except OSError as error:
            status = None if error.filename else failure_of_stdout("\n")
            if status is None:
                raise
        if status := status or failure_of_stdout():
            sys.exit(status)

    return command


def failure_of_stdout(end: str = "") -> str | None:
    """Write `end` and what is left to stdout. Python does the latter at exit too, where no handler
    is left for an error. Returns a line where that fails, and None where the reader has gone.

    An OSError without a file name may be stdout's or that of a file: a line's end shows which.
    """
    try:
        print(end=end, flush=True)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            return f"error: stdout: {error.strerror}; free it or print elsewhere"
    return None


def refuse_closed() -> None:
    """Exit with a line on the other stream where stdout or stderr is closed; stdin may be."""
    if sys.stdin is None:
        os.open(os.devnull, os.O_RDONLY)  # takes the number of stdin, the lowest that is free
    for name, stream, other in (
        ("stdout", sys.stdout, sys.stderr),
        ("stderr", sys.stderr, sys.stdout),
    ):
        if stream is None:
            if other is not None:
                print(f"error: {name} is closed; give a file or /dev/null", file=other)
            sys.exit(1)
