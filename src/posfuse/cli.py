"""The posfuse command: runs a subcommand and prints an error as one line."""

import os
import sys
from difflib import get_close_matches
from importlib import import_module
from importlib.resources import files
from typing import NamedTuple

import posfuse
from posfuse.errors import InputError, visible
from posfuse.process import signals
from posfuse.process.streams import failure_of_stdout, require_streams

CURE = "fix this and retry"  # the fix for a file that cannot be read or written


class Command(NamedTuple):
    """A subcommand. `module` has a function `main`, which takes the parsed options and may return a
    line for each run that it leaves out. The `main` of train has no argument and reads sys.argv.
    The module is imported only when the command runs, because torch takes seconds."""

    group: str
    module: str
    summary: str
    example: str
    cure: str = CURE


COMMANDS = {
    "train": Command(
        "Run", "posfuse.train", "Train one run, or a sweep of runs with -m.",
        "fusion=gate_scalar data=bbc_article",
        cure=f"{CURE}; finished runs are skipped",
    ),
    "study": Command(
        "Run", "posfuse.study.command", "Test hypotheses by a plan that is frozen before the runs.",
        "run demo",
    ),
    "status": Command(
        "Read", "posfuse.sweeps.status", "Show the state of a sweep's runs and the time left.",
        "multirun/mine",
    ),
    "report": Command(
        "Read", "posfuse.report.entry", "Write tables, tests, verdicts and figures of a sweep.",
        "multirun/mine", cure="fix this, or choose another folder with --out",
    ),
    "sample": Command(
        "Read", "posfuse.training.sample", "Continue a text with a trained language model.",
        'RUN --prompt "The"',
    ),
    "sync": Command(
        "Read", "posfuse.tracking.upload", "Upload the finished runs of a sweep to W&B.",
        "multirun/mine",
    ),
    "dashboard": Command(
        "Read", "posfuse.tracking.dashboard", "Save a workspace and a report of a sweep in W&B.",
        "multirun/mine",
    ),
}  # fmt: skip
FIRST_HOUR = {
    "posfuse study run demo": "96 runs and verdicts, 6 minutes",
    "posfuse train -m experiment=quickstart": "36 small models, 5 minutes",
    "posfuse report multirun/quickstart": "their tables, tests and figures",
}


def main() -> None:
    """Run the command line. Exits with status 75 after a signal, 1 after an error, and 2 for an
    unknown option."""
    require_streams()
    status = status_of(*sys.argv[1:])
    if isinstance(status, str):
        status = visible(status)
    if status := status or failure_of_stdout():
        sys.exit(status)


def status_of(name: str = "--help", *arguments: str) -> str | int | None:
    """Run a command. Returns its exit status, or the line of the error that ended it."""
    wants_traceback = os.environ.get("HYDRA_FULL_ERROR") == "1"  # before train.py sets it
    try:
        if name in ("-h", "--help"):
            print(overview())
        elif "--version" in (name, *arguments):  # Hydra would print its own
            print(f"posfuse {posfuse.__version__}")
        elif name == "--completion":
            print(completion(list(arguments)))
        else:
            sys.argv = [f"posfuse {name}", *arguments]
            each, given = command(name), []
            if name != "train":
                from posfuse import options  # imports Hydra; the overview does not need it

                given = [options.parse(name, each.summary, arguments)]
            left_out = import_module(each.module).main(*given)
            return "\n".join(f"error: {line}" for line in left_out or ())
    except SystemExit as end:
        return end.code
    except KeyboardInterrupt:
        return 130  # as in a shell
    except BrokenPipeError:  # the reader of stdout has closed it, as in `| head`
        failure_of_stdout()  # otherwise Python reports the buffered output at exit
        return 1
    except signals.Interrupted as stop:
        signals.ignore()
        print(f"{stop}; run the same command to resume", file=sys.stderr)
        return signals.EXIT_STATUS
    except InputError as error:
        return f"error: {error}"
    except OSError as error:
        if wants_traceback:
            raise
        cure = COMMANDS[name].cure if name in COMMANDS else CURE
        line = f"error: {error.filename or 'disk'}: {error.strerror or error}; {cure}"
        return (None if error.filename else failure_of_stdout("\n")) or line
    return None


def command(name: str) -> Command:
    """The command with this name. Raises InputError with the nearest name if there is none."""
    if name not in COMMANDS:
        near = get_close_matches(name, COMMANDS, n=1)
        use = f"use posfuse {near[0]}" if near else f"use one of {', '.join(COMMANDS)}"
        raise InputError(f"{name}: no such command; {use}")
    return COMMANDS[name]


def overview() -> str:
    """The commands by group, each with one line and an example, and the first commands to try."""
    lines = [
        "usage: posfuse COMMAND ...",
        "       posfuse COMMAND --help | --version | --completion bash",
    ]
    for group in dict.fromkeys(each.group for each in COMMANDS.values()):
        lines += ["", f"{group}:"]
        for name, each in COMMANDS.items():
            if each.group == group:
                lines.append(f"  {name:<11}{each.summary}")
                lines.append(f"{'':<13}posfuse {name} {each.example}")
    width = max(map(len, FIRST_HOUR))
    lines += ["", "The first hour, on 2 idle CPU cores:"]
    return "\n".join([*lines, *(f"  {c:<{width}}  # {what}" for c, what in FIRST_HOUR.items())])


def completion(shells: list[str]) -> str:
    """The script of `posfuse --completion bash`, which zsh can read too. Raises InputError for
    another shell."""
    if shells != ["bash"]:
        raise InputError(
            '--completion: is for bash; run eval "$(posfuse --completion bash)", in zsh '
            "after autoload -U bashcompinit && bashcompinit"
        )
    script = files("posfuse").joinpath("completion.bash").read_text(encoding="utf-8")
    return script.replace("COMMANDS", " ".join(COMMANDS))
