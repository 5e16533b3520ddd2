"""posfuse-train from its first moment: what a run needs takes a second to import."""

import sys

from posfuse import preemption


def main() -> None:
    """posfuse-train: exit status 0 when every run is done, 75 when it was told to end before, else
    1 with a line for each failure."""
    try:
        with preemption.noting():
            from posfuse.train import main as train

            preemption.fail_if_told()
            train()
    except preemption.Preempted as stop:
        print(f"{stop}; the same command goes on", file=sys.stderr)
        sys.exit(preemption.STATUS)


if __name__ == "__main__":
    main()
