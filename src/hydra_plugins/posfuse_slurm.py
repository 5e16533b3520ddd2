"""The launcher of conf/hydra/launcher/slurm.yaml: the runs as the jobs of a SLURM array."""

import shutil
import signal
import subprocess
import sys
import time
from contextlib import redirect_stderr
from dataclasses import fields
from io import StringIO
from typing import Any

from hydra.core.utils import JobReturn
from omegaconf import OmegaConf

from posfuse.errors import InputError, visible
from posfuse.process import signals
from posfuse.runs.hydra_errors import one_line
from posfuse.sweeps.launching import Call, Results, SweepLauncher, execute

# A job in one of these states may be continued by SLURM, or may have left the queue. submitit
# reports a preempted job as running, and a suspended job as ended.
STOPPED = ("PREEMPTED", "SUSPENDED")
CANCEL_SECONDS = 300  # time limit for cancelled jobs to save; a job on a dead node does not end


class SlurmRun:
    """One run in a SLURM job. After a signal (before its time limit, or for a preemption) the run
    saves its state, and the job requeues itself, because SLURM does not requeue a job that exits. A
    cancelled job exits."""

    def checkpoint(self, *arguments: Any) -> Any:
        """Called by submitit before it requeues the job, which executes the same run again."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, *arguments)

    def __call__(self, *call: Any) -> JobReturn:
        from submitit import JobEnvironment

        signals.launcher = "slurm"
        with signals.handling():
            result = execute(*call)
        if not signals.interruption():
            return result
        asked = ["squeue", "--noheader", "--format=%T", "--jobs", JobEnvironment().job_id]
        state = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
        if state == "RUNNING":
            # Install submitit's handler again, which requeues the job and exits.
            signal.raise_signal(signal.Signals[f"SIG{JobEnvironment.USR_SIG}"])
        sys.exit(signals.EXIT_STATUS)


def is_in_queue(jobs: str) -> bool:
    """True if this job or array is in SLURM's queue."""
    asked = ["squeue", "--noheader", "--jobs", jobs]
    return bool(subprocess.run(asked, capture_output=True, check=False).stdout)


def reason(job: Any, trace: str = "") -> str:
    """Why a job has no result, in one line, and what to do. `trace` is from submitit, if the job
    has ended with an error."""
    ended = f"ended as {job.state} without a result"
    if trace:
        own = [*trace.split("-" * 22), ""][1]  # between two lines of dashes
        ended = f"failed ({visible(own.rstrip().rpartition(chr(10))[2].strip())})"
    cure = "run the same command to resume"
    if job.state == "OUT_OF_MEMORY":
        cure += ", with a larger hydra.launcher.mem_gb"
    return f"SLURM job {job.job_id} {ended}, see {job.paths.stderr}; {cure}"


class SlurmLauncher(SweepLauncher):
    """The parameters are those of hydra-submitit-launcher."""

    def __init__(self, **parameters: Any) -> None:
        self.parameters = parameters

    def results(self, calls: list[Call]) -> Results:
        """As in `SweepLauncher`. After a signal it cancels the jobs, which save their state."""
        executor = self.executor()
        from submitit.core.utils import FailedJobError, UncompletedJobError

        try:
            # Ctrl-C in the terminal must not end sbatch. Its stderr is in the error below.
            with signals.blocking(), redirect_stderr(StringIO()):
                jobs = executor.map_array(SlurmRun(), *zip(*calls, strict=True))
        except FailedJobError as error:
            raise InputError(
                f"hydra/launcher=slurm: SLURM refuses the jobs ({one_line(error)}); see "
                "hydra.launcher.* in docs/sweeps.md"
            ) from error
        left = dict(zip(jobs, calls, strict=True))
        try:
            while left:
                signals.check()
                for job in [job for job in left if job.done() or job.state in STOPPED]:
                    is_stopped = job.state in STOPPED and not job.paths.result_pickle.exists()
                    if is_stopped and is_in_queue(job.job_id):
                        continue
                    result: JobReturn | str
                    try:  # results() of a stopped job would wait without end
                        result = reason(job) if is_stopped else job.results()[0]
                    except FailedJobError as error:
                        result = reason(job, str(error))
                    except UncompletedJobError:
                        if not job.done(force_check=True):
                            continue  # its node failed, and SLURM has requeued it
                        result = reason(job)
                    yield left.pop(job), result
                time.sleep(1)
        finally:
            for array in {job.job_id.split("_")[0] for job in left}:
                subprocess.run(["scancel", array], check=False)
                end = time.monotonic() + CANCEL_SECONDS
                while time.monotonic() < end and is_in_queue(array):
                    time.sleep(1)

    def executor(self) -> Any:
        """submitit's executor, with the parameters of hydra-submitit-launcher, which have other
        names. Raises InputError on a machine without submitit or SLURM."""
        try:
            from hydra_plugins.hydra_submitit_launcher.config import BaseQueueConf, SlurmQueueConf
            from submitit import AutoExecutor
        except ImportError as error:
            cure = "run pip install hydra-submitit-launcher submitit"
            raise InputError(f"hydra/launcher=slurm: {error}; {cure}") from error
        if shutil.which("sbatch") is None:
            raise InputError(
                "hydra/launcher=slurm: no sbatch on this machine; run the command where SLURM's "
                "programs are, or use hydra/launcher=parallel"
            )
        known = OmegaConf.merge(OmegaConf.structured(SlurmQueueConf), self.parameters)
        parameters: Any = OmegaConf.to_container(known)
        del parameters["_target_"]
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
