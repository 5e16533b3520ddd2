"""The exceptions whose message alone says all that a user needs."""

import errno

NO_MEMORY = (
    "memory ran out; raise the limit of this process (ulimit -v, or the job's memory), or lower "
    "data.batch_size, data.max_len or the model's size"
)


class InputError(Exception):
    """One line that names the file or key, what is wrong with it, and the cure."""


class HubUnreachable(InputError):
    """The Hugging Face hub does not answer, and the corpus is not in its local cache."""


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


def lacks_memory(error: BaseException) -> bool:
    """Whether an error says that this process gets no more memory: Python's, the kernel's, torch's
    or that of the loader of libraries."""
    text = str(error)
    is_full = isinstance(error, OSError) and error.errno == errno.ENOMEM
    is_torchs = "DefaultCPUAllocator" in text
    is_loaders = "failed to map segment" in text
    return isinstance(error, MemoryError) or is_full or is_torchs or is_loaders
