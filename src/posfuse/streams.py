"""The standard streams of a command: stdout and stderr must be open, and may lose their reader."""

import os
import sys
from collections.abc import Callable
from functools import wraps


def with_streams(main: Callable[[], None]) -> Callable[[], None]:
    """`main`, refused where stdout or stderr is closed: the next file that is opened takes the
    number of a closed stream, and what is printed would damage that file. Where the reader of
    stdout has gone, as in `| head`, the exit status is 1 without a message."""

    @wraps(main)
    def command() -> None:
        refuse_closed()
        try:
            main()
        except BrokenPipeError:
            sys.exit(1)
        finally:
            _flush()

    return command


def _flush() -> None:
    """Write what is left; Python does so at exit too, where no handler is left for an error."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


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
