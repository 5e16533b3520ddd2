"""The launcher of conf/hydra/launcher/parallel.yaml, which uses hydra-joblib-launcher.

It adds GPUs, the handling of signals, and a sweep that survives a killed process.
"""

import multiprocessing
import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from multiprocessing import resource_tracker
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
from posfuse.runs import records
from posfuse.sweeps.failures import RunFailed, lost

KILLED = (
    "a worker process was killed during this run, and memory may have run out; run the same "
    "command to resume, with a smaller hydra.launcher.n_jobs if so"
)
KILLED_EARLY = (
    "the worker processes were killed before a run started; give a smaller hydra.launcher.n_jobs"
)


@dataclass
class WorkerTask:
    """One run in a worker process. The process keeps its GPUs for all of its runs, since CUDA
    cannot change its devices once it is in use. A file in `begun` marks the run as started."""

    task_function: TaskFunction
    places: list[str]
    sweep: Path
    begun: Path

    def __call__(self, config: DictConfig) -> Any:
        if self.places and not devices.held:
            os.environ["CUDA_VISIBLE_DEVICES"] = devices.take(self.places, self.sweep)
        (self.begun / str(HydraConfig.get().job.num)).touch()
        return self.task_function(config)


class UntilInterrupted(list[Sequence[str]]):
    """The overrides of runs. It yields no more of them after a signal."""

    def __iter__(self) -> Iterator[Sequence[str]]:
        return takewhile(lambda _: signals.received() is None, super().__iter__())


class ParallelLauncher(JoblibLauncher):  # type: ignore[misc]
    """n_jobs runs at once, each in a process of its own: up to `runs_per_core` on each core; on
    GPUs up to `runs_per_gpu` on each GPU, or one run on each trainer.devices GPUs."""

    task_function: Any

    def __init__(self, n_jobs: int = -1, runs_per_gpu: int = 1, runs_per_core: int = 1) -> None:
        tied = partial(signals.exit_with_parent, os.getpid())
        # batch_size=1: whichever worker is free first does the next run.
        super().__init__(n_jobs=n_jobs, batch_size=1, initializer=tied)
        self.runs_per_gpu, self.runs_per_core = runs_per_gpu, runs_per_core

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """The results of the runs. A killed process ends the runs that were busy: these are
        recorded as failures and have no result."""
        asked = self.checked_jobs()
        if not job_overrides:
            return []
        from joblib import cpu_count
        from joblib.externals.loky.process_executor import BrokenProcessPool

        room, of, per = cpu_count() * self.runs_per_core, "the cores have", "runs_per_core"
        if places := self.places(job_overrides):
            room, of, per = len(places), "the GPUs have", "runs_per_gpu"
        self.joblib["n_jobs"] = devices.runs_at_once(asked, room, of, per)
        task_function, sweep = self.task_function, Path(self.config.hydra.sweep.dir)
        self.before = records.failures_in(sweep)
        left = list(job_overrides)
        returned: list[JobReturn] = []
        while left:
            with TemporaryDirectory(prefix="posfuse") as begun:
                self.task_function = WorkerTask(task_function, places, sweep, Path(begun))
                try:
                    returned += self.launched(left, initial_job_idx)
                    break
                except BrokenProcessPool as error:
                    gone = {int(name) - initial_job_idx for name in os.listdir(begun)}
                    if not gone:
                        raise RunFailed(KILLED_EARLY) from error
            for worker in multiprocessing.active_children():
                worker.join()  # joblib has killed the others
            for number in sorted(gone):  # `lost` skips those that had ended
                lost(self, left[number], KILLED)
            left = [job for number, job in enumerate(left) if number not in gone]
        return returned

    def launched(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """joblib's launch. It runs in a thread that blocks the signals, and so do the workers that
        the thread starts. This thread passes a signal on to them. Raises Interrupted."""
        launch = partial(super().launch, UntilInterrupted(job_overrides), initial_job_idx)
        if self.joblib["n_jobs"] == 1:  # in this process
            return launch()  # type: ignore[no-any-return]
        resource_tracker.ensure_running()  # its start would unblock signals in the thread
        block = (signal.SIG_BLOCK, signals.SIGNALS)
        with ThreadPoolExecutor(1, initializer=signal.pthread_sigmask, initargs=block) as thread:
            runs = thread.submit(launch)
            while wait([runs], 0.05).not_done:
                if signals.received():
                    for worker in multiprocessing.active_children():  # again, for new workers
                        worker.terminate()
        signals.check()
        return runs.result()  # type: ignore[no-any-return]

    def checked_jobs(self) -> int:
        """n_jobs; raises InputError for a value that starts no run."""
        n_jobs: Any = self.joblib["n_jobs"]
        per = {"runs_per_gpu": self.runs_per_gpu, "runs_per_core": self.runs_per_core}
        for name, number in {"n_jobs": n_jobs, **per}.items():
            # A bool is an instance of int.
            if type(number) is not int or number == 0 or (number < 0 and name != "n_jobs"):
                more = ", or -1 for as many as have room" if name == "n_jobs" else ""
                raise InputError(f"hydra.launcher.{name}: must be 1 or more{more} (got {number!r})")
        return int(n_jobs)

    def places(self, job_overrides: Sequence[Sequence[str]]) -> list[str]:
        """The GPUs of each run that may train at once; empty if the runs are on CPUs."""
        groups = ("trainer", "experiment")  # the overrides that can set a run's devices
        chosen = {
            tuple(o for o in job if o.lstrip("+~").startswith(groups)) for job in job_overrides
        }
        load = self.hydra_context.config_loader.load_sweep_config
        trainers = [load(self.config, list(overrides)).trainer for overrides in chosen]
        wanted = {t.devices for t in trainers if t.accelerator not in ("cpu", "mps")}
        wanted = {n for n in wanted if isinstance(n, int) and n > 0}  # the run refuses any other
        gpus = devices.gpus() if wanted else []
        if not gpus:
            return []
        if len(wanted) > 1:
            raise InputError(
                "trainer.devices: hydra/launcher=parallel gives each run as many GPUs as the "
                f"others, not {sorted(wanted)}; give a command for each"
            )
        return devices.places(gpus, self.runs_per_gpu, *wanted)
