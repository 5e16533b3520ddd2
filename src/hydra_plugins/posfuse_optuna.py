"""The sweeper of conf/hydra/sweeper/optuna.yaml, which searches instead of running a grid."""

import copy
import math
from pathlib import Path
from statistics import fmean
from types import ModuleType
from typing import Any

from hydra.core.override_parser.types import ChoiceSweep, IntervalSweep, Override, RangeSweep
from hydra.errors import ConfigCompositionException
from omegaconf import open_dict, read_write

from hydra_plugins.posfuse_sweeper import ONE, PosfuseSweeper, with_values
from posfuse.config import LARGEST_SEED
from posfuse.errors import AlreadyRunning, InputError
from posfuse.process import signals
from posfuse.process.arguments import refuse_twice
from posfuse.runs import records
from posfuse.runs.checks import checked, task_of
from posfuse.runs.configs import config_of
from posfuse.runs.multirun import arms_of, multirun_of, with_arm, write_multirun
from posfuse.runs.proposals import Proposals, optuna_for, round_value
from posfuse.sweeps.failures import say

# Scores of runs that differ in these cannot be compared.
ONE_OBJECTIVE = {
    "trainer.monitor": "objective", "task.name": "kind of task", "data.name": "corpus",
    "data.path": "corpus",
}  # fmt: skip


class OptunaSweeper(PosfuseSweeper):
    """Optuna proposes values for the keys with several values. A trial is one run, or one run for
    each value of seed. Its score is the (mean) validation metric of trainer.monitor.

    In multirun.yaml the trials are the arms t00, t01, ... of a sweep.
    """

    def __init__(self, n_trials: int, n_jobs: int, seed: int, **others: Any) -> None:
        super().__init__(**others)
        self.numbers = {"n_trials": n_trials, "n_jobs": n_jobs, "seed": seed}

    def sweep(self, arguments: list[str]) -> None:
        """Run the trials that Optuna proposes. The results of finished runs come from their
        records.

        Raises InputError for a value that cannot be searched, and without Optuna.
        """
        optuna = optuna_for("hydra/sweeper=optuna")
        for name, value in self.numbers.items():
            least, most = (0, LARGEST_SEED) if name == "seed" else (1, math.inf)
            if type(value) is not int or not least <= value <= most:
                allowed = f"between 0 and {LARGEST_SEED}" if name == "seed" else "1 or more"
                raise InputError(f"hydra.sweeper.{name}: must be {allowed} (got {value!r})")
        self.arms = arms_of(self.arms)
        self.fixed: list[str] = []
        self.seeds: list[list[str]] = [[]]
        self.listed: list[str] = []  # the override of seed
        searched: dict[str, Any] = {}
        # A key of the command replaces the same key of an experiment.
        given = {override.get_key_element(): override for override in self.parse(arguments)}
        for key, override in given.items():
            if not override.is_sweep_override():
                text = override.get_value_element_as_str()  # as multirun.yaml has it
                self.fixed.append(f"{key}={text}")
            elif override.key_or_group == "seed":
                if not override.is_discrete_sweep():
                    raise InputError(f"{override.input_line}: list the seeds, as seed=range(0,4)")
                self.listed = [with_values(override)]
                self.seeds = [[f"{key}={seed}"] for seed in override.sweep_string_iterator()]
            else:
                searched[key] = distribution(optuna, override)
        self.fixed = with_arm(self.fixed, self.arms)
        if not searched:
            raise InputError(
                "hydra/sweeper=optuna: nothing to search; give a key several values, such as "
                "'optim.lr=tag(log,interval(1e-4,1e-2))'"
            )
        ends = {key: ends_of(each) for key, each in searched.items()}
        first = {key: values[0] for key, values in ends.items()}
        others = [{**first, key: v} for key, values in ends.items() for v in values[1:]]
        jobs = [job for values in (first, *others) for job in self.jobs(self.trial(values))]
        try:
            metric, mode = self.objective(jobs)
        except ConfigCompositionException as error:
            key = getattr(error.__cause__, "full_key", "")
            is_float = isinstance(searched.get(key), optuna.distributions.FloatDistribution)
            if is_float and "Integer" in str(error.__cause__):
                raise InputError(f"{key}: takes whole numbers; use int(interval(a,b))") from error
            raise
        self.check(jobs)
        search = Proposals(optuna, searched, f"{mode}imize", self.numbers["seed"])
        n = self.numbers["n_trials"]
        self.watch(lambda: self.search(search, n, metric, mode), n, "trial")

    def trial(self, values: dict[str, Any]) -> list[str]:
        """The overrides of a trial with these values."""
        return with_arm([f"{key}={value}" for key, value in values.items()], self.arms)

    def jobs(self, own: list[str]) -> list[list[str]]:
        """The overrides of the runs of a trial. Raises InputError if one has a key twice."""
        jobs = [[*self.fixed, *own, *seed] for seed in self.seeds]
        refuse_twice(jobs[0])
        return jobs

    def objective(self, jobs: list[list[str]]) -> tuple[str, str]:
        """The validation metric that selects the best checkpoint, and "max" or "min".

        Raises InputError if the scores of these jobs cannot be compared, or if the config of every
        trial is refused. A trial that is refused only for some of its values fails by itself.
        """
        first: list[Any] = []
        refusals: list[Any] = []
        for job in jobs:
            with self._compose(job) as composed, read_write(composed), open_dict(composed):
                place = Path(composed.hydra.sweep.dir, composed.hydra.sweep.subdir)
                composed.hydra.runtime.output_dir = str(place.absolute())  # as Hydra in a job
                config = copy.deepcopy(composed)  # ${hydra:...} reads the other
                del config["hydra"]
                cfg = config_of(config)
                name, mode = task_of(cfg).monitor
                metric = f"{mode} {name.removeprefix('val/')}"
                own = [metric, cfg.task.name, cfg.data.name, cfg.data.path]
                try:
                    checked(config)
                    refusals.append(None)
                except InputError as error:
                    refusals.append(error)
            first = first or own
            for (key, what), value, other in zip(ONE_OBJECTIVE.items(), first, own, strict=True):
                if value != other:
                    raise InputError(
                        f"{key}: a search has one {what}, not {value} and {other}; run one command "
                        "for each"
                    )
        for n in range(len(self.seeds)):
            if all(of_seed := refusals[n :: len(self.seeds)]):
                raise of_seed[0]
        mode, name = first[0].split()
        return name, mode

    def search(self, search: Proposals, n: int, metric: str, mode: str) -> None:
        """Run n trials, n_jobs of them at once, and print the best one."""
        trials: list[list[str]] = []
        scores: list[float] = []
        while len(trials) < n:
            asked = [search.ask() for _ in range(min(self.numbers["n_jobs"], n - len(trials)))]
            new = [self.trial(values) for values in asked if values is not None]
            if not new:
                say(f"Optuna proposes no new values; the search ends after {len(trials)} trials")
                self.write(trials, len(trials))
                break
            trials += new
            self.write(trials, n)
            jobs = [job for own in new for job in self.jobs(own)]
            self.validate_batch_is_legal(jobs)
            values = self.scores(jobs, set(self.fixed), len(scores) * len(self.seeds))
            signals.check()
            ran = zip(jobs, values, strict=True)
            if any(math.isnan(value) and self.is_busy(job) for job, value in ran):
                say("another process runs a trial of this search; run the same command later")
                break
            for at, own in enumerate(new):
                runs = values[at * len(self.seeds) : (at + 1) * len(self.seeds)]
                scores.append(fmean(runs))
                search.tell(scores[-1])
                result = "failed" if math.isnan(scores[-1]) else f"{scores[-1]:.4f}"
                say(f"trial {len(scores)} of {n}: {' '.join(own)}: validation {metric} {result}")
        if done := [i for i, score in enumerate(scores) if not math.isnan(score)]:
            best = (max if mode == "max" else min)(done, key=scores.__getitem__)
            place = self.folder(self.jobs(trials[best])[0])
            place = place.parent if len(self.seeds) > 1 else place
            score = f"validation {metric} {scores[best]:.4f}"
            say(f"best trial: {' '.join(trials[best])}, {score}, in {place}")

    def is_busy(self, job: list[str]) -> bool:
        """True if this job failed here because another process runs it or has just finished it."""
        folder = self.folder(job)
        if failure := records.read_failure(folder):
            return bool(failure["kind"] == AlreadyRunning.kind)
        return (folder / records.RESULT).exists()

    def write(self, trials: list[list[str]], n: int) -> None:
        """Write multirun.yaml, as a sweep over the trials so far and the seeds. n counts all trials
        of the search."""
        arms = {f"t{i:02}": own for i, own in enumerate(trials)}
        with read_write(self.config.hydra), open_dict(self.config.hydra.sweeper):
            self.config.hydra.sweeper.update({"params": None, "arms": arms, "n_trials": n})
            self.config.hydra.overrides.task = [*self.fixed, f"arm={','.join(arms)}", *self.listed]
        self.asked = multirun_of(self.config)
        write_multirun(self.config)


def distribution(optuna: ModuleType, override: Override) -> Any:
    """Optuna's distribution for the values of an override, as in Hydra's plugin for Optuna. A list
    is categorical. A range and an interval are numbers, with tag(log) on a logarithmic scale.
    Raises InputError for other values.
    """
    kinds, line = optuna.distributions, override.input_line
    sweep: Any = override.value()
    if (key := override.key_or_group) in ONE:
        raise InputError(f"{key}: a search has one {ONE[key]}; run one command for each")
    is_interval = isinstance(sweep, IntervalSweep)
    tags: set[str] = getattr(sweep, "tags", set())  # a glob has none
    if tags - {"log"} if is_interval else "log" in tags:
        raise InputError(
            f"{line}: the only allowed tag is log, for an interval; use tag(log,interval(a,b))"
        )
    if is_interval:
        low, high, is_log = sweep.start, sweep.end, "log" in tags
        if not (0 if is_log else -math.inf) < low < high < math.inf:
            raise InputError(f"{line}: an interval needs finite a < b, with tag(log) also a > 0")
        is_int = isinstance(low, int)
        return (kinds.IntDistribution if is_int else kinds.FloatDistribution)(low, high, log=is_log)
    if isinstance(sweep, RangeSweep | ChoiceSweep):
        sweep.shuffle = False  # a search that is resumed proposes the same trials
    with_values(override)
    if isinstance(sweep, RangeSweep):
        numbers = sorted(map(round_value, sweep.range()))
        is_int = all(isinstance(number, int) for number in numbers)
        kind = kinds.IntDistribution if is_int else kinds.FloatDistribution
        return kind(numbers[0], numbers[-1], step=abs(sweep.step))
    return kinds.CategoricalDistribution(list(override.sweep_string_iterator()))


def ends_of(distribution: Any) -> list[Any]:
    """Example values, to check a search before it starts."""
    choices = getattr(distribution, "choices", None)
    return list(choices or sorted({round_value(distribution.low), round_value(distribution.high)}))
