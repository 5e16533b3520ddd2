"""The launcher of conf/hydra/launcher/parallel.yaml: several runs at once on this machine."""

import multiprocessing
import os
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import resource_tracker

import cloudpickle
from hydra.core.utils import JobReturn

from posfuse.errors import InputError
from posfuse.process import devices, signals
from posfuse.runs.folders import AXES
from posfuse.runs.hydra_errors import one_line
from posfuse.sweeps.launching import Call, Results, SweepLauncher, execute

KILLED = (
    "the process of this run was killed; run the same command to resume, with a smaller "
    "hydra.launcher.n_jobs if memory ran out"
)
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def prepare(parent: int, gpus: str) -> None:
    """Prepare a worker process for its runs. All of them use the same GPUs, because CUDA cannot
    change its devices after its first use."""
    signals.exit_with_parent(parent)
    if gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus


def in_worker(call: bytes) -> bytes:
    """`execute` in a worker process. pickle cannot handle the classes of Hydra's plugins."""
    try:
        return bytes(cloudpickle.dumps(execute(*cloudpickle.loads(call))))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - outside of the job
        return bytes(cloudpickle.dumps(one_line(error)))
    finally:
        signals.forget()


def interrupt() -> None:
    """Send SIGTERM to the worker processes: their runs save and end."""
    for process in multiprocessing.active_children():
        process.terminate()


def cores() -> int:
    """The cores that this process may use, also in a container."""
    from joblib import cpu_count  # Hydra imports this module for every command, also for help

    return int(cpu_count())


def may_set_devices(override: str) -> bool:
    """True for an override of the trainer, and for one that chooses a file of config, which may set
    trainer.devices too."""
    key = override.lstrip("+~").partition("=")[0]
    return key.startswith("trainer") or ("." not in key and key not in (*AXES, "seed"))


class ParallelLauncher(SweepLauncher):
    """Executes n_jobs runs at once, each in its own process; on GPUs at most `runs_per_gpu` per
    group of trainer.devices GPUs."""

    def __init__(self, n_jobs: int = -1, runs_per_gpu: int = 1) -> None:
        self.n_jobs, self.runs_per_gpu = n_jobs, runs_per_gpu

    def results(self, calls: list[Call]) -> Results:
        """As in `SweepLauncher`. Each process has a separate executor, so that a killed process
        ends only one run. Idle processes block the signals, and this process passes them on."""
        places = self.room([overrides for _, overrides, *_ in calls])
        for name in THREADS:  # the processes inherit them
            os.environ.setdefault(name, str(max(1, cores() // len(places))))
        context = multiprocessing.get_context("spawn")

        def start(gpus: str) -> ProcessPoolExecutor:
            return ProcessPoolExecutor(1, context, prepare, (os.getpid(), gpus))

        with signals.blocking():
            resource_tracker.ensure_running()  # otherwise it starts below and unblocks the signals
        idle = [(start(gpus), gpus) for gpus in places[: len(calls)]]
        busy: dict[Future[bytes], tuple[ProcessPoolExecutor, str, Call]] = {}
        left = list(reversed(calls))
        try:
            while left or busy:
                while left and idle and not signals.interruption():
                    (worker, gpus), call = idle.pop(), left.pop()
                    with signals.blocking():
                        try:
                            run = worker.submit(in_worker, cloudpickle.dumps(call))
                        except BrokenProcessPool:  # killed between two runs
                            worker = start(gpus)
                            run = worker.submit(in_worker, cloudpickle.dumps(call))
                    busy[run] = worker, gpus, call
                if signals.interruption():
                    left.clear()
                    interrupt()  # again, because a process may just have started
                for run in wait(busy, 0.05, FIRST_COMPLETED).done:
                    worker, gpus, call = busy.pop(run)
                    result: JobReturn | str
                    try:
                        result = cloudpickle.loads(run.result())
                    except BrokenProcessPool:
                        worker, result = start(gpus), KILLED
                    idle.append((worker, gpus))
                    yield call, result
            signals.check()
        finally:
            if busy:  # an error in this process
                interrupt()
            for worker in [*(w for w, _ in idle), *(w for w, _, _ in busy.values())]:
                worker.shutdown()

    def room(self, job_overrides: list[list[str]]) -> list[str]:
        """The GPUs of each of the runs that train at once; an empty text for a run on CPUs. Raises
        InputError for a number that starts no run."""
        for name, number in {"n_jobs": self.n_jobs, "runs_per_gpu": self.runs_per_gpu}.items():
            is_all = name == "n_jobs" and number == -1
            if type(number) is not int or (number < 1 and not is_all):  # a bool is an int
                more = ", or -1 for all cores or GPUs" if name == "n_jobs" else ""
                raise InputError(f"hydra.launcher.{name}: must be 1 or more{more} (got {number!r})")
        places = self.places(job_overrides)
        n_jobs = (len(places) or cores()) if self.n_jobs == -1 else self.n_jobs
        return places[:n_jobs] or [""] * n_jobs

    def places(self, job_overrides: list[list[str]]) -> list[str]:
        """The GPUs of each run that may train at once; empty if the runs are on CPUs. Raises
        InputError if the runs differ in trainer.devices, and as `devices.places`."""
        chosen = {tuple(filter(may_set_devices, job)) for job in job_overrides}
        load = self.hydra_context.config_loader.load_sweep_config
        trainers = [load(self.config, list(overrides)).trainer for overrides in chosen]
        wanted = {t.devices for t in trainers if t.accelerator != "cpu"}
        wanted = {n for n in wanted if isinstance(n, int) and n > 0}  # the run refuses other values
        gpus = devices.gpus() if wanted else []
        if not gpus:
            return []
        if len(wanted) > 1:
            raise InputError(
                "trainer.devices: must be one number for all runs of hydra/launcher=parallel (got "
                f"{sorted(wanted)}); run one command for each"
            )
        return devices.places(gpus, self.runs_per_gpu, *wanted)
