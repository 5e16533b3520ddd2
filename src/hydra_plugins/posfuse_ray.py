"""The launcher of conf/hydra/launcher/ray.yaml: the runs as tasks of a ray cluster."""

import os
from typing import Any

from hydra.core.utils import JobReturn
from omegaconf import DictConfig, OmegaConf

from posfuse.errors import InputError
from posfuse.process import signals
from posfuse.runs.hydra_errors import one_line
from posfuse.sweeps.launching import Call, Results, SweepLauncher, execute

SAVE_SECONDS = 60  # time limit for interrupted runs to save


def run_task(*call: Any) -> JobReturn:
    """One run on a node of the cluster."""
    signals.launcher = "ray"
    with signals.handling():
        return execute(*call)


class RayLauncher(SweepLauncher):
    """Executes runs as tasks. `ray` has the arguments of ray.init and of ray.remote."""

    def __init__(self, ray: DictConfig) -> None:
        self.ray = ray

    def results(self, calls: list[Call]) -> Results:
        # Otherwise Ray repeats a run that exceeds the memory without end; `max_retries` does
        # not limit this.
        os.environ.setdefault("RAY_task_oom_retries", "0")
        try:
            import ray
            from ray.exceptions import RayError

            settings: Any = OmegaConf.to_container(self.ray, resolve=True)
            ray.init(**settings["init"])
        except ImportError as error:
            raise InputError(f"hydra/launcher=ray: {error}; run pip install 'ray>=2.40'") from error
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise InputError(
                f"hydra/launcher=ray: {one_line(error)}; see docs/sweeps.md"
            ) from error
        signals.install()  # ray has replaced the handler of SIGTERM
        task = ray.remote(run_task).options(**settings["remote"])
        left = {task.remote(*call): call for call in calls}
        try:
            while left:
                signals.check()
                for ended in ray.wait(list(left), timeout=1)[0]:
                    result: JobReturn | str
                    try:
                        result = ray.get(ended)
                    except RayError as error:
                        result = f"{one_line(error)}; run the same command to resume"
                    yield left.pop(ended), result
        finally:
            for interrupted in left:
                ray.cancel(interrupted)
            if left:
                ray.wait(list(left), num_returns=len(left), timeout=SAVE_SECONDS)
            ray.shutdown()
