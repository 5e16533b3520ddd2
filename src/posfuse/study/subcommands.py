"""The commands of posfuse study: plan, freeze, run and status."""

import textwrap
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import product
from typing import Any

import pandas as pd
from filelock import FileLock, Timeout
from rich.console import Console
from rich.table import Table
from rich.text import Text

from posfuse.errors import InputError
from posfuse.process.arguments import shell_line
from posfuse.statistics.cautions import GROUPS, INSTEAD
from posfuse.study import arm_sweep, caveats, forecast, plan, stages, tables
from posfuse.study.arguments import PATH, SEARCH
from posfuse.study.arm_sweep import OUTPUT
from posfuse.study.looks import Progress, progress
from posfuse.study.plan import Plan
from posfuse.study.reading import read_study
from posfuse.study.run_table import finished_runs
from posfuse.study.spec import Study

WIDTH = 80  # of a line


def execute(arguments: Namespace, searchpath: Sequence[str], extra: list[str]) -> None:
    """Run the command. `searchpath` are the folders of the user's config files, and `extra` are
    the other overrides of the command line."""
    name, study = read_study(arguments.study, searchpath)
    again = _again(arguments, study)
    if arguments.command == "plan":
        _plan(name, study, extra, arguments.no_timing)
        print(f"next: {again}", flush=True)  # unbroken: to be copied
    elif arguments.command == "status":
        _status(name, study, extra, again)
    elif arguments.command == "freeze":
        with _sole_use(name):
            _say(f"plan {stages.freeze(name, study, extra, _say).digest}")
        print(f"next: {again}", flush=True)
    else:
        with _sole_use(name):
            _run(name, study, extra, again)


@contextmanager
def _sole_use(name: str) -> Iterator[None]:
    """Lock the study, because two commands would each freeze a plan. The kernel releases
    the lock when the process ends. Raises InputError while another process holds the lock."""
    OUTPUT.mkdir(parents=True, exist_ok=True)
    try:
        held = FileLock(OUTPUT / f".{name}.lock", timeout=0).acquire()
    except Timeout as error:
        raise InputError(
            f"{OUTPUT / name}: another command runs this study; wait until it ends, or stop it"
        ) from error
    with held:
        yield


def _again(arguments: Namespace, study: Study) -> str:
    """The command that runs the study, with the paths of its config files, modules and texts."""
    places = [word for folder in arguments.config_dir for word in ("--config-dir", folder)]
    places += [o for o in arguments.extra if o.startswith((SEARCH, PATH))]
    return shell_line(["posfuse", "study", "run", arguments.study, *places], bool(study.searchpath))


def _say(line: str) -> None:
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    whole: Any = {"break_on_hyphens": False, "break_long_words": False}  # paths are to be copied
    print(textwrap.fill(line, WIDTH, subsequent_indent=indent, **whole), flush=True)


def _plan(name: str, study: Study, extra: list[str], no_timing: bool) -> None:
    settings = stages.check_arms(name, study, extra, _say)
    seconds = None
    if not no_timing:
        with _sole_use(f"{name}_timing"):
            seconds = forecast.cpu_seconds_per_run(name, study, extra)
    _say(f"study {name}: {study.question}")
    for line in [*forecast.forecast(study, seconds), *caveats.of_plan(study, settings)]:
        _say(line)


def _run(name: str, study: Study, extra: list[str], again: str) -> None:
    write_page = partial(_write_page, name, study, extra, again)
    try:
        frozen, state = stages.run(name, study, extra, _say, write_page)
    except arm_sweep.RunsFailed:
        if plan := stages.frozen_plan(name, study):
            _show_state(name, plan, stages.test_runs(name, plan))
        raise
    console = Console(highlight=False)
    console.print()
    for line in write_page(frozen, state):
        console.print(Text(line, style="bold"))
        console.print()
    _show(frozen, state, stages.test_runs(name, frozen), console)
    console.print(Text(tables.legend(study)))
    page = OUTPUT / name / "report" / "index.html"
    console.print(Text(f"results: {page}; next: open it in a browser"), soft_wrap=True)


def _write_page(
    name: str, study: Study, extra: list[str], again: str, frozen: Plan, state: Progress
) -> list[str]:
    """Write the page and runs.csv of all runs so far. Returns the first lines of the page."""
    from posfuse.study import results_page  # matplotlib and scikit-learn take a second to import

    tuning, testing = stages.tuning_sweeps(name, study, extra), stages.testing_sweeps(name, frozen)
    runs = results_page.with_measurements(finished_runs(study, tuning, testing))
    return results_page.write(name, frozen, state, runs, OUTPUT / name, again)


def _show(frozen: Plan, state: Progress, tested: pd.DataFrame, console: Console) -> None:
    """Print each verdict with its hypothesis, its numbers and its cautions; then the cautions of
    all verdicts."""
    by_name = caveats.of_verdicts(frozen, state, tested)
    own, of_all = caveats.sentences(by_name)
    grid = Table.grid(padding=(0, 1))
    for v in state.verdicts:
        grid.add_row(Text(v.verdict.upper(), style="bold"), Text(tables.statement(v), style="bold"))
        grid.add_row("", Text(tables.numbers(v, frozen.study.measured)))
        if caution := own.get(v.hypothesis.name):
            grid.add_row("", Text(caution))
    console.print(grid)
    console.print()
    may_be_solved = frozen.study.measured.is_share and frozen.study.repeats == 1
    in_groups = [h for h in frozen.study.hypotheses if GROUPS in by_name.get(h.name, ())]
    instead = INSTEAD * (may_be_solved and any(h.is_of_two_arms for h in in_groups))
    for line in filter(None, (of_all, instead)):
        console.print(Text(line))
        console.print()


def _status(name: str, study: Study, extra: list[str], again: str) -> None:
    frozen = stages.frozen_plan(name, study)
    if study.tuning and frozen is None:
        for part, sweep in stages.tuning_sweeps(name, study, extra).items():
            _tuning_status(f"tuning {part}".rstrip(), sweep)
    if frozen is None:
        is_old = (OUTPUT / name / plan.PLAN).exists()
        what = "out of date, the file or posfuse has changed" if is_old else "not frozen yet"
        print(f"plan: {what}; run it with {again}", flush=True)
        return
    _say(f"plan: frozen in {OUTPUT / name / plan.PLAN}, digest {frozen.digest[:16]}")
    tested, looks = stages.test_runs(name, frozen), study.looks.seeds
    state = progress(study, tested)
    for family, made in state.looks.items():
        _say(f"testing: {made} of {len(looks)} looks of the {family} hypotheses are made")
    if not state.is_finished:
        next_runs = stages.runs_of(study, state.next_arms, state.next_look).values()
        wanted = {key for arms, seeds in next_runs for key in product(arms, seeds)}
        done = wanted.intersection(zip(tested["arm"], tested["seed"], strict=True))
        _say(f"testing: {len(done)} of {len(wanted)} runs of the next look are done")
    _show_state(name, frozen, tested)
    if state.is_finished:
        _say(f"results: {OUTPUT / name / 'report' / 'index.html'}; next: open it in a browser")
    else:
        print(f"next: {again}", flush=True)


def _tuning_status(stage: str, sweep: arm_sweep.ArmSweep) -> None:
    study, seeds = sweep.study, sweep.study.tuning_seeds
    tuned = finished_runs(study, {"": sweep})
    done = tuned["seed"].isin(seeds).sum()
    runs = len(study.arms) * len(study.trials()) * len(seeds)
    _say(f"{stage}: {done} of {runs} runs are done")
    if study.final_seeds and done == runs:
        trials = stages.finalist_arms(study, tuned)
        done = len(sweep.results(trials, study.final_seeds))
        runs = len(trials) * len(study.final_seeds)
        _say(f"{stage}: {done} of {runs} runs of the finalists are done")


def _show_state(name: str, frozen: Plan, tested: pd.DataFrame) -> None:
    """Print the verdicts so far, and the hypotheses that cannot be judged because a run failed."""
    console, state = Console(highlight=False), progress(frozen.study, tested)
    console.print(Text(" ".join(tables.headline(frozen.study, state))))
    _show(frozen, state, tested, console)
    for line in stages.not_judged(name, frozen, state):
        _say(line)
