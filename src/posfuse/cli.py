"""posfuse COMMAND: starts a command, and turns the error that ends it into one line."""

import sys
from difflib import get_close_matches
from importlib import import_module
from importlib.resources import files
from typing import NamedTuple

import posfuse
from posfuse.errors import InputError, checked_streams, failure_of_stdout
from posfuse.process import signals


class Command(NamedTuple):
    """`module` has a function `main`, which reads sys.argv. It is imported when the command runs:
    torch alone takes seconds."""

    group: str
    module: str
    summary: str
    example: str
    cure: str = "fix this and retry"  # of a file that cannot be read or written


COMMANDS = {
    "train": Command(
        "Run", "posfuse.train", "Train one run, or a sweep of runs with -m.",
        "fusion=gate_scalar data=bbc_article",
        cure="fix this and retry; finished runs are skipped",
    ),
    "study": Command(
        "Run", "posfuse.study.command", "Freeze a plan with hypotheses, then train and judge.",
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
    "posfuse study run demo": "96 runs with a verdict for each hypothesis, 6 minutes",
    "posfuse train -m experiment=quickstart": "36 small models, 5 minutes",
    "posfuse report multirun/quickstart": "their tables, tests, verdicts and figures",
}


@checked_streams()
def main() -> None:
    """Exit status: 0 when the command is done, 75 after a signal, 1 after an error, 2 for options
    that it does not have."""
    name, *arguments = sys.argv[1:] or ["--help"]
    if name in ("-h", "--help"):
        print(overview())
    elif name == "--version":
        print(f"posfuse {posfuse.__version__}")
    elif name == "--completion":
        print(completion(arguments))
    elif name in COMMANDS:
        sys.argv = [f"posfuse {name}", *arguments]
        execute(COMMANDS[name])
    else:
        near = get_close_matches(name, COMMANDS, n=1)
        use = f"use posfuse {near[0]}" if near else f"use one of {', '.join(COMMANDS)}"
        sys.exit(f"error: {name}: no such command; {use}")


def execute(command: Command) -> None:
    """Run a command; an error that a user can correct ends this process with one line."""
    try:
        import_module(command.module).main()
    except signals.Interrupted as stop:
        signals.ignore()
        print(f"{stop}; run the same command to resume", file=sys.stderr)
        sys.exit(signals.EXIT_STATUS)
    except InputError as error:
        sys.exit(f"error: {error}")
    except BrokenPipeError:
        raise  # checked_streams ends without a message
    except OSError as error:
        line = f"error: {error.filename or 'disk'}: {error.strerror or error}; {command.cure}"
        sys.exit((None if error.filename else failure_of_stdout("\n")) or line)


def overview() -> str:
    """The commands by group, each with one line and an example, and what to try first."""
    lines = [
        "usage: posfuse COMMAND ...",
        "       posfuse COMMAND --help | --version | --completion bash",
    ]
    for group in dict.fromkeys(command.group for command in COMMANDS.values()):
        lines += ["", f"{group}:"]
        for name, command in COMMANDS.items():
            if command.group == group:
                lines.append(f"  {name:<11}{command.summary}")
                lines.append(f"{'':<13}posfuse {name} {command.example}")
    width = max(map(len, FIRST_HOUR))
    lines += ["", "The first hour, on 2 idle CPU cores:"]
    return "\n".join([*lines, *(f"  {c:<{width}}  # {what}" for c, what in FIRST_HOUR.items())])


def completion(shells: list[str]) -> str:
    """The script of `posfuse --completion bash`, which zsh can read as well."""
    if shells != ["bash"]:
        raise SystemExit(
            'error: --completion: needs the shell, bash; run eval "$(posfuse --completion bash)", '
            "in zsh after autoload -U bashcompinit && bashcompinit"
        )
    script = files("posfuse").joinpath("completion.bash").read_text(encoding="utf-8")
    return script.replace("COMMANDS", " ".join(COMMANDS))
