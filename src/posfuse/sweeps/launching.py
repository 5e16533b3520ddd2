"""Code of all launchers: executes runs, and records the failure of runs without a result."""

import math
import os
from abc import abstractmethod
from collections.abc import Generator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus, run_job, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict

from posfuse.runs import records
from posfuse.runs.folders import folder_of
from posfuse.sweeps.failures import record_failure, report

Call = tuple[Any, ...]  # the arguments of `execute`, which cloudpickle can pickle
Results = Generator[tuple[Call, JobReturn | str], None, None]


def execute(
    number: int,
    overrides: list[str],
    folder: str,
    context: HydraContext,
    config: DictConfig,
    task_function: TaskFunction,
    state: dict[Any, Any],
) -> JobReturn:
    """Execute one run in this process, as Hydra's launchers do. The process may be on another
    machine.

    `folder` is the command's working directory, and `state` is the state of Hydra's singletons.
    """
    os.chdir(folder)
    setup_globals()
    Singleton.set_state(state)
    return run_job(
        task_function,
        composed_config(number, overrides, context, config),
        job_dir_key="hydra.sweep.dir",
        job_subdir_key="hydra.sweep.subdir",
        hydra_context=context,
    )


def composed_config(
    number: int, overrides: list[str], context: HydraContext, config: DictConfig
) -> DictConfig:
    """The config of one run. It is also set in this process, because the folder's resolvers read
    it."""
    cfg = context.config_loader.load_sweep_config(config, overrides)
    with open_dict(cfg):
        cfg.hydra.job.id, cfg.hydra.job.num = f"{cfg.hydra.job.name}_{number}", number
    HydraConfig.instance().cfg = cfg  # type: ignore[assignment]  # set_config would copy it
    return cfg


class SweepLauncher(Launcher):
    """Executes the runs of a sweep in other processes. If a process ends without a result, its run
    is recorded as failed, and the other runs continue."""

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        self.hydra_context, self.task_function = hydra_context, task_function
        self.config = config

    @abstractmethod
    def results(self, calls: list[Call]) -> Results:
        """Start the calls of `execute`. Yield each call when it ends, with its result or with the
        reason for a missing result.

        After a signal it interrupts the runs, waits until they end, and raises Interrupted.
        """

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Execute all runs and return their results. A missing result is NaN."""
        sweep = Path(self.config.hydra.sweep.dir)
        common = (self.hydra_context, self.config, self.task_function, Singleton.get_state())
        calls = [
            (number, list(overrides), os.getcwd(), *common)
            for number, overrides in enumerate(job_overrides, initial_job_idx)
        ]
        returns: dict[int, JobReturn] = {}
        with closing(self.results(calls)) as results:
            for (number, overrides, *_), result in results:
                folder = sweep / folder_of(overrides, self.config)
                if isinstance(result, str):
                    if not (folder / records.RESULT).exists():
                        folder.mkdir(parents=True, exist_ok=True)
                        record_failure(result, folder, overrides, "failed")
                    result = JobReturn(status=JobStatus.COMPLETED, _return_value=math.nan)
                with suppress(OSError):
                    os.listdir(folder)  # so a network disk shows a new failure.json
                report(folder, sweep, self.config.sweep.fail_fast)
                returns[number] = result
        return [returns[number] for number in sorted(returns)]
