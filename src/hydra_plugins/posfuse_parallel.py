"""The launcher of conf/hydra/launcher/parallel.yaml, over hydra-joblib-launcher: that one knows
nothing of GPUs, and gives up at the first run whose process is killed."""

import multiprocessing
import os
import signal
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobReturn
from hydra.types import TaskFunction
from hydra_plugins.hydra_joblib_launcher.joblib_launcher import JoblibLauncher
from omegaconf import DictConfig

from posfuse.errors import InputError
from posfuse.process import devices, signals
from posfuse.sweeps.failures import RunFailed, failures_in, lost

KILLED = (
    "a process of the sweep was killed while this run was at work, and memory may have run out: "
    "the same command goes on, with a smaller hydra.launcher.n_jobs if so"
)
KEYS = ("n_jobs", "batch_size")  # of joblib's; its others fail deep inside it, or do nothing


class Run:
    """A run in a process that ends with its parent, on the GPUs of that process, which keeps them:
    CUDA cannot change its devices once it is in use. Leaves its number in the folder `begun`."""

    def __init__(
        self, task_function: TaskFunction, places: list[str], sweep: Path, begun: Path
    ) -> None:
        self.task_function, self.places, self.sweep = task_function, places, sweep
        self.begun = begun

    def __call__(self, config: DictConfig) -> Any:
        signals.end_with_parent(signal.SIGTERM)
        if self.places and not devices.held:
            os.environ["CUDA_VISIBLE_DEVICES"] = devices.take(self.places, self.sweep)
        (self.begun / str(HydraConfig.get().job.num)).touch()
        return self.task_function(config)


class UntilTold(list[Sequence[str]]):
    """The overrides of runs, no more of them once this process is told to end."""

    def __iter__(self) -> Iterator[Sequence[str]]:
        return takewhile(lambda _: not signals.told, super().__iter__())


class ParallelLauncher(JoblibLauncher):  # type: ignore[misc]
    """n_jobs runs at once, each in a process of its own: at most `runs_per_core` for each core;
    where there are GPUs `runs_per_gpu` on each, or one on as many as trainer.devices says."""

    task_function: Any

    def __init__(self, runs_per_gpu: int = 1, runs_per_core: int = 1, **joblib: Any) -> None:
        tied = partial(signals.end_with_parent, signal.SIGKILL)
        super().__init__(**{**joblib, "initializer": tied})
        self.runs_per_gpu, self.runs_per_core = runs_per_gpu, runs_per_core
        self.unknown = sorted(joblib.keys() - set(KEYS))

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """The runs, when all have ended; those that a killed process has taken with it are failures
        and give nothing back."""
        asked = self.checked_jobs()
        if not job_overrides:
            return []
        from joblib import cpu_count
        from joblib.externals.loky.process_executor import BrokenProcessPool

        places = self.places(job_overrides)
        self.joblib["n_jobs"] = (
            devices.runs_at_once(asked, len(places), "the GPUs have", "runs_per_gpu")
            if places
            else devices.runs_at_once(
                asked, cpu_count() * self.runs_per_core, "the cores have", "runs_per_core"
            )
        )
        before = set(failures_in(self.config))
        task_function, sweep = self.task_function, Path(self.config.hydra.sweep.dir)
        left = list(job_overrides)
        returned: list[JobReturn] = []
        while left:
            with TemporaryDirectory(prefix="posfuse") as begun:
                self.task_function = Run(task_function, places, sweep, Path(begun))
                try:
                    returned += self.launched(left, initial_job_idx)
                    break
                except BrokenProcessPool as error:
                    gone = {int(name) - initial_job_idx for name in os.listdir(begun)}
                    if not gone:
                        raise RunFailed(
                            "the sweep's processes are killed before a run begins; give a smaller "
                            "hydra.launcher.n_jobs"
                        ) from error
            for worker in multiprocessing.active_children():
                worker.join()  # they are all being killed
            for number in sorted(gone):  # the failures are those that have not ended
                lost(self.hydra_context, self.config, left[number], KILLED, before)
            left = [job for number, job in enumerate(left) if number not in gone]
        return returned

    def checked_jobs(self) -> int:
        """n_jobs; raises InputError for an unknown key and for a value that starts no run."""
        if self.unknown:
            raise InputError(
                f"hydra.launcher.{self.unknown[0]}: unknown key; use one of {', '.join(KEYS)}, "
                "runs_per_gpu, runs_per_core"
            )
        n_jobs, batch = self.joblib.get("n_jobs"), self.joblib.get("batch_size", "auto")
        batch = 1 if batch == "auto" else batch
        for name, number in (
            ("n_jobs", n_jobs),
            ("runs_per_gpu", self.runs_per_gpu),
            ("runs_per_core", self.runs_per_core),
            ("batch_size", batch),
        ):
            if type(number) is not int:  # nor a bool, which is an int too
                raise InputError(
                    f"hydra.launcher.{name}: {number!r} is not a whole number; give one"
                )
        if n_jobs == 0 or min(self.runs_per_gpu, self.runs_per_core, batch) < 1:
            raise InputError(
                "hydra.launcher: n_jobs=0, or runs_per_gpu, runs_per_core or batch_size below 1, "
                "starts no run; give 1 or more, or n_jobs=-1 for as many as have room"
            )
        return int(n_jobs)

    def launched(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """joblib's launch, which ends when this process is told to."""
        launch = partial(super().launch, UntilTold(job_overrides), initial_job_idx)
        is_apart = self.joblib["n_jobs"] != 1
        returned: Sequence[JobReturn] = signals.passed_on(launch) if is_apart else launch()
        return returned

    def places(self, job_overrides: Sequence[Sequence[str]]) -> list[str]:
        """The GPUs of each run that may go on at once; none where runs are on CPUs."""
        groups = ("trainer", "experiment")  # what a run's devices follow from
        chosen = {
            tuple(o for o in job if o.lstrip("+~").startswith(groups)) for job in job_overrides
        }
        load = self.hydra_context.config_loader.load_sweep_config
        trainers = [load(self.config, list(overrides)).trainer for overrides in chosen]
        wanted = {t.devices for t in trainers if t.accelerator not in ("cpu", "mps")}
        wanted = {n for n in wanted if isinstance(n, int) and n > 0}  # else the run refuses it
        gpus = devices.gpus() if wanted else []
        if not gpus:
            return []
        if len(wanted) > 1:
            raise InputError(
                "trainer.devices: hydra/launcher=parallel gives each run as many GPUs as the "
                f"others, not {sorted(wanted)}; give a command for each"
            )
        return devices.places(gpus, self.runs_per_gpu, *wanted)
