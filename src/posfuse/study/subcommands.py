"""The commands of posfuse study: plan, freeze, run and status."""

import textwrap
from argparse import Namespace
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from typing import Any

import pandas as pd
from filelock import FileLock, Timeout
from rich.console import Console

from posfuse.errors import InputError
from posfuse.process.arguments import shell_line
from posfuse.process.config_folders import SEARCH
from posfuse.study import caveats, forecast
from posfuse.study.arm_sweep import OUTPUT, ArmSweep, RunsFailed
from posfuse.study.given import PATH
from posfuse.study.looks import Progress, progress
from posfuse.study.plan import Plan, finalists
from posfuse.study.reading import read_study
from posfuse.study.run_table import finished_runs
from posfuse.study.spec import Study
from posfuse.study.stages import Stages, runs_of

WIDTH = 80  # of a line


def execute(arguments: Namespace, searchpath: Sequence[str], extra: list[str]) -> None:
    """Run the command. `searchpath` are the folders of the user's config files, and `extra` are
    the other overrides of the command line."""
    name, study = read_study(arguments.study, searchpath)
    stages, again = Stages(name, study, extra, _say), _again(arguments, study)
    if arguments.command == "plan":
        _plan(stages, arguments.no_timing)
        print(f"next: {again}", flush=True)  # unbroken: to be copied
    elif arguments.command == "status":
        _status(stages, again)
    elif arguments.command == "freeze":
        with _sole_use(name):
            _say(f"plan {stages.freeze().digest}")
        print(f"next: {again}", flush=True)
    else:
        with _sole_use(name):
            _run(stages, again)


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


def _plan(stages: Stages, no_timing: bool) -> None:
    name, study = stages.name, stages.study
    settings = stages.check_arms()
    seconds = None
    if not no_timing:
        with _sole_use(f"{name}_timing"):
            seconds = forecast.cpu_seconds_per_run(name, study, stages.extra)
    _say(f"study {name}: {study.question}")
    for line in [*forecast.forecast(study, seconds), *caveats.of_plan(study, settings)]:
        _say(line)


def _run(stages: Stages, again: str) -> None:
    from posfuse.report.terminal import show
    from posfuse.study import results_page  # matplotlib and scikit-learn take a second to import

    try:
        for plan, state in stages.run():
            sweeps = stages.tuning_sweeps(), stages.testing_sweeps(plan)
            runs = results_page.with_measurements(finished_runs(stages.study, *sweeps))
            sections, path = results_page.write(
                stages.name, plan, state, runs, stages.folder, again
            )
    except RunsFailed:
        # Without test runs, this may be an earlier plan, whose tuning is being repeated.
        if stages.has_tested() and (frozen := stages.frozen_plan()):
            tested = stages.test_runs(frozen)
            _show_state(stages, frozen, progress(frozen.study, tested), tested)
        raise
    print(flush=True)
    show(sections, Console(highlight=False), path)
    if lost := _lost(sweeps[0].values(), runs):
        _say(lost)


def _lost(tuning: Collection[ArmSweep], runs: pd.DataFrame) -> str:
    """A line about tuning runs that have no record any more; empty if there are none."""
    seeds = {seed for sweep in tuning for seed in sweep.study.tuning_seeds}
    asked = sum(len(sweep.arms) * len(sweep.study.tuning_seeds) for sweep in tuning)
    done = int(((runs["stage"] == "tuning") & runs["seed"].isin(seeds)).sum())
    if done == asked:
        return ""
    return (
        f"{asked - done} of {asked} tuning runs have no readable record, so the page and runs.csv "
        "lack them; the plan keeps their scores"
    )


def _status(stages: Stages, again: str) -> None:
    study, plan = stages.study, stages.frozen_plan()
    if plan is None:
        for part, sweep in stages.tuning_sweeps().items():
            _tuning_status(f"tuning {part}".rstrip(), sweep)
        is_old = stages.plan_file.exists()
        what = "out of date, the file or posfuse has changed" if is_old else "not frozen yet"
        print(f"plan: {what}; run it with {again}", flush=True)
        return
    _say(f"plan: frozen in {stages.plan_file}")
    tested, looks = stages.test_runs(plan), study.looks.seeds
    state = progress(study, tested)
    for family, made in state.looks.items():
        _say(f"testing: {made} of {len(looks)} looks of the {family} hypotheses are made")
    if not state.is_finished:
        next_runs = runs_of(study, state.next_arms, state.next_look).values()
        wanted = {key for arms, seeds in next_runs for key in product(arms, seeds)}
        done = wanted.intersection(zip(tested["arm"], tested["seed"], strict=True))
        _say(f"testing: {len(done)} of {len(wanted)} runs of the next look are done")
    _show_state(stages, plan, state, tested)
    if not state.is_finished:
        print(f"next: {again}", flush=True)


def _tuning_status(stage: str, sweep: ArmSweep) -> None:
    study, seeds = sweep.study, sweep.study.tuning_seeds
    tuned = finished_runs(study, {"": sweep})
    done = tuned["seed"].isin(seeds).sum()
    runs = len(study.arms) * len(study.trials()) * len(seeds)
    _say(f"{stage}: {done} of {runs} runs are done")
    if study.final_seeds and done == runs:
        trials = finalists(study, tuned)
        done = len(sweep.results(trials, study.final_seeds))
        runs = len(trials) * len(study.final_seeds)
        _say(f"{stage}: {done} of {runs} runs of the finalists are done")


def _show_state(stages: Stages, plan: Plan, state: Progress, tested: pd.DataFrame) -> None:
    """Print the verdicts so far, and the hypotheses that cannot be judged because a run failed."""
    from posfuse.report.page import PAGE
    from posfuse.report.terminal import show
    from posfuse.study import results_page

    sections = results_page.verdict_sections(plan, state, tested)
    path = stages.folder / "report" / PAGE
    print(flush=True)
    show(sections, Console(highlight=False), path if state.is_finished else None)
    for line in stages.not_judged(plan, state):
        _say(line)
