"""Command lines with overrides on both sides of an option, which Hydra's parser refuses."""

from itertools import pairwise

# Options of Hydra that take a value. Its parser also accepts an abbreviated long option.
LONG = (
    "--config-dir", "--config-path", "--config-name", "--package", "--cfg", "--info",
    "--experimental-rerun",
)  # fmt: skip
SHORT = ("-cd", "-cp", "-cn", "-p", "-c", "-i")


def overrides_first(arguments: list[str]) -> list[str]:
    """The arguments with all overrides before the options."""
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
