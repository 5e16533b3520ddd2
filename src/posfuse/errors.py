"""The exceptions whose message alone says all that a user needs."""


class InputError(Exception):
    """One line that names the file or key, what is wrong with it, and the cure."""


class AtWork(InputError):
    """Another process is at this run."""

    kind = "at work"


class TrainingError(Exception):
    """Training went wrong: the step, and what to change. `kind` says in a word what it was."""

    kind = "failed"


class Diverged(TrainingError):
    kind = "diverged"


class OutOfMemory(TrainingError):
    kind = "out of memory"
