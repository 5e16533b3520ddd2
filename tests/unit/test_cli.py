"""posfuse: the list of commands, a command's name, how errors end a command, and its streams."""

import io
import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console
from rich.table import Table

import posfuse
from commands import called
from posfuse import cli
from posfuse.config import CONF_DIR
from posfuse.errors import InputError
from posfuse.process import signals
from posfuse.train import help_text


def test_the_list_has_each_command_with_a_line_and_an_example():
    for arguments in ([], ["--help"], ["-h"]):
        shown, status = called(*arguments)
        assert status is None
        for name, command in cli.COMMANDS.items():
            assert re.search(rf"^  {name} +{re.escape(command.summary)}$", shown, re.M)
            assert f"posfuse {name} {command.example}\n" in shown
        assert re.findall(r"^(?:Run|Read):$", shown, re.M) == ["Run:", "Read:"]
        assert shown.index("The first hour") < shown.index("  posfuse study run demo  ")
        assert max(map(len, shown.splitlines())) <= 100


def test_an_unknown_command_gives_the_nearest_or_all():
    assert called("tarin")[1] == "error: tarin: no such command; use posfuse train"
    every = ", ".join(cli.COMMANDS)
    assert called("seed=0")[1] == f"error: seed=0: no such command; use one of {every}"


def test_the_version_is_that_of_the_package():
    for arguments in (["--version"], ["train", "--version"]):
        assert called(*arguments) == (f"posfuse {posfuse.__version__}\n", None)


@pytest.mark.parametrize("name", sorted({*cli.COMMANDS} - {"train"}))
def test_the_help_of_a_command_begins_with_its_name(name, capsys):
    shown, status = called(name, "--help")
    assert status in (None, 0)
    assert shown.startswith(f"usage: posfuse {name} ")
    assert called(name, "--nope")[1] == 2
    assert f"posfuse {name}: error: " in capsys.readouterr().err


def test_the_help_of_train_has_the_groups_with_their_choices_and_five_examples():
    text = help_text()
    words = " ".join(text.split())
    for folder in (path for path in CONF_DIR.iterdir() if path.is_dir()):
        if folder.name not in ("hydra", "study"):
            choices = sorted(path.stem for path in folder.glob("*.yaml"))
            assert f" {folder.name} {', '.join(choices)} " in words
    assert " hydra/launcher parallel, ray, slurm " in words
    assert text.index("usage: ") < text.index("  data ") < text.index("Examples:")
    assert text.partition("Examples:")[2].count("  posfuse train ") == 5
    assert max(map(len, text.splitlines())) <= 80


def raising(error):
    """A module whose command raises this error."""

    def main(options):
        raise error

    return SimpleNamespace(main=main)


@pytest.mark.parametrize(
    ("error", "status", "printed"),
    [
        (InputError("key: wrong; fix it"), "error: key: wrong; fix it", ""),
        (InputError("a: one\na: two"), "error: a: one\na: two", ""),
        (OSError(28, "full", "a.npy"), "error: a.npy: full; fix this and retry", ""),
        (OSError(28, "full"), "error: disk: full; fix this and retry", ""),
        (signals.Interrupted("interrupted by SIGTERM"), 75,
         "interrupted by SIGTERM; run the same command to resume\n"),
        (KeyboardInterrupt(), 130, ""),
        (BrokenPipeError(32, "no reader"), 1, ""),
        (SystemExit("error: 2 runs failed"), "error: 2 runs failed", ""),
    ],
)  # fmt: skip
def test_an_error_ends_each_command_alike(error, status, printed, monkeypatch, capsys):
    monkeypatch.setattr(signals, "ignore", lambda: None)
    monkeypatch.setattr(cli, "import_module", lambda _: raising(error))
    assert called("status", ".")[1] == status
    assert capsys.readouterr().err == printed


def test_an_unexpected_error_keeps_its_traceback(monkeypatch):
    monkeypatch.setattr(cli, "import_module", lambda _: raising(KeyError("x")))
    with pytest.raises(KeyError):
        called("status", ".")


@pytest.mark.parametrize("command", ["status", "sync", "report", "report . --out"])
def test_an_unset_variable_is_not_the_current_folder(command, monkeypatch):
    monkeypatch.setattr(cli, "import_module", lambda _: raising(AssertionError("runs")))
    for folder in ("", " "):
        message = f"error: {folder!r}: not the name of a folder; give "
        assert called(*command.split(), folder)[1].startswith(message)


@pytest.mark.parametrize("command", ["sync", "dashboard"])
def test_a_suffix_that_an_id_cannot_have_is_refused(command, monkeypatch):
    monkeypatch.setattr(cli, "import_module", lambda _: raising(InputError("runs")))
    assert called(command, "--suffix=2_b-C", ".")[1] == "error: runs"
    for suffix in ("=2", "a b", "it's", "a/b", "é"):
        error = called(command, f"--suffix={suffix}", ".")[1]
        assert error == (
            f"error: --suffix: use only letters, digits, _ and - (got {suffix!r}), such as 2"
        )


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
