"""posfuse-train from its first moment: what a run needs takes a second to import."""

import sys
from itertools import pairwise

import posfuse
from posfuse.errors import NO_MEMORY, lacks_memory, with_streams
from posfuse.process import signals

# Options of Hydra that are followed by a value. Its parser also takes the start of a long one.
LONG = (
    "--config-dir", "--config-path", "--config-name", "--package", "--cfg", "--info",
    "--experimental-rerun",
)  # fmt: skip
SHORT = ("-cd", "-cp", "-cn", "-p", "-c", "-i")


def overrides_first(arguments: list[str]) -> list[str]:
    """The arguments with all overrides ahead of the options: Hydra's parser refuses overrides that
    stand on both sides of an option's value."""
    overrides: list[str] = []
    options: list[str] = []
    for previous, argument in pairwise(["", *arguments]):
        is_option = argument.startswith("-") or _takes(previous, argument)
        (options if is_option else overrides).append(argument)
    return [*overrides, *options]


def _takes(option: str, argument: str) -> bool:
    """Whether `argument` is the value of the option before it."""
    if option == "-i" or option.startswith("--i"):  # its value is optional
        return "=" not in option + argument and not argument.startswith("~")
    is_long = len(option) > 2 and any(name.startswith(option) for name in LONG)
    return is_long or option in SHORT


@with_streams
def main() -> None:
    """posfuse-train: exit status 0 when every run is done, 75 when it was told to end before, else
    1 with a line for each failure."""
    if "--version" in sys.argv[1:]:
        print(f"posfuse {posfuse.__version__}")
        return
    sys.argv[1:] = overrides_first(sys.argv[1:])
    try:
        with signals.noting():
            from posfuse.train import main as train

            signals.fail_if_told()
            train()
    except signals.Preempted as stop:
        print(f"{stop}; the same command goes on", file=sys.stderr)
        sys.exit(signals.STATUS)
    except (MemoryError, ImportError) as error:  # of the imports: train() words its own
        if not lacks_memory(error):
            raise
        sys.exit(f"error: {NO_MEMORY}")


if __name__ == "__main__":
    main()
