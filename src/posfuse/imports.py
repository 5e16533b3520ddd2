"""The imports that take seconds, the way that takes least of them."""

import gc
import sys
from collections.abc import Callable
from importlib import import_module

from posfuse.runs.records import Record


def import_run(tracked: bool) -> Callable[..., Record]:
    """`posfuse.training.run.run`, with W&B at hand where the run is tracked."""
    if "posfuse.training.run" not in sys.modules:
        # What imports make stays. To look through half a million objects for garbage again and
        # again takes a quarter of their time, and no later collection need look at them.
        gc.disable()
        try:
            if tracked:
                # All that wandb.init needs. Its models look at every module that there is: before
                # torch these are few.
                import_module("wandb.sdk.launch")
            import_module("posfuse.training.run")
        finally:
            gc.freeze()
            gc.enable()
    run: Callable[..., Record] = import_module("posfuse.training.run").run
    return run
