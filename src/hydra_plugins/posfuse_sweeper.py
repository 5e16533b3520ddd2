"""Hydra's sweeper with checks of the sweep. Hydra finds plugins only in this package."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, ValueType
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, read_write

from posfuse.config import CONF_DIR
from posfuse.errors import InputError, input_errors
from posfuse.process import signals
from posfuse.process.arguments import refuse_twice
from posfuse.runs import records
from posfuse.runs.composing import Composer
from posfuse.runs.folders import folder_of, folders_of, other_overrides, sweep_folder
from posfuse.runs.multirun import MOST_RUNS, Multirun, multirun_of, write_multirun
from posfuse.sweeps.choices import check_chosen_protocol, check_own_classes
from posfuse.sweeps.failures import FAIL_FAST, say
from posfuse.sweeps.launching import composed_config
from posfuse.sweeps.skipping import finished
from posfuse.sweeps.status import every_minute

SEED = re.compile(r"seed=\d+")
SEEDS = "seed: must be a whole number in a sweep", "give numbers, as in seed=0,1,2"
IS_OF_STUDY = "hydra.callbacks.ending.is_of_study"
ONE = {"output_dir": "folder", "sweep_id": "folder", "experiment": "experiment"}


class PosfuseSweeper(BasicSweeper):
    """Refuses a sweep without runs, and one over output_dir or sweep_id. It stops at the first
    failure with sweep.fail_fast.

    `arms` has a list of overrides for each name. The sweep `arm=a,b` runs the overrides of a and of
    b, each with all values of the other keys. So arms can differ in several keys that are not
    crossed.
    """

    config: Any  # these three are set by `setup`
    hydra_context: Any
    launcher: Any

    def __init__(
        self,
        max_batch_size: int | None,
        params: dict[str, str] | None = None,
        arms: dict[str, list[str]] | None = None,
    ) -> None:
        super().__init__(max_batch_size, params)
        self.arms = arms or {}
        self.asked = Multirun()  # the runs of this command
        self.seen: set[str] = set()
        self.place = ""  # the sweep's folder of the first run

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """As Hydra's `setup`. The launcher also gets the `Composer`."""
        loader = Composer(hydra_context.config_loader)
        context = HydraContext(loader, hydra_context.callbacks)
        super().setup(hydra_context=context, task_function=task_function, config=config)

    def sweep(self, arguments: list[str]) -> None:
        """Run every job that is not finished, or with sweep.fail_fast up to the first failure.

        Raises InputError for a sweep over folders, over experiments, over an interval or over no
        values, and if two runs would share a folder.
        """
        listed = [with_values(override) for override in self.parse(arguments)]
        # multirun.yaml gets the names that match a glob, because posfuse status and the report read
        # it without the config groups.
        with read_write(self.config.hydra):
            self.config.hydra.sweeper.params = None
            self.config.hydra.overrides.task = listed
        with input_errors(*SEEDS):
            self.asked = multirun_of(self.config)
        jobs = self.asked.overrides
        self.check(jobs)
        write_multirun(self.config)
        self.watch(lambda: self.scores(jobs, self.asked.common), len(jobs), "run")

    def parse(self, arguments: list[str]) -> list[Override]:
        """The overrides of the sweep: first of its config file, then of the command."""
        parser = OverridesParser.create(self.hydra_context.config_loader)
        params = [f"{key}={value}" for key, value in self.params.items()]
        return list(parser.parse_overrides([*params, *arguments]))

    def check(self, jobs: list[list[str]]) -> None:
        """Raise InputError for jobs that cannot run. This precedes writing multirun.yaml, because a
        refused command must not replace the file of a good sweep."""
        size: Any = self.max_batch_size
        if size is not None and (type(size) is not int or (size < 1 and size != -1)):
            raise InputError(f"hydra.sweeper.max_batch_size: must be 1 or more (got {size!r})")
        for job in jobs:
            refuse_twice(job)
            refuse_lists(job)
        self.validate_batch_is_legal(jobs)
        with input_errors(*SEEDS):
            folders = folders_of(jobs, self.config)
        refuse_shared_folders(jobs, folders)

    @property
    def is_of_study(self) -> bool:
        return bool(OmegaConf.select(self.config, IS_OF_STUDY))

    def watch(self, run: Callable[[], object], n: int, unit: str) -> None:
        """Run a sweep of n units, and print its state every minute; sweep.fail_fast ends it."""
        folder = self.config.hydra.sweep.dir
        say(f"{n} {unit}{'s' * (n > 1)} in {folder}; Ctrl-C stops, the same command resumes")
        try:
            with every_minute(say, Path(folder), lambda: self.asked, self.is_of_study):
                run()
        except signals.Interrupted:
            if signals.interruption() != FAIL_FAST:
                raise

    def scores(self, jobs: list[list[str]], common: set[str], earlier: int = 0) -> list[float]:
        """Run the jobs that are not finished, and return the validation metric of each job, or NaN
        if it failed. `earlier` is the number of the command's jobs before these."""
        scores: list[float] = []
        for batch in self.split_overrides_to_chunks(jobs, self.max_batch_size):
            known = [self._score_if_done(job, common) for job in batch]
            left = [job for job, score in zip(batch, known, strict=True) if score is None]
            number = earlier + len(scores) + len(batch) - len(left)
            results = iter(self.launcher.launch(left, number) if left else ())
            # return_value raises the error of a run
            scores += [next(results).return_value if s is None else s for s in known]
        return scores

    def _score_if_done(self, overrides: list[str], common: set[str]) -> float | None:
        """The validation metric of a finished run, and a line about it; None if it is not finished.
        Hydra would start a job, 0.2 s each. In a study, a run that diverged is not repeated: it
        counts as guessing, and a second try could change a verdict."""
        signals.check()
        folder = self.folder(overrides)
        names = (records.RESULT, records.FAILURE)[: 1 + self.is_of_study]
        if not any((folder / name).exists() for name in names):
            return None
        own = [override for override in other_overrides(overrides) if override not in common]
        try:
            with self._compose(overrides) as job:
                done = finished(job, folder, own, self.is_of_study)
        except Exception:  # noqa: BLE001 - the run raises it again, and its folder gets a failure
            return None
        if not done:
            return None
        line, score = done
        say(line)
        if not math.isnan(score):
            (folder / records.FAILURE).unlink(missing_ok=True)  # of an earlier command
        return score

    def folder(self, overrides: list[str]) -> Path:
        return Path(self.config.hydra.sweep.dir) / folder_of(overrides, self.config)

    @contextmanager
    def _compose(self, overrides: list[str]) -> Iterator[DictConfig]:
        """The config of a run. In the block it is also the config of this process."""
        state = HydraConfig.instance()
        before = state.cfg
        try:
            yield composed_config(0, overrides, self.hydra_context, self.config)
        finally:
            state.cfg = before

    def validate_batch_is_legal(self, batch: Sequence[Sequence[str]]) -> None:
        """Compose one job for each override, but for at most two seeds, which show whether a folder
        depends on the seed. Raises InputError if a run's folder would differ from the one that
        posfuse status and the report compute from the command, for an unknown protocol, and for
        a class that Python cannot find."""
        for overrides in map(list, batch):
            new, n = set(overrides) - self.seen, len([*filter(SEED.fullmatch, self.seen)])
            if all(n > 1 and SEED.fullmatch(override) for override in new):
                continue
            self.seen |= new
            with self._compose(overrides) as job:
                self.place = self.place or job.hydra.sweep.dir
                if (own := job.hydra.sweep.dir) != self.place:
                    raise InputError(
                        "sweep_id: a sweep has one folder, but runs of this one are in "
                        f"{self.place} and {own}; give all runs the same sweep_id and output_dir"
                    )
                check_place(job, folder_of(overrides, self.config))
                check_chosen_protocol(job)
                check_own_classes(job)


def check_place(job: Any, folder: str) -> None:
    """Raise InputError unless the run's folder is this folder of the sweep's folder."""
    if job.hydra.sweep.subdir != folder:
        raise InputError(
            f"hydra.sweep.subdir: a run's folder is {job.hydra.sweep.subdir}, but must be "
            f"{folder}; remove this override. The name in a file of data, encoding or fusion must "
            "be the file's name, and a sweep over tasks needs data=NAME"
        )
    if job.hydra.sweep.dir != (sweep := sweep_folder(job.output_dir, job.sweep_id)):
        raise InputError(
            f"hydra.sweep.dir: must be {sweep} (got {job.hydra.sweep.dir}); set "
            "output_dir=FOLDER and sweep_id=NAME instead"
        )


def refuse_shared_folders(jobs: list[list[str]], folders: list[str]) -> None:
    """Raise InputError if two runs of a sweep would have one folder. The second would be refused or
    mistaken for the first."""
    first: dict[str, list[str]] = {}
    for job, folder in zip(jobs, folders, strict=True):
        other = first.setdefault(folder, job)
        if other is job:
            continue
        if sorted(job) == sorted(other):
            raise InputError(f"{' '.join(job)}: occurs twice in this sweep; give each value once")
        pair = [" ".join(o for o in a if o not in b) for a, b in ((other, job), (job, other))]
        fix = "data.name" if any("data.path=" in own for own in pair) else "sweep_id"
        raise InputError(
            f"{' and '.join(filter(None, pair))}: two runs of this sweep would have one folder, "
            f"{folder}; run one command for each, with a {fix} of its own"
        )


def refuse_lists(overrides: Iterable[str]) -> None:
    """Raise InputError for a list of files of one config group, because Hydra would merge them."""
    for override in overrides:
        group, _, value = override.lstrip("+").partition("=")
        if value.startswith("[") and (CONF_DIR / group).is_dir():
            names = re.sub(r"[\[\]'\"\s]", "", value)
            fix = f"write {group}={names}; in a file, {group}: {names}"
            if group in ONE:
                fix = f"a sweep has one {ONE[group]}; run one command for each"
            raise InputError(f"{group}=[{names}]: {fix}")


def with_values(override: Override) -> str:
    """The override, with a glob replaced by the names that match it. Raises InputError for an
    override of a key in ONE, and for an override without a list of values."""
    line = str(override.input_line)
    if not override.is_sweep_override():
        return line
    key = override.key_or_group
    if key in ONE:
        raise InputError(f"{key}: a sweep has one {ONE[key]}; run one command for each")
    if not override.is_discrete_sweep():
        search = "" if key == "seed" else ", or search it with hydra/sweeper=optuna"
        raise InputError(
            f"{line}: an interval has no list of values; use range() or choice(){search}"
        )
    if getattr(override.value(), "step", None) == 0:
        raise InputError(f"{line}: the step must not be 0; give another step")
    values = list(islice(override.sweep_string_iterator(), MOST_RUNS + 1))
    if not values:
        raise InputError(f"{line}: no values, so no runs; give at least one")
    is_glob = override.value_type == ValueType.GLOB_CHOICE_SWEEP
    return f"{override.get_key_element()}={','.join(values)}" if is_glob else line
