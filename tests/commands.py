"""posfuse in this process."""

import io
import sys
from contextlib import redirect_stdout

import pytest

from posfuse import cli


def called(*arguments):
    """Call `posfuse ARGUMENTS`; returns its standard output, and its exit status or error message,
    None for success."""
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as out:
        patch.setattr(sys, "argv", ["posfuse", *map(str, arguments)])
        try:
            cli.main()
        except SystemExit as end:
            return out.getvalue(), end.code
    return out.getvalue(), None
