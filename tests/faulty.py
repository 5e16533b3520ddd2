"""A fusion operator that sends a signal at a training step, as the environment says.

FAULT: names of signals
FAULT_FOLDER: an empty folder; the fault happens once in it
FAULT_STEP: the number of training steps, 6 by default
FAULT_TO: "self" (the default), "parent" or "group"
FAULT_RUNS: so many runs must have reached the step, 1 by default
FAULT_RANK: the process, for a run on several devices; 0 by default
"""

import os
import signal
import time
from pathlib import Path

from posfuse.model.fusion import Add
from posfuse.process import signals
from posfuse.process.distributed import rank

FAULTY = ["fusion=add", "fusion._target_=faulty.Faulty"]


class Faulty(Add):
    calls = 0

    def merge(self, *parts):
        if self.training:
            self.calls += 1
            step, at = int(os.environ.get("FAULT_STEP", 6)), int(os.environ.get("FAULT_RANK", 0))
            if "FAULT" in os.environ and (self.calls, rank()) == (step, at):
                fault(Path(os.environ["FAULT_FOLDER"]), os.environ.get("FAULT_TO", "self"))
        return super().merge(*parts)


def fault(folder, to):
    # A worker may execute several runs, and each of them counts.
    (folder / f"ready-{os.getpid()}-{time.monotonic_ns()}").touch()
    while len(list(folder.glob("ready-*"))) < int(os.environ.get("FAULT_RUNS", 1)):
        time.sleep(0.01)
    try:
        (folder / "sent").touch(exist_ok=False)
        for name in os.environ["FAULT"].split():
            number = signal.Signals[name]
            if to == "group":
                os.killpg(0, number)
            elif to == "parent":
                os.kill(os.getppid(), number)
            else:
                signal.raise_signal(number)
    except FileExistsError:
        if len(list(folder.glob("ready-*"))) > int(os.environ.get("FAULT_RUNS", 1)):
            return  # a later run
    while signals.interruption() is None:  # until the signal arrives or this process is killed
        time.sleep(0.01)


def faulty(folder, signals, **settings):
    """The environment of a command in which the fault happens; `folder` is made."""
    folder.mkdir()
    paths = [str(Path(__file__).parent), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    settings = {f"FAULT_{key.upper()}": str(value) for key, value in settings.items()}
    own = {"FAULT": signals, "FAULT_FOLDER": str(folder), **settings} if signals else {}
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **own}
