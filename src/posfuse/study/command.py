"""posfuse-study: tune, freeze the plan, run fresh seeds up to each look, judge, report."""

import argparse
import sys

from rich.console import Console
from rich.table import Table
from rich.text import Text

from posfuse.errors import InputError, checked_streams
from posfuse.process import signals
from posfuse.study import forecast, plan, report, stages, sweeps, tables
from posfuse.study.plan import Plan
from posfuse.study.spec import Study, read_study, seeds_of
from posfuse.study.sweeps import OUTPUT
from posfuse.study.verdicts import Progress

WIDTH = 80  # columns if stdout is not a terminal


def parse(arguments: list[str] | None = None) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(prog="posfuse-study", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    helps = {
        "plan": "the number of runs, their time and the power; runs only short trials",
        "run": "run the study, or resume it",
        "status": "what is done and what is decided so far",
    }
    for name, text in helps.items():
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument("study", help="a name in conf/study, or a YAML file")
        if name == "plan":
            command.add_argument("--no-timing", action="store_true", help="run nothing")
    return parser.parse_known_args(arguments)


@checked_streams()
def main() -> None:
    """Exit status 0 when the command is done, 75 after a signal, 1 after an error."""
    arguments, extra = parse()
    signals.install()
    try:
        sweeps.check_extra(extra)
        name, study = read_study(arguments.study)
        if arguments.command == "plan":
            _plan(name, study, extra, arguments.no_timing)
        elif arguments.command == "status":
            _status(name, study)
        else:
            _run(name, study, extra)
    except signals.Interrupted as stop:
        print(f"{stop}; run the same command to resume", file=sys.stderr)
        sys.exit(signals.EXIT_STATUS)
    except InputError as error:
        sys.exit(f"error: {error}")
    except OSError as error:
        sys.exit(f"error: {error.filename or OUTPUT}: {error.strerror}; fix this and retry")


def _say(line: str) -> None:
    print(line, flush=True)


def _plan(name: str, study: Study, extra: list[str], no_timing: bool) -> None:
    seconds = None if no_timing else forecast.seconds_per_run(name, study, extra)
    _say(f"study {name}: {study.question}")
    for line in forecast.forecast(study, seconds):
        _say(line)


def _run(name: str, study: Study, extra: list[str]) -> None:
    frozen, state = stages.run(name, study, extra, _say)
    first = report.write(name, frozen, state, _results(name, frozen), OUTPUT / name)
    console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH)
    console.print()
    for line in first:
        console.print(Text(line, style="bold"))
        console.print()
    _show(state, console)
    console.print(Text(tables.legend(study)))
    console.print(Text(str(OUTPUT / name / "report" / "index.html")), soft_wrap=True)


def _show(state: Progress, console: Console) -> None:
    """Each verdict with its hypothesis and its numbers."""
    grid = Table.grid(padding=(0, 1))
    for v in state.verdicts:
        grid.add_row(Text(v.verdict.upper(), style="bold"), Text(v.hypothesis.text, style="bold"))
        grid.add_row("", Text(tables.numbers(v)))
    console.print(grid)
    console.print()


def _results(name: str, frozen: Plan) -> tables.Results:
    seeds = seeds_of("testing.seeds", frozen.study.testing.seeds)
    return stages.testing_sweep(name, frozen).results(frozen.study.arms, seeds)


def _status(name: str, study: Study) -> None:
    frozen = stages.frozen_plan(name, study)
    if study.tuning:
        sweep, seeds = stages.tuning_sweep(name, study), seeds_of("", study.tuning.seeds)
        done = len(sweep.results(sweep.arms, seeds))
        _say(f"tuning: {done} of {len(sweep.arms) * len(seeds)} runs are done")
    if frozen is None:
        _say(f"plan: not frozen yet; posfuse-study run {name} continues")
        return
    _say(f"plan: frozen in {OUTPUT / name / plan.PLAN}, digest {frozen.digest[:16]}")
    state, results = stages.state_of(name, frozen), _results(name, frozen)
    looks = study.looks.seeds
    for family, made in state.looks.items():
        _say(f"testing: {made} of {len(looks)} looks of the {family} hypotheses are made")
    if not state.is_finished:
        wanted = [(arm, seed) for arm in state.next_arms for seed in state.next_seeds]
        done = sum(key in results for key in wanted)
        _say(f"testing: {done} of {len(wanted)} runs of the next look are done")
    console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH)
    console.print(Text(" ".join(tables.headline(study, state))))
    _show(state, console)


if __name__ == "__main__":
    main()
