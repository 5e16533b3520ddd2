"""The options of all commands except train, whose options are Hydra's.

Options are parsed before the command's module is imported, because the import can take seconds.
"""

import re
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from posfuse.errors import InputError
from posfuse.evidence.foreign import UNITS, Columns
from posfuse.evidence.metric import ACCURACY, BITS_PER_BYTE, METRICS

OF_SWEEPS = ("effect", "metric", "select_seeds", "solved", "primary", "claims")
OF_TABLES = (
    "seed", "compare", "value", "by", "where", "unit", "lower_is_better", "overall", "resolution",
    "unpaired", "all_pairs",
)  # fmt: skip
# What an option is for and how to correct it, and whether the command has what the option is for.
Need = tuple[str, Callable[[Namespace], bool]]
SWEEP: Need = "the folder of a sweep, not for --from; remove it", lambda given: given.table is None
TABLE: Need = "--from TABLE.csv; remove it", lambda given: given.table is not None
DRAWS: Need = "--temperature above 0; give one, or remove it", lambda given: given.temperature != 0
NEEDS: dict[str, dict[str, Need]] = {
    "report": dict.fromkeys(OF_SWEEPS, SWEEP) | dict.fromkeys(OF_TABLES, TABLE),
    "sample": {"seed": DRAWS},
}

SUFFIX = {  # the help of --suffix
    "sync": "text to append to every id, because W&B refuses ids of deleted runs",
    "dashboard": "the suffix given to posfuse sync: only runs with these ids are shown",
}


def parse(name: str, summary: str, words: Sequence[str]) -> Namespace:
    """The options of a command; for a study also `extra`, the overrides of its runs."""
    parser = ArgumentParser(prog=f"posfuse {name}", description=summary)
    if name == "study":
        _study(parser)
        given, extra = parser.parse_known_args(words)
        return Namespace(**vars(given), extra=extra)
    if name == "report":
        _report(parser)
    elif name == "sample":
        _sample(parser)
    else:
        example = "the sweep's folder, such as multirun/quickstart"
        parser.add_argument("folder", type=_existing, help=example)
    if name == "status":
        parser.add_argument("--once", action="store_true", help="print once, without updates")
    if name in SUFFIX:
        parser.add_argument("--suffix", type=_suffix, default="", help=SUFFIX[name])
    return _parsed(parser, words, NEEDS.get(name, {}))


def _parsed(parser: ArgumentParser, words: Sequence[str], needs: dict[str, Need]) -> Namespace:
    """The options. Exits unless a report has either a sweep or a table. Raises InputError for an
    option without what it needs, even if its value is the default."""
    given = parser.parse_args(words, Namespace(**dict.fromkeys(needs)))  # None: not given
    if "table" in given and (given.folder is None) == (given.table is None):
        parser.error("give the folder of a sweep, or --from TABLE.csv")
    for name, (use, is_met) in needs.items():
        if getattr(given, name) is None:
            setattr(given, name, parser.get_default(name))
        elif not is_met(given):
            raise InputError(f"--{name.replace('_', '-')}: is for {use}")
    return given


def _existing(folder: str, give: str = "a sweep's folder, such as multirun/mine") -> Path:
    if not _named(folder, give).is_dir():
        raise InputError(f"{folder}: no such folder; give {give}")
    return Path(folder)


def _named(folder: str, give: str) -> Path:
    """A folder's path. Raises InputError for an empty name, as of an unset variable of the shell,
    which would mean the current folder."""
    if not folder.strip():
        raise InputError(f"{folder!r}: not the name of a folder; give {give}")
    return Path(folder)


def _suffix(text: str) -> str:
    """A text that W&B's ids and the filters of wandb-workspaces can have."""
    if not re.fullmatch(r"[\w-]*", text, re.ASCII):
        raise InputError(f"--suffix: use only letters, digits, _ and - (got {text!r}), such as 2")
    return text


def _study(parser: ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="command", required=True)
    helps = {
        "plan": "print runs, core hours and power, after two short runs of each arm",
        "freeze": "tune and write plan.yaml, but run no test seed",
        "run": "run the study, or resume it",
        "status": "show finished runs and verdicts so far",
    }
    for name, text in helps.items():
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument("study", help="a name in conf/study, or a YAML file")
        command.add_argument(
            "--config-dir", "-cd", action="append", default=[], metavar="FOLDER",
            help="a folder with config files of your own, as for posfuse train",
        )  # fmt: skip
        if name == "plan":
            command.add_argument(
                "--no-timing", action="store_true", help="run nothing, and print no core hours"
            )


def _sample(parser: ArgumentParser) -> None:
    add = parser.add_argument
    finished = partial(_existing, give="the folder of a finished run")
    add("run", type=finished, help="folder of a finished run with task=language_model")
    add("--prompt", required=True, help="text to continue; for a task, symbols with spaces")
    add("--tokens", type=int, default=100, help="number of tokens to add (default: %(default)s)")
    help_ = "0: the most probable token each time; 0.8 is a good start for texts (default: 0)"
    add("--temperature", type=float, default=0.0, help=help_)
    add("--seed", type=int, default=0, help="seed of the random draws (default: %(default)s)")


def _report(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("folder", nargs="?", type=_existing, help="folder of a sweep, such as multirun/quickstart")
    given = partial(_named, give="--out=FOLDER, or leave it out")
    add("--out", type=given, help="output folder (default: report in the sweep's folder)")
    add("--baseline", metavar="FUSION", help="operator to compare with (default: add)")
    points: dict[str, Any] = {"type": float, "metavar": "NUMBER"}
    compared = "metric to compare: " + ", ".join(METRICS)
    compared += " (default: bits_per_byte or exact_match if all runs have it, else accuracy)"
    add("--metric", metavar="NAME", help=compared)
    one, bits = ACCURACY, BITS_PER_BYTE
    defaults = f"(default: {one.margin} points, or {bits.margin} bits per byte)"
    does_not_matter = f"largest difference that does not matter {defaults}"
    add("--margin", help=does_not_matter, **points)
    defaults = f"(default: {one.effect} points, or {bits.effect} bits per byte)"
    add("--effect", help=f"difference for which the needed seeds are listed {defaults}", **points)
    chosen = "seeds whose validation selects each operator's best token scale and learning rate, "
    chosen += "as 0,1 or 0-4; the other seeds are tested (default: all seeds are used for both)"
    add("--select-seeds", metavar="SEEDS", help=chosen)
    solved = "lowest test result of a run that solves its task (default for accuracies: halfway "
    solved += "between chance and 100, if the runs of a cell are in two groups)"
    add("--solved", type=float, metavar="PERCENT", help=solved)
    listed = "operators in the family of Holm's adjustment, as concat,gate_scalar, or all "
    add("--primary", metavar="FUSIONS", help=f"{listed}(default: the sweep's sweep.primary)")
    add("--claims", type=Path, help="YAML file of claims (default: the paper's claims)")
    group = parser.add_argument_group("results of another study, one row per run")
    add, default = group.add_argument, Columns()
    add("--from", dest="table", type=Path, metavar="TABLE.csv", help="CSV file with a header")
    add("--seed", default=default.seed, metavar="COLUMN", help="seed (default: %(default)s)")
    add(
        "--compare", default=default.compare, metavar="COLUMN", help="method (default: %(default)s)"
    )
    add("--value", default=default.value, metavar="COLUMN", help="result (default: %(default)s)")
    add("--by", default="", metavar="COLUMN,COLUMN", help="compare within each combination")
    add("--where", action="append", default=[], metavar="COLUMN=VALUE", help="use only these rows")
    add("--unit", choices=UNITS, help="unit of the values (default: percent if one is above 1)")
    add("--lower-is-better", action="store_true", help="the values are losses or errors")
    over = "compare means over all groups of --by. n counts the values of these columns: the seed "
    over += "column, for conclusions about new seeds of these groups, or columns of --by, for "
    over += "conclusions about new groups"
    add("--overall", default="", metavar="COLUMN,COLUMN", help=over)
    step = "step of the values, such as 100 / test documents, to test differences that are equal "
    step += "in all seeds (default: no test of such differences)"
    add("--resolution", type=float, metavar="POINTS", help=step)
    welch = "use Welch's tests, for runs that share nothing but the number of the seed"
    add("--unpaired", action="store_true", help=welch)
    add("--all-pairs", action="store_true", help="compare all methods with each other")
