"""The command of each additional process of a run, started by `posfuse.training.replicas`."""

import json
import os
import sys
from pathlib import Path

from posfuse.errors import InputError, TrainingError
from posfuse.process import signals
from posfuse.runs.configs import read_config
from posfuse.training.run import run


def main() -> None:
    """replica_process PID FOLDER: train the run of a folder's config.yaml until the process PID
    ends. An error for the user is written to stdout, and the first process raises it."""
    signals.exit_with_parent(int(sys.argv[1]))
    signals.launcher = "replicas"
    with os.fdopen(os.dup(1), "w") as failure:
        os.dup2(2, 1)  # stderr is train.log, where prints belong
        folder = Path(sys.argv[2])
        try:
            cfg = read_config(folder)
            cfg.logger.name, cfg.trainer.progress = "none", "none"
            run(cfg, folder)
        except (InputError, TrainingError) as error:
            json.dump([type(error).__name__, str(error)], failure)
            sys.exit(1)


if __name__ == "__main__":
    main()
