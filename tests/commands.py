"""posfuse in this process."""

import io
import sys
from contextlib import redirect_stdout

import pytest

from posfuse import cli
from posfuse.process import signals


def called(*arguments):
    """Call `posfuse ARGUMENTS`; returns its standard output, and its exit status or error message,
    None for success."""
    out = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), signals.handling():
        patch.setattr(sys, "argv", ["posfuse", *map(str, arguments)])
        try:
            cli.main()
        except SystemExit as end:
            return out.getvalue(), end.code
    return out.getvalue(), None
