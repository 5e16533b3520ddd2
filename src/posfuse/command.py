"""posfuse-train from its first moment: what a run needs takes a second to import."""

import sys
from itertools import pairwise

import posfuse
from posfuse import preemption
from posfuse.errors import NO_MEMORY, lacks_memory
from posfuse.streams import with_streams

# Options of Hydra that are followed by a value.
WITH_VALUE = (
    "--config-dir", "-cd", "--config-path", "-cp", "--config-name", "-cn", "--package", "-p",
    "--cfg", "-c", "--info", "-i", "--experimental-rerun",
)  # fmt: skip


def options_first(arguments: list[str]) -> list[str]:
    """The arguments with overrides behind all options: Hydra's parser refuses an override that
    follows an option's value if another one stands before the option."""
    options: list[str] = []
    overrides: list[str] = []
    for previous, argument in pairwise(["", *arguments]):
        is_option = argument.startswith("-") or previous in WITH_VALUE
        (options if is_option else overrides).append(argument)
    return [*options, *overrides]


@with_streams
def main() -> None:
    """posfuse-train: exit status 0 when every run is done, 75 when it was told to end before, else
    1 with a line for each failure."""
    if "--version" in sys.argv[1:]:
        print(f"posfuse {posfuse.__version__}")
        return
    sys.argv[1:] = options_first(sys.argv[1:])
    try:
        with preemption.noting():
            from posfuse.train import main as train

            preemption.fail_if_told()
            train()
    except preemption.Preempted as stop:
        print(f"{stop}; the same command goes on", file=sys.stderr)
        sys.exit(preemption.STATUS)
    except (MemoryError, ImportError) as error:  # of the imports: train() words its own
        if not lacks_memory(error):
            raise
        sys.exit(f"error: {NO_MEMORY}")


if __name__ == "__main__":
    main()
