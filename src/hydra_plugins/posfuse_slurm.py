"""The launcher of conf/hydra/launcher/slurm.yaml, over hydra-submitit-launcher: that one gives up
at the first job that ends without a word, and leaves the others in the queue."""

import math
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from posfuse.errors import InputError
from posfuse.process import signals
from posfuse.process.signals import Preempted
from posfuse.runs.hydra_errors import one_line
from posfuse.sweeps.failures import failures_in, lost


class Job:
    """What a SLURM job does: a run. Told to end, ahead of its time limit or of a preemption, it
    keeps its state and goes back to the queue, since SLURM requeues no job that ends by itself;
    where it is cancelled it just ends."""

    def __init__(self, launcher: Any, sweep: Path) -> None:
        self.launcher, self.sweep = launcher, sweep

    def checkpoint(self, *arguments: Any) -> Any:
        """What is put back into the queue: the same run."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, *arguments)

    def __call__(self, *arguments: Any) -> JobReturn:
        from submitit import JobEnvironment

        signals.elsewhere.append("slurm")
        with suppress(Preempted), signals.ending():
            result: JobReturn = self.launcher(*arguments)
        if not signals.told:
            return result
        asked = ["squeue", "--noheader", "--format=%T", "--jobs", JobEnvironment().job_id]
        state = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
        if state == "RUNNING":
            # submitit's handler of it is back: it requeues the job, and exits.
            signal.raise_signal(signal.Signals[f"SIG{JobEnvironment.USR_SIG}"])
        sys.exit(signals.STATUS)


class SlurmLauncher(Launcher):
    """The runs as a SLURM array, until all have ended; the parameters are hydra-submitit's."""

    def __init__(self, **parameters: Any) -> None:
        self.parameters = parameters

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        try:
            from hydra_plugins.hydra_submitit_launcher import config as schema
            from hydra_plugins.hydra_submitit_launcher import submitit_launcher
        except ImportError as error:
            raise InputError(
                f"hydra/launcher=slurm: {error}; install it with pip install -e '.[slurm]'"
            ) from error
        if shutil.which("sbatch") is None:
            raise InputError(
                "hydra/launcher=slurm: no sbatch on this machine; give the command where SLURM's "
                "programs are, or hydra/launcher=parallel"
            )
        self.config, self.hydra_context = config, hydra_context
        known = OmegaConf.structured(schema.SlurmQueueConf)
        parameters: Any = OmegaConf.to_container(OmegaConf.merge(known, self.parameters))
        del parameters["_target_"]
        self.submitit = submitit_launcher.SlurmLauncher(**parameters)
        self.submitit.setup(hydra_context=hydra_context, task_function=task_function, config=config)

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Submit all runs at once and wait for them; told to end, cancel them and wait for that."""
        if not job_overrides:
            return []
        from submitit.core.utils import FailedJobError

        self.before = set(failures_in(self.config))
        state = Singleton.get_state()
        calls = [
            (list(overrides), "hydra.sweep.dir", number, str(number), state)
            for number, overrides in enumerate(job_overrides, initial_job_idx)
        ]
        run = Job(self.submitit, Path(self.config.hydra.sweep.dir))
        jobs: list[Any] = []
        left: dict[int, Any] = {}
        returns: dict[int, JobReturn] = {}
        try:
            with signals.signals_later():
                jobs = self.executor().map_array(run, *zip(*calls, strict=True))
                left = dict(enumerate(jobs))
            while left:
                for i, job in list(left.items()):
                    if job.done():
                        returns[i] = self.result(job, job_overrides[i])
                        del left[i]
                time.sleep(1)
        except FailedJobError as error:
            raise InputError(
                f"hydra/launcher=slurm: SLURM refuses the jobs ({one_line(error)}); see "
                "hydra.launcher.* in docs/sweeps.md"
            ) from error
        finally:
            for array in {job.job_id.split("_")[0] for job in left.values()}:
                subprocess.run(["scancel", array], check=False)
                asked = ["squeue", "--noheader", "--jobs", array]
                while subprocess.run(asked, capture_output=True, check=False).stdout:
                    time.sleep(1)
        return [returns[i] for i in range(len(jobs))]

    def executor(self) -> Any:
        """submitit's, with hydra-submitit's names for its parameters."""
        from hydra_plugins.hydra_submitit_launcher.config import BaseQueueConf
        from submitit import AutoExecutor

        parameters = dict(self.submitit.params)
        executor = AutoExecutor(
            parameters.pop("submitit_folder"),
            cluster="slurm",
            slurm_max_num_timeout=parameters.pop("max_num_timeout"),
        )
        common = {field.name for field in fields(BaseQueueConf)}
        executor.update_parameters(
            **{k if k in common else f"slurm_{k}": v for k, v in parameters.items()}
        )
        return executor

    def result(self, job: Any, overrides: Sequence[str]) -> JobReturn:
        """What a job that has ended gives back; one that gives nothing has lost its run."""
        from submitit.core.utils import UncompletedJobError

        try:
            (returned,) = job.results()
        except UncompletedJobError:
            log = job.paths.stderr
            message = (
                f"SLURM job {job.job_id} ended as {job.state} without a result, see {log}; the "
                "same command goes on"
            )
            lost(self.hydra_context, self.config, overrides, message, self.before)
            returned = JobReturn(status=JobStatus.COMPLETED, _return_value=math.nan)
        result: JobReturn = returned
        return result
