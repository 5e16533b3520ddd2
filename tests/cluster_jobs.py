"""Jobs of a large sweep: runs with posfuse's records, but a second of sleep instead of training.

The first attempt of some runs fails, as the seed says: see FAULTS.
"""

import os
import signal
import subprocess
import time
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from posfuse.config import CONF_DIR
from posfuse.process import signals
from posfuse.runs import records
from posfuse.sweeps.failures import record_failure

EVERY = 50  # of so many seeds, one has each fault
FAULTS = ("killed with SIGKILL", "error", "interrupted by USR2", "requeued by an administrator")
ATTEMPTS = "attempts"  # a file with one byte per attempt
STEPS, STEP = 10, 0.1  # seconds


@hydra.main(version_base="1.3", config_path=str(CONF_DIR), config_name="train")
def job(config: DictConfig) -> float:
    """One run. An interruption and an error are recorded as posfuse train does."""
    hydra_cfg = HydraConfig.get()
    folder, overrides = Path(hydra_cfg.runtime.output_dir), list(hydra_cfg.overrides.task)
    try:
        with records.sole_use(folder), signals.handling():
            if not (folder / records.RESULT).exists():
                train(config.seed, folder)
            (folder / records.FAILURE).unlink(missing_ok=True)
    except signals.Interrupted as stop:
        record_failure(str(stop), folder, overrides, records.INTERRUPTED)
    except RuntimeError as error:
        record_failure(str(error), folder, overrides, "failed")
    return 0.0


def train(seed: int, folder: Path) -> None:
    with (folder / ATTEMPTS).open("a", encoding="utf-8") as file:
        file.write(".")
    if (folder / ATTEMPTS).stat().st_size == 1 and fault_of(seed):
        fail(fault_of(seed))
    for _ in range(STEPS):
        time.sleep(STEP)
        signals.check()
    (folder / records.PREDICTIONS).touch()  # a finished run has them
    records.write_json(folder / records.RESULT, {"seed": seed})


def fault_of(seed: int) -> str | None:
    """The fault of a run's first attempt, if it has one."""
    number = seed % EVERY
    return FAULTS[number] if number < len(FAULTS) else None


def fail(fault: str | None) -> None:
    if fault == FAULTS[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault == FAULTS[1]:
        raise RuntimeError(fault)
    elif fault == FAULTS[2]:
        signal.raise_signal(signal.SIGUSR2)
    else:
        subprocess.run(["scontrol", "requeue", os.environ["SLURM_JOB_ID"]], check=True)
        while True:  # until SLURM ends this job
            time.sleep(STEP)
            signals.check()


if __name__ == "__main__":
    from cluster_jobs import job as imported  # the jobs find it by its module's name

    imported()
