"""Exceptions whose message is shown to the user without a traceback."""

import errno
import sysconfig
import traceback
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NO_MEMORY = (
    "memory ran out; raise the limit of this process (ulimit -v, or the job's memory), or lower "
    "data.batch_size, data.max_len or the model's size"
)
# The folders of Python and of installed packages; "<": code without a file.
LIBRARIES = ("<", *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")))
POSFUSE = str(Path(__file__).parent)


class InputError(Exception):
    """A mistake in the input. The message is one line with the file or key, the mistake, and the
    fix."""


class ConfigError(InputError):
    """A part of the model refuses a value of the config."""

    kind = "config"


class HubUnreachable(InputError):
    """The Hugging Face hub does not answer, and the corpus is not in its local cache."""


class AlreadyRunning(InputError):
    """Another process runs this run."""

    kind = "already running"


class Conflict(InputError):
    """The run's folder holds the result of another configuration."""

    kind = "conflict"


class TrainingError(Exception):
    """Training failed. The message gives the step and the fix; `kind` names the failure in
    records."""

    kind = "failed"


class Diverged(TrainingError):
    """The loss is not finite."""

    kind = "diverged"


class OutOfMemory(TrainingError):
    """Memory ran out, of the process or of its GPU."""

    kind = "out of memory"


def lacks_memory(error: BaseException) -> bool:
    """True for any out-of-memory error: of Python, the kernel, torch (on any device) or the loader
    of shared libraries."""
    text = str(error)
    is_full = isinstance(error, OSError) and error.errno == errno.ENOMEM
    is_torchs = "DefaultCPUAllocator" in text or type(error).__name__ == "OutOfMemoryError"
    is_loaders = "failed to map segment" in text
    return isinstance(error, MemoryError) or is_full or is_torchs or is_loaders


@contextmanager
def input_errors(problem: str, fix: str) -> Iterator[None]:
    """Raise InputError("problem (reason); fix") for any other error of the block. Use it for
    libraries that read files of users, because they raise errors of many types. InputErrors and
    out-of-memory errors pass unchanged."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{problem} ({reason(error)}); {fix}") from error


def reason(error: Exception) -> str:
    """An error's message in one line. Raises an out-of-memory error again, also if it is only the
    cause."""
    cause: BaseException | None = error
    causes: list[BaseException] = []
    while cause is not None and cause not in causes:  # OmegaConf's can be their own cause
        if lacks_memory(cause):
            raise cause
        causes.append(cause)
        cause = cause.__cause__
    text = str(getattr(error, "strerror", None) or error)
    return " ".join(text.split()) or type(error).__name__


def own_line(error: BaseException) -> str:
    """The last line of the user's own code in the traceback, as "FILE line N", or an empty text."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if not f.filename.startswith((POSFUSE, *LIBRARIES))]
    return f"{own[-1].filename} line {own[-1].lineno}" if own else ""


def visible(text: str) -> str:
    """The text with its control characters escaped, except line ends, because a terminal would act
    on them."""
    hidden = ("Cc", "Cf", "Cs", "Zl", "Zp")  # control, format, half characters, separators
    return "".join(
        ascii(c)[1:-1] if unicodedata.category(c) in hidden and c != "\n" else c for c in text
    )
