"""The launcher of conf/hydra/launcher/slurm.yaml.

hydra-submitit-launcher stops at the first job without a result and leaves the others in the queue.
This launcher records that run as failed and waits for the others.
"""

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import fields
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


class SlurmRun:
    """One run in a SLURM job. After a signal (before its time limit, or a preemption) the run saves
    and the job requeues itself, since SLURM requeues no job that exits. A cancelled job exits."""

    def checkpoint(self, *arguments: Any) -> Any:
        """The work of the requeued job: the same run."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, *arguments)

    def __call__(self, *arguments: Any) -> JobReturn:
        from hydra_plugins.hydra_joblib_launcher._core import execute_job
        from submitit import JobEnvironment

        signals.launcher = "slurm"
        with signals.handled():
            result: JobReturn = execute_job(*arguments)
        if not signals.received():
            return result
        asked = ["squeue", "--noheader", "--format=%T", "--jobs", JobEnvironment().job_id]
        state = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
        if state == "RUNNING":
            # submitit's handler is installed again: it requeues the job and exits.
            signal.raise_signal(signal.Signals[f"SIG{JobEnvironment.USR_SIG}"])
        sys.exit(signals.EXIT_STATUS)


class SlurmLauncher(Launcher):
    """The runs as a SLURM array; the parameters are those of hydra-submitit-launcher."""

    def __init__(self, **parameters: Any) -> None:
        self.parameters = parameters

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        try:
            from hydra_plugins.hydra_submitit_launcher.config import SlurmQueueConf
        except ImportError as error:
            raise InputError(
                f"hydra/launcher=slurm: {error}; install it with pip install -e '.[slurm]'"
            ) from error
        if shutil.which("sbatch") is None:
            raise InputError(
                "hydra/launcher=slurm: no sbatch on this machine; run the command where SLURM's "
                "programs are, or use hydra/launcher=parallel"
            )
        self.config, self.hydra_context, self.task_function = config, hydra_context, task_function
        known = OmegaConf.structured(SlurmQueueConf)
        merged: Any = OmegaConf.to_container(OmegaConf.merge(known, self.parameters))
        self.parameters = merged

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Submit all runs and wait for them. After a signal it cancels the jobs and waits until
        they have ended."""
        if not job_overrides:
            return []
        from submitit.core.utils import FailedJobError

        self.before = records.failures_in(Path(self.config.hydra.sweep.dir))
        common = (self.hydra_context, self.config, self.task_function, Singleton.get_state())
        calls = [(n, job, *common) for n, job in enumerate(job_overrides, initial_job_idx)]
        try:
            with signals.blocked():  # Ctrl-C in the terminal must not end sbatch
                jobs = self.executor().map_array(SlurmRun(), *zip(*calls, strict=True))
        except FailedJobError as error:
            raise InputError(
                f"hydra/launcher=slurm: SLURM refuses the jobs ({one_line(error)}); see "
                "hydra.launcher.* in docs/sweeps.md"
            ) from error
        left = dict(enumerate(jobs))
        returns: dict[int, JobReturn] = {}
        try:
            while left:
                signals.check()
                for i in [i for i, job in left.items() if job.done()]:
                    returns[i] = self.result(left.pop(i), job_overrides[i])
                time.sleep(1)
        finally:
            for array in {job.job_id.split("_")[0] for job in left.values()}:
                subprocess.run(["scancel", array], check=False)
                asked = ["squeue", "--noheader", "--jobs", array]
                while subprocess.run(asked, capture_output=True, check=False).stdout:
                    time.sleep(1)
        return [returns[i] for i in range(len(jobs))]

    def result(self, job: Any, overrides: Sequence[str]) -> JobReturn:
        """The result of a job that has ended; one without a result is recorded as a failed run."""
        from submitit.core.utils import UncompletedJobError

        try:
            return job.results()[0]  # type: ignore[no-any-return]
        except UncompletedJobError:
            message = (
                f"SLURM job {job.job_id} ended as {job.state} without a result, see "
                f"{job.paths.stderr}; run the same command to resume"
            )
            return lost(self, overrides, message)

    def executor(self) -> Any:
        """submitit's executor; hydra-submitit-launcher has other names for its parameters."""
        from hydra_plugins.hydra_submitit_launcher.config import BaseQueueConf
        from submitit import AutoExecutor

        parameters = {k: v for k, v in self.parameters.items() if k != "_target_"}
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
