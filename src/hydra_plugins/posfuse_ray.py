"""The launcher of conf/hydra/launcher/ray.yaml.

hydra-ray-launcher stops at the first run that a node loses. This launcher records that run as
failed and waits for the others.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from posfuse.errors import InputError
from posfuse.process import signals
from posfuse.runs import records
from posfuse.runs.hydra_errors import one_line
from posfuse.sweeps.failures import lost

SAVE_SECONDS = 60  # interrupted runs may take so long to save


def run_task(folder: str, *arguments: Any) -> JobReturn:
    """One run on a node of the cluster, in the command's working directory."""
    from hydra_plugins.hydra_joblib_launcher._core import execute_job

    signals.launcher = "ray"
    os.chdir(folder)
    with signals.handled():
        return execute_job(*arguments)  # type: ignore[no-any-return]


class RayLauncher(Launcher):
    """The runs as tasks of a ray cluster; the parameters are those of hydra-ray-launcher."""

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
        """The results of all runs, NaN for a lost one. After a signal it interrupts the runs."""
        if not job_overrides:
            return []
        import ray
        from hydra_plugins.hydra_ray_launcher._launcher_util import start_ray
        from ray.exceptions import RayError

        self.before = records.failures_in(Path(self.config.hydra.sweep.dir))
        self.ray.init.setdefault("object_store_memory", 78643200)  # as hydra-ray-launcher does
        options: Any = OmegaConf.to_container(self.ray.remote, resolve=True)
        left: dict[Any, Sequence[str]] = {}
        returns: dict[Any, JobReturn] = {}
        try:
            try:
                start_ray(self.ray.init)
            except (ConnectionError, RuntimeError, ValueError) as error:
                reason = one_line(error)
                raise InputError(f"hydra/launcher=ray: {reason}; see docs/sweeps.md") from error
            signals.install()  # ray has replaced the handler of SIGTERM
            task = ray.remote(run_task).options(**options)
            common = (self.hydra_context, self.config, self.task_function, Singleton.get_state())
            for number, overrides in enumerate(job_overrides, initial_job_idx):
                left[task.remote(os.getcwd(), number, overrides, *common)] = overrides
            tasks = list(left)
            while left:
                signals.check()
                for ended in ray.wait(list(left), timeout=1)[0]:
                    overrides = left.pop(ended)
                    try:
                        returns[ended] = ray.get(ended)
                    except RayError as error:
                        message = f"{one_line(error)}; run the same command to resume"
                        returns[ended] = lost(self, overrides, message)
        finally:
            for task in left:
                ray.cancel(task)
            if left:
                ray.wait(list(left), num_returns=len(left), timeout=SAVE_SECONDS)
            ray.shutdown()
        return [returns[task] for task in tasks]
