"""The command that `posfuse.training.replicas` starts for each additional process of a run."""

import os
import pickle
import sys

from posfuse.errors import InputError, TrainingError
from posfuse.process import signals
from posfuse.training.run import run


def main() -> None:
    """Train the run whose config and folder are pickled on stdin. An error that the user must see
    is pickled to stdout; the first process raises it."""
    signals.exit_with_parent(int(sys.argv[1]))
    signals.launcher = "replicas"
    with os.fdopen(os.dup(1), "wb") as failure:
        os.dup2(2, 1)  # stderr is train.log, where prints belong
        cfg, folder = pickle.load(sys.stdin.buffer)
        cfg.logger.name, cfg.trainer.progress = "none", "none"
        try:
            run(cfg, folder)
        except (InputError, TrainingError) as error:
            pickle.dump(error, failure)
            sys.exit(1)


if __name__ == "__main__":
    main()
