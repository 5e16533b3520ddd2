"""The launcher of conf/hydra/launcher/ray.yaml, over hydra-ray-launcher: that one gives up at the
first run that a node takes with it."""

import math
import os
import signal
from collections.abc import Sequence
from typing import Any

from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict

from posfuse.errors import InputError
from posfuse.process import signals
from posfuse.runs.hydra_errors import one_line
from posfuse.sweeps.failures import failures_in, lost

SECONDS = 60  # that runs may take to keep their state when they are told to end


def run_there(folder: str, call: dict[str, Any]) -> JobReturn:
    """A run on whichever node it comes to, in the folder where the command was given."""
    from hydra_plugins.hydra_ray_launcher._launcher_util import _run_job

    signals.elsewhere[:] = ["ray"]  # a process may have had runs before
    os.chdir(folder)
    result: JobReturn = _run_job(**call)
    return result


class RayLauncher(Launcher):
    """The runs as tasks of a ray cluster, until all have ended; the parameters are hydra-ray's."""

    def __init__(self, ray: DictConfig) -> None:
        self.ray = ray

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        try:
            import hydra_plugins.hydra_ray_launcher._launcher_util  # noqa: F401
        except ImportError as error:
            raise InputError(
                f"hydra/launcher=ray: {error}; install it with pip install -e '.[ray]' in an "
                "environment of its own"
            ) from error
        self.hydra_context, self.task_function = hydra_context, task_function
        self.config = config

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Give all runs to the cluster and wait for them; told to end, tell them and wait."""
        if not job_overrides:
            return []
        import ray
        from hydra_plugins.hydra_ray_launcher._launcher_util import start_ray
        from ray.exceptions import RayError

        before = set(failures_in(self.config))
        self.ray.init.setdefault("object_store_memory", 78643200)  # as hydra-ray-launcher does
        options: Any = OmegaConf.to_container(self.ray.remote, resolve=True)
        left: dict[Any, Sequence[str]] = {}
        returns: dict[Any, JobReturn] = {}
        try:
            handlers = {number: signal.getsignal(number) for number in signals.SIGNALS}
            try:
                start_ray(self.ray.init)
            except (ConnectionError, RuntimeError, ValueError) as error:
                reason = one_line(error)
                raise InputError(f"hydra/launcher=ray: {reason}; see docs/sweeps.md") from error
            for number, handler in handlers.items():
                signal.signal(number, handler)  # ray has put its own for SIGTERM
            task = ray.remote(run_there).options(**options)
            with signals.signals_later():
                for job, overrides in enumerate(job_overrides, initial_job_idx):
                    left[task.remote(os.getcwd(), self.call(overrides, job))] = overrides
            tasks = list(left)
            while left:
                with signals.signals_later():  # what is raised inside ray comes out as another
                    ended, _ = ray.wait(list(left), timeout=1)
                    for one in ended:
                        overrides = left.pop(one)
                        try:
                            returns[one] = ray.get(one)
                        except RayError as error:
                            message = f"{one_line(error)}; the same command goes on"
                            lost(self.hydra_context, self.config, overrides, message, before)
                            returns[one] = JobReturn(
                                status=JobStatus.COMPLETED, _return_value=math.nan
                            )
        finally:
            for one in left:  # none, unless the command is told to end
                ray.cancel(one)
            if left:
                ray.wait(list(left), num_returns=len(left), timeout=SECONDS)
            ray.shutdown()
        return [returns[one] for one in tasks]

    def call(self, overrides: Sequence[str], number: int) -> dict[str, Any]:
        """The arguments of hydra-ray's function for one run."""
        config = self.hydra_context.config_loader.load_sweep_config(self.config, list(overrides))
        with open_dict(config):
            config.hydra.job.id, config.hydra.job.num = str(number), number
        return {
            "hydra_context": self.hydra_context,
            "sweep_config": config,
            "task_function": self.task_function,
            "singleton_state": Singleton.get_state(),
        }
