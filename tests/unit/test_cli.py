"""posfuse: the list of commands, a command's name, and how errors end a command."""

import re
from types import SimpleNamespace

import pytest

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


@pytest.mark.parametrize("folder", ["", " "])
@pytest.mark.parametrize("command", [["status"], ["sync"], ["report"], ["report", ".", "--out"]])
def test_an_unset_variable_is_not_the_current_folder(command, folder, monkeypatch):
    monkeypatch.setattr(cli, "import_module", lambda _: raising(AssertionError("runs")))
    message = f"error: {folder!r}: not the name of a folder; give "
    assert called(*command, folder)[1].startswith(message)


@pytest.mark.parametrize("command", ["sync", "dashboard"])
def test_a_suffix_that_an_id_cannot_have_is_refused(command, monkeypatch):
    monkeypatch.setattr(cli, "import_module", lambda _: raising(InputError("runs")))
    assert called(command, "--suffix=2_b-C", ".")[1] == "error: runs"
    for suffix in ("=2", "a b", "it's", "a/b", "é"):
        error = called(command, f"--suffix={suffix}", ".")[1]
        assert error == (
            f"error: --suffix: use only letters, digits, _ and - (got {suffix!r}), such as 2"
        )
