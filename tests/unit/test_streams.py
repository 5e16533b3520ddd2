"""A command's streams: closed, without a reader, or full."""

import io
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console
from rich.table import Table

from posfuse import cli

CLOSED = "error: {} is closed; give a file or /dev/null\n"
FULL = "error: stdout: No space left on device; free space, or redirect the output"


def ending(act):
    """The exit status of a command that does `act`, or its last line; None on success."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cli, "import_module", lambda _: SimpleNamespace(main=act))
        patch.setattr(sys, "argv", ["posfuse", "train"])
        try:
            cli.main()
        except SystemExit as end:
            return end.code
    return None


def test_a_closed_stream_is_refused_on_the_other_one(monkeypatch, capsys):
    for closed, expected in (
        (["stdout"], ("", CLOSED.format("stdout"))),
        (["stderr"], (CLOSED.format("stderr"), "")),
        (["stdout", "stderr"], ("", "")),
    ):
        with monkeypatch.context() as patched:
            for name in closed:
                patched.setattr(sys, name, None)
            assert ending(lambda: pytest.fail("ran")) == 1
        assert capsys.readouterr() == expected


@pytest.fixture
def without_reader():
    """The writing end of a pipe that nothing reads, with a buffer for lines and a larger one."""
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w", buffering=1) as pipe:
        yield pipe


def test_a_pipe_without_a_reader_gives_no_message(without_reader, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdout", without_reader)
    assert ending(lambda: print("shown")) == 1  # as a shell's SIGPIPE, but without a message
    assert ending(lambda: print("shown")) is None  # it goes to /dev/null now
    assert capsys.readouterr().err == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_stdout_is_one_line(monkeypatch):
    for buffering in (1, -1):  # print fails, or what is buffered is written at the end
        with open("/dev/full", "w", buffering=buffering) as full, monkeypatch.context() as patched:
            patched.setattr(sys, "stdout", full)
            assert ending(lambda: print("shown")) == FULL


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "utf-8"])
def test_what_a_terminal_cannot_encode_is_replaced(encoding, monkeypatch):
    bytes_written = io.BytesIO()
    stdout = io.TextIOWrapper(bytes_written, encoding=encoding, errors="strict")
    monkeypatch.setattr(sys, "stdout", stdout)

    def shown():
        console = Console(width=30)  # it keeps the stream of its start
        table = Table("±", "≤")
        table.add_row("1 ± 2†", "é \udce9")
        console.print(table)
        print("ε ± é")

    assert ending(shown) is None
    stdout.flush()
    text = bytes_written.getvalue().decode(encoding)
    first = {"ascii": "1 ? 2?", "cp1252": "1 ± 2†", "utf-8": "1 ± 2†"}[encoding]
    assert first in text
    assert text.endswith({"ascii": "? ? ?\n", "cp1252": "? ± é\n", "utf-8": "ε ± é\n"}[encoding])


def test_control_characters_of_an_error_are_shown():
    def refused(message):
        return ending(lambda: sys.exit(message))

    assert refused("error: a\rb: wrong") == r"error: a\rb: wrong"
    assert refused("error: \x1b[2Ja\x07\x00\x85") == r"error: \x1b[2Ja\x07\x00\x85"
    assert refused("error: a\u202eb\udce9") == r"error: a\u202eb\udce9"
    assert refused("error: é ≤ 5 ±\nerror: b") == "error: é ≤ 5 ±\nerror: b"
